//! Why a worker failed, and which of several failures is the cause of the others.

use serde::{Deserialize, Serialize};

/// What kind of thing went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureClass {
    /// The data cannot be read.
    Data,
    /// The loss is NaN or infinite.
    NonFiniteLoss,
    /// A disk is full.
    NoSpace,
    /// A checkpoint cannot be saved for another reason.
    Storage,
    /// The checkpoint that the run was to go on from cannot be loaded.
    Checkpoint,
    /// The engine raised an exception.
    Engine,
    /// Another rank went away during a collective: a consequence, never a cause.
    PeerLost,
    /// The worker broke its contract with the launcher: a bug.
    Internal,
}

/// A failure that a worker reports about itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// Its kind.
    pub class: FailureClass,
    /// One line for the user; details are in the worker's log.
    pub message: String,
}

impl Failure {
    /// A failure of a kind.
    pub fn new(class: FailureClass, message: impl Into<String>) -> Self {
        Self { class, message: message.into() }
    }

    /// A failure from an exception of the engine. Collectives raise plain runtime errors, so a lost peer is
    /// told from a fault of the engine by gloo's own words.
    pub fn from_exception(kind: &str, text: &str) -> Self {
        const PEER_LOST: &[&str] = &[
            "Connection closed by peer",
            "Connection reset by peer",
            "Broken pipe",
            "gloo/transport",
            "failed to connect",
            "Application timeout caused pair closure",
        ];
        let lost = PEER_LOST.iter().any(|words| text.contains(words));
        let class = if lost { FailureClass::PeerLost } else { FailureClass::Engine };
        let first =
            text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("no message");
        Self::new(class, format!("{kind}: {first}"))
    }
}

impl From<titan_datasets::Error> for Failure {
    fn from(error: titan_datasets::Error) -> Self {
        Self::new(FailureClass::Data, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_peer_is_told_from_a_fault_of_the_engine() {
        let gloo = "[../gloo/transport/tcp/pair.cc:538] Connection closed by peer [127.0.0.1]:4711";
        assert_eq!(Failure::from_exception("RuntimeError", gloo).class, FailureClass::PeerLost);
        let own = Failure::from_exception("ValueError", "\nbad shape\nmore");
        assert_eq!(own, Failure::new(FailureClass::Engine, "ValueError: bad shape"));
    }
}
