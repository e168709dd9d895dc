//! `titan-tpu train`: from a recipe to a trained model.

mod facts;
mod progress;
mod recorder;
mod run;
mod run_dir;
mod shell;
pub(crate) mod signals;
mod spin;
mod supervisor;

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use serde::Serialize;
use titan_datasets::{Samples, SourceConfig};
use titan_parallelism::{MeshDegrees, parameters};
use titan_recipes::tables::env::EnvValue;
use titan_recipes::{Accelerator, Layout, Loaded, Overrides, Purpose, Recipe, Secret};
use titan_trainer::spec::{DataSpec, RunSpec, ValidationSpec};

use crate::cli::TrainArgs;
use crate::console::{Console, Style};
use crate::data::{self, Prepared, failure};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::setup::Variables;
use crate::setup::compiler::{self, CXX, NoCompiler};
use crate::{recipe_command, setup_command, words};
use facts::DataFacts;
use run_dir::{RunDir, occupied};

/// The last JSON line of every `train --json`.
#[derive(Serialize)]
struct End<'a> {
    event: &'static str,
    exit_code: u8,
    final_step: u64,
    final_loss: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    run_dir: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// How far a run came, for its end line.
#[derive(Debug, Default)]
pub(crate) struct Reached {
    step: u64,
    loss: Option<f64>,
    run_dir: Option<PathBuf>,
}

/// Runs the command.
pub(crate) fn command(args: &TrainArgs) -> Result<Exit, Failure> {
    let console = Console::new(Style::choose(args.json));
    let mut reached = Reached::default();
    let result = train(args, &console, &mut reached);
    console.clear();
    console.json(&End {
        event: "end",
        exit_code: result.as_ref().map_or_else(|failure| failure.exit, |exit| *exit).code(),
        final_step: reached.step,
        final_loss: reached.loss,
        run_dir: reached.run_dir.as_ref().map(|path| path.to_string_lossy()),
        error: result.as_ref().err().map(Failure::summary),
    });
    result
}

fn train(args: &TrainArgs, console: &Console, reached: &mut Reached) -> Result<Exit, Failure> {
    let start = Instant::now();
    let cancelled = signals::cancellation()?;
    let (path, overrides) = (&args.recipe.recipe, overrides(args));
    let loaded = titan_recipes::load(path, &overrides, Purpose::Train)?;
    if !loaded.warnings.diagnostics.is_empty() {
        console.block(loaded.warnings.render(true));
    }
    if let Some(path) = &args.run_dir
        && !RunDir::is_free(path)?
    {
        return Err(not_free(path, &loaded));
    }
    let Loaded { recipe, layout, .. } = loaded;
    let mut variables = worker_variables(&recipe)?;
    let data = check_data(&recipe, &layout, console, &cancelled)?;
    introduce(console, &recipe, &layout, &data, start);
    if args.dry_run {
        return Ok(Exit::Done);
    }
    if cancelled.load(Ordering::Relaxed) {
        return Ok(Exit::Stopped);
    }

    if *recipe.compile.enabled && *recipe.hardware.accelerator == Accelerator::Cpu {
        name_compiler(&mut variables)?;
    }
    let began = Instant::now();
    let environment = setup_command::ensure(console, &cancelled, false)?;
    let set_up = began.elapsed();
    console.phase("set-up", &environment.describe(), set_up);

    if cancelled.load(Ordering::Relaxed) {
        return Ok(Exit::Stopped);
    }
    let run_dir = RunDir::create(args.run_dir.as_deref(), &recipe.name)?;
    reached.run_dir = Some(run_dir.path().to_owned());
    if let Some(note) = run_dir.left_behind() {
        console.note(&note);
    }
    let threads = threads(&recipe, &layout);
    let spec =
        RunSpec::new(&recipe, layout, data.spec(&recipe, &layout), threads).map_err(|key| {
            Failure::new(Exit::Bug, format!("the engine has no form for `{key}` of this recipe"))
        })?;
    let run = run::Run {
        console,
        recipe: &recipe,
        layout,
        spec,
        variables,
        run_dir,
        environment,
        start,
        set_up,
        data,
    };
    run.execute(reached)
}

/// What to say about a directory that has something in it: if it is another run, how that differs.
fn not_free(path: &Path, ours: &Loaded) -> Failure {
    const SHOWN: usize = 12;
    let failure = occupied(path);
    let Some(recipe) = RunDir::recipe(path) else { return failure };
    let Ok(theirs) = titan_recipes::load(&recipe, &Overrides::default(), Purpose::Plan) else {
        return failure;
    };
    let (Ok(theirs), Ok(ours)) = (theirs.settings(), ours.settings()) else { return failure };
    let differences = titan_recipes::difference(&theirs, &ours);
    if differences.is_empty() {
        return failure.help("it is a run of the same recipe");
    }
    let value = |value: &Option<_>| {
        value.as_ref().map_or_else(|| "not set".to_owned(), titan_recipes::value_text)
    };
    let mut lines: Vec<String> = differences
        .iter()
        .take(SHOWN)
        .map(|d| format!("{}: {} there, {} here", d.name, value(&d.left), value(&d.right)))
        .collect();
    if differences.len() > SHOWN {
        lines.push(format!("and {} more", differences.len() - SHOWN));
    }
    let text = format!("the run directory {} belongs to a run of another recipe", path.display());
    Failure::new(Exit::Usage, text)
        .quoting(lines)
        .help("choose another --run-dir, or leave it out: then every run has a folder of its own")
}

