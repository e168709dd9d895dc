//! What to do about everything that happens to the workers of a run: a pure state machine.
//!
//! It sees events with the time they happened and answers with actions; processes, sockets and clocks are the
//! business of its shell ([`super::shell`]).

use std::time::Duration;

use titan_trainer::failure::{Failure, FailureClass};
use titan_trainer::protocol::{Ending, HostMessage, RankMessage};

use super::keeper::Kept;

/// After the first failure, how long to wait for failures of other ranks: the one that dies first is not always
/// the one that is noticed first.
const SETTLE: Duration = Duration::from_millis(700);

/// How long ranks that have reported their end may take to exit.
const LINGER: Duration = Duration::from_secs(10);

/// How long killed processes may take to disappear before the launcher ends without them.
const BURIAL: Duration = Duration::from_secs(5);

/// Something that happened.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Event {
    /// The worker host said something.
    Host(HostMessage),
    /// The worker host ended.
    HostExited(ExitStatus),
    /// A rank said something.
    Rank(usize, RankMessage),
    /// A rank ended.
    RankExited(usize, ExitStatus),
    /// A save has become a checkpoint, or has not.
    Checkpoint(Kept),
    /// The user or the system wants the run to end.
    Signal(&'static str),
    /// The time that was asked for by [`Supervisor::deadline`] has come.
    Deadline,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExitStatus {
    /// With a code.
    Code(i32),
    /// By a signal.
    Signal(i32),
}

/// Something to do.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Action {
    /// Fork all ranks.
    SpawnRanks,
    /// Ask all ranks to stop after the step under way.
    OrderStop,
    /// Kill all ranks with all that they have started.
    KillRanks,
    /// Nothing is left to do.
    End(Verdict),
}

/// How the run ended.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Verdict {
    /// All steps are done.
    Completed,
    /// A signal stopped it.
    Stopped {
        /// The signal.
        signal: &'static str,
        /// Whether workers did not end within the grace and were killed.
        killed: bool,
    },
    /// Workers failed: all failures in the order they were noticed, and which is the cause of the others.
    Failed {
        /// What was noticed.
        failures: Vec<RankFailure>,
        /// Index of the cause.
        cause: usize,
    },
    /// The worker host failed before all ranks were forked: what it said, or how it ended.
    HostFailed(HostFailure),
}

/// How the worker host failed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum HostFailure {
    /// It could not carry out an order.
    Said(String),
    /// It ended.
    Exited(ExitStatus),
}

/// A failure of one rank.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RankFailure {
    /// The rank.
    pub(crate) rank: usize,
    /// What it said or how it died.
    pub(crate) how: How,
}

/// How a rank failed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum How {
    /// It said so itself, in a step.
    Reported(u64, Failure),
    /// It ended without a word.
    Died(ExitStatus),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum RankState {
    NotStarted,
    Running,
    Finished,
    Failed,
    Gone,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    Running,
    /// A failure was seen; more may come.
    Settling(Duration),
    /// A stop was ordered.
    Stopping(Duration),
    /// All ranks have reported their end.
    Finishing(Duration),
    /// All ranks were killed.
    Killing(Duration),
    Ended,
}

/// The state of a run's workers.
#[derive(Debug)]
pub(crate) struct Supervisor {
    ranks: Vec<RankState>,
    grace: Duration,
    mode: Mode,
    /// The last step that any rank has done.
    last_step: u64,
    failures: Vec<RankFailure>,
    host_failure: Option<HostFailure>,
    signal: Option<&'static str>,
    killed_by_grace: bool,
    /// Ranks that have done all steps.
    completed: usize,
}

impl Supervisor {
    /// A run of `world` ranks, none of which is started.
    pub(crate) fn new(world: usize, grace: Duration) -> Self {
        Self {
            ranks: vec![RankState::NotStarted; world],
            grace,
            mode: Mode::Running,
            last_step: 0,
            failures: Vec::new(),
            host_failure: None,
            signal: None,
            killed_by_grace: false,
            completed: 0,
        }
    }

