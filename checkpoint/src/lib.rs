//! Checkpoints: written by all ranks side by side, verified, and restored onto any mesh.
//!
//! A checkpoint is a folder `step-00000100` with
//!
//! - `rank-00000.safetensors` and so on, one file for each rank that wrote something: parts of tensors, each a
//!   [`Region`], and in the file's metadata the XXH3-128 hash of each [`BLOCK`] bytes of each part;
//! - `manifest.json`, written last: all tensors with their whole shapes, the size of each file and the hash of its
//!   header, what the run needs to go on, and a hash of itself (see [`Manifest`]).
//!
//! So every byte is covered by a hash, and the hashes by that of the manifest. Ranks write into a folder beside it with
//! a name that no checkpoint has; when all are done it is given its name ([`Staged::commit`]), so a checkpoint is there
//! as a whole or not at all, and never changes afterwards.
//!
//! What a rank reads is worked out from regions alone ([`restore`]): the mesh that wrote them does not matter.
//!
//! Architecture invariants: nothing here knows recipes, processes or Python; no decision looks at a clock.

mod error;
mod folder;
mod hash;
mod header;
mod manifest;
mod name;
mod read;
mod region;
mod staging;
mod tensor;
mod verify;
mod write;

pub use error::{Error, Result};
pub use folder::{
    Found, Staged, list, make_staging, open, probe, remove_abandoned, remove_checkpoint, set_aside,
    staging_path,
};
pub use hash::Hash;
pub use header::Header;
pub use manifest::{FileFacts, MANIFEST, Manifest, VERSION};
pub use name::{StepName, shard_name};
pub use read::{Checkpoint, Wanted, restore};
pub use region::Region;
pub use staging::Staging;
pub use tensor::{Dtype, Part, TensorFacts};
pub use verify::{BadPart, Findings, verify};
pub use write::{ShardPlan, write_shard};

#[cfg(test)]
mod tests;

/// Bytes of a part of a tensor that one hash is of, in what this version writes. Whoever needs some of them reads them all, so that they can be
/// checked.
pub const BLOCK: u64 = 4 << 20;
