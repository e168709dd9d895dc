//! The format in which the Hugging Face Hub keeps models: a folder with `config.json` and files of safetensors. Weights
//! are read from one ([`Folder`]), made a checkpoint of ([`import`]), and written to one ([`export`]).
//!
//! Such a folder has no hashes, so all that can be checked of it is that its files are whole and that their headers make
//! sense. What `config.json` says is not looked into here.
//!
//! Names are those of transformers. The experts of a block are a stack in memory (`mlp.experts.gate_up_proj`) and may be
//! tensors of their own on the disk (`mlp.experts.0.gate_proj.weight`).

mod export;
mod folder;
mod header;
mod import;
mod names;
mod number;
mod parallel;
mod plan;
mod weights;

pub use export::{Exported, Failed, export};
pub use folder::Folder;
pub use import::{Imported, import};
pub use plan::{ExpertForm, Form};

#[cfg(test)]
mod tests;

/// The file that says what the model is.
pub const CONFIG: &str = "config.json";

/// The file with all weights.
pub const MODEL: &str = "model.safetensors";

/// The file that says in which file each weight is.
pub const INDEX: &str = "model.safetensors.index.json";

/// Whether a tensor of a checkpoint is a weight, and not something that training remembers.
pub fn is_weight(name: &str) -> bool {
    !name.starts_with("optimizer.") && name != "experts.balance"
}
