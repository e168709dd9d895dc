//! The shell around the state machine: a clock that jumps, and a queue in place of sockets.

use std::time::Duration;

use super::account::{Account, Category, Going};
use super::agents::{Message, Order};
use super::faults::{Fault, draw};
use super::machines::Machines;
use super::outcome::Outcome;
use super::queue::Queue;
use super::random::Random;
use super::scenario::Scenario;
use super::stores::Stores;
use super::work::{Task, Work};
use crate::{Action, Event, Generation, Seat, Stage, State, Verdict};

/// What happens at some instant.
#[derive(Debug)]
pub(super) enum Happening {
    /// A message of an agent arrives.
    Message(Message),
    /// An order arrives at an agent.
    Order(Order),
    /// The ranks of a host have loaded, or could not.
    Loaded { seat: Seat, generation: Generation, failed: bool },
    /// The ranks of a host that were killed are gone.
    Gone { seat: Seat, generation: Generation, incarnation: u64 },
    /// An agent notices that its lease is nearly over.
    Fence { seat: Seat, cut_until: Duration },
    /// What ranks do together is done.
    Done { epoch: u64 },
    /// A save has been written in full.
    Saved { generation: Generation, step: u64, is_local: bool },
    /// Ranks hear that they are to stop.
    Stop { generation: Generation },
    /// A fault strikes.
    Fault(Fault),
    /// Somebody who was cut off is not any more.
    Healed { seat: Seat, cut_until: Duration },
    /// The notice of a preemption is over.
    Vanish { slice: u32 },
    /// The machines of a slice have booted.
    Booted { slice: u32 },
    /// A beat of an agent.
    Beat { seat: Seat, incarnation: u64 },
    /// Somebody asks the run to stop.
    StopRequested,
}

/// A simulation under way.
pub(super) struct Simulation<'a> {
    pub(super) scenario: &'a Scenario,
    pub(super) now: Duration,
    state: Option<State>,
    pub(super) queue: Queue<Happening>,
    pub(super) machines: Machines,
    pub(super) work: Work,
    pub(super) stores: Stores,
    pub(super) account: Account,
    pub(super) jitter: Random,
    faults: Random,
    pub(super) outcome: Outcome,
}

impl<'a> Simulation<'a> {
    pub(super) fn new(scenario: &'a Scenario, seed: u64) -> Self {
        let settings = scenario.settings.clone();
        let slices = settings.slices + scenario.spares;
        let machines = Machines::new(slices, settings.hosts_per_slice);
        let mut simulation = Self {
            scenario,
            now: Duration::ZERO,
            state: Some(State::new(settings, Duration::ZERO, 0, 0)),
            queue: Queue::new(),
            machines,
            work: Work::none(),
            stores: Stores::default(),
            account: Account::new(),
            jitter: Random::new(seed, 1),
            faults: Random::new(seed, 0),
            outcome: Outcome::default(),
        };
        for slice in (0..scenario.late.min(slices)).rev() {
            for seat in simulation.machines.seats(slice) {
                simulation.machines.of(seat).is_up = false;
            }
            simulation.queue.push(scenario.model.boot, Happening::Booted { slice });
        }
        for slice in (scenario.late..slices).rev() {
            for seat in simulation.machines.seats(slice) {
                simulation.join(seat);
            }
        }
        if let Some(at) = scenario.stop_at {
            simulation.queue.push(at, Happening::StopRequested);
        }
        simulation.plan_fault();
        simulation
    }

    /// Runs to the end.
    pub(super) fn run(mut self) -> Outcome {
        // As often as the state may want to be called at one instant.
        const MOST_TICKS: u32 = 8;
        let mut ticks = (Duration::ZERO, 0);
        while let Some(stage) = self.stage().filter(|stage| *stage != Stage::Ended) {
            let deadline = self.state.as_ref().and_then(State::deadline);
            let planned = self.queue.next_at();
            let Some(next) = deadline.into_iter().chain(planned).min() else {
                self.violate(format!("nothing will ever happen again while the run is {stage:?}"));
                break;
            };
            if next >= self.scenario.horizon {
                self.now = self.scenario.horizon;
                break;
            }
            // The state may want to be woken in the past, but then only once.
            self.now = self.now.max(next);
            if planned.is_none_or(|planned| deadline.is_some_and(|at| at < planned)) {
                ticks = if ticks.0 == self.now { (self.now, ticks.1 + 1) } else { (self.now, 1) };
                if ticks.1 > MOST_TICKS {
                    self.violate(format!("the state wants to be woken for ever while {stage:?}"));
                    break;
                }
                self.tell(&Event::Tick);
            } else if let Some(happening) = self.queue.pop() {
                self.happen(happening);
            }
            self.look_at_clock();
        }
        self.close()
    }

