//! Checkpoints: written by all ranks side by side, verified, and restored onto any mesh.
//!
//! A checkpoint is a folder `step-00000100` with
//!
//! - `rank-00000.safetensors` and so on, one file for each rank that wrote something: parts of tensors, each a
//!   [`Region`], and in the file's metadata the XXH3-128 hash of each [`BLOCK`] bytes of each part;
//! - `manifest.json`, written last: all tensors with their whole shapes, the size of each file and the hash of its
//!   header, what the run needs to go on, and a hash of itself (see [`Manifest`]).
//!
//! In an object store the folder is a common beginning of names.
//!
//! So every byte is covered by a hash, and the hashes by that of the manifest. Ranks write into a folder beside it with
//! a name that no checkpoint has; when all are done it is given its name ([`Staged::commit`]), so a checkpoint is there
//! as a whole or not at all, and never changes afterwards. In an object store, it is the manifest that makes it one.
//!
//! What a rank reads is worked out from regions alone ([`restore`]): the mesh that wrote them does not matter.
//!
//! [`hugging_face`] has the way to and from the format in which others keep models.
//!
//! Architecture invariants: nothing here knows recipes, processes or Python; no decision looks at a clock.

#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
mod cut;
mod error;
mod folder;
mod hash;
mod header;
pub mod hugging_face;
mod image;
mod manifest;
mod name;
mod new_folder;
mod objects;
mod pin;
mod place;
mod read;
mod region;
mod retention;
mod sink;
mod tensor;
mod verify;
mod write;

pub use cut::cut;
pub use error::{Error, Result};
pub use folder::{
    Found, Staged, list, open, probe, remove_abandoned, remove_abandoned_step, remove_checkpoint,
    set_aside, shard_name, staging_place,
};
pub use hash::Hash;
pub use header::Header;
pub use image::Image;
pub use manifest::{FileFacts, MANIFEST, Manifest, VERSION};
pub use name::StepName;
pub use new_folder::NewFolder;
pub use pin::{PINNED, Pin};
pub use place::{Place, Prefix};
pub use read::{Checkpoint, Wanted, are_enough, restore};
pub use region::Region;
pub use retention::{Fate, Retention, Standing};
pub use tensor::{Dtype, Part, TensorFacts};
pub use verify::{BadPart, Findings, verify};
pub use write::{ShardPlan, ShardWriter, Target, Written, write_whole};

#[cfg(test)]
mod tests;

/// Bytes of a part of a tensor that one hash is of, in what this version writes. Whoever needs some of them reads them all, so that they can be
/// checked.
pub const BLOCK: u64 = 4 << 20;
