//! A run from its first process to its last: the loop that turns events into records, lines and actions.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use signal_hook::iterator::Signals;
use titan_recipes::{Layout, Recipe};
use titan_trainer::failure::FailureClass;
use titan_trainer::ledger;
use titan_trainer::metrics::{Assembler, Meter, StepRecord};
use titan_trainer::protocol::{HostMessage, PROTOCOL, RankMessage};
use titan_trainer::spec::RunSpec;

use super::recorder::{ATTEMPT, Recorder};
use super::run_dir::{RunDir, host_name};
use super::shell::{WorkerSettings, Workers, log_path};
use super::supervisor::{Action, Event, How, RankFailure, Supervisor, Verdict, describe};
use super::{Data, Reached};
use crate::console::{Console, Style};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::setup_command::Environment;
use crate::words;

/// Lines of a worker's log that a failure quotes.
const QUOTED_LINES: usize = 12;

/// Steps that the shown throughput and remaining time are averaged over.
const WINDOW: usize = 20;

/// Everything that is settled before the first process starts.
pub(super) struct Run<'a> {
    pub(super) console: &'a Console,
    pub(super) recipe: &'a Recipe,
    pub(super) layout: Layout,
    pub(super) spec: RunSpec,
    pub(super) run_dir: RunDir,
    pub(super) environment: Environment,
    pub(super) start: Instant,
    pub(super) data: Data,
}

impl Run<'_> {
    /// Starts the workers, follows them to their end, and says how that was.
    pub(super) fn execute(self, reached: &mut Reached) -> Result<Exit, Failure> {
        let recipe_text = self.recipe.to_toml(&self.layout).map_err(|error| {
            Failure::new(Exit::Bug, format!("the resolved recipe cannot be written: {error}"))
        })?;
        let tensorboard = *self.recipe.metrics.tensorboard;
        let (mut recorder, lost) =
            Recorder::create(&self.run_dir, &recipe_text, tensorboard, self.start)?;
        if let Some(lost) = lost {
            self.console.warning(&lost.to_string());
        }
        recorder.event(&self.run_started())?;
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
            data: self.data.corpus.fingerprint.to_string(),
            host: host_name(),
            pid: std::process::id(),
        }
    }

    fn supervise(&self, recorder: &mut Recorder, reached: &mut Reached) -> Result<Exit, Failure> {
        let (sender, events) = channel();
        forward_signals(sender.clone())
            .map_err(|error| Failure::io("cannot watch for signals", &error))?;
        let settings = WorkerSettings {
            python: self.environment.python().to_owned(),
            isolated: self.environment.isolated(),
            engine: self.environment.engine().to_owned(),
            logs: self.run_dir.path().join("logs"),
            run_id: self.run_dir.id().to_owned(),
            spec: self.spec.clone(),
        };
        self.console.spin("importing torch");
        let workers = Workers::start(settings, sender)
            .map_err(|error| Failure::io("cannot start the worker host", &error))?;
        let grace = Duration::from_secs(*self.recipe.elastic.grace_seconds);
        let world = self.layout.world as usize;
        let meter = Meter::new(self.recipe, self.layout, ATTEMPT);
        let mut session = Session {
            run: self,
            recorder,
            reached,
            workers,
            supervisor: Supervisor::new(world, grace),
            progress: Progress::new(Assembler::new(meter), self.spec.steps),
            ready: 0,
            ranks_ordered: Instant::now(),
        };
        let verdict = session.follow(&events)?;
        session.workers.end_host(&events);
        session.conclude(verdict)
    }

    fn log(&self, rank: usize) -> PathBuf {
        log_path(&self.run_dir.path().join("logs"), rank)
    }
}

