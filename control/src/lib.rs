//! What to do about everything that happens to the machines of a run.
//!
//! [`State::advance`] is the control plane: it takes an event with the time it happened, and says what is to be done and why.
//! It has no clock, no socket, no process and no randomness, so a failure history of a month on thousands of hosts is
//! replayed in milliseconds; launcher and simulator are two shells around it.
//!
//! A *seat* is a place for a host: number of the slice, number in the slice. An *agent* holds it, and owns the ranks of its
//! host. A *generation* is one start of all ranks, of as many whole slices as there are; a world cannot change, so a lost or
//! a returned slice means another generation. There are never two at once: before the next begins, every host of the one
//! before has said that its ranks are gone, or has been silent for longer than its lease, in which it ends them by itself.
//! (Processes that the kernel does not let die are waited for no longer than [`Limits::clear`]; their slice is not used.)

mod action;
mod event;
mod failure;
mod restart;
mod settings;
pub mod simulator;
mod state;
mod stuck;
mod watch;
mod world;

pub use action::{Action, Decision, Reason, Verdict};
pub use event::{Doing, Event};
pub use failure::{Class, ExitStatus, Failure, How, cause_of};
pub use settings::{Backoff, Budgets, Limits, Policy, Quarantine, Settings, StepLimit};
pub use state::{Advance, Stage, State};
pub use stuck::{Evidence, Suspect, who_is_stuck};

use std::fmt;

use serde::{Deserialize, Serialize};

/// One start of all ranks of a run, counted from 1.
pub type Generation = u64;

/// A place for a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Seat {
    /// Number of the slice, from 0. Those from [`Settings::slices`] on are spares.
    pub slice: u32,
    /// Number of the host in its slice, from 0.
    pub host: u32,
}

impl Seat {
    /// The seat of a run on one host.
    pub const ONLY: Self = Self { slice: 0, host: 0 };
}

impl fmt::Display for Seat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "host {} of slice {}", self.host, self.slice)
    }
}
