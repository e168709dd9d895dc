//! What can go wrong, in words for the person who has to put it right.

use std::io;
use std::net::SocketAddr;

use crate::holder::Holder;

/// The result of this crate's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why there is no channel. Each text is complete.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Somebody else listens there.
    #[error("{address} is in use{}; choose another port, or 0 for any that is free", by(.holder.as_ref()))]
    Busy {
        /// Host and port.
        address: SocketAddr,
        /// The process that listens there, where that can be seen.
        holder: Option<Holder>,
    },

    /// The address is none of this machine, or may not be used.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// Host and port.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },

    /// The secret is not there, or is none.
    #[error("{place}: {problem}; {hint}")]
    Secret {
        /// The file or the environment variable.
        place: String,
        /// What is wrong with it. Never quotes it.
        problem: String,
        /// What to do.
        hint: String,
    },

    /// There is no memory for a thread.
    #[error("cannot start the thread of the control channel: {0}")]
    Thread(#[from] io::Error),
}

fn by(holder: Option<&Holder>) -> String {
    holder.map(|holder| format!(" by {holder}")).unwrap_or_default()
}

/// Why a message was not queued.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unsent {
    /// Nobody is connected.
    #[error("not connected")]
    Away,
    /// More was waiting to be sent than may: the other side does not read, and is disconnected.
    #[error("the other side does not read what it is sent, and was disconnected")]
    Overflow,
    /// The message is larger than any may be.
    #[error("the message has {bytes} bytes; the most is {most}")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The limit.
        most: usize,
    },
    /// The message cannot be written as JSON.
    #[error("the message cannot be written as JSON: {0}")]
    NotJson(String),
}