/// A run under way.
struct Session<'a, 'r> {
    run: &'a Run<'r>,
    recorder: &'a mut Recorder,
    reached: &'a mut Reached,
    workers: Workers,
    supervisor: Supervisor,
    progress: Progress,
    /// Ranks whose engine is ready.
    ready: usize,
    ranks_ordered: Instant,
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
            self.workers
                .note(&event)
                .map_err(|error| Failure::io("cannot watch a worker", &error))?;
            self.record(&event)?;
            for action in self.supervisor.on(clock.elapsed(), &event) {
                match action {
                    Action::SpawnRanks => {
                        self.ranks_ordered = Instant::now();
                        self.workers
                            .spawn_ranks()
                            .map_err(|error| Failure::io("cannot start the ranks", &error))?;
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
                console.spin("making the model");
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
                if let Some(record) = self.progress.add(*step) {
                    self.step_done(&record)?;
                }
            }
            Event::Signal(signal) => {
                let step = self.supervisor.last_step();
                let text = if step == 0 {
                    "ending".to_owned()
                } else {
                    format!("ending after step {}", step + 1)
                };
                console.block(&format!("{signal}: {text}; once more to kill"));
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
            "{} ready, {}",
            words::plural(self.run.layout.world, "rank"),
            words::plural(threads, "thread") + if self.run.layout.world > 1 { " each" } else { "" },
        );
        self.run.console.phase("engine", &detail, took);
        self.run.console.bar(self.run.spec.steps, 0, "first step".to_owned());
        self.recorder.event(&ledger::Event::Phase { phase: "engine", seconds: took.as_secs_f64() })
    }

    fn step_done(&mut self, record: &StepRecord) -> Result<(), Failure> {
        if let Some(lost) = self.recorder.step(record)? {
            self.run.console.warning(&lost.to_string());
        }
        self.reached.step = record.step;
        self.reached.loss = Some(record.loss);
        let console = self.run.console;
        let steps = self.run.spec.steps;
        if record.step == 1 {
            console.json(&FirstStep {
                event: "first_step",
                seconds: self.run.start.elapsed().as_secs_f64(),
            });
        }
        console.json(record);
        console.bar(steps, record.step, self.progress.live(record));
        let every = *self.run.recipe.metrics.every_steps;
        let due = record.step.is_multiple_of(every) || record.step == 1 || record.step == steps;
        if console.style() == Style::Plain && due {
            console.line(&plain(record, steps));
        }
        Ok(())
    }

    /// Says how the run ended.
    fn conclude(&mut self, verdict: Verdict) -> Result<Exit, Failure> {
        self.run.console.clear();
        match verdict {
            Verdict::Completed => {
                self.summarize("done");
                Ok(Exit::Done)
            }
            Verdict::Stopped { signal, killed } => {
                self.summarize(&format!("stopped by {signal}"));
                if killed {
                    self.run.console.warning("workers did not end by themselves and were killed");
                }
                Ok(Exit::Stopped)
            }
            Verdict::HostFailed(message) => {
                let log = self.run.run_dir.path().join("logs").join("host.log");
                Err(Failure::new(Exit::Environment, message)
                    .quoting(last_lines(&log))
                    .help(format!("its whole output is in {}", log.display()))
                    .help("titan-tpu doctor --deep checks the Python environment"))
            }
            Verdict::Failed { failures, cause } => Err(self.explain(&failures, cause)),
        }
    }

    fn explain(&mut self, failures: &[RankFailure], cause: usize) -> Failure {
        for (index, failure) in failures.iter().enumerate() {
            let reason = reason(failure);
            let event = ledger::Event::WorkerFailed {
                rank: failure.rank as u64,
                reason,
                cause: index == cause,
            };
            // The failure itself matters more than a ledger that cannot be written.
            let _ = self.recorder.event(&event);
        }
        let cause = &failures[cause];
        let (exit, text) = match &cause.how {
            How::Reported(step, failure) => {
                let place = if *step == 0 {
                    "before its first step".to_owned()
                } else {
                    format!("in step {step}")
                };
                (
                    Exit::of_failure(failure.class),
                    format!("rank {} failed {place}: {}", cause.rank, failure.message),
                )
            }
            How::Died(status) => {
                let place = match self.reached.step {
                    0 => "before step 1 was done".to_owned(),
                    step => format!("after step {step}"),
                };
                (Exit::WorkersFailed, format!("rank {} {} {place}", cause.rank, describe(*status)))
            }
        };
        let log = self.run.log(cause.rank);
        let quoted = match &cause.how {
            How::Reported(_, f) if f.class == FailureClass::NonFiniteLoss => Vec::new(),
            _ => last_lines(&log),
        };
        let mut failure = Failure::new(exit, text).quoting(quoted);
        if matches!(exit, Exit::NonFiniteLoss) {
            failure =
                failure.help("lower optimizer.learning_rate, or lengthen schedule.warmup_steps");
        }
        if let How::Died(super::supervisor::ExitStatus::Signal(9)) = cause.how {
            failure =
                failure.help("if nobody killed it, the kernel did for want of memory: see dmesg");
        }
        failure.help(format!("the whole log of rank {} is {}", cause.rank, log.display()))
    }

    fn summarize(&self, ending: &str) {
        let (run, progress) = (self.run, &self.progress);
        let meter = progress.assembler.meter();
        let steps = progress.steps_done;
        let rate = meter.tokens_per_second(steps, progress.seconds);
        let mut text = format!("{ending}: {}", words::plural(steps, "step"));
        if let (Some(first), Some(last)) = (progress.first_loss, progress.recent_loss()) {
            text.push_str(&format!(
                " in {}, loss {first:.3} -> {last:.3} (mean of the last {}), {} tokens/s ({} per device)",
                words::seconds(progress.seconds),
                progress.recent.len(),
                words::count(rate),
                words::count(rate / run.layout.world as f64),
            ));
        }
        run.console.line(&text);
        if steps > 0 {
            run.console.line(&match meter.mfu(rate) {
                Ok(Some(fraction)) => format!(
                    "MFU {:.1} % (causal convention, peak {} TFLOP/s per device from the recipe)",
                    100.0 * fraction,
                    run.recipe.hardware.peak_tflops.as_ref().map_or(0.0, |peak| peak.value),
                ),
                Ok(None) => {
                    format!("MFU n/a (no peak known for {})", *run.recipe.hardware.accelerator)
                }
                Err(error) => error.to_string(),
            });
        }
        run.console.line(&format!("run directory: {}", shown(run.run_dir.path())));
    }
}

#[derive(serde::Serialize)]
struct FirstStep {
    event: &'static str,
    seconds: f64,
}

/// What is known about the steps so far.
struct Progress {
    assembler: Assembler,
    steps: u64,
    steps_done: u64,
    /// Wall time of all steps.
    seconds: f64,
    first_loss: Option<f64>,
    /// Loss and seconds of the last steps.
    recent: VecDeque<(f64, f64)>,
}

impl Progress {
    fn new(assembler: Assembler, steps: u64) -> Self {
        Self {
            assembler,
            steps,
            steps_done: 0,
            seconds: 0.0,
            first_loss: None,
            recent: VecDeque::with_capacity(WINDOW + 1),
        }
    }

