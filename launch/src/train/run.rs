//! A run from its first process to its last: the loop that turns events into records, lines and actions.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use serde::Serialize;
use titan_recipes::{Layout, Recipe, Secret};
use titan_trainer::ledger;
use titan_trainer::metrics::{Assembler, Meter, StepRecord, ValidationRecord};
use titan_trainer::protocol::{HostMessage, PROTOCOL, RankMessage, RankValidation};
use titan_trainer::saver::{SaveOutcome, Tier};
use titan_trainer::spec::RunSpec;

use super::keeper::{Keeper, Kept};
use super::keeping::Keeping;
use super::progress::{Progress, plain};
use super::recorder::Recorder;
use super::resume::Decision;
use super::run_dir::{RunDir, host_name};
use super::shell::{WorkerSettings, Workers, log_path};
use super::supervisor::{Action, Event, Supervisor, Verdict};
use super::{Data, Reached, signals};
use crate::console::{Console, Style};
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
}

impl Run<'_> {
    /// Starts the workers, follows them to their end, and says how that was.
    pub(super) fn execute(self, reached: &mut Reached) -> Result<Exit, Failure> {
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

    fn supervise(&self, recorder: &mut Recorder, reached: &mut Reached) -> Result<Exit, Failure> {
        let (sender, events) = channel();
        signals::forward(sender.clone()).map_err(|error| {
            Failure::io(Exit::WorkersFailed, "cannot watch for signals", &error)
        })?;
        let settings = WorkerSettings {
            python: self.environment.python().to_owned(),
            isolated: self.environment.isolated(),
            engine: self.environment.engine().to_owned(),
            logs: self.run_dir.path().join("logs"),
            run_id: self.run_dir.id().to_owned(),
            spec: self.spec.clone(),
            parameters: titan_parallelism::parameters(&self.recipe.model).total,
            variables: self.variables.clone(),
        };
        self.console.spin("importing torch");
        let keeper = match &self.keeping {
            None => None,
            Some(keeping) => {
                let sender = sender.clone();
                let report = move |kept| drop(sender.send(Event::Checkpoint(kept)));
                let world = self.layout.world as usize;
                let keeper = keeping.start(&self.spec, self.run_dir.attempt(), world, report);
                Some(keeper.map_err(|error| {
                    Failure::io(Exit::WorkersFailed, "cannot start to keep checkpoints", &error)
                })?)
            }
        };
        let workers = Workers::start(settings, sender).map_err(|error| {
            Failure::io(Exit::WorkersFailed, "cannot start the worker host", &error)
        })?;
        let grace = Duration::from_secs(*self.recipe.elastic.grace_seconds);
        let world = self.layout.world as usize;
        let meter = Meter::new(self.recipe, self.layout, self.run_dir.attempt());
        let mut session = Session {
            run: self,
            recorder,
            reached,
            workers,
            supervisor: Supervisor::new(world, grace),
            progress: Progress::new(Assembler::new(meter), self.spec.steps, self.pairs_per_step()),
            ready: 0,
            ranks_ordered: Instant::now(),
            signals: 0,
            validations: Vec::new(),
            keeper,
        };
        let followed = session.follow(&events);
        let kept = session.finish_checkpoints(&events);
        let verdict = followed?;
        if matches!(verdict, Verdict::Completed | Verdict::Stopped { .. }) {
            kept?;
            if let Some(keeping) = &session.run.keeping {
                keeping.leave_local();
            }
        }
        session.workers.end_host(&events);
        session.conclude(verdict)
    }

    /// Pairs of token and expert of one step, over all layers.
    fn pairs_per_step(&self) -> u64 {
        let decoder = self.recipe.model.decoder();
        let pairs = decoder
            .and_then(|decoder| Some(*decoder.num_layers * *decoder.experts()?.experts_per_token));
        self.layout.global_tokens().saturating_mul(pairs.unwrap_or(0))
    }

    pub(super) fn log(&self, rank: usize) -> PathBuf {
        log_path(&self.run_dir.path().join("logs"), rank)
    }
}

