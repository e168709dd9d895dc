//! The state machine.

mod generation;
mod membership;
mod trouble;

use std::collections::BTreeMap;
use std::time::Duration;

use crate::action::{Action, Decision, Reason, Verdict};
use crate::event::Event;
use crate::failure::Failure;
use crate::restart::Restarts;
use crate::settings::Settings;
use crate::stuck::Evidence;
use crate::watch::Watch;
use crate::{Generation, Seat};

/// An agent in its seat.
#[derive(Clone, Debug, PartialEq)]
struct Host {
    machine: String,
    incarnation: u64,
    /// When it was heard of last.
    heard: Duration,
    /// The generation whose ranks it has; 0 for none.
    holds: Generation,
    is_ready: bool,
    /// Its ranks have ended well: whether with all steps done.
    finished: Option<bool>,
    /// Its machine will be gone soon.
    is_leaving: bool,
}

/// What is known about a machine, whoever sits there.
#[derive(Clone, Debug, PartialEq, Default)]
struct Machine {
    /// When failures began on it.
    failures: Vec<Duration>,
    /// Until when it is not used.
    quarantined_until: Option<Duration>,
}

#[derive(Clone, Debug, PartialEq)]
enum Phase {
    /// Hosts are waited for.
    Gathering {
        since: Duration,
    },
    /// The next start waits.
    BackingOff {
        until: Duration,
    },
    /// Ranks are being started.
    Starting {
        until: Duration,
    },
    /// Steps are done.
    Training {
        began: Duration,
    },
    /// There was a failure, which may be the consequence of another.
    Settling {
        until: Duration,
    },
    /// There was no progress, and hosts were asked why.
    Diagnosing {
        until: Duration,
        began: Duration,
    },
    /// Ranks were asked to stop.
    Draining {
        until: Duration,
        why: Drain,
    },
    /// Ranks were killed.
    Clearing {
        until: Duration,
        then: Then,
    },
    Ended,
}

/// Why ranks were asked to stop.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Drain {
    /// The run is to end.
    Stop,
    /// It goes on with other slices.
    Regroup,
}

/// What comes after all ranks are gone.
#[derive(Clone, Debug, PartialEq)]
enum Then {
    /// It is decided what follows from the failures.
    Judge,
    /// Another generation.
    Regroup,
    /// The end.
    End(Verdict),
}

/// All that is known about a run and its machines.
#[derive(Clone, Debug)]
pub struct State {
    settings: Settings,
    phase: Phase,
    hosts: BTreeMap<Seat, Host>,
    /// No host was heard of last before this: most events need no look at all leases.
    heard_since: Duration,
    machines: BTreeMap<String, Machine>,
    /// The generation that was started last, and its slices.
    generation: Generation,
    world: Vec<u32>,
    is_first: bool,
    watch: Watch,
    /// The furthest step that was ever done, and the last that is saved.
    furthest: u64,
    committed: u64,
    /// Whether any start has done a step.
    has_trained: bool,
    restarts: Restarts,
    /// Who wants the run to end.
    stop: Option<String>,
    /// What has failed in this generation.
    failures: Vec<Failure>,
    /// What ended the generation before.
    after: Option<Failure>,
    /// What hosts have said about their ranks, since they were asked.
    evidence: BTreeMap<Seat, Vec<Evidence>>,
    /// When it was looked last whether the next generation can begin.
    gathered: Duration,
    /// When it was said last who is waited for.
    said_absent: Option<Duration>,
    actions: Vec<Action>,
    reasons: Vec<Reason>,
}

/// Whether hosts count that have ranks of this generation.
#[derive(Clone, Copy, PartialEq)]
enum Busy {
    Included,
    Excluded,
}

/// Whether machines count that are not to be used for a while.
#[derive(Clone, Copy, PartialEq)]
enum Quarantined {
    Included,
    Excluded,
}

/// How often it is said who is waited for.
const REMINDER: Duration = Duration::from_secs(60);

/// What a run does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It waits for hosts.
    Waiting,
    /// It waits before it starts again.
    BackingOff,
    /// Ranks are being started.
    Starting,
    /// Ranks work.
    Training,
    /// Something is wrong, and it is not known yet what.
    Diagnosing,
    /// Ranks were asked to stop.
    Stopping,
    /// Ranks are being killed.
    Clearing,
    /// It has ended.
    Ended,
}

