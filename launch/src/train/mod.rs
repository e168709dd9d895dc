//! `titan-tpu train`: from a recipe to a trained model.

mod diagnose;
mod event;
mod explain;
mod facts;
mod history;
mod keeper;
pub(crate) mod keeping;
mod notice;
mod progress;
mod ranks;
mod recorder;
mod records;
mod resume;
mod run;
pub(crate) mod run_dir;
mod session;
mod shell;
pub(crate) mod signals;
mod spin;
mod start_again;

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use serde::Serialize;
use titan_datasets::{OrderIdentity, Samples, SourceConfig};
use titan_parallelism::{MeshDegrees, parameters};
use titan_recipes::tables::env::EnvValue;
use titan_recipes::tables::model::Init;
use titan_recipes::{
    Accelerator, Difference, Layout, Loaded, Location, Overrides, Purpose, Recipe, Secret,
};
use titan_trainer::saver::SaveSpec;
use titan_trainer::spec::{DataSpec, RunSpec, ValidationSpec};

use crate::cli::TrainArgs;
use crate::console::{Console, Style};
use crate::data::{self, Prepared, failure};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::setup::Variables;
use crate::setup::compiler::{self, CXX, NoCompiler};
use crate::{hugging_face, recipe_command, setup_command, words};
use facts::DataFacts;
use keeping::Keeping;
pub(crate) use keeping::identity as settings_identity;
use resume::{Decision, Expected, decide};
pub(crate) use resume::{Policy, differences};
pub(crate) use run_dir::hold_unused;
use run_dir::{History, RunDir, occupied};

/// The key of the place of checkpoints.
const DIRECTORY: &str = "checkpoint.directory";

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
    let continues = match &args.run_dir {
        Some(path) if !RunDir::is_free(path)? => {
            let can_go_on = loaded.recipe.checkpoint.is_some()
                && args.resume != Policy::Never
                && History::read(path).is_some();
            check_occupied(path, &loaded, can_go_on)?;
            true
        }
        _ => false,
    };
    let settings = loaded.settings().map(|settings| keeping::identity(&settings));
    let settings = settings.map_err(|error| Failure::new(Exit::Bug, error.to_string()))?;
    let Loaded { recipe, layout, .. } = loaded;
    let mut variables = worker_variables(&recipe)?;
    let data = check_data(&recipe, &layout, console, &cancelled)?;
    introduce(console, &recipe, &layout, &data, start);
    let order = data::identity(&data.prepared, &data.samples, &recipe, &layout);
    let decision = go_on_from(args, &recipe, console, &cancelled)?;
    let run_dir = args.run_dir.as_deref();
    let persistent = match &recipe.checkpoint {
        Some(checkpoint) => keeping::place(checkpoint, run_dir)?,
        None => None,
    };
    let expected = Expected { persistent: persistent.as_ref(), settings: &settings, order: &order };
    let resume = decision.chosen.as_ref().map(|chosen| chosen.resume(&expected)).transpose()?;
    if let Some(resume) = &resume
        && resume.step >= *recipe.training.steps
        && resume.is_persistent
    {
        let (step, steps) = (resume.step, *recipe.training.steps);
        console
            .line(format!("nothing to do: step {step} is done, and the recipe asks for {steps}"));
        reached.step = step;
        reached.run_dir.clone_from(&args.run_dir);
        return Ok(Exit::Done);
    }
    let steps_done = resume.as_ref().map_or(0, |resume| resume.step);
    if let Some(place) = &persistent {
        let own = run_dir.filter(|_| continues).and_then(History::read);
        let own = own.as_ref().map(|history| history.id.as_str());
        keeping::refuse_foreign(place, own, &decision, steps_done)?;
    }
    if let (None, Init::Folder(Location::Local(folder))) = (&resume, &*recipe.model.init) {
        hugging_face::check(folder, &settings)?;
        console.line(format!("the first weights are those in {}", folder.display()));
    }
    if args.dry_run {
        return Ok(Exit::Done);
    }
    if cancelled.load(Ordering::Relaxed) {
        return Ok(Exit::Stopped);
    }

    // One that is not in the run directory is tried out before anything takes time.
    if let Some(checkpoint) = &recipe.checkpoint
        && let Some(place) = keeping::place(checkpoint, None)?
    {
        keeping::check_place(&place, DIRECTORY)?;
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
    let run_dir = match &args.run_dir {
        Some(path) if continues => RunDir::reopen(path)?,
        path => RunDir::create(path.as_deref(), &recipe.name)?,
    };
    reached.run_dir = Some(run_dir.path().to_owned());
    if let Some(note) = run_dir.left_behind() {
        console.note(&note);
    }
    let threads = threads(&recipe, &layout);
    let mut spec =
        RunSpec::new(&recipe, layout, data.spec(&recipe, &layout), threads).map_err(|key| {
            Failure::new(Exit::Bug, format!("the engine has no form for `{key}` of this recipe"))
        })?;
    reached.step = resume.as_ref().map_or(0, |resume| resume.step);
    spec.resume = resume;
    let keeping = keep_in(&run_dir, &recipe, &spec, (settings, order))?;
    if let Some(keeping) = &keeping {
        let attempt = run_dir.attempt();
        for path in keeping.set_later_aside(&decision, spec.steps_done(), attempt)? {
            console.note(&format!("a later checkpoint is set aside: {path}"));
        }
        spec.save = Some(keeping.saving());
    }
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
        keeping,
        decision,
        cancelled,
    };
    run.execute(reached)
}

