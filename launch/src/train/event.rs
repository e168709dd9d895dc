//! What happens to a run on this host, as its threads see it.

use titan_control::{Evidence, ExitStatus, Generation};
use titan_trainer::protocol::{HostMessage, RankMessage};

use super::keeper::Kept;

/// Something that happened.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Event {
    /// The worker host said something.
    Host(HostMessage),
    /// A worker host ended: its process id, for it may be one that was replaced.
    HostExited(i32, ExitStatus),
    /// A rank said something.
    Rank(Generation, usize, RankMessage),
    /// A rank ended.
    RankExited(Generation, usize, ExitStatus),
    /// A save has become a checkpoint, or has not.
    Checkpoint(Kept),
    /// What ranks that make no progress are doing.
    Evidence(Generation, Vec<Evidence>),
    /// The user or the system wants the run to end.
    Signal(&'static str),
    /// The machine will be gone soon: what was said.
    Notice(String),
    /// Time has passed.
    Deadline,
}