    fn close(mut self) -> Outcome {
        let (full, here) =
            (self.scenario.model.step, self.scenario.step_on(self.work.slices.len()));
        if self.work.is_over {
            let all: Vec<u32> = (0..self.machines.slices()).collect();
            let step = self.stores.newest(&all).step.min(self.work.step);
            self.work.step = step;
            self.account.go_on_from(self.now, step);
        }
        self.look_at_end();
        let mut outcome = self.outcome;
        outcome.wall = self.now;
        outcome.steps = self.work.step;
        outcome.committed = self.stores.persistent();
        outcome.categories = self.account.close(self.now, full, here);
        if outcome.categories.total() != outcome.wall {
            let (sum, wall) = (outcome.categories.total(), outcome.wall);
            outcome.violate(wall, format!("the categories are {sum:?} in all, of {wall:?}"));
        }
        // The steps that count, and the one under way.
        let most = full.saturating_mul(u32::try_from(outcome.steps + 1).unwrap_or(u32::MAX));
        let productive = outcome.categories.of(Category::Productive);
        if productive > most {
            let text = format!("{productive:?} were productive, with {} steps", outcome.steps);
            outcome.violate(outcome.wall, text);
        }
        if outcome.steps < outcome.committed {
            let text = format!("{} steps count, {} were saved", outcome.steps, outcome.committed);
            outcome.violate(outcome.wall, text);
        }
        outcome
    }

    /// A run that is said to be complete must be.
    fn look_at_end(&mut self) {
        let Some(steps) = self.scenario.model.steps else { return };
        let (done, saved) = (self.work.step, self.stores.persistent());
        let is_saved = saved == steps || self.scenario.model.saves.is_none();
        if self.outcome.verdict == Some(Verdict::Completed) && (done != steps || !is_saved) {
            self.violate(format!("of {steps} steps {done} are done and {saved} are saved"));
        }
    }

    pub(super) fn violate(&mut self, text: impl Into<String>) {
        self.outcome.violate(self.now, text);
    }

    fn stage(&self) -> Option<Stage> {
        self.state.as_ref().map(State::stage)
    }

    /// What the state machine knows of.
    pub(super) fn knows(&self, seat: Seat) -> bool {
        self.state.as_ref().is_some_and(|state| state.has_host(seat))
    }

    pub(super) fn set_heard(&mut self, seat: Seat, at: Duration) {
        if let Some(state) = &mut self.state {
            state.set_heard(seat, at);
        }
    }

    /// Tells the state machine, and does what it says.
    pub(super) fn tell(&mut self, event: &Event) {
        let Some(state) = self.state.take() else { return };
        let advance = state.advance(self.now, event);
        self.state = Some(advance.state);
        for reason in advance.reasons {
            self.outcome.decided(self.now, reason);
        }
        for action in advance.actions {
            self.act(action);
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Start { generation, slices, .. } => self.start(generation, slices),
            Action::Stop { generation } => {
                let at = self.now + self.scenario.model.latency;
                self.queue.push(at, Happening::Stop { generation });
            }
            Action::Diagnose { generation } => self.order_all(Order::diagnose, generation),
            Action::Kill { generation } => self.order_kill(generation),
            Action::End(verdict) => self.outcome.verdict = Some(verdict),
        }
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Message(message) => self.message_arrives(message),
            Happening::Order(order) => self.order_arrives(order),
            Happening::Loaded { seat, generation, failed } => self.loaded(seat, generation, failed),
            Happening::Gone { seat, generation, incarnation } => {
                self.gone(seat, generation, incarnation);
            }
            Happening::Fence { seat, cut_until } => self.fence(seat, cut_until),
            Happening::Done { epoch } => self.done(epoch),
            Happening::Saved { generation, step, is_local } => {
                self.saved(generation, step, is_local);
            }
            Happening::Stop { generation } => {
                if generation == self.work.generation {
                    self.work.is_asked_to_stop = true;
                }
            }
            Happening::Fault(fault) => {
                self.strike(fault);
                self.plan_fault();
            }
            Happening::Healed { seat, cut_until } => self.healed(seat, cut_until),
            Happening::Vanish { slice } => self.leaves(slice),
            Happening::Booted { slice } => self.booted(slice),
            Happening::Beat { seat, incarnation } => self.beat(seat, incarnation),
            Happening::StopRequested => {
                self.tell(&Event::StopRequested { by: "SIGTERM".to_owned() });
            }
        }
    }

    fn plan_fault(&mut self) {
        if let Some((after, fault)) = draw(&self.scenario.faults, &mut self.faults) {
            let at = self.now.saturating_add(after);
            if at < self.scenario.faults.until {
                self.queue.push(at, Happening::Fault(fault));
            }
        }
    }

    /// Notes what the time is spent on from now on.
    fn look_at_clock(&mut self) {
        let going = match self.stage() {
            None | Some(Stage::Ended) => return,
            Some(Stage::Waiting) => Going::On(Category::Waiting),
            Some(Stage::BackingOff) => Going::On(Category::Backoff),
            Some(Stage::Diagnosing) => Going::On(Category::Detection),
            Some(Stage::Clearing) => Going::On(Category::Restart),
            Some(Stage::Starting | Stage::Training | Stage::Stopping) => self.what_ranks_do(),
        };
        self.account.enter(self.now, going);
    }

    fn what_ranks_do(&self) -> Going {
        match self.work.task() {
            Some(_) if self.work.is_stalled() => Going::On(Category::Detection),
            Some(Task::Step) => Going::Step,
            Some(Task::Save | Task::LastCommit) => Going::On(Category::Checkpoint),
            None => Going::On(Category::Restart),
        }
    }
}
