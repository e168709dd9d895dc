//! Agents: they take orders, own ranks and tell what becomes of them.

use std::time::Duration;

use super::run::{Happening, Simulation};
use super::scenario::Beats;
use crate::{Class, Event, Evidence, ExitStatus, Failure, Generation, How, Seat};

/// Something that an agent says.
#[derive(Clone, Debug)]
pub(super) struct Message {
    pub(super) seat: Seat,
    incarnation: u64,
    event: Event,
}

/// Something that an agent is told.
#[derive(Clone, Copy, Debug)]
pub(super) struct Order {
    pub(super) seat: Seat,
    incarnation: u64,
    generation: Generation,
    what: What,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum What {
    Start,
    Kill,
    Diagnose,
}

impl Order {
    fn new(what: What, seat: Seat, generation: Generation) -> Self {
        Self { seat, incarnation: 0, generation, what }
    }

    pub(super) fn start(seat: Seat, generation: Generation) -> Self {
        Self::new(What::Start, seat, generation)
    }

    pub(super) fn diagnose(seat: Seat, generation: Generation) -> Self {
        Self::new(What::Diagnose, seat, generation)
    }
}

/// Later than everything, and yet something can be added to it.
const FOR_EVER: Duration = Duration::from_secs(u64::MAX / 4);

impl Simulation<'_> {
    fn delay(&mut self) -> Duration {
        let model = &self.scenario.model;
        model.latency + self.jitter.up_to(model.jitter)
    }

    /// An agent says something. What it has said before arrives before.
    pub(super) fn send(&mut self, seat: Seat, event: Event) {
        let delay = self.delay();
        let machine = self.machines.of(seat);
        let at = machine.last_message.max(self.now + delay);
        machine.last_message = at;
        let message = Message { seat, incarnation: machine.incarnation, event };
        self.queue.push(at, Happening::Message(message));
    }

    pub(super) fn message_arrives(&mut self, message: Message) {
        let (seat, now) = (message.seat, self.now);
        let machine = self.machines.of(seat);
        if machine.incarnation != message.incarnation {
            return;
        }
        if machine.is_cut() {
            machine.held_messages.push(message);
            return;
        }
        if !machine.is_up {
            return;
        }
        machine.heard = now;
        let is_new = matches!(message.event, Event::Joined { .. });
        self.tell(&message.event);
        if is_new {
            self.begin_to_beat(seat);
        }
    }

    fn begin_to_beat(&mut self, seat: Seat) {
        match self.scenario.model.beats {
            Beats::Implied => self.set_heard(seat, FOR_EVER),
            Beats::Sent => {
                let next = self.last_beat(seat) + self.scenario.model.beat;
                let phase = self.phase(seat);
                let at = if self.now < phase { phase } else { next };
                let machine = self.machines.of(seat);
                let incarnation = machine.incarnation;
                if std::mem::replace(&mut machine.beats_as, incarnation) == incarnation {
                    return;
                }
                self.queue.push(at, Happening::Beat { seat, incarnation });
            }
        }
    }

    /// Each agent beats at instants of its own.
    fn phase(&self, seat: Seat) -> Duration {
        self.scenario.model.beat * ((7 * seat.slice + 3 * seat.host) % 10) / 10
    }

    /// When a beat arrived last; 0 if none could have.
    fn last_beat(&self, seat: Seat) -> Duration {
        let (beat, phase) = (self.scenario.model.beat, self.phase(seat));
        let Some(since) = self.now.checked_sub(phase) else { return Duration::ZERO };
        let beats = since.as_nanos() / beat.as_nanos().max(1);
        phase + Duration::from_nanos((beats * beat.as_nanos()) as u64)
    }

    pub(super) fn beat(&mut self, seat: Seat, incarnation: u64) {
        let machine = self.machines.at(seat);
        if machine.incarnation != incarnation || !machine.is_up {
            return;
        }
        // One that is cut off goes on, and is not heard.
        let at = self.now + self.scenario.model.beat;
        self.queue.push(at, Happening::Beat { seat, incarnation });
        if !self.machines.at(seat).is_cut() {
            self.tell(&Event::Heard(seat));
        }
    }