/// What came of an event.
#[derive(Debug)]
pub struct Advance {
    /// The state after it.
    pub state: State,
    /// What is to be done, in this order.
    pub actions: Vec<Action>,
    /// What was decided, and why.
    pub reasons: Vec<Reason>,
}

impl State {
    /// A run whose hosts are waited for. Generations before, of earlier launchers, were numbered up to `generation`; the
    /// last step that is saved is `committed`.
    pub fn new(settings: Settings, now: Duration, generation: Generation, committed: u64) -> Self {
        Self {
            settings,
            phase: Phase::Gathering { since: now },
            hosts: BTreeMap::new(),
            heard_since: Duration::ZERO,
            machines: BTreeMap::new(),
            generation,
            world: Vec::new(),
            is_first: true,
            watch: Watch::default(),
            furthest: committed,
            committed,
            has_trained: false,
            restarts: Restarts::default(),
            stop: None,
            failures: Vec::new(),
            after: None,
            evidence: BTreeMap::new(),
            gathered: now,
            said_absent: None,
            actions: Vec::new(),
            reasons: Vec::new(),
        }
    }

    /// Takes an event that happened at `now`. A pure function: the state is handed over, not shared.
    #[must_use]
    pub fn advance(mut self, now: Duration, event: &Event) -> Advance {
        if self.phase != Phase::Ended {
            self.take(now, event);
            self.look_around(now);
        }
        let actions = std::mem::take(&mut self.actions);
        let reasons = std::mem::take(&mut self.reasons);
        Advance { state: self, actions, reasons }
    }

    /// When to come back with [`Event::Tick`] at the latest; `None` if only an event can change anything. Where there are
    /// leases it may be too early, never too late.
    pub fn deadline(&self) -> Option<Duration> {
        let limits = &self.settings.limits;
        let phase = match &self.phase {
            Phase::Gathering { since } => {
                let gives_up = *since + limits.absence.max(limits.boot);
                let boot = Some(*since + limits.boot);
                let boot = boot.filter(|at| self.is_first && *at > self.gathered);
                let reminder = self.said_absent.map(|at| at + REMINDER);
                [boot, reminder].into_iter().flatten().chain([gives_up]).min()
            }
            Phase::BackingOff { until }
            | Phase::Starting { until }
            | Phase::Settling { until }
            | Phase::Diagnosing { until, .. }
            | Phase::Draining { until, .. }
            | Phase::Clearing { until, .. } => Some(*until),
            Phase::Training { began } => {
                let regroup = self.could_grow().map(|_| *began + limits.regroup);
                let watch = self.watch.deadline(limits);
                Some(regroup.map_or(watch, |at| at.min(watch)))
            }
            Phase::Ended => return None,
        };
        let lease = limits.lease.filter(|_| !self.hosts.is_empty());
        let lease = lease.map(|lease| self.heard_since + lease);
        phase.into_iter().chain(lease).min()
    }

    /// What the run does, for people and accounts.
    pub fn stage(&self) -> Stage {
        match self.phase {
            Phase::Gathering { .. } => Stage::Waiting,
            Phase::BackingOff { .. } => Stage::BackingOff,
            Phase::Starting { .. } => Stage::Starting,
            Phase::Training { .. } => Stage::Training,
            Phase::Settling { .. } | Phase::Diagnosing { .. } => Stage::Diagnosing,
            Phase::Draining { .. } => Stage::Stopping,
            Phase::Clearing { .. } => Stage::Clearing,
            Phase::Ended => Stage::Ended,
        }
    }

    /// Whether an agent has a seat: one whose lease is over must join again.
    pub fn has_host(&self, seat: Seat) -> bool {
        self.hosts.contains_key(&seat)
    }

    /// The number of the generation that was started last.
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// Its slices.
    pub fn slices(&self) -> &[u32] {
        &self.world
    }

    /// How long the next progress may take, and what it is called, for people.
    pub fn watch_limit(&self) -> (Duration, &'static str) {
        self.watch.limit(&self.settings.limits)
    }

    /// Whether the run has a step that would be lost if it were killed.
    pub fn has_unsaved_steps(&self) -> bool {
        self.watch.last_step().is_some()
    }

