//! The validated recipe, and the one door through which recipes come in.

use std::cell::Cell;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::diagnostic::Diagnostic;
use crate::files::{Unusable, probe_data, read_recipe};
use crate::layout::{Layout, layout};
use crate::reader::{Context, Section};
use crate::report::Report;
use crate::rules;
use crate::shown::Shown;
use crate::source::{Item, Source, Sources};
use crate::syntax::{parse_document, parse_override};
use crate::tables::data::Data;
use crate::tables::elastic::Elastic;
use crate::tables::hardware::Hardware;
use crate::tables::metrics::Metrics;
use crate::tables::model::Model;
use crate::tables::optimizer::Optimizer;
use crate::tables::parallelism::Parallelism;
use crate::tables::precision::Precision;
use crate::tables::schedule::Schedule;
use crate::tables::training::Training;
use crate::tree::{Table, Value, overlay};
use crate::words::Auto;

/// The version of the recipe format that this crate reads.
pub const VERSION: u64 = 1;

/// Tables of the recipe format, in the order they are documented.
const TABLES: &[&str] = &[
    "model",
    "hardware",
    "parallelism",
    "training",
    "optimizer",
    "schedule",
    "precision",
    "data",
    "metrics",
    "elastic",
];

/// Tables and keys of the top that the format names but this version does nothing with.
const LATER: &[&str] =
    &["remat", "compile", "checkpoint", "launch", "validation", "rl", "flux", "env", "extends"];

/// Keys of those tables, for who looks for them elsewhere.
const LATER_KEYS: &[(&str, &[&str])] = &[
    ("remat", &["policy"]),
    ("compile", &["enabled"]),
    (
        "checkpoint",
        &[
            "directory",
            "interval",
            "interval_steps",
            "interval_seconds",
            "keep_last",
            "local_directory",
            "local_interval_steps",
        ],
    ),
];

/// A recipe in which every setting is present, of the right kind, in range, and in agreement with the others.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Recipe {
    /// Version of the recipe format.
    pub version: u64,
    /// What the run is called.
    pub name: Item<String>,
    /// The architecture.
    pub model: Model,
    /// What the run computes on.
    pub hardware: Hardware,
    /// The mesh axes.
    pub parallelism: Parallelism,
    /// Length and batch.
    pub training: Training,
    /// The update rule.
    pub optimizer: Optimizer,
    /// The learning rate over the run.
    pub schedule: Schedule,
    /// Number formats.
    pub precision: Precision,
    /// What the model reads.
    pub data: Data,
    /// What is recorded.
    pub metrics: Metrics,
    /// How the run ends when told to.
    pub elastic: Elastic,
}

/// What a recipe is read from besides its file.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    /// `KEY=VALUE` texts of `--set`, later ones win.
    pub set: Vec<String>,
    /// The folder that relative paths in `--set` start from.
    pub base: PathBuf,
}

/// A sound recipe, what is worth a warning about it, and how its batch is spread.
#[derive(Debug)]
pub struct Loaded {
    /// The recipe.
    pub recipe: Recipe,
    /// Its layout.
    pub layout: Layout,
    /// Warnings only.
    pub warnings: Report,
}

impl Recipe {
    /// Number of devices, and of worker processes. One device on a CPU unless the recipe says more: the cores
    /// of a host serve one worker best.
    pub fn world(&self) -> u64 {
        self.hardware.devices.fixed().unwrap_or(1)
    }

    /// The recipe as TOML, with every default and every `auto` of the mesh and the batch written out, so that
    /// it describes the same run whatever the defaults of a later version are.
    pub fn to_toml(&self, layout: &Layout) -> Result<String, toml::ser::Error> {
        let mut resolved = self.clone();
        resolved.hardware.devices.value = Auto::Fixed(layout.world);
        resolved.parallelism.shard.value = Auto::Fixed(layout.shard);
        resolved.training.global_batch.value = Auto::Fixed(layout.global_batch);
        toml::to_string(&resolved)
    }
}

/// Reads, layers and validates the recipe at `path`.
///
/// # Errors
/// Every problem of the recipe, in reading order. Nothing is written anywhere.
pub fn load(path: &Path, overrides: &Overrides) -> Result<Loaded, Report> {
    let name = path.display().to_string();
    match read_recipe(path) {
        Ok(text) => {
            let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
            let base = whole.parent().map(Path::to_owned).unwrap_or_default();
            let failures = Cell::new(0);
            let probe = |path: &Path| probe_data(path, &failures);
            load_text(Source { name, text, base }, overrides, &probe)
        }
        Err(problem) => Err(Report::new(Sources::default(), vec![*problem], 0, &name)),
    }
}