fn overrides(args: &TrainArgs) -> Overrides {
    let devices = args.devices.map(|devices| ("--devices", format!("hardware.devices={devices}")));
    recipe_command::overrides(&args.recipe.set, devices.into_iter().collect())
}

/// The variables of `[env]`, with those that come from this process's environment looked up.
fn worker_variables(recipe: &Recipe) -> Result<Vec<(String, Secret)>, Failure> {
    let variables = recipe.env.variables.iter().map(|(name, value)| {
        let secret = match &value.value {
            EnvValue::Secret(secret) => secret.clone(),
            EnvValue::From(from) => Secret::new(std::env::var(from).map_err(|_| {
                let text =
                    format!("the recipe takes {name} from the variable {from}, which is not set");
                Failure::new(Exit::Usage, text).help(format!("export {from} before the run"))
            })?),
        };
        Ok((name.clone(), secret))
    });
    variables.collect()
}

/// Makes sure that there is a compiler for compiled steps, and that the workers know which one: `variables` are theirs
/// beside those of this process.
fn name_compiler(variables: &mut Vec<(String, Secret)>) -> Result<(), Failure> {
    let ours = variables.iter().map(|(name, value)| (name.into(), value.expose().into()));
    let all: Variables = std::env::vars_os().chain(ours).collect();
    let is_secret = variables.iter().any(|(name, _)| name == CXX);
    match compiler::find(&all) {
        Ok(_) if is_secret => {}
        Ok(found) => variables.push((CXX.to_owned(), Secret::new(found.command))),
        Err(missing) => {
            let why = match missing {
                NoCompiler::Named(_) if is_secret => {
                    format!("what {CXX} in [env] names cannot be found")
                }
                missing => missing.to_string(),
            };
            let text = format!("`compile.enabled` = true needs a C++ compiler: {why}");
            return Err(Failure::new(Exit::Environment, text)
                .help(compiler::REMEDY)
                .help("or write enabled = false in [compile]"));
        }
    }
    Ok(())
}

/// The data of a run, there as shards.
pub(crate) struct Data {
    prepared: Prepared,
    sources: Vec<SourceConfig>,
    samples: Samples,
}

impl Data {
    fn spec(&self, recipe: &Recipe, layout: &Layout) -> DataSpec {
        let validation = recipe.validation.as_ref().map(|validation| ValidationSpec {
            interval_steps: *validation.interval_steps,
            splits: self.prepared.validation_splits(),
            rows: validation.steps.map(|steps| steps.saturating_mul(layout.global_batch)),
        });
        DataSpec { sources: self.sources.clone(), is_masked: self.samples.is_masked(), validation }
    }
}

/// Makes sure that all data is there as shards, before any worker starts: a fault in it is found now, and named with
/// its place.
fn check_data(
    recipe: &Recipe,
    layout: &Layout,
    console: &Console,
    stop: &AtomicBool,
) -> Result<Data, Failure> {
    let prepared = data::prepare(recipe, console, stop)?;
    let sources = prepared.sources();
    let seed = *recipe.training.seed;
    let samples = Samples::open(&sources, layout.sequence_length, seed, layout.global_batch)
        .map_err(|error| failure(&error))?;
    let data = Data { prepared, sources, samples };
    let spec = RunSpec::new(recipe, *layout, data.spec(recipe, layout), 1);
    if let Some(config) = spec.ok().and_then(|spec| spec.validation_config()) {
        titan_datasets::Validation::open(&config).map_err(|error| failure(&error))?;
    }
    Ok(data)
}

/// Threads of one worker: as written, or an equal part of the cores this process may use. More threads than
/// cores make steps many times slower.
fn threads(recipe: &Recipe, layout: &Layout) -> u64 {
    recipe.hardware.threads_per_device.fixed().unwrap_or_else(|| {
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
        (cores / layout.world).max(1)
    })
}

/// What the run is, in two lines or one object.
fn introduce(console: &Console, recipe: &Recipe, layout: &Layout, data: &Data, start: Instant) {
    #[derive(Serialize)]
    struct Introduction<'a> {
        event: &'static str,
        name: &'a str,
        steps: u64,
        world: u64,
        mesh: MeshDegrees,
        global_batch: u64,
        accumulation: u64,
        parameters: titan_parallelism::Parameters,
        data: DataFacts<'a>,
    }
    let (parameters, mesh) = (parameters(&recipe.model), MeshDegrees::of(layout));
    console.line(format!(
        "{}: {} with {} parameters, {} on {} ({})",
        *recipe.name,
        *recipe.model.family,
        words::count(parameters.total as f64),
        words::plural(layout.world, "device"),
        *recipe.hardware.accelerator,
        words::axes(&mesh),
    ));
    let reader = if layout.ranks_per_sequence() > 1 { "data-parallel rank" } else { "device" };
    console.line(format!(
        "{} of {} sequences x {} tokens ({} per {reader}, accumulation {})",
        words::plural(*recipe.training.steps, "step"),
        layout.global_batch,
        layout.sequence_length,
        layout.local_batch,
        layout.accumulation,
    ));
    let facts = DataFacts::of(data);
    console.phase("data", &facts.in_words(recipe, layout), start.elapsed());
    for line in data.prepared.left_out() {
        console.note(&line);
    }
    console.json(&Introduction {
        event: "run",
        name: &recipe.name,
        steps: *recipe.training.steps,
        world: layout.world,
        mesh,
        global_batch: layout.global_batch,
        accumulation: layout.accumulation,
        parameters,
        data: facts,
    });
}
