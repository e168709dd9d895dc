//! Training itself: the loop, the engine that it drives, what workers and launcher say to each other, and what
//! is recorded.
//!
//! The loop runs inside each worker process (through `trainer/native`); metrics and the ledger are written by
//! the launcher, which alone owns the run directory.

pub mod channel;
pub mod engine;
pub mod failure;
pub mod ledger;
pub mod metrics;
pub mod protocol;
pub mod save_plan;
pub mod saver;
pub mod schedule;
pub mod spec;
#[cfg(feature = "tensorboard")]
pub mod tensorboard;
pub mod training_loop;
