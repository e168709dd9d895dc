//! The validated recipe, and the one door through which recipes come in.

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::diagnostic::{Diagnostic, Report};
use crate::layout::{Layout, layout};
use crate::reader::Context;
use crate::rules;
use crate::source::{Item, Loc, Source, Sources};
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
use crate::tree::{Table, Value, overlay, parse_document, parse_override};
use crate::words::{Auto, nearest};

/// The version of the recipe format that this crate reads.
pub const VERSION: i64 = 1;

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

/// Tables and keys that the format names but this version does nothing with.
const LATER: &[&str] =
    &["remat", "compile", "checkpoint", "launch", "validation", "rl", "flux", "env", "extends"];

/// A recipe is a page of text; a larger file is something else.
const LARGEST_FILE: u64 = 1 << 20;

/// A recipe in which every setting is present, of the right kind, in range, and in agreement with the others.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Recipe {
    /// Version of the recipe format.
    pub version: i64,
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
    match read_file(path) {
        Ok(text) => {
            let base = path.parent().map(Path::to_path_buf).unwrap_or_default();
            let base = std::path::absolute(&base).unwrap_or(base);
            load_text(Source { name, text, base }, overrides, &probe_file)
        }
        Err(diagnostic) => {
            Err(Report { sources: Sources::default(), diagnostics: vec![*diagnostic], name })
        }
    }
}

/// Like [`load`], for a text that is already in memory. `probe` says what is wrong with a data file.
///
/// # Errors
/// Every problem of the recipe, in reading order.
pub fn load_text(
    source: Source,
    overrides: &Overrides,
    probe: &dyn Fn(&Path) -> Result<(), String>,
) -> Result<Loaded, Report> {
    let name = source.name.clone();
    let mut sources = Sources::default();
    let (root, mut diagnostics) = literal_form(&mut sources, source, overrides);
    let Some(root) = root else {
        return Err(finished(sources, diagnostics, name));
    };
    let mut cx = Context::new(&sources, probe);
    let recipe = read_recipe(&mut cx, &root, &name);
    cx.report_unknown_keys();
    rules::check(&mut cx, &recipe);
    diagnostics.append(&mut cx.diagnostics);
    let report = finished(sources, diagnostics, name);
    match layout(&recipe) {
        Some(layout) if report.errors() == 0 => Ok(Loaded { recipe, layout, warnings: report }),
        _ => Err(report),
    }
}

fn finished(sources: Sources, diagnostics: Vec<Diagnostic>, name: String) -> Report {
    let mut report = Report { sources, diagnostics, name };
    report.sort();
    report
}

/// Parses the file and lays every `--set` over it. Without a root, the file could not be parsed.
fn literal_form(
    sources: &mut Sources,
    source: Source,
    overrides: &Overrides,
) -> (Option<Table>, Vec<Diagnostic>) {
    let mut diagnostics = Vec::new();
    let text = source.text.clone();
    let id = sources.add(source);
    let mut root = match parse_document(id, &text) {
        Ok(root) => Some(root),
        Err(errors) => {
            diagnostics.extend(errors);
            None
        }
    };
    for (n, text) in overrides.set.iter().enumerate() {
        let id = sources.add(Source {
            name: format!("--set #{}", n + 1),
            text: text.clone(),
            base: overrides.base.clone(),
        });
        match (parse_override(id, text), root.as_mut()) {
            (Ok(table), Some(root)) => overlay(root, table),
            (Ok(_), None) => {}
            (Err(diagnostic), _) => diagnostics.push(diagnostic),
        }
    }
    (root, diagnostics)
}

fn read_recipe(cx: &mut Context<'_>, root: &Table, path: &str) -> Recipe {
    let version = read_version(cx, root);
    let name = read_name(cx, root, path);
    let recipe = Recipe {
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
    };
    report_unknown_tables(cx, root);
    recipe
}

fn read_version(cx: &mut Context<'_>, root: &Table) -> i64 {
    let problem = match root.get("version").map(|entry| &entry.node) {
        Some(node) => match node.value {
            Value::Integer(VERSION) => return VERSION,
            Value::Integer(other) => Diagnostic::error(format!(
                "this version of titan-tpu reads recipes of version {VERSION}, not {other}"
            ))
            .at(node.at.clone())
            .label("unknown version"),
            ref other => {
                Diagnostic::error(format!("`version` must be an integer, found {}", other.kind()))
                    .at(node.at.clone())
                    .label("expected an integer")
            }
        },
        None => Diagnostic::error("the recipe has no `version`"),
    };
    cx.diagnostics
        .push(problem.help(format!("the first line of a recipe is: version = {VERSION}")));
    VERSION
}

