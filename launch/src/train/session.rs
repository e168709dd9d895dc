//! A run under way: the loop that turns what processes do into decisions, and decisions into what is done.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use titan_control::{Action, Advance, Class, Decision, How, Reason, Seat, State, Verdict};
use titan_trainer::failure::Failure as Said;
use titan_trainer::ledger;
use titan_trainer::metrics::{Assembler, Meter};
use titan_trainer::protocol::{Doing, HostMessage, RankMessage, RankValidation};

use super::Reached;
use super::diagnose::{Asked, ask};
use super::event::Event;
use super::keeper::Keeper;
use super::keeping::Keeping;
use super::progress::Progress;
use super::ranks::{Input, Output, Ranks, class_of_host};
use super::recorder::Recorder;
use super::run::Run;
use super::shell::Workers;
use crate::exit::Exit;
use crate::failure::Failure;

/// When steps ended for a failure.
#[derive(Clone, Copy, Debug)]
pub(super) struct Interrupted {
    pub(super) at: Instant,
    /// The last step that was done.
    pub(super) step: u64,
}

/// A run under way.
pub(super) struct Session<'a, 'r> {
    pub(super) run: &'a mut Run<'r>,
    pub(super) recorder: &'a mut Recorder,
    pub(super) reached: &'a mut Reached,
    pub(super) workers: Workers,
    pub(super) sender: Sender<Event>,
    /// What decides. It is only ever away while it does.
    control: Option<State>,
    /// The ranks of the last start.
    pub(super) ranks: Option<Ranks>,
    clock: Instant,
    verdict: Option<Verdict>,
    pub(super) progress: Progress,
    /// Ranks whose engine is ready.
    pub(super) ready: usize,
    /// The last step that each rank has done.
    pub(super) steps: Vec<u64>,
    pub(super) ranks_ordered: Instant,
    /// Signals so far.
    pub(super) signals: u32,
    /// What ranks have reported of a validation that not all have reported.
    pub(super) validations: Vec<RankValidation>,
    pub(super) keeper: Option<Keeper>,
    /// The newest checkpoint that this process has made.
    pub(super) committed: Option<u64>,
    /// What failed in this start, as the control plane was told.
    pub(super) noticed: Vec<titan_control::Failure>,
    /// What ranks have said about their failures, and in which step.
    pub(super) reports: BTreeMap<u64, (u64, Said)>,
    /// Why a save did not become a checkpoint.
    pub(super) not_committed: Option<Failure>,
    pub(super) interrupted: Option<Interrupted>,
    /// Whether the worker host is not ready yet.
    pub(super) awaits_host: bool,
    /// Worker hosts that were started in place of one that was killed before it was ready.
    revived: u64,
}

impl<'a, 'r> Session<'a, 'r> {
    /// A session whose worker host was started.
    pub(super) fn new(
        run: &'a mut Run<'r>,
        recorder: &'a mut Recorder,
        reached: &'a mut Reached,
        workers: Workers,
        sender: Sender<Event>,
    ) -> Self {
        let attempt = run.run_dir.attempt();
        let meter = Meter::new(run.recipe, run.layout, attempt);
        let progress = Progress::new(Assembler::new(meter), run.spec.steps, run.pairs_per_step());
        let settings = run.control_settings();
        let control = State::new(settings, Duration::ZERO, attempt - 1, run.spec.steps_done());
        Self {
            run,
            recorder,
            reached,
            workers,
            sender,
            control: Some(control),
            ranks: None,
            clock: Instant::now(),
            verdict: None,
            progress,
            ready: 0,
            steps: Vec::new(),
            ranks_ordered: Instant::now(),
            signals: 0,
            validations: Vec::new(),
            keeper: None,
            committed: None,
            noticed: Vec::new(),
            reports: BTreeMap::new(),
            not_committed: None,
            interrupted: None,
            awaits_host: true,
            revived: 0,
        }
    }
}