    /// A host is not heard of from now on. Gives when it was last.
    pub(super) fn falls_silent(&mut self, seat: Seat) -> Duration {
        let last = self.last_beat(seat).max(self.machines.at(seat).heard).min(self.now);
        if self.scenario.model.beats == Beats::Implied {
            self.set_heard(seat, last);
        }
        last
    }

    /// An agent takes its seat.
    pub(super) fn join(&mut self, seat: Seat) {
        let machine = self.machines.at(seat);
        let (incarnation, holds) = (machine.incarnation, machine.holds());
        let machine = format!("machine {}.{}", seat.slice, seat.host);
        self.send(seat, Event::Joined { seat, machine, incarnation, holds });
    }

    /// It can be heard again. If its lease was over it has to join again, and what was said meanwhile is lost.
    pub(super) fn speaks_again(&mut self, seat: Seat) {
        let machine = self.machines.of(seat);
        let messages = std::mem::take(&mut machine.held_messages);
        let orders = std::mem::take(&mut machine.held_orders);
        if !self.knows(seat) {
            return self.join(seat);
        }
        // The beats of that time arrive too.
        self.machines.of(seat).heard = self.now;
        self.tell(&Event::Heard(seat));
        if self.scenario.model.beats == Beats::Implied {
            self.set_heard(seat, FOR_EVER);
        }
        for message in messages {
            self.queue.push(self.now, Happening::Message(message));
        }
        for order in orders {
            self.queue.push(self.now, Happening::Order(order));
        }
    }

    fn order(&mut self, order: Order) {
        let delay = self.delay();
        let machine = self.machines.of(order.seat);
        let at = machine.last_order.max(self.now + delay);
        machine.last_order = at;
        let incarnation = machine.incarnation;
        self.queue.push(at, Happening::Order(Order { incarnation, ..order }));
    }

    /// Orders all hosts of the current generation.
    pub(super) fn order_all(&mut self, order: fn(Seat, Generation) -> Order, generation: u64) {
        for slice in self.work.slices.clone().into_iter().rev() {
            for seat in self.machines.seats(slice) {
                self.order(order(seat, generation));
            }
        }
    }

    /// Orders all hosts to kill ranks of a generation and all before.
    pub(super) fn order_kill(&mut self, generation: Generation) {
        if generation == self.work.generation {
            self.work.abandon();
            self.work.is_over = true;
        }
        for slice in (0..self.machines.slices()).rev() {
            let is_member = generation == self.work.generation && self.work.slices.contains(&slice);
            for seat in self.machines.seats(slice) {
                let holds = self.machines.at(seat).holds();
                if is_member || holds > 0 && holds <= generation {
                    self.order(Order::new(What::Kill, seat, generation));
                }
            }
        }
    }

    pub(super) fn order_arrives(&mut self, order: Order) {
        let machine = self.machines.of(order.seat);
        if machine.incarnation != order.incarnation || !machine.is_up {
            return;
        }
        if machine.is_cut() {
            machine.held_orders.push(order);
            return;
        }
        let (seat, generation) = (order.seat, order.generation);
        match order.what {
            What::Start => self.start_ranks(seat, generation),
            What::Kill => self.kill_ranks(seat, generation),
            What::Diagnose => self.give_evidence(seat, generation),
        }
    }

    fn start_ranks(&mut self, seat: Seat, generation: Generation) {
        if generation <= self.machines.at(seat).barred {
            return;
        }
        if let Some(other) = self.machines.begin(seat, generation) {
            self.violate(format!("generation {generation} begins while {other} has ranks"));
        }
        self.look_at(seat);
        let model = &self.scenario.model;
        let copy = self.work.copy;
        let load = if copy.is_local { model.load_local } else { model.load };
        // There is nothing to load for step 0.
        let load = if copy.step == 0 { Duration::ZERO } else { load };
        let failed = copy.step > 0 && !copy.is_local && self.stores.is_away(self.now + model.start);
        let takes = model.start + load;
        let takes = takes + self.jitter.up_to(self.scenario.model.jitter);
        self.queue.push(self.now + takes, Happening::Loaded { seat, generation, failed });
    }

