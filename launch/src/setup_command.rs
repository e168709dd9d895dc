//! `titan-tpu setup` and `doctor`, and the environment that `train` starts from.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use serde::Serialize;

use crate::cli::{DoctorArgs, SetupArgs};
use crate::console::{Console, Style};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::setup::{self, Class, Engine, Progress, PythonEnv, SetupError, State, Variables};
use crate::train::signals::cancellation;

/// The engine: the Python package and the native module, as `build.rs` found and built them.
const ENGINE_FILES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/engine_files.rs"));

/// A Python with torch, and the engine that it imports. Both stay in the cache while this value lives.
#[derive(Debug)]
pub(crate) struct Environment {
    python: PythonEnv,
    engine: Engine,
}

impl Environment {
    /// The interpreter.
    pub(crate) fn python(&self) -> &Path {
        &self.python.python
    }

    /// Whether to keep the user's `PYTHON*` variables from it.
    pub(crate) fn isolated(&self) -> bool {
        self.python.isolated
    }

    /// The folder that has the package `titan_tpu`.
    pub(crate) fn engine(&self) -> &Path {
        &self.engine.folder
    }

    /// What it is, in a few words.
    pub(crate) fn describe(&self) -> String {
        format!("torch {} ({})", self.python.torch_version, self.python.kind.why())
    }
}

/// Shows a set-up on the console.
struct Shown<'a>(&'a Console);

impl Progress for Shown<'_> {
    fn phase(&self, name: &str) {
        match self.0.style() {
            Style::Live => self.0.spin(name),
            Style::Plain => self.0.block(format!("{:>10}  {name}", "set-up")),
            Style::Json => {
                self.0.json(&SetupLine { event: "setup", message: name, fraction: None })
            }
        }
    }

    fn update(&self, message: &str, fraction: Option<f64>) {
        match self.0.style() {
            Style::Live => self.0.progress(message.to_owned(), fraction),
            // The set-up reports often; a log needs only its phases.
            Style::Plain => {}
            Style::Json => self.0.json(&SetupLine { event: "setup", message, fraction }),
        }
    }

    fn note(&self, text: &str) {
        self.0.note(text);
    }
}

#[derive(Serialize)]
struct SetupLine<'a> {
    event: &'static str,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    fraction: Option<f64>,
}

/// Finds the environment, and makes it if this is the first use or if `rebuild` asks for it.
pub(crate) fn ensure(
    console: &Console,
    cancelled: &AtomicBool,
    rebuild: bool,
) -> Result<Environment, Failure> {
    let variables = Variables::from_process();
    let progress = Shown(console);
    let context = setup::Context { variables: &variables, progress: &progress, cancelled };
    let made = setup::prepare(&context, rebuild).and_then(|python| {
        let engine = setup::extract(ENGINE_FILES, &variables.cache_dir()?)?;
        Ok(Environment { python, engine })
    });
    console.clear();
    made.map_err(|error| failure(&error))
}

fn failure(error: &SetupError) -> Failure {
    let exit = match error.class() {
        Class::Usage => Exit::Usage,
        Class::NoSpace => Exit::NoSpace,
        Class::Cancelled => Exit::Stopped,
        Class::Environment => Exit::Environment,
    };
    let failure = Failure::new(exit, error.to_string());
    match error.hint() {
        Some(hint) => failure.help(hint),
        None => failure,
    }
}

/// `titan-tpu setup`.
pub(crate) fn setup(args: &SetupArgs) -> Result<Exit, Failure> {
    #[derive(Serialize)]
    struct Ready<'a> {
        event: &'static str,
        python: &'a Path,
        torch: &'a str,
        engine: &'a Path,
        seconds: f64,
    }
    let console = Console::new(Style::choose(args.json));
    let start = Instant::now();
    let environment = ensure(&console, &*cancellation()?, args.rebuild)?;
    console.phase("set-up", &format!("{} is ready", environment.describe()), start.elapsed());
    console.json(&Ready {
        event: "ready",
        python: environment.python(),
        torch: &environment.python.torch_version,
        engine: environment.engine(),
        seconds: start.elapsed().as_secs_f64(),
    });
    Ok(Exit::Done)
}

/// `titan-tpu doctor`: a line for each thing that was looked at.
pub(crate) fn doctor(args: &DoctorArgs) -> Result<Exit, Failure> {
    let console = Console::new(Style::choose(args.json));
    let working_dir = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("."));
    let request = setup::Request {
        variables: &Variables::from_process(),
        files: ENGINE_FILES,
        working_dir: &working_dir,
        deep: args.deep,
        cancelled: &*cancellation()?,
    };
    let report = setup::doctor(&request).map_err(|error| failure(&error))?;
    console.json(&report);
    let width = report.checks.iter().map(|check| check.name.len()).max().unwrap_or(0);
    for check in &report.checks {
        let state = match check.state {
            State::Ok => "ok",
            State::Warn => "warn",
            State::Missing => "missing",
        };
        console.line(format!("{state:<7}  {:<width$}  {}", check.name, check.detail));
        if let Some(fix) = &check.fix {
            console.line(format!("{:<7}  {:<width$}  {fix}", "", ""));
        }
    }
    Ok(match report.state {
        State::Ok | State::Warn => Exit::Done,
        State::Missing => Exit::Environment,
    })
}
