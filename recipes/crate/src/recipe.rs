//! The validated recipe, and the one door through which recipes come in.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::ability;
use crate::diagnostic::Diagnostic;
use crate::files::{Disk, Files, read_recipe};
use crate::layers::{Literal, literal_form};
use crate::layout::{Layout, layout};
use crate::origin::Origin;
use crate::purpose::Purpose;
use crate::reader::{Context, Section};
use crate::report::Report;
use crate::rules;
use crate::secrets::without_url_secrets;
use crate::shipped;
use crate::shown::Shown;
use crate::source::{Item, Source, Sources};
use crate::tables::checkpoint::Checkpoint;
use crate::tables::compile::Compile;
use crate::tables::data::Data;
use crate::tables::elastic::Elastic;
use crate::tables::env::Env;
use crate::tables::flux::Flux;
use crate::tables::hardware::Hardware;
use crate::tables::launch::Launch;
use crate::tables::metrics::Metrics;
use crate::tables::model::Model;
use crate::tables::optimizer::Optimizer;
use crate::tables::parallelism::{Parallelism, Replicate};
use crate::tables::precision::Precision;
use crate::tables::remat::Remat;
use crate::tables::rl::Rl;
use crate::tables::schedule::Schedule;
use crate::tables::training::Training;
use crate::tables::validation::Validation;
use crate::tree::Table;
use crate::words::Auto;

/// The version of the recipe format that this crate reads.
pub const VERSION: u64 = 1;

/// Tables of the recipe format, in the order they are documented.
pub(crate) const TABLES: &[&str] = &[
    "model",
    "hardware",
    "parallelism",
    "training",
    "optimizer",
    "schedule",
    "precision",
    "remat",
    "compile",
    "data",
    "validation",
    "checkpoint",
    "metrics",
    "elastic",
    "launch",
    "rl",
    "flux",
    "env",
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
    /// What the backward pass computes again.
    pub remat: Remat,
    /// Whether the step runs compiled.
    pub compile: Compile,
    /// What the model reads.
    pub data: Data,
    /// The loss on data that is not trained on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub validation: Option<Validation>,
    /// What is saved, how often and where.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<Checkpoint>,
    /// What is recorded.
    pub metrics: Metrics,
    /// What the run survives, and how it ends when told to.
    pub elastic: Elastic,
    /// How it is started on a cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub launch: Option<Launch>,
    /// Reinforcement learning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rl: Option<Rl>,
    /// How a model of images is trained.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flux: Option<Flux>,
    /// Variables of the workers' environment, which are secret.
    #[serde(skip_serializing_if = "Env::is_empty")]
    pub env: Env,
}

/// What a recipe is read from besides its file.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    /// Settings that options of their own stand for: the option and its `KEY=VALUE`. A `--set` wins over them.
    pub options: Vec<(&'static str, String)>,
    /// Settings of the files (`table.key`) that an option replaces as a whole.
    pub unset: Vec<&'static str>,
    /// `KEY=VALUE` texts of `--set`, later ones win.
    pub set: Vec<String>,
    /// The folder that relative paths in `--set` start from.
    pub base: PathBuf,
}

/// A sound recipe, where each setting comes from, what is worth a warning, and how its batch is spread.
#[derive(Debug)]
pub struct Loaded {
    /// The recipe.
    pub recipe: Recipe,
    /// Its layout.
    pub layout: Layout,
    /// Where each setting comes from, by its whole name (`training.steps`).
    pub origins: BTreeMap<String, Origin>,
    /// Warnings only, with the texts that the recipe was read from.
    pub warnings: Report,
}

impl Recipe {
    /// The recipe as TOML, with every default and every `auto` of the mesh and the batch written out, so that
    /// it describes the same run whatever the defaults of a later version are. Secrets are masked.
    ///
    /// # Errors
    /// A value that TOML cannot hold, which would be a bug.
    pub fn to_toml(&self, layout: &Layout) -> Result<String, toml::ser::Error> {
        toml::to_string(&self.resolved(layout))
    }

    /// With every `auto` of the mesh and the batch as the number that it stands for.
    pub(crate) fn resolved(&self, layout: &Layout) -> Self {
        let mut resolved = self.clone();
        // On TPUs the topology is what says how many devices there are.
        if self.hardware.accelerator.tpu().is_none() {
            resolved.hardware.devices.value = Auto::Fixed(layout.world);
        }
        resolved.parallelism.replicate.value = Replicate::Fixed(layout.replicate);
        resolved.parallelism.shard.value = Auto::Fixed(layout.shard);
        resolved.training.global_batch.value = Auto::Fixed(layout.global_batch);
        resolved
    }
}