/// A line of `train --json`.
#[derive(Serialize)]
struct ValidationEvent<'a> {
    event: &'static str,
    #[serde(flatten)]
    record: &'a ValidationRecord,
}

/// A run under way.
pub(super) struct Session<'a, 'r> {
    pub(super) run: &'a Run<'r>,
    pub(super) recorder: &'a mut Recorder,
    pub(super) reached: &'a mut Reached,
    workers: Workers,
    supervisor: Supervisor,
    progress: Progress,
    /// Ranks whose engine is ready.
    ready: usize,
    ranks_ordered: Instant,
    /// Signals so far.
    signals: u32,
    /// What ranks have reported of a validation that not all have reported.
    validations: Vec<RankValidation>,
    keeper: Option<Keeper>,
}

impl Session<'_, '_> {
    /// Takes events until the supervisor says that it is over.
    fn follow(&mut self, events: &Receiver<Event>) -> Result<Verdict, Failure> {
        let clock = Instant::now();
        loop {
            let event = match self.supervisor.deadline() {
                None => events.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(at) => events.recv_timeout(at.saturating_sub(clock.elapsed())),
            };
            let event = match event {
                Ok(event) => event,
                Err(RecvTimeoutError::Timeout) => Event::Deadline,
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Failure::new(Exit::Bug, "all watchers of the workers have ended"));
                }
            };
            self.workers.note(&event).map_err(|error| {
                Failure::io(Exit::WorkersFailed, "cannot watch a worker", &error)
            })?;
            self.record(&event)?;
            for action in self.supervisor.on(clock.elapsed(), &event) {
                match action {
                    Action::SpawnRanks => {
                        self.ranks_ordered = Instant::now();
                        match self.workers.spawn_ranks() {
                            // The host is gone, which is an event of its own.
                            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
                            started => started.map_err(|error| {
                                Failure::io(Exit::WorkersFailed, "cannot start the ranks", &error)
                            })?,
                        }
                    }
                    Action::OrderStop => self.workers.order_stop(),
                    Action::KillRanks => self.workers.kill_ranks(),
                    Action::End(verdict) => return Ok(verdict),
                }
            }
        }
    }

    /// Writes down and shows what an event says.
    fn record(&mut self, event: &Event) -> Result<(), Failure> {
        let console = self.run.console;
        match event {
            Event::Host(HostMessage::Ready { protocol, import_seconds }) => {
                if *protocol != PROTOCOL {
                    let text =
                        format!("the engine speaks protocol {protocol}, this binary {PROTOCOL}");
                    return Err(Failure::new(Exit::Bug, text));
                }
                console.phase(
                    "import",
                    "torch and the engine",
                    Duration::from_secs_f64(*import_seconds),
                );
                console.spin(match self.run.spec.engine.compile {
                    true => "making the model and compiling the step, which can take minutes",
                    false => "making the model",
                });
                self.recorder
                    .event(&ledger::Event::Phase { phase: "import", seconds: *import_seconds })?;
            }
            Event::Host(HostMessage::Spawned { rank, pid }) => {
                self.recorder.event(&ledger::Event::WorkerStarted { rank: *rank, pid: *pid })?;
            }
            Event::Rank(_, RankMessage::Ready { parameters_total, threads, .. }) => {
                self.ready += 1;
                if self.ready == self.run.layout.world as usize {
                    self.engine_ready(*parameters_total, *threads)?;
                }
            }
            Event::Rank(_, RankMessage::Step(step)) => {
                if let Some(record) = self.progress.add(step.clone()) {
                    self.step_done(&record)?;
                }
            }
            Event::Rank(_, RankMessage::Validation(validation)) => {
                self.validations.push(validation.clone());
                if self.validations.len() == self.run.layout.world as usize {
                    let all = std::mem::take(&mut self.validations);
                    self.validation_done(&all)?;
                }
            }
            Event::Rank(_, RankMessage::Saved(SaveOutcome::Saved(saved))) => {
                if let Some(keeper) = &mut self.keeper {
                    keeper.add(saved);
                }
            }
            Event::Rank(rank, RankMessage::Saved(SaveOutcome::Lost { step, why })) => {
                if let Some(keeper) = &mut self.keeper {
                    keeper.lost(*step);
                }
                self.local_lost(*step, &format!("rank {rank}: {why}"))?;
            }
            Event::Checkpoint(kept) => self.checkpoint_done(kept)?,
            Event::Signal(signal) => {
                self.signals += 1;
                let text = match (self.signals, self.supervisor.last_step()) {
                    (1, 0) => "ending now",
                    (1, _) => "ending after the step under way; once more to kill",
                    _ => "killing all workers",
                };
                console.block(format!("{signal}: {text}"));
                self.recorder.event(&ledger::Event::StopRequested { signal })?;
            }
            _ => {}
        }
        Ok(())
    }

    fn engine_ready(&mut self, parameters: u64, threads: u64) -> Result<(), Failure> {
        let took = self.ranks_ordered.elapsed();
        let expected = titan_parallelism::parameters(&self.run.recipe.model).total;
        if parameters != expected {
            let text =
                format!("the engine made {parameters} parameters, the recipe means {expected}");
            return Err(Failure::new(Exit::Bug, text));
        }
        let detail = format!(
            "{} ready, {}{}{}",
            words::plural(self.run.layout.world, "rank"),
            words::plural(threads, "thread"),
            if self.run.layout.world > 1 { " each" } else { "" },
            if self.run.spec.engine.compile { ", the step compiled" } else { "" },
        );
        self.run.console.phase("engine", &detail, took);
        let spec = &self.run.spec;
        self.run.console.bar(spec.steps, spec.steps_done(), "first step".to_owned());
        self.recorder.event(&ledger::Event::Phase { phase: "engine", seconds: took.as_secs_f64() })
    }

    fn step_done(&mut self, record: &StepRecord) -> Result<(), Failure> {
        if let Some(lost) = self.recorder.step(record)? {
            self.run.console.warning(&lost.to_string());
        }
        if record.loss.is_finite() && record.grad_norm.is_finite() {
            self.reached.step = record.step;
            self.reached.loss = Some(record.loss);
        }
        self.run.run_dir.check_still_there()?;
        let console = self.run.console;
        let steps = self.run.spec.steps;
        let is_first = record.step == self.run.spec.steps_done() + 1;
        if is_first {
            console.json(&FirstStep {
                event: "first_step",
                seconds: self.run.start.elapsed().as_secs_f64(),
            });
        }
        console.json(record);
        console.bar(steps, record.step, self.progress.live(record));
        let every = *self.run.recipe.metrics.every_steps;
        let due = record.step.is_multiple_of(every) || is_first || record.step == steps;
        if console.style() == Style::Plain && due {
            console.line(plain(record, steps));
        }
        Ok(())
    }

    /// Records a validation, which has the same loss on all ranks.
    fn validation_done(&mut self, ranks: &[RankValidation]) -> Result<(), Failure> {
        let Some(first) = ranks.first() else { return Ok(()) };
        let seconds = ranks.iter().map(|rank| rank.seconds).fold(0.0, f64::max);
        let record = ValidationRecord {
            step: first.step,
            attempt: self.run.run_dir.attempt(),
            loss: first.loss,
            targets: first.targets,
            seconds,
        };
        if let Some(lost) = self.recorder.validation(&record)? {
            self.run.console.warning(&lost.to_string());
        }
        let console = self.run.console;
        console.json(&ValidationEvent { event: "validation", record: &record });
        if console.style() != Style::Json {
            console.line(format!(
                "validation after step {}: loss {:.4} over {} ({})",
                record.step,
                record.loss,
                words::plural(record.targets, "token"),
                words::seconds(seconds),
            ));
        }
        Ok(())
    }

    /// Records what became of a save.
    fn checkpoint_done(&mut self, kept: &Kept) -> Result<(), Failure> {
        let step = kept.step;
        let committed = match &kept.result {
            Ok(committed) => committed,
            Err(not_kept) if kept.tier == Tier::Local => {
                return self.local_lost(step, &not_kept.text);
            }
            Err(not_kept) => {
                let failure = Failure::new(not_kept.exit, not_kept.text.clone());
                return Err(failure.help("the checkpoints before it are as they were"));
            }
        };
        self.recorder.event(&committed.ledger_event(kept.tier, step))?;
        let console = self.run.console;
        console.json(&committed.json_event(kept.tier, step));
        if console.style() != Style::Json {
            console.line(committed.in_words(kept.tier, step));
        }
        if let Some(why) = &committed.kept_back {
            console.warning(why);
        }
        Ok(())
    }

    /// The local tier is there for speed: without it, the run goes on.
    fn local_lost(&mut self, step: u64, why: &str) -> Result<(), Failure> {
        let text = format!("there is no local checkpoint of step {step}: {why}");
        self.run.console.warning(&text);
        self.recorder.event(&ledger::Event::LocalCheckpointLost { step, why: why.to_owned() })
    }

    /// Waits for the checkpoints that are being made. The workers have ended. A place that hangs does not hold a run for
    /// ever, nor does it after a signal.
    fn finish_checkpoints(&mut self, events: &Receiver<Event>) -> Result<(), Failure> {
        const GLANCE: Duration = Duration::from_millis(5);
        let Some(mut keeper) = self.keeper.take() else { return Ok(()) };
        let (signals, began) = (self.signals, Instant::now());
        keeper.close(signals > 0);
        let limit = match signals {
            0 => self.run.keeping.as_ref().map_or(Duration::ZERO, Keeping::timeout),
            _ => Duration::from_secs(*self.run.recipe.elastic.grace_seconds),
        };
        if !keeper.is_done() {
            self.run.console.spin("making the last checkpoints");
        }
        let mut result = Ok(());
        loop {
            // What it has reported before it was done comes after.
            let is_done = keeper.is_done();
            while let Ok(event) = events.recv_timeout(if is_done { Duration::ZERO } else { GLANCE })
            {
                let _ = self.workers.note(&event);
                match &event {
                    Event::Checkpoint(kept) => result = result.and(self.checkpoint_done(kept)),
                    Event::Signal(_) => self.signals += 1,
                    _ => {}
                }
            }
            if is_done {
                break;
            }
            if self.signals > signals || began.elapsed() > limit {
                let text = "the last checkpoint was given up: its place did not take it in time";
                result = result.and(Err(Failure::new(Exit::WorkersFailed, text)
                    .help("the checkpoints before it are as they were")));
                break;
            }
        }
        if let Some(keeping) = self.run.keeping.as_ref().filter(|_| keeper.is_done()) {
            keeping.tidy_up();
        }
        result
    }

    /// Says how the run ended.
    fn conclude(&mut self, verdict: Verdict) -> Result<Exit, Failure> {
        self.run.console.clear();
        if let Some(left_out) = self.progress.left_out() {
            self.run.console.warning(&left_out);
        }
        match verdict {
            Verdict::Completed => {
                self.summarize("done");
                Ok(Exit::Done)
            }
            Verdict::Stopped { signal, killed } => {
                self.summarize(&format!("stopped by {signal}"));
                if killed {
                    self.run
                        .console
                        .warning("workers did not end within the grace and were killed");
                }
                Ok(Exit::Stopped)
            }
            Verdict::HostFailed(failure) => Err(self.explain_host(&failure)),
            Verdict::Failed { failures, cause } => Err(self.explain(&failures, cause)),
        }
    }

    fn summarize(&self, ending: &str) {
        let run = self.run;
        let peak = match run.recipe.hardware.peak_flops() {
            Some((peak, source)) => format!("peak {} TFLOP/s per device, {source}", peak / 1e12),
            None => format!("no peak known for {}", *run.recipe.hardware.accelerator),
        };
        for line in self.progress.summary(ending, run.layout.world, &peak) {
            run.console.line(&line);
        }
        run.console.line(format!("run directory: {}", shown(run.run_dir.path())));
    }
}

#[derive(serde::Serialize)]
struct FirstStep {
    event: &'static str,
    seconds: f64,
}

/// A path as short as it can be said from here.
fn shown(path: &Path) -> String {
    let here = std::env::current_dir().unwrap_or_default();
    path.strip_prefix(&here).unwrap_or(path).display().to_string()
}
