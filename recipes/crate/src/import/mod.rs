//! From a TorchTitan configuration (TOML, releases up to 0.2.2) to a recipe.
//!
//! Every key of the configuration is carried over, or there is a [`Note`] about it. What TorchTitan does when a key
//! is not there is written out, because its defaults are not those of a recipe.

mod config;
mod data;
mod draft;
mod keys;
mod left_out;
mod mesh;
mod models;
mod rest;
mod training;

use std::path::Path;

use crate::diagnostic::Diagnostic;
use crate::report::Report;
use crate::secrets::without_secrets_of_no_toml;
use crate::shown::ShownPath;
use crate::source::{Source, SourceId, Sources};
use crate::syntax::parse_document;
use crate::tree::{Table, Value};

use config::Config;
use draft::Draft;

/// What the target machine of the new recipe is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Kind of device: `cuda`, `cpu`, or a generation of TPUs such as `tpu7x`.
    pub accelerator: String,
    /// Shape of one TPU slice, such as `4x4x4`.
    pub topology: Option<String>,
    /// Number of devices, where there is no topology.
    pub devices: Option<u64>,
    /// Number of TPU slices.
    pub slices: Option<u64>,
}

/// A new recipe, and what could not be carried over as it was.
#[derive(Clone, Debug)]
pub struct Imported {
    /// The text of the recipe.
    pub recipe: String,
    /// What the user should know, in the order of the configuration.
    pub notes: Vec<Note>,
}

/// What became of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The dotted key as it was written, safe to print.
    pub key: String,
    /// Its line in the configuration, from 1.
    pub line: usize,
    /// What became of it.
    pub kind: NoteKind,
    /// Why, or what to do: a sentence without a final stop.
    pub text: String,
}

/// What became of a key that was not simply carried over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NoteKind {
    /// It has no counterpart.
    Dropped,
    /// It was carried over, but not one to one, or needs attention.
    Changed,
}

/// Turns a TorchTitan configuration into a recipe for `target`, or for as many GPUs as TorchTitan would have used.
///
/// # Errors
/// Every problem of the configuration, in reading order: broken TOML, values of a wrong kind or out of range, a model
/// that titan-tpu does not have, or a text that is no TorchTitan configuration at all.
pub fn import(mut source: Source, target: Option<&Target>) -> Result<Imported, Report> {
    let name = source.name.clone();
    // A byte-order mark is no text, and would shift the first line.
    if let Some(text) = source.text.strip_prefix('\u{feff}') {
        source.text = text.to_owned();
    }
    // Messages quote the text without its secrets; the recipe has them.
    let text = std::mem::take(&mut source.text);
    source.text = without_secrets_of_no_toml(&text);
    let mut sources = Sources::default();
    let id = sources.add(source);
    match translated(&sources, id, &text, target) {
        Ok(imported) => Ok(imported),
        Err((problems, hidden)) => Err(Report::new(sources, problems, hidden, &name)),
    }
}

/// Problems, and how many more there are.
type Problems = (Vec<Diagnostic>, usize);

fn translated(
    sources: &Sources,
    id: SourceId,
    text: &str,
    target: Option<&Target>,
) -> Result<Imported, Problems> {
    let source = sources.get(id);
    let root = parse_document(id, text, &source.text)?;
    if let Some(problem) = not_torchtitan(&root, &source.name) {
        return Err((vec![problem], 0));
    }
    if let Some(problem) = target.and_then(mesh::bad_target) {
        return Err((vec![problem], 0));
    }
    let mut config = Config::new(text, &root);
    let mut draft = Draft::default();
    write_tables(&mut config, &mut draft, target);
    left_out::note_the_rest(&mut config);
    if !config.problems.is_empty() {
        return Err((config.problems, 0));
    }
    let description = config.description.take();
    let notes = config.into_notes();
    let file = Path::new(&source.name).file_name().unwrap_or_default();
    let origin = format!("Imported from TorchTitan's {}.", ShownPath(file));
    Ok(Imported { recipe: draft.render(&origin, description.as_deref(), &notes), notes })
}

fn write_tables(config: &mut Config<'_>, draft: &mut Draft, target: Option<&Target>) {
    config.description = config.text("job.description").map(|d| ShownPath(d.value).to_string());
    let model = models::model(config, draft);
    // Later steps ask which parts are on, so those that switch something on come first.
    rest::checkpoint(config, draft);
    let replicas = mesh::hardware_and_parallelism(config, draft, target, &model);
    let steps = training::training(config, draft, &model, replicas);
    training::optimizer(config, draft);
    training::schedule(config, draft, steps);
    rest::precision(config, draft);
    rest::remat(config, draft);
    rest::compile(config, draft, target.is_some_and(mesh::is_tpu));
    data::data(config, draft, &model);
    data::validation(config, draft, &model);
    rest::metrics(config, draft);
    data::relative_paths(config);
}

/// What the text is instead of a TorchTitan configuration, if it is something else.
fn not_torchtitan(root: &Table, name: &str) -> Option<Diagnostic> {
    let of = |table: &str, key: &str| root.get(table)?.node.table()?.get(key);
    let version = root.get("version").filter(|v| matches!(v.node.value, Value::Integer(_)));
    if let (Some(version), Some(_)) = (version, of("model", "family")) {
        return Some(
            Diagnostic::error("this is a recipe of titan-tpu already")
                .at(version.node.at.clone())
                .label("TorchTitan configurations have no version")
                .help(format!("train it as it is: titan-tpu train {}", ShownPath(name))),
        );
    }
    // A known name that is no table is a problem of its own, and tells more.
    if root.0.iter().any(|entry| keys::is_table(&entry.key)) {
        return None;
    }
    Some(
        Diagnostic::error("this is not a TorchTitan configuration: it has none of its tables")
            .help("TorchTitan (0.2.2 and older) has tables such as [job], [model], [training]"),
    )
}
