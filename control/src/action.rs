//! What is to be done, and why.

use std::time::Duration;

use serde::Serialize;

use crate::{Failure, Generation, Seat};

/// Something to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Start the ranks of a new generation on all hosts of these slices, from the newest checkpoint.
    Start {
        /// Its number.
        generation: Generation,
        /// The slices, ascending: ranks are numbered in this order.
        slices: Vec<u32>,
        /// The failure that ended the generation before, if one did.
        after: Option<Failure>,
    },
    /// Ask all ranks to stop after the same step, and to save.
    Stop {
        /// The generation.
        generation: Generation,
    },
    /// Ask all hosts what their ranks are doing.
    Diagnose {
        /// The generation.
        generation: Generation,
    },
    /// Kill all ranks.
    Kill {
        /// The generation.
        generation: Generation,
    },
    /// Nothing is left to do.
    End(Verdict),
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// All steps are done.
    Completed,
    /// It was asked to stop.
    Stopped {
        /// By whom.
        by: String,
        /// Whether ranks did not end within the grace and were killed.
        killed: bool,
    },
    /// It failed, and is not started again.
    Failed {
        /// What was noticed, in that order.
        failures: Vec<Failure>,
        /// Index of the cause.
        cause: usize,
        /// Why not.
        why: String,
    },
    /// Hosts were not there in time.
    Absent {
        /// Which seats nobody took.
        seats: Vec<Seat>,
        /// How long the run waited.
        waited: Duration,
    },
}

/// What kind of decision was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// Ranks are started.
    Start,
    /// A host came or went.
    Membership,
    /// The run waits.
    Wait,
    /// Ranks are stopped, at a step.
    Stop,
    /// Something failed.
    Failure,
    /// There is no progress, and hosts are asked why.
    Diagnose,
    /// The run will be started again.
    Restart,
    /// The run goes on with fewer slices.
    Shrink,
    /// The run goes on with more slices.
    Grow,
    /// A machine is not used for a while, or is again.
    Quarantine,
    /// The run is not started again.
    GiveUp,
    /// The run ends.
    End,
}

/// A decision and its reason, for people and the ledger.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Reason {
    /// What was decided.
    pub decision: Decision,
    /// Why, in a sentence without a full stop.
    pub text: String,
}
