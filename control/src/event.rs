//! What happens to a run.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{Evidence, Failure, Generation, Seat};

/// What ranks are doing that is no step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Doing {
    /// Validating: each batch is progress.
    Validating,
    /// Waiting for a save.
    Saving,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// An agent has taken a seat.
    Joined {
        /// Which.
        seat: Seat,
        /// The machine.
        machine: String,
        /// Different for each process of an agent.
        incarnation: u64,
        /// The generation whose ranks it still has; 0 for none.
        holds: Generation,
    },
    /// An agent was heard of. All that comes from an agent says so by itself.
    Heard(Seat),
    /// An agent says that its machine will be gone soon.
    Leaving {
        /// Which.
        seat: Seat,
        /// Why.
        why: String,
        /// How soon, if it is known.
        within: Option<Duration>,
    },
    /// The ranks of a host are ready.
    Ready {
        /// Which host.
        seat: Seat,
        /// Their generation.
        generation: Generation,
    },
    /// All ranks have done a step.
    Step {
        /// Their generation.
        generation: Generation,
        /// The step.
        step: u64,
        /// How long it took.
        took: Duration,
    },
    /// Ranks do something that is no step.
    Doing {
        /// Their generation.
        generation: Generation,
        /// What.
        doing: Doing,
    },
    /// There is a new checkpoint.
    Committed {
        /// The step after which it was saved.
        step: u64,
    },
    /// A rank or a host has failed.
    Failed {
        /// The generation.
        generation: Generation,
        /// What happened.
        failure: Failure,
    },
    /// All ranks of a host have said that they are done, and have ended.
    Finished {
        /// Which host.
        seat: Seat,
        /// Their generation.
        generation: Generation,
        /// Whether all steps are done.
        completed: bool,
    },
    /// No rank of a host is left, of this generation or any before.
    Cleared {
        /// Which host.
        seat: Seat,
        /// The generation.
        generation: Generation,
    },
    /// What the ranks of a host are doing, as they were asked.
    Evidence {
        /// Which host.
        seat: Seat,
        /// The generation.
        generation: Generation,
        /// One for each rank.
        ranks: Vec<Evidence>,
    },
    /// Somebody wants the run to end.
    StopRequested {
        /// `SIGTERM`, or who asked.
        by: String,
    },
    /// Time has passed.
    Tick,
}