    fn say(&mut self, decision: Decision, text: impl Into<String>) {
        self.reasons.push(Reason { decision, text: text.into() });
    }

    fn take(&mut self, now: Duration, event: &Event) {
        if let Some(seat) = event.seat()
            && let Some(host) = self.hosts.get_mut(&seat)
        {
            host.heard = host.heard.max(now);
        }
        match event {
            Event::Joined { seat, machine, incarnation, holds } => {
                self.joined(now, *seat, machine, *incarnation, *holds);
            }
            Event::Heard(_) | Event::Tick => {}
            Event::Leaving { seat, why, within } => self.leaving(now, *seat, why, *within),
            Event::Ready { seat, generation } => {
                if let Some(host) = self.member(*seat, *generation) {
                    host.is_ready = true;
                    self.all_ready(now);
                }
            }
            Event::Step { generation, step, took } => {
                if *generation == self.generation {
                    self.watch.step_done(now, *step, *took);
                    self.furthest = self.furthest.max(*step);
                    self.has_trained = true;
                    self.go_on();
                }
            }
            Event::Doing { generation, doing } => {
                if *generation == self.generation {
                    self.watch.doing(now, *doing);
                }
            }
            Event::Committed { step } => self.committed = self.committed.max(*step),
            Event::Failed { generation, failure } => {
                if *generation == self.generation {
                    self.fail(now, failure.clone());
                }
            }
            Event::Finished { seat, generation, completed } => {
                if let Some(host) = self.member(*seat, *generation) {
                    host.finished = Some(*completed);
                    host.holds = 0;
                    self.all_finished(now);
                }
            }
            Event::Cleared { seat, generation } => {
                if let Some(host) = self.hosts.get_mut(seat)
                    && host.holds <= *generation
                {
                    host.holds = 0;
                }
            }
            Event::Evidence { seat, generation, ranks } => {
                if *generation == self.generation {
                    self.evidence.insert(*seat, ranks.clone());
                }
            }
            Event::StopRequested { by } => self.stop_requested(now, by),
        }
    }

    /// What follows from the time, and from what has changed.
    fn look_around(&mut self, now: Duration) {
        self.end_leases(now);
        self.end_quarantines(now);
        match self.phase.clone() {
            Phase::Gathering { since } => self.gather(now, since),
            Phase::BackingOff { until } if now >= until => {
                self.phase = Phase::Gathering { since: now };
                self.gather(now, now);
            }
            Phase::Starting { until } if now >= until => self.too_late_to_start(now),
            Phase::Training { .. } if now >= self.watch.deadline(&self.settings.limits) => {
                self.diagnose(now);
            }
            Phase::Training { began } if now >= began + self.settings.limits.regroup => {
                self.grow(now);
            }
            Phase::Settling { until } if now >= until || !self.is_held() => {
                self.kill(now, Then::Judge);
                self.clear(now, now + self.settings.limits.clear, Then::Judge);
            }
            Phase::Diagnosing { until, .. }
                if now >= until || self.members().all(|seat| self.evidence.contains_key(&seat)) =>
            {
                self.name_the_stuck(now);
            }
            Phase::Draining { until, why } if now >= until => match why {
                Drain::Stop => {
                    let by = self.stop.clone().unwrap_or_default();
                    self.say(Decision::Stop, "ranks did not end within the grace and are killed");
                    self.kill(now, Then::End(Verdict::Stopped { by, killed: true }));
                }
                Drain::Regroup => {
                    self.say(Decision::Stop, "ranks did not end within the grace and are killed");
                    self.kill(now, Then::Regroup);
                }
            },
            Phase::Clearing { until, then } => self.clear(now, until, then),
            _ => {}
        }
    }

    fn end(&mut self, verdict: Verdict) {
        self.phase = Phase::Ended;
        self.actions.push(Action::End(verdict));
    }
}

impl Event {
    /// The agent that an event comes from.
    fn seat(&self) -> Option<Seat> {
        match self {
            Event::Heard(seat)
            | Event::Leaving { seat, .. }
            | Event::Ready { seat, .. }
            | Event::Finished { seat, .. }
            | Event::Cleared { seat, .. }
            | Event::Evidence { seat, .. } => Some(*seat),
            Event::Failed { failure, .. } => Some(failure.seat),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