impl Session<'_, '_> {
    /// Takes events until it is decided that the run is over.
    pub(super) fn follow(&mut self, events: &Receiver<Event>) -> Result<Verdict, Failure> {
        loop {
            let event = match self.deadline() {
                None => events.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(at) => events.recv_timeout(at.saturating_sub(self.clock.elapsed())),
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
            for told in self.take(&event)? {
                self.tell(told, events)?;
            }
            if let Some(verdict) = self.verdict.take() {
                return Ok(verdict);
            }
        }
    }

    fn deadline(&self) -> Option<Duration> {
        let control = self.control.as_ref().and_then(State::deadline);
        let ranks = self.ranks.as_ref().and_then(Ranks::deadline);
        control.into_iter().chain(ranks).min()
    }

    /// Whether a kill now would lose steps.
    pub(super) fn has_unsaved_steps(&self) -> bool {
        self.control.as_ref().is_some_and(State::has_unsaved_steps)
    }

    /// Records an event, and says what the control plane is to know of it.
    fn take(&mut self, event: &Event) -> Result<Vec<titan_control::Event>, Failure> {
        let current = self.ranks.as_ref().map_or(0, Ranks::generation);
        if let Event::Rank(generation, ..) | Event::RankExited(generation, ..) = event
            && *generation != current
        {
            return Ok(Vec::new());
        }
        let mut told = match event {
            Event::Checkpoint(_) => Vec::new(),
            event => self.record(event)?,
        };
        match event {
            Event::Host(message) => {
                if let (HostMessage::Failed { message, .. }, None) = (message, &self.ranks) {
                    return Err(self.explain_host(Class::Infrastructure, message.clone()));
                }
                if let HostMessage::Ready { .. } = message {
                    told.extend(self.host_is_ready()?);
                }
                told.extend(self.inform(&Input::Host(message)));
            }
            // One that was replaced.
            Event::HostExited(pid, _) if !self.workers.is_host(*pid) => {}
            Event::HostExited(_, status) => {
                if self.ranks.is_none() && self.verdict.is_none() {
                    let class = class_of_host(*status);
                    if class == Class::Infrastructure && self.revive(&status.to_string())? {
                        return Ok(Vec::new());
                    }
                    let text = format!("the worker host {status} before all ranks were started");
                    return Err(self.explain_host(class, text));
                }
                told.extend(self.inform(&Input::HostExited(*status)));
            }
            Event::Rank(_, rank, message) => {
                match message {
                    RankMessage::Failed { step, failure } => {
                        self.reports.insert(*rank as u64, (*step, failure.clone()));
                    }
                    RankMessage::Doing { doing } => {
                        told.push(titan_control::Event::Doing {
                            generation: current,
                            doing: match doing {
                                Doing::Validating => titan_control::Doing::Validating,
                                Doing::Saving => titan_control::Doing::Saving,
                            },
                        });
                    }
                    _ => {}
                }
                told.extend(self.inform(&Input::Said(*rank, message)));
            }
            Event::RankExited(_, rank, status) => {
                told.extend(self.inform(&Input::Exited(*rank, *status)));
            }
            Event::Checkpoint(kept) => told.extend(self.saved(kept, current)),
            Event::Signal(signal) => {
                told.push(titan_control::Event::StopRequested { by: (*signal).to_owned() });
            }
            Event::Notice(word) => {
                let by = format!("notice: {word}");
                told.push(titan_control::Event::StopRequested { by });
            }
            Event::Evidence(generation, ranks) => told.push(titan_control::Event::Evidence {
                seat: Seat::ONLY,
                generation: *generation,
                ranks: ranks.clone(),
            }),
            Event::Deadline => {
                told.extend(self.inform(&Input::Deadline));
                told.push(titan_control::Event::Tick);
            }
        }
        Ok(told)
    }

    /// Starts a worker host in place of one that was killed before it was ready, if the run may be started again so often.
    fn revive(&mut self, how: &str) -> Result<bool, Failure> {
        if self.revived >= *self.run.recipe.elastic.max_restarts {
            return Ok(false);
        }
        self.revived += 1;
        self.run.console.warning(&format!("the worker host {how}; again at once"));
        self.replace_host()?;
        Ok(true)
    }

    /// Starts a worker host in place of the one before.
    pub(super) fn replace_host(&mut self) -> Result<(), Failure> {
        self.awaits_host = true;
        self.run.console.spin("importing torch");
        self.workers.replace_host().map_err(|error| {
            Failure::io(Exit::WorkersFailed, "cannot start the worker host", &error)
        })
    }

    /// What became of a save, which may be a failure of the run.
    fn saved(
        &mut self,
        kept: &super::keeper::Kept,
        generation: u64,
    ) -> Option<titan_control::Event> {
        let step = kept.step;
        let Err(failure) = self.checkpoint_done(kept) else {
            let is_new = kept.result.is_ok();
            return is_new.then_some(titan_control::Event::Committed { step });
        };
        let class = if failure.exit == Exit::NoSpace { Class::Space } else { Class::Storage };
        let (text, is_consequence) = (failure.summary(), false);
        self.not_committed = Some(failure);
        let how = How::Reported { step, class, is_consequence, text };
        let failure = titan_control::Failure { seat: Seat::ONLY, rank: None, how };
        self.notice(&failure);
        Some(titan_control::Event::Failed { generation, failure })
    }

    /// Tells the control plane, and does what it decides.
    fn tell(
        &mut self,
        event: titan_control::Event,
        events: &Receiver<Event>,
    ) -> Result<(), Failure> {
        let mut queue = VecDeque::from([event]);
        while let Some(event) = queue.pop_front() {
            let Some(state) = self.control.take() else { return Ok(()) };
            let advance = state.advance(self.clock.elapsed(), &event);
            let Advance { state, actions, reasons } = advance;
            self.control = Some(state);
            for reason in &reasons {
                self.say(reason)?;
            }
            for action in actions {
                queue.extend(self.act(action, events)?);
            }
        }
        Ok(())
    }

    fn act(
        &mut self,
        action: Action,
        events: &Receiver<Event>,
    ) -> Result<Vec<titan_control::Event>, Failure> {
        match action {
            Action::Start { generation, after, .. } => {
                return self.begin(generation, after, events);
            }
            Action::Stop { .. } => self.workers.order_stop(),
            Action::Kill { .. } => {
                self.workers.kill_ranks();
                return Ok(self.inform(&Input::Killed));
            }
            Action::Diagnose { generation } => self.diagnose(generation)?,
            Action::End(verdict) => self.verdict = Some(verdict),
        }
        Ok(Vec::new())
    }

    /// Tells the ranks' own state machine, and says what the control plane is to know.
    fn inform(&mut self, input: &Input<'_>) -> Vec<titan_control::Event> {
        let now = self.clock.elapsed();
        let outputs = self.ranks.as_mut().map_or_else(Vec::new, |ranks| ranks.on(now, input));
        let mut told = Vec::new();
        for output in outputs {
            match output {
                Output::Kill => self.workers.kill_ranks(),
                Output::Tell(event) => {
                    if let titan_control::Event::Failed { failure, .. } = &event {
                        self.notice(failure);
                    }
                    told.push(event);
                }
            }
        }
        told
    }

    fn notice(&mut self, failure: &titan_control::Failure) {
        self.noticed.push(failure.clone());
        self.interrupt();
    }

    /// From now on no steps are done.
    fn interrupt(&mut self) {
        let step = self.reached.step;
        self.interrupted.get_or_insert(Interrupted { at: Instant::now(), step });
    }

    /// Asks ranks what they are doing, on a thread of its own: it takes up to two seconds.
    fn diagnose(&mut self, generation: u64) -> Result<(), Failure> {
        self.interrupt();
        let asked = |(rank, pid)| Asked {
            rank,
            pid,
            log: self.run.log(rank),
            step: self.steps.get(rank).copied().unwrap_or_default(),
        };
        let ranks: Vec<Asked> = self.workers.processes().into_iter().map(asked).collect();
        let sender = self.sender.clone();
        let work = move || drop(sender.send(Event::Evidence(generation, ask(&ranks))));
        let thread = thread::Builder::new().name("titan-diagnose".to_owned()).spawn(work);
        thread.map(drop).map_err(|error| {
            Failure::io(Exit::WorkersFailed, "cannot ask ranks what they do", &error)
        })
    }

    /// Writes a decision down, and says it where somebody should know.
    fn say(&mut self, reason: &Reason) -> Result<(), Failure> {
        let Reason { decision, text } = reason;
        match decision {
            Decision::Restart | Decision::Diagnose => self.run.console.warning(text),
            _ => {}
        }
        let decision = serde_json::to_value(decision).unwrap_or_default();
        let decision = decision.as_str().unwrap_or_default().to_owned();
        self.recorder.event(&ledger::Event::Decision { decision, reason: text.clone() })
    }

    /// Ends what is left after the last event, and says how the run ended.
    pub(super) fn end(
        &mut self,
        followed: Result<Verdict, Failure>,
        events: &Receiver<Event>,
    ) -> Result<Exit, Failure> {
        if followed.is_err() {
            self.workers.kill_ranks();
        }
        let kept = self.finish_checkpoints(events);
        let verdict = followed?;
        if matches!(verdict, Verdict::Completed | Verdict::Stopped { .. }) {
            kept?;
            if let Some(keeping) = &self.run.keeping {
                keeping.leave_local();
            }
        }
        self.workers.end_host(events);
        self.conclude(verdict)
    }

    /// Waits for the checkpoints that are being made. The workers have ended. A place that hangs does not hold a run for
    /// ever, nor does it after a signal.
    pub(super) fn finish_checkpoints(&mut self, events: &Receiver<Event>) -> Result<(), Failure> {
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
        if !keeper.is_done() {
            self.keeper = Some(keeper);
        } else if let Some(keeping) = &self.run.keeping {
            keeping.tidy_up();
        }
        result
    }

    /// Whether checkpoints are being made, or would be if their place answered.
    pub(super) fn is_keeping(&self) -> bool {
        self.keeper.as_ref().is_some_and(|keeper| !keeper.is_done())
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
            Verdict::Stopped { by, killed } => {
                self.summarize(&format!("stopped by {by}"));
                if killed {
                    self.run
                        .console
                        .warning("workers did not end within the grace and were killed");
                }
                Ok(Exit::Stopped)
            }
            Verdict::Failed { failures, cause, why } => Err(self.explain(&failures, cause, &why)),
            Verdict::Absent { waited, .. } => Err(self.explain_absence(waited)),
        }
    }

    fn summarize(&self, ending: &str) {
        let run = &self.run;
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

/// A path as short as it can be said from here.
fn shown(path: &Path) -> String {
    let here = std::env::current_dir().unwrap_or_default();
    path.strip_prefix(&here).unwrap_or(path).display().to_string()
}