    pub(super) fn loaded(&mut self, seat: Seat, generation: Generation, failed: bool) {
        let Some(ranks) = &mut self.machines.of(seat).ranks else { return };
        if ranks.generation != generation || ranks.is_broken || ranks.is_ready {
            return;
        }
        if failed {
            ranks.is_broken = true;
            let (class, text) = (Class::Storage, "the checkpoint cannot be read".to_owned());
            let how = How::NotStarted { class, text };
            let failure = Failure { seat, rank: None, how };
            return self.send(seat, Event::Failed { generation, failure });
        }
        ranks.is_ready = true;
        self.send(seat, Event::Ready { seat, generation });
        if generation == self.work.generation {
            self.one_is_ready();
        }
    }

    fn kill_ranks(&mut self, seat: Seat, generation: Generation) {
        let kill = self.scenario.model.kill;
        let machine = self.machines.of(seat);
        machine.barred = machine.barred.max(generation);
        let incarnation = machine.incarnation;
        match machine.holds() {
            // Ranks of a later generation are not meant.
            holds if holds > generation => {}
            0 => self.send(seat, Event::Cleared { seat, generation }),
            _ => {
                self.queue.push(self.now + kill, Happening::Gone { seat, generation, incarnation })
            }
        }
    }

    pub(super) fn gone(&mut self, seat: Seat, generation: Generation, incarnation: u64) {
        let machine = self.machines.at(seat);
        if machine.incarnation != incarnation || machine.holds() > generation {
            return;
        }
        self.machines.end(seat);
        self.send(seat, Event::Cleared { seat, generation });
        self.go_on_or_stand_still();
    }

    /// A rank of a host fails. The agent notices, and if no other rank is left it says so.
    pub(super) fn break_ranks(&mut self, seat: Seat, local: u64, how: How, notice: Duration) {
        let rank = self.rank(seat, local);
        let Some(ranks) = &mut self.machines.of(seat).ranks else { return };
        ranks.is_broken = true;
        let generation = ranks.generation;
        self.look_at(seat);
        // As if it took that long to say so.
        let machine = self.machines.of(seat);
        machine.last_message = machine.last_message.max(self.now + notice);
        let failure = Failure { seat, rank: Some(rank), how };
        self.send(seat, Event::Failed { generation, failure });
        if self.scenario.ranks_per_host == 1 {
            self.machines.end(seat);
            self.send(seat, Event::Cleared { seat, generation });
        }
    }

    /// An agent that has had no answer for nearly as long as its lease ends its ranks.
    pub(super) fn fence(&mut self, seat: Seat, cut_until: Duration) {
        let kill = self.scenario.model.kill;
        let machine = self.machines.of(seat);
        if machine.cut_until != Some(cut_until) || !machine.is_up {
            return;
        }
        let (generation, incarnation) = (machine.holds(), machine.incarnation);
        // What it is told late it does not do any more.
        machine.held_orders.clear();
        machine.barred = machine.barred.max(generation);
        if generation > 0 {
            self.break_ranks(seat, 0, How::Died { status: ExitStatus::Signal(9) }, kill);
            self.queue.push(self.now + kill, Happening::Gone { seat, generation, incarnation });
        }
    }

    fn give_evidence(&mut self, seat: Seat, generation: Generation) {
        let Some(ranks) = self.machines.at(seat).ranks else { return };
        if ranks.generation != generation {
            return;
        }
        let first = self.rank(seat, 0);
        let step = self.work.step;
        let of = |local: u64| {
            let is_hung = ranks.hung == Some(local);
            Evidence {
                rank: first + local,
                step,
                state: if is_hung { 'T' } else { 'S' },
                waits_for_others: Some(!is_hung),
                place: None,
            }
        };
        let ranks = (0..self.scenario.ranks_per_host).map(of).collect();
        self.send(seat, Event::Evidence { seat, generation, ranks });
    }

    /// The number of a rank: slices in ascending order, and their hosts.
    pub(super) fn rank(&self, seat: Seat, local: u64) -> u64 {
        let slices = &self.work.slices;
        let slice = slices.iter().position(|slice| *slice == seat.slice).unwrap_or(0) as u64;
        let hosts = u64::from(self.scenario.settings.hosts_per_slice);
        (slice * hosts + u64::from(seat.host)) * self.scenario.ranks_per_host + local
    }

    /// Something has changed on a host.
    pub(super) fn look_at(&mut self, seat: Seat) {
        self.machines.look_at(seat, self.work.generation);
        self.go_on_or_stand_still();
    }
}