    fn add(&mut self, step: titan_trainer::protocol::RankStep) -> Option<StepRecord> {
        let record = self.assembler.add(step)?;
        self.steps_done += 1;
        self.seconds += record.step_seconds;
        self.first_loss.get_or_insert(record.loss);
        self.recent.push_back((record.loss, record.step_seconds));
        if self.recent.len() > WINDOW {
            self.recent.pop_front();
        }
        Some(record)
    }

    fn recent_seconds(&self) -> f64 {
        self.recent.iter().map(|(_, seconds)| seconds).sum()
    }

    fn recent_loss(&self) -> Option<f64> {
        let sum: f64 = self.recent.iter().map(|(loss, _)| loss).sum();
        (!self.recent.is_empty()).then(|| sum / self.recent.len() as f64)
    }

    /// The words beside the progress bar.
    fn live(&self, record: &StepRecord) -> String {
        let shown = self.recent.len() as u64;
        let rate = self.assembler.meter().tokens_per_second(shown, self.recent_seconds());
        let left = (self.steps - record.step) as f64 * self.recent_seconds() / shown.max(1) as f64;
        format!(
            "{}/{}  loss {:.4}  {} tokens/s  {} left",
            record.step,
            self.steps,
            record.loss,
            words::count(rate),
            words::seconds(left),
        )
    }
}

/// A step as a line of text.
fn plain(record: &StepRecord, steps: u64) -> String {
    let width = steps.to_string().len();
    let mfu = record.mfu.map_or_else(String::new, |mfu| format!("  mfu {:.1} %", 100.0 * mfu));
    format!(
        "step {:>width$}/{steps}  loss {:.5}  grad_norm {:.3}  lr {:.2e}  {} tokens/s  {}{mfu}",
        record.step,
        record.loss,
        record.grad_norm,
        record.lr,
        words::count(record.tokens_per_second),
        words::seconds(record.step_seconds),
    )
}

fn reason(failure: &RankFailure) -> String {
    match &failure.how {
        How::Reported(_, failure) => failure.message.clone(),
        How::Died(status) => describe(*status),
    }
}

/// The last lines of a log that say something.
fn last_lines(log: &Path) -> Vec<String> {
    let text = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(QUOTED_LINES)..]
        .iter()
        .map(|line| (*line).to_owned())
        .collect()
}

/// A path as short as it can be said from here.
fn shown(path: &Path) -> String {
    let here = std::env::current_dir().unwrap_or_default();
    path.strip_prefix(&here).unwrap_or(path).display().to_string()
}

/// Turns signals into events, on a thread of its own. A SIGHUP that the user's shell has set to be ignored
/// (`nohup`) stays ignored.
fn forward_signals(sender: Sender<Event>) -> std::io::Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let mut watched = vec![SIGINT, SIGTERM];
    if !ignores_hangup() {
        watched.push(SIGHUP);
    }
    let mut signals = Signals::new(watched)?;
    std::thread::Builder::new().name("titan-signals".to_owned()).spawn(move || {
        for signal in signals.forever() {
            let name = signal_hook::low_level::signal_name(signal).unwrap_or("a signal");
            if sender.send(Event::Signal(name)).is_err() {
                return;
            }
        }
    })?;
    Ok(())
}

fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    ignored
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask & 1 != 0)
}
