//! The Python environment and the engine: finding, making, checking and explaining them.
//!
//! [`prepare`] gives a Python with torch: the one in `TITAN_PYTHON`, else the active virtual environment if it has
//! torch, else an environment of titan-tpu's own in the cache, which is made on first use. [`extract`] writes the
//! embedded engine to the cache. [`doctor`] says what is there. Nothing here prints.

mod attempt;
mod child;
pub(crate) mod compiler;
mod disk;
mod doctor;
mod engine;
mod error;
mod index;
mod install;
mod interpreter;
mod pip;
mod progress;
mod requirements;
mod select;
mod store;
#[cfg(test)]
mod tests;
mod variables;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::Serialize;

pub(crate) use doctor::{Request, State, doctor};
pub(crate) use engine::{Engine, extract};
pub(crate) use error::{Class, SetupError};
pub(crate) use progress::Progress;
pub(crate) use variables::Variables;

use attempt::Lock;
use disk::Removal;
use error::Cause;
use index::Choice;
use interpreter::Probe;
use requirements::Variant;
use store::{Environment, Health, Lease, Store};

/// How long the steps of a set-up may take. Only downloads are open-ended: pip itself gives up on a silent index.
mod step_limits {
    use std::time::Duration;

    pub(super) const VENV: Duration = Duration::from_secs(180);
    pub(super) const PIP: Duration = Duration::from_secs(24 * 3600);
    pub(super) const COMPILE: Duration = Duration::from_secs(1800);
    pub(super) const CHECK: Duration = Duration::from_secs(600);
}

/// What a set-up works with.
#[derive(Clone, Copy)]
pub(crate) struct Context<'a> {
    /// The environment variables of the user.
    pub(crate) variables: &'a Variables,
    /// Where progress goes.
    pub(crate) progress: &'a dyn Progress,
    /// Set by the caller, in a signal handler say, to stop: running programs are killed, partial folders removed.
    pub(crate) cancelled: &'a AtomicBool,
}

/// Whose Python it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    /// Made by titan-tpu.
    Titan,
    /// Named by `TITAN_PYTHON`.
    Variable,
    /// The active virtual environment.
    ActiveVenv,
}

impl Kind {
    /// Why this one was taken.
    pub(crate) fn why(self) -> &'static str {
        match self {
            Self::Titan => "made by titan-tpu",
            Self::Variable => "TITAN_PYTHON",
            Self::ActiveVenv => "active virtual environment",
        }
    }
}

/// A Python that has torch. An environment of titan-tpu's own is not removed while this value or a clone is alive,
/// so keep it as long as workers run.
#[derive(Clone, Debug)]
pub(crate) struct PythonEnv {
    /// The interpreter, as an absolute path.
    pub(crate) python: PathBuf,
    /// Whose it is.
    pub(crate) kind: Kind,
    /// As the package metadata has it: `2.15.0`, `2.15.0+cpu`.
    pub(crate) torch_version: String,
    /// Whether to start it with `-I`. The user's own Python keeps its `PYTHON*` variables and user packages, which
    /// may be where its torch comes from; ours needs none of that and could be broken by it.
    pub(crate) isolated: bool,
    _lease: Option<Lease>,
}

impl PythonEnv {
    fn new(python: PathBuf, kind: Kind, torch_version: String, lease: Option<Lease>) -> Self {
        Self { python, kind, torch_version, isolated: kind == Kind::Titan, _lease: lease }
    }
}

/// Finds a Python with torch, and makes one if there is none. Takes under a millisecond if titan-tpu's own is ready
/// and the user brings none. `rebuild` makes titan-tpu's own anew even if it is ready.
///
/// Runs child processes which die with the calling thread; call it from one that stays.
pub(crate) fn prepare(context: &Context<'_>, rebuild: bool) -> Result<PythonEnv, SetupError> {
    let selection = select::brought_by_user(context.variables, context.cancelled)?;
    for note in &selection.notes {
        context.progress.note(note);
    }
    match selection.env {
        Some(env) => Ok(env),
        None => managed(context, rebuild),
    }
}