/// The name of the run: as written, or that of the recipe's file.
fn read_name(cx: &mut Context<'_>, root: &Table, path: &str) -> Item<String> {
    let stem = Path::new(path).file_stem().map(|stem| stem.to_string_lossy().replace('_', "-"));
    let default = stem.unwrap_or_else(|| "run".to_owned());
    match root.get("name").map(|entry| &entry.node) {
        None => Item::derived(default),
        Some(node) => match &node.value {
            Value::Text(name) => Item::written(name.clone(), node.at.clone()),
            other => {
                cx.broken.insert("name".to_owned());
                cx.diagnostics.push(
                    Diagnostic::error(format!("`name` must be a string, found {}", other.kind()))
                        .at(node.at.clone())
                        .label("expected a string")
                        .help("put it in quotes: name = \"...\""),
                );
                Item::derived(default)
            }
        },
    }
}

fn report_unknown_tables(cx: &mut Context<'_>, root: &Table) {
    for entry in &root.0 {
        let key = entry.key.as_str();
        if TABLES.contains(&key) || key == "version" || key == "name" {
            continue;
        }
        let at: Loc = entry.key_at.clone();
        let is_table = matches!(entry.node.value, Value::Table(_));
        let written = if is_table { format!("table [{key}]") } else { format!("key `{key}`") };
        let diagnostic = if LATER.contains(&key) {
            Diagnostic::error(format!("the {written} is not supported by this version"))
                .at(at)
                .label("not supported yet")
                .help("remove it")
        } else {
            let home = cx.known.iter().find(|(_, known)| *known == key);
            let names = TABLES.iter().copied().chain(["version", "name"]);
            let help = match (home, nearest(key, names)) {
                (Some((table, _)), _) if !is_table => {
                    format!("`{key}` belongs to the table [{table}]")
                }
                (_, Some(word)) => format!("did you mean `{word}`?"),
                _ => format!("the tables of a recipe are: {}", TABLES.join(", ")),
            };
            Diagnostic::error(format!("unknown {written}")).at(at).label("unknown").help(help)
        };
        cx.diagnostics.push(diagnostic);
    }
}

/// Reads a recipe file, and says why it cannot be one before its size or kind can do harm.
fn read_file(path: &Path) -> Result<String, Box<Diagnostic>> {
    let problem = |what: String, help: &str| Box::new(Diagnostic::error(what).help(help));
    let shown = path.display();
    const WANTED: &str = "a recipe is a TOML file, for example recipes/llama3_tiny.toml";
    let metadata = std::fs::metadata(path).map_err(|error| {
        let help = match error.kind() {
            std::io::ErrorKind::NotFound => similar_file(path).unwrap_or_else(|| WANTED.to_owned()),
            _ => "check its permissions with ls -l".to_owned(),
        };
        problem(format!("cannot read the recipe {shown}: {}", reason(&error)), &help)
    })?;
    if metadata.is_dir() {
        return Err(problem(format!("the recipe {shown} is a directory"), WANTED));
    }
    if !metadata.is_file() {
        return Err(problem(format!("the recipe {shown} is not a regular file"), WANTED));
    }
    if metadata.len() > LARGEST_FILE {
        let size = metadata.len();
        return Err(problem(
            format!("the recipe {shown} has {size} bytes; no recipe is larger than {LARGEST_FILE}"),
            WANTED,
        ));
    }
    let bytes = std::fs::read(path).map_err(|error| {
        problem(
            format!("cannot read the recipe {shown}: {}", reason(&error)),
            "check its permissions with ls -l",
        )
    })?;
    String::from_utf8(bytes).map_err(|error| {
        let offset = error.utf8_error().valid_up_to();
        let bytes = error.as_bytes();
        let line = 1 + bytes[..offset].iter().filter(|byte| **byte == b'\n').count();
        problem(
            format!(
                "the recipe {shown} is not text: byte 0x{:02x} at offset {offset} (line {line}) is not UTF-8",
                bytes[offset]
            ),
            WANTED,
        )
    })
}

/// A file of the same folder whose name is close to that of `path`.
fn similar_file(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let names: Vec<String> = std::fs::read_dir(folder)
        .ok()?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.ends_with(".toml"))
        .collect();
    let near = nearest(name, names.iter().map(String::as_str))?;
    Some(format!("did you mean {}?", path.with_file_name(near).display()))
}

/// The words of an operating-system error without its number.
fn reason(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => "no such file".to_owned(),
        std::io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        _ => error.to_string(),
    }
}

/// What is wrong with a data file: looks at it without reading it, and never waits on a pipe.
fn probe_file(path: &Path) -> Result<(), String> {
    let metadata = std::fs::metadata(path).map_err(|error| reason(&error))?;
    if metadata.is_dir() {
        return Err("it is a directory".to_owned());
    }
    if !metadata.is_file() {
        return Err("it is not a regular file".to_owned());
    }
    if metadata.len() == 0 {
        return Err("it is empty".to_owned());
    }
    std::fs::File::open(path).map(drop).map_err(|error| reason(&error))
}