/// Like [`load`], for a text that is already in memory. `probe` says what is wrong with a data file.
///
/// # Errors
/// Every problem of the recipe, in reading order.
pub fn load_text(
    source: Source,
    overrides: &Overrides,
    probe: &dyn Fn(&Path) -> Result<(), Unusable>,
) -> Result<Loaded, Report> {
    let name = source.name.clone();
    let mut sources = Sources::default();
    let (root, problems, hidden) = literal_form(&mut sources, source, overrides);
    let Some(root) = root else {
        return Err(Report::new(sources, problems, hidden, &name));
    };
    let mut cx = Context::new(&sources, probe, problems);
    let recipe = read(&mut cx, &root, &name);
    cx.report_keys();
    rules::check(&mut cx, &recipe);
    let Context { diagnostics, hidden, .. } = cx;
    let report = Report::new(sources, diagnostics, hidden, &name);
    match layout(&recipe) {
        Some(layout) if report.errors() == 0 => Ok(Loaded { recipe, layout, warnings: report }),
        _ => Err(report),
    }
}

/// Parses the file and lays every `--set` over it. Without a root there is nothing to read further: it would be
/// guessing what was meant.
fn literal_form(
    sources: &mut Sources,
    mut source: Source,
    overrides: &Overrides,
) -> (Option<Table>, Vec<Diagnostic>, usize) {
    // A byte-order mark is no text, and would shift the first line.
    if let Some(text) = source.text.strip_prefix('\u{feff}') {
        source.text = text.to_owned();
    }
    let id = sources.add(source);
    let (mut root, mut problems, hidden) = match parse_document(id, &sources.get(id).text) {
        Ok(root) => (Some(root), Vec::new(), 0),
        Err((problems, hidden)) => (None, problems, hidden),
    };
    for (n, text) in overrides.set.iter().enumerate() {
        let (name, base) = (format!("--set #{}", n + 1), overrides.base.clone());
        let id = sources.add(Source { name, text: text.clone(), base });
        match (parse_override(id, text), root.as_mut()) {
            (Ok(table), Some(root)) => overlay(root, table),
            (Ok(_), None) => {}
            (Err(problem), _) => problems.push(problem),
        }
    }
    if let Some(problem) = root.as_ref().and_then(not_this_format) {
        problems.push(problem);
        root = None;
    }
    (root, problems, hidden)
}

/// A recipe without content, or of another version, has no other problem that could be named.
fn not_this_format(root: &Table) -> Option<Diagnostic> {
    if root.0.is_empty() {
        let help = "start from a copy of recipes/llama3_tiny.toml";
        return Some(Diagnostic::error("the recipe is empty").help(help));
    }
    let node = &root.get("version")?.node;
    match node.value {
        Value::Integer(other) if other != VERSION.into() => Some(
            Diagnostic::error(format!(
                "this version of titan-tpu reads recipes of version {VERSION}, not {other}"
            ))
            .at(node.at.clone())
            .label("unknown version")
            .help(format!("write version = {VERSION}")),
        ),
        _ => None,
    }
}

fn read(cx: &mut Context<'_>, root: &Table, path: &str) -> Recipe {
    let mut top = cx.root(root, TABLES);
    let version = top.integer("version", VERSION, VERSION);
    let version = top.required(version, VERSION, &VERSION.to_string()).value;
    let name = read_name(&mut top, path);
    top.later(LATER);
    top.finish();
    for (table, keys) in LATER_KEYS {
        cx.later_table(table, keys);
    }
    Recipe {
        version,
        name,
        model: Model::read(cx, root),
        hardware: Hardware::read(cx, root),
        parallelism: Parallelism::read(cx, root),
        training: Training::read(cx, root),
        optimizer: Optimizer::read(cx, root),
        schedule: Schedule::read(cx, root),
        precision: Precision::read(cx, root),
        data: Data::read(cx, root),
        metrics: Metrics::read(cx, root),
        elastic: Elastic::read(cx, root),
    }
}

/// Names of runs are names of folders, and parts of names in a cluster.
const LONGEST_NAME: usize = 63;

/// The name of the run: as written, or that of the recipe's file.
fn read_name(top: &mut Section<'_, '_>, path: &str) -> Item<String> {
    let stem = Path::new(path).file_stem().map(|stem| stem.to_string_lossy().replace('_', "-"));
    let default = legal_name(&stem.unwrap_or_default());
    let Some(name) = top.text("name") else {
        return Item::derived(default);
    };
    let near = legal_name(&name);
    if near != *name {
        let what = format!("`name` = \"{}\" cannot name a run folder", Shown(&*name));
        let problem = Diagnostic::error(what)
            .at(name.at.clone())
            .label(format!(
                "up to {LONGEST_NAME} letters, digits, `-`, `_`, `.`, the first a letter or digit"
            ))
            .help(format!("for example: name = \"{near}\""));
        top.reject("name", problem);
    }
    name
}

/// The legal name that is nearest to `text`; itself, if it is one.
fn legal_name(text: &str) -> String {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let text = text.trim_start_matches(|c: char| !c.is_ascii_alphanumeric());
    let name = text.chars().map(|c| if legal(c) { c } else { '-' }).take(LONGEST_NAME);
    let name: String = name.collect();
    if name.is_empty() { "run".to_owned() } else { name }
}