fn managed(context: &Context<'_>, rebuild: bool) -> Result<PythonEnv, SetupError> {
    let choice = Choice::from_variables(context.variables)?;
    let store = Store::in_cache(&context.variables.cache_dir()?);
    if !rebuild && let Found::Usable(env) = look(context, &store, &choice)? {
        // What an earlier process had no time to remove; goes on while the run does.
        let _ = Removal::start(disk::trash_in(&store.root));
        return Ok(env);
    }

    context.progress.phase("looking for Python");
    let (base, rejected) = interpreter::find_base(context.variables, context.cancelled)?;
    let base = base.ok_or(SetupError::NoInterpreter { rejected })?;
    let variant = match &choice {
        Choice::Fixed(variant) => variant.clone(),
        Choice::Auto if index::cpu_index_reachable(context.variables, context.cancelled) => {
            Variant::Cpu
        }
        Choice::Auto => Variant::Plain,
    };
    let key = |variant: &Variant| variant.key(&base.version_text(), &base.base);
    let lock = attempt::lock(&store, &key(&variant), context.progress, context.cancelled)?;
    if !rebuild {
        // Another process may have made it while this one waited for the lock.
        match look(context, &store, &choice)? {
            Found::Usable(env) => return Ok(env),
            Found::Damaged { folder, why } => give_up(context, &store, &lock, &folder, &why),
            Found::Nothing => {}
        }
    }
    let removal = attempt::sweep(&store, &lock);
    let folder = match install::build(context, &store, &lock, &base, &variant, &removal) {
        Err(SetupError::Step(failure)) if can_fall_back(&choice, &variant, &failure.cause) => {
            let reason = SetupError::Step(failure).to_string();
            let reason = reason.lines().next().unwrap_or_default();
            context
                .progress
                .note(&format!("no CPU wheels ({reason}); taking torch from the ordinary index"));
            // The first lock is kept: whoever waits for it finds the result of this instead of trying the same.
            let plain = key(&Variant::Plain);
            let second = attempt::lock(&store, &plain, context.progress, context.cancelled)?;
            if let Found::Usable(env) = look(context, &store, &choice)? {
                return Ok(env);
            }
            install::build(context, &store, &second, &base, &Variant::Plain, &removal)?
        }
        other => other?,
    };
    // What the new environment has replaced. Whoever asked for that waits; a run goes on.
    let removal = attempt::sweep(&store, &lock);
    if rebuild && !removal.is_finished() {
        context.progress.phase("removing the replaced environment");
        while !removal.wait(Duration::from_millis(100))
            && !context.cancelled.load(Ordering::Relaxed)
        {}
    }
    let built = store.all().into_iter().find(|environment| environment.folder == folder);
    built.and_then(|environment| ours(&environment)).ok_or_else(|| {
        let gone = std::io::Error::from(std::io::ErrorKind::NotFound);
        SetupError::io("find", &folder, gone)
    })
}

/// Only what the user did not ask for may be replaced by something else, and only if the wheels are the problem.
fn can_fall_back(choice: &Choice, variant: &Variant, cause: &Cause) -> bool {
    *choice == Choice::Auto && *variant == Variant::Cpu && *cause != Cause::Killed
}

/// What the cache has for a choice.
enum Found {
    Usable(PythonEnv),
    Damaged { folder: PathBuf, why: String },
    Nothing,
}

fn look(context: &Context<'_>, store: &Store, choice: &Choice) -> Result<Found, SetupError> {
    let mut found = Found::Nothing;
    for environment in store.find(&choice.acceptable()) {
        let damage = match &environment.health {
            Health::Sound => None,
            Health::Replaced => still_works(context, &environment)?.err(),
            Health::Damaged { why } => Some(why.clone()),
        };
        let Some(why) = damage else {
            match ours(&environment) {
                Some(env) => return Ok(Found::Usable(env)),
                // Another process has just replaced and removed it.
                None => continue,
            }
        };
        if matches!(found, Found::Nothing) {
            found = Found::Damaged { folder: environment.folder, why };
        }
    }
    Ok(found)
}

/// Says why an environment is made again. The damaged one makes room if it has the same key; one that was made from
/// another interpreter is left alone, since that may only be out of reach for the moment.
fn give_up(context: &Context<'_>, store: &Store, lock: &Lock, folder: &Path, why: &str) {
    let place = folder.display();
    let rest = match attempt::unpublish(store, lock, folder) {
        true => "it is made again".to_owned(),
        false => format!("a new one is made; `rm -r {place}` if you do not need it any more"),
    };
    context.progress.note(&format!("the Python environment {place} is damaged: {why}; {rest}"));
}

/// The environment as one to be used, unless it was removed since it was looked at.
fn ours(environment: &Environment) -> Option<PythonEnv> {
    let lease = store::lease(&environment.folder).ok()?;
    let torch = environment.marker.torch_version.clone();
    Some(PythonEnv::new(environment.python(), Kind::Titan, torch, lease))
}

/// Asks an environment whose interpreter was replaced, by an update of the system say, whether it still works: a new
/// minor version looks for the packages elsewhere.
fn still_works(
    context: &Context<'_>,
    environment: &Environment,
) -> Result<Result<(), String>, SetupError> {
    let found = interpreter::probe(
        &environment.python(),
        true,
        true,
        context.variables,
        context.cancelled,
    )?;
    let probe = match found {
        Ok(probe) => probe,
        Err(unfit) => return Ok(Err(format!("its interpreter {unfit}"))),
    };
    if probe.torch.is_none() {
        let version = probe.version_text();
        return Ok(Err(format!("its interpreter is Python {version} now and does not see torch")));
    }
    remember_base(environment, &probe);
    Ok(Ok(()))
}

/// Saves the next start the question; a cache that cannot be written to only costs time.
fn remember_base(environment: &Environment, probe: &Probe) {
    if let Ok(base) = store::Base::of(&probe.base) {
        let mut marker = environment.marker.clone();
        (marker.base, marker.python_version) = (base, probe.version_text());
        let _ = store::write_marker(&environment.folder, &marker);
    }
}