/// What the run goes on from, which is said.
fn go_on_from(
    args: &TrainArgs,
    recipe: &Recipe,
    console: &Console,
    stop: &AtomicBool,
) -> Result<Decision, Failure> {
    let none = Decision { chosen: None, skipped: Vec::new() };
    let needs_one = matches!(args.resume, Policy::Required | Policy::Step(_));
    let Some(checkpoint) = &recipe.checkpoint else {
        if !needs_one {
            return Ok(none);
        }
        let text = "--resume asks for a checkpoint, and the recipe saves none";
        return Err(Failure::new(Exit::Usage, text).help("add a table [checkpoint]"));
    };
    let Some(place) = keeping::place(checkpoint, args.run_dir.as_deref())? else {
        if !needs_one {
            return Ok(none);
        }
        let text = "--resume asks for a checkpoint, and a new run has none";
        return Err(Failure::new(Exit::NoCheckpoint, text)
            .help("name the run that has it with --run-dir, or an absolute checkpoint.directory"));
    };
    let local = args.run_dir.as_deref().and_then(|path| {
        let history = History::read(path)?;
        keeping::local_place(checkpoint, path, &history.id)
    });
    // What is near is read first.
    let places: Vec<_> = local.into_iter().chain([place]).collect();
    let decision = decide(&places, args.resume, stop)?;
    if let Some(text) = decision.in_words(&places) {
        console.block(text);
        console.json(&decision.json_event());
    }
    Ok(decision)
}

/// Makes the folder of the checkpoints ready, if there are to be some.
fn keep_in(
    run_dir: &RunDir,
    recipe: &Recipe,
    spec: &RunSpec,
    identity: (serde_json::Value, OrderIdentity),
) -> Result<Option<Keeping>, Failure> {
    let Some(checkpoint) = &recipe.checkpoint else { return Ok(None) };
    let place = keeping::place(checkpoint, Some(run_dir.path()))?;
    let Some(persistent) = place else { return Ok(None) };
    keeping::check_place(&persistent, DIRECTORY)?;
    let local = keeping::local_place(checkpoint, run_dir.path(), run_dir.id());
    if let Some(local) = &local {
        keeping::check_place(local, "checkpoint.local_directory")?;
    }
    let to = SaveSpec {
        persistent,
        local,
        writer: run_dir.id().to_owned(),
        attempt: run_dir.attempt(),
        timeout_seconds: *checkpoint.timeout_seconds,
    };
    // Weights, and two or one more of the same size.
    let tensors = if spec.engine.optimizer.has_two_moments() { 3 } else { 2 };
    let bytes = parameters(&recipe.model).total.saturating_mul(4 * tensors);
    let keeping = Keeping::new(checkpoint, to, spec, &recipe.name, identity, bytes);
    keeping.tidy_up();
    Ok(Some(keeping))
}

/// Refuses a directory that has something in it, unless it is a run that can be continued: of another run, it is said how
/// that differs.
fn check_occupied(path: &Path, ours: &Loaded, can_go_on: bool) -> Result<(), Failure> {
    let failure = occupied(path);
    let Some(recipe) = RunDir::recipe(path) else { return Err(failure) };
    let Ok(theirs) = titan_recipes::load(&recipe, &Overrides::default(), Purpose::Plan) else {
        return Err(failure);
    };
    let (Ok(theirs), Ok(ours)) = (theirs.settings(), ours.settings()) else { return Err(failure) };
    let mut differences = titan_recipes::difference(&theirs, &ours);
    if can_go_on {
        // Another number of steps or of devices is no reason to begin anew.
        differences.retain(|difference| keeping::is_identity(&difference.name));
        if differences.is_empty() {
            return Ok(());
        }
    }
    Err(another_recipe(path, failure, &differences))
}

fn another_recipe(path: &Path, failure: Failure, differences: &[Difference]) -> Failure {
    const SHOWN: usize = 12;
    if differences.is_empty() {
        return failure.help(
            "it is a run of the same recipe; with a table [checkpoint] it could be continued",
        );
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
