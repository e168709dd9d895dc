//! Recipes of titan-tpu.
//!
//! A recipe goes through two forms. The *literal form* is TOML with the place of every key and value;
//! the file and each `--set` are layers of it. The *validated form* ([`Recipe`]) has every setting present, of
//! the right kind and in range, and nothing downstream checks it again. All problems are found in one pass and
//! shown together, each at its place.
//!
//! Architecture invariant: loading a recipe reads files and writes none, starts no process, and knows nothing
//! of Python.

mod diagnostic;
mod files;
mod layout;
mod presets;
mod reader;
mod recipe;
mod report;
mod rules;
mod shown;
mod source;
mod syntax;
pub mod tables;
mod toml_error;
mod tree;
mod words;

pub use diagnostic::{Diagnostic, Severity};
pub use files::Unusable;
pub use layout::Layout;
pub use recipe::{Loaded, Overrides, Recipe, VERSION, load, load_text};
pub use report::Report;
pub use source::{Item, Loc, Source, SourceId, Sources};
pub use words::{Auto, Choice};
