//! Failures: what happened, of which class it is, and which of several is the cause of the others.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Seat;

/// What kind of thing went wrong: this decides whether another start can help.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// A machine, a process or the network.
    Infrastructure,
    /// A disk or a store did not take or give a checkpoint.
    Storage,
    /// The program raised an exception or crashed.
    Application,
    /// The recipe or the environment: the next start would fail in the same way.
    Configuration,
    /// The data cannot be trained on.
    Data,
    /// The loss is not finite.
    Numeric,
    /// No room is left.
    Space,
}

impl Class {
    /// Whether another start can help.
    pub fn can_be_retried(self) -> bool {
        matches!(self, Class::Infrastructure | Class::Storage | Class::Application)
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Class::Infrastructure => "infrastructure",
            Class::Storage => "storage",
            Class::Application => "application",
            Class::Configuration => "configuration",
            Class::Data => "data",
            Class::Numeric => "numeric",
            Class::Space => "space",
        })
    }
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExitStatus {
    /// With a code.
    Code(i32),
    /// By a signal.
    Signal(i32),
}

/// How something failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "how", rename_all = "snake_case")]
pub enum How {
    /// A rank said so itself, in a step.
    Reported {
        /// The step that was under way.
        step: u64,
        /// Its class.
        class: Class,
        /// Whether all it says is that another rank went away.
        is_consequence: bool,
        /// What it said.
        text: String,
    },
    /// A rank ended without a word.
    Died {
        /// How.
        status: ExitStatus,
    },
    /// A rank made no progress for too long.
    Stuck {
        /// The step that was under way.
        step: u64,
        /// What is known about it.
        text: String,
    },
    /// The host was not heard of for longer than its lease, or its agent began anew.
    HostLost {
        /// What is known about it.
        text: String,
    },
    /// The host could not start its ranks.
    NotStarted {
        /// Of which class that is.
        class: Class,
        /// What it said.
        text: String,
    },
}

/// A failure of a rank or of a whole host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Where.
    pub seat: Seat,
    /// Which rank; `None` for the host.
    pub rank: Option<u64>,
    /// What happened.
    pub how: How,
}

/// Signals by which a program ends that has a fault.
const FAULTS: [i32; 6] = [4, 5, 6, 7, 8, 11];

/// By which it ends when it has given up.
const ABORT: i32 = 6;

impl Failure {
    /// Of which class it is.
    pub fn class(&self) -> Class {
        match &self.how {
            How::Reported { class, .. } | How::NotStarted { class, .. } => *class,
            How::Died { status: ExitStatus::Signal(signal) } if FAULTS.contains(signal) => {
                Class::Application
            }
            How::Died { status: ExitStatus::Code(_) } => Class::Application,
            How::Died { .. } | How::Stuck { .. } | How::HostLost { .. } => Class::Infrastructure,
        }
    }

    /// Whether nothing that is noticed later can be the cause of this.
    pub fn is_certainly_first(&self) -> bool {
        match &self.how {
            How::Died { status: ExitStatus::Signal(signal) } => *signal != ABORT,
            How::Stuck { .. } | How::HostLost { .. } | How::NotStarted { .. } => true,
            How::Died { status: ExitStatus::Code(_) } | How::Reported { .. } => false,
        }
    }

    /// How likely this is the consequence of another.
    fn consequence(&self) -> u8 {
        match &self.how {
            How::Died { status: ExitStatus::Signal(ABORT) } => 2,
            How::Died { status: ExitStatus::Signal(_) }
            | How::Stuck { .. }
            | How::HostLost { .. }
            | How::NotStarted { .. } => 0,
            How::Reported { is_consequence: false, .. } => 1,
            How::Died { status: ExitStatus::Code(_) } => 2,
            How::Reported { is_consequence: true, .. } => 3,
        }
    }

    /// Whether another one is the same thing once more: a fault that comes back at the same place does not go away.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        match (&self.how, &other.how) {
            (
                How::Reported { step, text, .. },
                How::Reported { step: other_step, text: other_text, .. },
            ) => (step, text) == (other_step, other_text),
            (How::Died { status }, How::Died { status: other_status }) => {
                status == other_status && self.rank == other.rank
            }
            _ => false,
        }
    }
}

/// Which failure caused the others: a rank that was killed or is stuck outranks one that reports a fault, and a fault
/// outranks a lost peer, which is what all other ranks see; among equals the first one noticed. A rank that aborts has
/// often only lost its peer on a thread that cannot report it.
pub fn cause_of(failures: &[Failure]) -> Option<usize> {
    (0..failures.len()).min_by_key(|i| failures[*i].consequence())
}

impl fmt::Display for ExitStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ExitStatus::Code(code) => write!(f, "exited with code {code}"),
            ExitStatus::Signal(signal) => match signal_name(*signal) {
                Some(name) => write!(f, "was killed by signal {signal} ({name})"),
                None => write!(f, "was killed by signal {signal}"),
            },
        }
    }
}

/// Names of the signals that end processes, as Linux numbers them.
fn signal_name(signal: i32) -> Option<&'static str> {
    const NAMES: [(i32, &str); 14] = [
        (1, "SIGHUP"),
        (2, "SIGINT"),
        (3, "SIGQUIT"),
        (4, "SIGILL"),
        (5, "SIGTRAP"),
        (6, "SIGABRT"),
        (7, "SIGBUS"),
        (8, "SIGFPE"),
        (9, "SIGKILL"),
        (11, "SIGSEGV"),
        (13, "SIGPIPE"),
        (15, "SIGTERM"),
        (24, "SIGXCPU"),
        (25, "SIGXFSZ"),
    ];
    NAMES.iter().find(|(number, _)| *number == signal).map(|(_, name)| *name)
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.rank {
            Some(rank) => write!(f, "rank {rank}")?,
            None => write!(f, "{}", self.seat)?,
        }
        match &self.how {
            How::Reported { step, text, .. } => write!(f, " failed in step {step}: {text}"),
            How::Died { status } => write!(f, " {status}"),
            How::Stuck { step, text } => write!(f, " is stuck in step {step}: {text}"),
            How::HostLost { text } => write!(f, " is lost: {text}"),
            How::NotStarted { text, .. } => write!(f, " could not start its ranks: {text}"),
        }
    }
}
