//! From sources to token shards: in parallel, in bounded memory, to the same bytes on any number of threads, and
//! going on after a kill as if there had been none.
//!
//! One thread reads batches of records, some threads turn them into tokens, and the caller's thread puts the results
//! back in order and writes. Every few seconds it brings the shards to the disk and then writes `progress.json`, which
//! says where in the input they end. Whoever starts again cuts the shards to what that file says and reads on from
//! there. Nothing of the output depends on when that was.

mod encode;
mod folder;
mod job;
mod pipeline;
mod progress;
mod writer;

pub(crate) use folder::JOB;
pub use job::{Job, JobFacts, OnBadRecord};
pub use pipeline::{Outcome, tokenize};
pub use progress::Progress;
pub(crate) use progress::read_json;

#[cfg(test)]
mod tests;
