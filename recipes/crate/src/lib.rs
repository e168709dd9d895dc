//! Recipes of titan-tpu.
//!
//! A recipe goes through two forms. The *literal form* is TOML with the place of every key and value;
//! the file and each `--set` are layers of it. The *validated form* ([`Recipe`]) has every setting present, of
//! the right kind and in range, and nothing downstream checks it again. All problems are found in one pass and
//! shown together, each at its place.
//!
//! Architecture invariant: loading a recipe reads files and writes none, starts no process, and knows nothing
//! of Python.

mod ability;
mod accelerators;
mod diagnostic;
mod files;
pub mod import;
mod layers;
mod layout;
mod location;
mod origin;
mod pattern;
mod presets;
mod purpose;
mod reader;
mod recipe;
mod report;
mod resolved;
mod rules;
mod schema;
mod secrets;
pub mod shipped;
mod shown;
mod source;
mod syntax;
pub mod tables;
mod tokenizer;
mod toml_error;
mod tree;
mod words;
pub mod workload;

pub use accelerators::{Accelerator, Topology, Tpu};
pub use diagnostic::{Diagnostic, Severity};
pub use files::{Disk, Files, Unusable};
pub use layout::{Layout, usable_slices};
pub use location::{Location, Url};
pub use origin::Origin;
pub use purpose::Purpose;
pub use recipe::{Loaded, Overrides, Recipe, VERSION, load, load_text, recipe_text};
pub use report::Report;
pub use resolved::{Difference, Setting, difference, value_text};
pub use schema::schema;
pub use secrets::{MASK, Secret, without_secrets};
pub use shown::shown_path;
pub use source::{Item, Loc, Source, SourceId, Sources};
pub use tokenizer::TokenizerFacts;
pub use words::{Auto, Choice};
