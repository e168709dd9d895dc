//! Token shards: what every source becomes before a run reads it.
//!
//! A folder of shards has an `index.json` (see [`ShardIndex`]), which is written last: a folder without one is not
//! finished. Each split of the folder (`train`, `validation`) has shards of these files:
//!
//! - `train-00000.tokens`: token ids and nothing else, little-endian, 1, 2 or 4 bytes each ([`ShardIndex::token_bytes`]).
//!   Any program can map it as one array.
//! - `train-00000.targets`, of instruction data: one bit for each token, lowest bit first, set if the token is learned.
//! - `train-00000.extra`, of prompts: the other fields of each record, one JSON object a line.
//! - `train-00000.index`, 64-bit little-endian numbers: for each document the position of its first token in the shard
//!   (of prompts also the position of its line in `.extra`), then the XXH3-64 hash of each [`BLOCK`] bytes of the
//!   `.tokens` file, then those of the `.targets` or `.extra` file.
//!
//! Documents are not cut by the end of a shard. Readers check each block against its hash when they first touch it, so
//! a flipped bit is an error with a place and never a training sample.

mod file;
mod index;
mod read;
#[cfg(feature = "prepare")]
mod verify;
#[cfg(feature = "prepare")]
mod write;

pub use index::{
    Account, DataKind, INDEX, InputFacts, Shard, ShardIndex, Split, TokenizerFacts, VERSION,
};
#[cfg(feature = "prepare")]
pub(crate) use index::{FORMAT, shard_path};
pub use read::{Document, SplitReader};
#[cfg(feature = "prepare")]
pub(crate) use verify::verify_files;
#[cfg(feature = "prepare")]
pub use verify::{BadBlock, Findings, verify_shards};
#[cfg(feature = "prepare")]
pub(crate) use write::{SplitState, SplitWriter};

/// Bytes that one hash is of. Small enough that checking a block costs little more than reading the row in it.
pub const BLOCK: u64 = 64 * 1024;

/// Names of splits.
pub const TRAIN: &str = "train";
/// See [`TRAIN`].
pub const VALIDATION: &str = "validation";

/// Endings of the files of a shard.
pub(crate) const TOKENS: &str = "tokens";
pub(crate) const TARGETS: &str = "targets";
pub(crate) const EXTRA: &str = "extra";
pub(crate) const DOCUMENTS: &str = "index";