/// Reads, layers and validates the recipe at `path`, or the shipped one of that name.
///
/// # Errors
/// Every problem of the recipe, in reading order. Nothing is written anywhere.
pub fn load(path: &Path, overrides: &Overrides, purpose: Purpose) -> Result<Loaded, Report> {
    load_text(open(path)?, overrides, &Disk::default(), purpose)
}

/// The text of the recipe at `path`, or of the shipped one of that name.
///
/// # Errors
/// Why it cannot be read, or is no text.
pub fn recipe_text(path: &Path) -> Result<String, Report> {
    open(path).map(|source| source.text)
}

fn open(path: &Path) -> Result<Source, Report> {
    let name = path.display().to_string();
    let folder = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    match read_recipe(path) {
        Ok(text) => {
            let base = folder(path).parent().map(Path::to_owned).unwrap_or_default();
            Ok(Source { name, text, base })
        }
        Err(problem) => match shipped::find(path) {
            Some(source) => Ok(source),
            None => Err(Report::new(Sources::default(), vec![*problem], 0, &name)),
        },
    }
}

/// Like [`load`], for a text that is already in memory.
///
/// # Errors
/// Every problem of the recipe, in reading order.
pub fn load_text(
    source: Source,
    overrides: &Overrides,
    files: &dyn Files,
    purpose: Purpose,
) -> Result<Loaded, Report> {
    let name = source.name.clone();
    let mut sources = Sources::default();
    let Literal { root, problems, hidden } = literal_form(&mut sources, source, overrides, files);
    let Some(root) = root else {
        return Err(Report::new(sources, problems, hidden, &name));
    };
    let mut cx = Context::new(&sources, files, purpose, problems);
    let recipe = read(&mut cx, &root, &name);
    cx.report_keys();
    rules::check(&mut cx, &recipe);
    if purpose == Purpose::Train {
        let problems = ability::unable(&recipe, |key| cx.is_broken(key));
        cx.diagnostics.extend(problems);
    }
    let Context { diagnostics, hidden: more, origins, .. } = cx;
    let report = Report::new(sources, diagnostics, hidden + more, &name);
    match layout(&recipe) {
        Some(layout) if report.errors() == 0 => {
            Ok(Loaded { recipe, layout, origins, warnings: report })
        }
        _ => Err(report),
    }
}

/// Reads every table. What one table needs of another comes before it.
pub(crate) fn read(cx: &mut Context<'_>, root: &Table, path: &str) -> Recipe {
    let mut top = cx.root(root, TABLES);
    let version = top.integer("version", VERSION, VERSION);
    let version = top.required(version, VERSION, &VERSION.to_string()).value;
    let name = read_name(&mut top, path);
    // Its layers are laid over each other already; the key is known all the same.
    top.text("extends");
    top.finish();
    let hardware = Hardware::read(cx, root);
    let model = Model::read(cx, root);
    let flux = Flux::read(cx, root, &model);
    let training = Training::read(cx, root, &model, flux.as_ref());
    Recipe {
        version,
        name,
        hardware,
        parallelism: Parallelism::read(cx, root),
        optimizer: Optimizer::read(cx, root),
        schedule: Schedule::read(cx, root, *training.steps),
        training,
        precision: Precision::read(cx, root),
        remat: Remat::read(cx, root),
        compile: Compile::read(cx, root),
        data: Data::read(cx, root, &model),
        validation: Validation::read(cx, root, &model),
        checkpoint: Checkpoint::read(cx, root),
        metrics: Metrics::read(cx, root),
        elastic: Elastic::read(cx, root),
        launch: Launch::read(cx, root),
        rl: Rl::read(cx, root),
        env: Env::read(cx, root),
        model,
        flux,
    }
}

/// Names of runs are names of folders, and parts of names in a cluster.
pub(crate) const LONGEST_NAME: usize = 63;

/// Names of workloads on a cluster are made from that of the run.
const SHORT_NAME: usize = 40;

/// The name of the run: as written, or that of the recipe's file.
fn read_name(top: &mut Section<'_, '_>, path: &str) -> Item<String> {
    let stem = Path::new(path).file_stem().map(|stem| stem.to_string_lossy().replace('_', "-"));
    let default = legal_name(&stem.unwrap_or_default());
    let name = top.text("name");
    let name = top.or_from(name, default, Origin::Derived("the name of the file"));
    if name.at.is_none() {
        return name;
    }
    let near = legal_name(&without_url_secrets(&name));
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
    // A name that is cut is cut to where clusters take it too.
    let longest = if text.chars().count() > LONGEST_NAME { SHORT_NAME } else { LONGEST_NAME };
    let name: String = text.chars().map(|c| if legal(c) { c } else { '-' }).take(longest).collect();
    let is_changed = name != text;
    let name = if is_changed { name.trim_end_matches('-') } else { &name };
    if name.is_empty() { "run".to_owned() } else { name.to_owned() }
}