    /// When to come back with [`Event::Deadline`] at the latest.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        match self.mode {
            Mode::Settling(at) | Mode::Stopping(at) | Mode::Finishing(at) | Mode::Killing(at) => {
                Some(at)
            }
            Mode::Running | Mode::Ended => None,
        }
    }

    /// The last step that any rank has done.
    pub(crate) fn last_step(&self) -> u64 {
        self.last_step
    }

    /// Takes an event that happened at `now`, and says what to do.
    pub(crate) fn on(&mut self, now: Duration, event: &Event) -> Vec<Action> {
        if self.mode == Mode::Ended {
            return Vec::new();
        }
        let mut actions = match event {
            Event::Host(HostMessage::Ready { .. }) => {
                vec![Action::SpawnRanks]
            }
            Event::Host(HostMessage::Spawned { rank, .. }) => self.spawned(*rank as usize),
            Event::Host(HostMessage::Failed { message }) => {
                self.host_failed(now, HostFailure::Said(message.clone()))
            }
            Event::HostExited(status) => self.host_exited(now, *status),
            Event::Rank(rank, message) => self.rank_said(now, *rank, message),
            Event::RankExited(rank, status) => self.rank_exited(now, *rank, *status),
            Event::Signal(signal) => self.signalled(now, signal),
            // What is wrong with a checkpoint ends the run in the shell, which knows where it is.
            Event::Checkpoint(_) => Vec::new(),
            Event::Deadline => self.time_is_up(now),
        };
        if self.over() {
            self.mode = Mode::Ended;
            actions.push(Action::End(self.verdict()));
        }
        actions
    }

    fn alive(&self) -> bool {
        self.ranks.iter().any(|r| !matches!(r, RankState::NotStarted | RankState::Gone))
    }

    fn over(&self) -> bool {
        if self.alive() {
            return false;
        }
        let started = self.ranks.iter().any(|rank| *rank != RankState::NotStarted);
        started || self.host_failure.is_some() || matches!(self.mode, Mode::Killing(_))
    }

    fn kill(&mut self, now: Duration) -> Vec<Action> {
        self.mode = Mode::Killing(now + BURIAL);
        vec![Action::KillRanks]
    }

    fn fail(&mut self, now: Duration, failure: RankFailure) {
        if matches!(self.mode, Mode::Killing(_)) {
            return;
        }
        self.failures.push(failure);
        if !matches!(self.mode, Mode::Settling(_)) {
            self.mode = Mode::Settling(now + SETTLE);
        }
    }

    fn host_failed(&mut self, now: Duration, failure: HostFailure) -> Vec<Action> {
        self.host_failure.get_or_insert(failure);
        self.kill(now)
    }

    /// A rank is there to be watched, or to be killed if it comes too late.
    fn spawned(&mut self, rank: usize) -> Vec<Action> {
        self.ranks[rank] = RankState::Running;
        match self.mode {
            Mode::Killing(_) => vec![Action::KillRanks],
            _ => Vec::new(),
        }
    }

    /// Ranks do not need the host once they are forked, so its end matters only before that.
    fn host_exited(&mut self, now: Duration, status: ExitStatus) -> Vec<Action> {
        if self.ranks.contains(&RankState::NotStarted) && !matches!(self.mode, Mode::Killing(_)) {
            return self.host_failed(now, HostFailure::Exited(status));
        }
        Vec::new()
    }

    fn rank_said(&mut self, now: Duration, rank: usize, message: &RankMessage) -> Vec<Action> {
        match message {
            RankMessage::Ready { .. } | RankMessage::Validation(_) | RankMessage::Saved(_) => {}
            RankMessage::Step(step) => self.last_step = self.last_step.max(step.step),
            RankMessage::Finished { ending, .. } => {
                self.ranks[rank] = RankState::Finished;
                self.completed += usize::from(*ending == Ending::Completed);
                let all =
                    self.ranks.iter().all(|r| matches!(r, RankState::Finished | RankState::Gone));
                if all && matches!(self.mode, Mode::Running | Mode::Stopping(_)) {
                    self.mode = Mode::Finishing(now + LINGER);
                }
            }
            RankMessage::Failed { step, failure } => {
                self.ranks[rank] = RankState::Failed;
                self.fail(now, RankFailure { rank, how: How::Reported(*step, failure.clone()) });
            }
        }
        Vec::new()
    }

    fn rank_exited(&mut self, now: Duration, rank: usize, status: ExitStatus) -> Vec<Action> {
        let before = std::mem::replace(&mut self.ranks[rank], RankState::Gone);
        if !matches!(before, RankState::Finished | RankState::Failed) {
            self.fail(now, RankFailure { rank, how: How::Died(status) });
        }
        Vec::new()
    }

    /// Before the first step there is nothing to save, so a signal ends everything at once; so does a second
    /// signal.
    fn signalled(&mut self, now: Duration, signal: &'static str) -> Vec<Action> {
        let again = self.signal.is_some();
        self.signal.get_or_insert(signal);
        match self.mode {
            Mode::Killing(_) | Mode::Ended => Vec::new(),
            Mode::Running if !again && self.last_step > 0 => {
                self.mode = Mode::Stopping(now + self.grace);
                vec![Action::OrderStop]
            }
            // A failed run is about to end by itself, and a finished one is ending.
            Mode::Settling(_) | Mode::Finishing(_) if !again => Vec::new(),
            _ => self.kill(now),
        }
    }

    fn time_is_up(&mut self, now: Duration) -> Vec<Action> {
        match self.mode {
            Mode::Settling(at) | Mode::Finishing(at) if now >= at => self.kill(now),
            Mode::Stopping(at) if now >= at => {
                self.killed_by_grace = true;
                self.kill(now)
            }
            Mode::Killing(at) if now >= at => {
                self.ranks.fill(RankState::Gone);
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    fn verdict(&self) -> Verdict {
        if let Some(cause) = cause_of(&self.failures) {
            return Verdict::Failed { failures: self.failures.clone(), cause };
        }
        if let Some(message) = &self.host_failure {
            return Verdict::HostFailed(message.clone());
        }
        match self.signal {
            Some(signal) if self.completed < self.ranks.len() => {
                Verdict::Stopped { signal, killed: self.killed_by_grace }
            }
            _ => Verdict::Completed,
        }
    }
}

/// Which failure caused the others: a rank that was killed outranks one that reports a fault, and a fault
/// outranks a lost peer, which is what all other ranks see; among equals the first one noticed. A rank that
/// aborts has often only lost its peer on a thread that cannot report it.
pub(crate) fn cause_of(failures: &[RankFailure]) -> Option<usize> {
    let consequence = |failure: &RankFailure| match &failure.how {
        How::Died(ExitStatus::Signal(signal_hook::consts::SIGABRT)) => 2,
        How::Died(ExitStatus::Signal(_)) => 0,
        How::Reported(_, f) if f.class != FailureClass::PeerLost => 1,
        How::Died(ExitStatus::Code(_)) => 2,
        How::Reported(..) => 3,
    };
    (0..failures.len()).min_by_key(|i| consequence(&failures[*i]))
}

/// An exit status in words.
pub(crate) fn describe(status: ExitStatus) -> String {
    match status {
        ExitStatus::Code(code) => format!("exited with code {code}"),
        ExitStatus::Signal(signal) => {
            let name = signal_hook::low_level::signal_name(signal).unwrap_or("unknown");
            format!("was killed by signal {signal} ({name})")
        }
    }
}

#[cfg(test)]
#[path = "supervisor_tests.rs"]
mod tests;
