//! A run, from what is settled before its first process to its end.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use titan_control::{Budgets, Limits, Settings, StepLimit};
use titan_recipes::{Layout, Recipe, Secret};
use titan_trainer::ledger;
use titan_trainer::spec::RunSpec;

use super::keeping::Keeping;
use super::recorder::Recorder;
use super::resume::Decision;
use super::run_dir::{RunDir, host_name};
use super::session::Session;
use super::shell::{WorkerSettings, Workers, log_path};
use super::{Data, Reached, notice, signals};
use crate::console::Console;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::setup_command::Environment;
use crate::words;

/// Everything that is settled before the first process starts.
pub(super) struct Run<'a> {
    pub(super) console: &'a Console,
    pub(super) recipe: &'a Recipe,
    pub(super) layout: Layout,
    pub(super) spec: RunSpec,
    /// Variables of the workers' environment.
    pub(super) variables: Vec<(String, Secret)>,
    pub(super) run_dir: RunDir,
    pub(super) environment: Environment,
    /// When the command began.
    pub(super) start: Instant,
    /// How long it took to have the environment.
    pub(super) set_up: Duration,
    pub(super) data: Data,
    /// How checkpoints are kept, if they are saved.
    pub(super) keeping: Option<Keeping>,
    /// What the run goes on from.
    pub(super) decision: Decision,
    /// Set by the first signal.
    pub(super) cancelled: Arc<AtomicBool>,
}

impl Run<'_> {
    /// Starts the workers, follows them to their end, and says how that was.
    pub(super) fn execute(mut self, reached: &mut Reached) -> Result<Exit, Failure> {
        let recipe_text = self.recipe.to_toml(&self.layout).map_err(|error| {
            Failure::new(Exit::Bug, format!("the resolved recipe cannot be written: {error}"))
        })?;
        let tensorboard = *self.recipe.metrics.tensorboard;
        let (mut recorder, lost) = Recorder::create(
            &self.run_dir,
            &recipe_text,
            tensorboard,
            self.start,
            self.spec.steps_done(),
        )?;
        if let Some(lost) = lost {
            self.console.warning(&lost.to_string());
        }
        recorder.event(&self.run_started())?;
        let seconds = self.set_up.as_secs_f64();
        recorder.event(&ledger::Event::Phase { phase: "set_up", seconds })?;
        if let Some(resume) = &self.spec.resume {
            recorder.event(&ledger::Event::Resumed {
                step: resume.step,
                path: resume.copies.first().map(ToString::to_string).unwrap_or_default(),
                skipped: self.decision.skipped.clone(),
            })?;
        }
        let result = self.supervise(&mut recorder, reached);
        let exit = result.as_ref().map_or_else(|failure| failure.exit, |exit| *exit);
        let reason = match &result {
            Ok(Exit::Done) => "all steps are done".to_owned(),
            Ok(_) => "stopped by a signal".to_owned(),
            Err(failure) => failure.summary(),
        };
        let ended =
            ledger::Event::RunEnded { exit_code: exit.code(), final_step: reached.step, reason };
        // A failure to write this must not hide how the run ended.
        let _ = recorder.event(&ended);
        if let Some(lost) = recorder.finish() {
            self.console.warning(&lost.to_string());
        }
        result
    }

    fn run_started(&self) -> ledger::Event {
        ledger::Event::RunStarted {
            titan: env!("CARGO_PKG_VERSION"),
            name: self.recipe.name.value.clone(),
            world: self.layout.world,
            steps: self.spec.steps,
            global_tokens: self.layout.global_tokens(),
            data: self.data.prepared.fingerprint(),
            host: host_name(),
            pid: std::process::id(),
        }
    }

    fn supervise(
        &mut self,
        recorder: &mut Recorder,
        reached: &mut Reached,
    ) -> Result<Exit, Failure> {
        let (sender, events) = channel();
        signals::forward(sender.clone()).map_err(|error| {
            Failure::io(Exit::WorkersFailed, "cannot watch for signals", &error)
        })?;
        if let Some(notice) = &self.recipe.elastic.preemption_notice {
            let here = std::env::current_dir().unwrap_or_default();
            notice::watch(notice, &here, sender.clone()).map_err(|error| {
                Failure::io(Exit::WorkersFailed, "cannot watch for a notice", &error)
            })?;
        }
        self.console.spin("importing torch");
        let workers = Workers::start(self.worker_settings(), sender.clone()).map_err(|error| {
            Failure::io(Exit::WorkersFailed, "cannot start the worker host", &error)
        })?;
        let mut session = Session::new(self, recorder, reached, workers, sender);
        let followed = session.follow(&events);
        session.end(followed, &events)
    }

    fn worker_settings(&self) -> WorkerSettings {
        WorkerSettings {
            python: self.environment.python().to_owned(),
            isolated: self.environment.isolated(),
            engine: self.environment.engine().to_owned(),
            logs: self.run_dir.path().join("logs"),
            run_id: self.run_dir.id().to_owned(),
            world: self.layout.world as usize,
            threads: self.spec.engine.threads,
            saves: self.spec.save.is_some(),
            parameters: titan_parallelism::parameters(&self.recipe.model).total,
            variables: self.variables.clone(),
        }
    }

    /// What the control plane is told about this run.
    pub(super) fn control_settings(&self) -> Settings {
        let elastic = &self.recipe.elastic;
        let seconds = Duration::from_secs;
        let defaults = Limits::default();
        let step = match elastic.step_timeout_seconds.fixed() {
            Some(fixed) => StepLimit::Fixed(seconds(fixed)),
            None => defaults.step,
        };
        let start = elastic.start_timeout_seconds.fixed().map_or(defaults.start, seconds);
        let save = self.keeping.as_ref().map_or(defaults.save, Keeping::timeout);
        let limits = Limits {
            lease: None,
            boot: start,
            absence: start,
            start,
            first_step: start,
            step,
            save,
            drain: seconds(*elastic.grace_seconds),
            ..defaults
        };
        let budgets = Budgets {
            infrastructure: u32::try_from(*elastic.max_restarts).unwrap_or(u32::MAX),
            application: u32::try_from(*elastic.max_application_restarts).unwrap_or(u32::MAX),
        };
        Settings { limits, budgets, saves: self.keeping.is_some(), ..Settings::one_host() }
    }

    /// How long steps may take, in words.
    pub(super) fn limits_in_words(&self) -> String {
        let limits = self.control_settings().limits;
        let text = |duration: Duration| words::seconds(duration.as_secs_f64());
        let step = match limits.step {
            StepLimit::Fixed(limit) => text(limit),
            StepLimit::Usual { times, least } => {
                format!("{times} times as long as usual, at least {}", text(least))
            }
        };
        format!("watched: the first step may take {}, the others {step}", text(limits.first_step))
    }

    /// Pairs of token and expert of one step, over all layers.
    pub(super) fn pairs_per_step(&self) -> u64 {
        let decoder = self.recipe.model.decoder();
        let pairs = decoder
            .and_then(|decoder| Some(*decoder.num_layers * *decoder.experts()?.experts_per_token));
        self.layout.global_tokens().saturating_mul(pairs.unwrap_or(0))
    }

    pub(super) fn log(&self, rank: usize) -> PathBuf {
        log_path(&self.run_dir.path().join("logs"), rank)
    }
}
