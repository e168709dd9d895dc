//! The control channel between one controller and its agents.
//!
//! One gRPC stream in both directions for each agent, over plain HTTP/2. [`Listener`] is the side of the controller,
//! [`Connection`] that of an agent; both are synchronous, and report what happens to a function that the caller gives.
//!
//! What is sent is **authentic, and not secret**. Both sides prove that they know the [`Secret`] of the run before anything
//! else is said, and each frame then has a counter and a tag under a key of that stream and direction: what is changed, made
//! up, repeated, moved or sent back ends the stream. Frames can be read by whoever sees the network. They carry orders
//! and reports of a run and no credentials, so what matters is who sent them; encryption would want certificates on
//! thousands of hosts, or a second handshake for nothing. The secret itself never travels.
//!
//! Nothing here is kept for later: a message that was not delivered when a stream broke is lost, and both sides are told of
//! the end. After a new start of the stream they say again what the other side must know.
//!
//! The functions that get the reports run on the thread that drives all connections. They must not wait, and may call
//! everything here.

mod codec;
mod connection;
mod driver;
mod error;
mod handshake;
mod holder;
mod keys;
mod listener;
mod mailbox;
mod peer;
mod secret;
mod session;

#[cfg(test)]
mod tests;

pub use connection::{Connection, FromController};
pub use driver::Driver;
pub use error::{Error, Result, Unsent};
pub use holder::Holder;
pub use listener::{Incoming, Listener, PeerId};
pub use secret::Secret;

use std::time::Duration;

/// Version of what is said before and around messages.
const PROTOCOL: u32 = 1;
/// The name of the one method, as gRPC spells it.
const METHOD: &str = "/titan.wire.Control/Connect";
/// The most that a message may have, in bytes.
pub const LARGEST_MESSAGE: usize = 16 * 1024 * 1024;
/// The most that a frame may have before its sender is known.
const LARGEST_GREETING: usize = 4096;

/// How long things may take, and how much may wait. The same on both sides, though each uses its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// What both sides must have the same of: messages are those of one version of the program.
    pub version: String,
    /// How often an agent gives a sign of life.
    pub beat: Duration,
    /// A side that was not heard of for this long is disconnected.
    pub silence: Duration,
    /// How long a stranger may take to say who it is, and a connection to be made.
    pub handshake: Duration,
    /// How long an agent that is connected waits for the controller, which may have thousands to greet before.
    pub answer: Duration,
    /// How long a stream that was closed may take to send what it still has.
    pub grace: Duration,
    /// The first pause between attempts to connect, which is doubled each time.
    pub first_pause: Duration,
    /// The longest pause between attempts to connect.
    pub longest_pause: Duration,
    /// Messages that may wait to be sent to one side.
    pub queued: usize,
    /// Bytes of messages that may wait to be sent to one side. One message always may.
    pub queued_bytes: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            beat: Duration::from_millis(500),
            silence: Duration::from_secs(10),
            handshake: Duration::from_secs(5),
            answer: Duration::from_secs(30),
            grace: Duration::from_secs(1),
            first_pause: Duration::from_millis(100),
            longest_pause: Duration::from_secs(2),
            queued: 4096,
            queued_bytes: 32 * 1024 * 1024,
        }
    }
}
