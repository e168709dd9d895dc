//! Hosts and what really goes on there, which the state machine only hears of.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::agents::{Message, Order};
use crate::{Generation, Seat};

/// Ranks of a host.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Ranks {
    pub(super) generation: Generation,
    /// They have loaded and wait for the others, or work.
    pub(super) is_ready: bool,
    /// One of them has died.
    pub(super) is_broken: bool,
    /// This one stands still.
    pub(super) hung: Option<u64>,
}

/// A host.
#[derive(Clone, Debug)]
pub(super) struct Machine {
    pub(super) is_up: bool,
    /// Different for each boot.
    pub(super) incarnation: u64,
    /// Until when no message reaches or leaves it.
    pub(super) cut_until: Option<Duration>,
    pub(super) is_full: bool,
    pub(super) is_leaving: bool,
    pub(super) ranks: Option<Ranks>,
    /// Generations up to this one are not started any more.
    pub(super) barred: Generation,
    /// When it has joined, and when a message of it was taken last.
    pub(super) heard: Duration,
    /// The incarnation that sends beats.
    pub(super) beats_as: u64,
    /// When the last message of each direction arrives: they do not overtake each other.
    pub(super) last_message: Duration,
    pub(super) last_order: Duration,
    /// What arrives when it is not cut off any more.
    pub(super) held_messages: Vec<Message>,
    pub(super) held_orders: Vec<Order>,
}

impl Machine {
    fn new() -> Self {
        Self {
            is_up: true,
            incarnation: 1,
            cut_until: None,
            is_full: false,
            is_leaving: false,
            ranks: None,
            barred: 0,
            heard: Duration::ZERO,
            beats_as: 0,
            last_message: Duration::ZERO,
            last_order: Duration::ZERO,
            held_messages: Vec::new(),
            held_orders: Vec::new(),
        }
    }

    pub(super) fn is_cut(&self) -> bool {
        self.cut_until.is_some()
    }

    pub(super) fn holds(&self) -> Generation {
        self.ranks.map_or(0, |ranks| ranks.generation)
    }
}

/// All hosts.
#[derive(Debug)]
pub(super) struct Machines {
    hosts_per_slice: u32,
    all: Vec<Machine>,
    /// Hosts that have ranks, by generation.
    live: BTreeMap<Generation, u32>,
    /// Hosts on which no work gets done.
    idle: BTreeSet<Seat>,
    /// Hosts that are slow, and until when.
    slow: BTreeMap<Seat, Duration>,
}

impl Machines {
    pub(super) fn new(slices: u32, hosts_per_slice: u32) -> Self {
        let count = slices as usize * hosts_per_slice as usize;
        Self {
            hosts_per_slice,
            all: vec![Machine::new(); count],
            live: BTreeMap::new(),
            idle: BTreeSet::new(),
            slow: BTreeMap::new(),
        }
    }

    pub(super) fn of(&mut self, seat: Seat) -> &mut Machine {
        let index = self.index(seat);
        &mut self.all[index]
    }

    pub(super) fn at(&self, seat: Seat) -> &Machine {
        &self.all[self.index(seat)]
    }

    fn index(&self, seat: Seat) -> usize {
        seat.slice as usize * self.hosts_per_slice as usize + seat.host as usize
    }

    /// The hosts of a slice, the last first. Who looks for the first that is missing finds it at once, until the last one
    /// has come: at thousands of hosts that is the difference between seconds and hours.
    pub(super) fn seats(&self, slice: u32) -> impl Iterator<Item = Seat> + use<> {
        (0..self.hosts_per_slice).rev().map(move |host| Seat { slice, host })
    }

    pub(super) fn slices(&self) -> u32 {
        (self.all.len() / self.hosts_per_slice as usize) as u32
    }

    pub(super) fn is_whole(&self, slice: u32) -> bool {
        self.seats(slice).all(|seat| self.at(seat).is_up)
    }

    /// Ranks of a generation begin to exist. Gives another generation that still has ranks somewhere.
    pub(super) fn begin(&mut self, seat: Seat, generation: Generation) -> Option<Generation> {
        self.end(seat);
        let ranks = Ranks { generation, is_ready: false, is_broken: false, hung: None };
        self.of(seat).ranks = Some(ranks);
        *self.live.entry(generation).or_default() += 1;
        self.live.keys().copied().find(|other| *other != generation)
    }

    /// The ranks of a host are gone.
    pub(super) fn end(&mut self, seat: Seat) {
        let Some(ranks) = self.of(seat).ranks.take() else { return };
        if let Some(count) = self.live.get_mut(&ranks.generation) {
            *count -= 1;
            if *count == 0 {
                self.live.remove(&ranks.generation);
            }
        }
        self.idle.insert(seat);
    }

    /// Notes whether a host works, after something has changed there.
    pub(super) fn look_at(&mut self, seat: Seat, generation: Generation) {
        let machine = self.at(seat);
        let works = machine.ranks.is_some_and(|ranks| {
            ranks.generation == generation && !ranks.is_broken && ranks.hung.is_none()
        });
        match works && machine.is_up && !machine.is_cut() {
            true => self.idle.remove(&seat),
            false => self.idle.insert(seat),
        };
    }

    /// Whether all hosts of some slices work.
    pub(super) fn all_work(&self, slices: &[u32]) -> bool {
        !self.idle.iter().any(|seat| slices.contains(&seat.slice))
    }

    pub(super) fn is_slow(&self, slice: u32, now: Duration) -> bool {
        self.slow.iter().any(|(seat, until)| seat.slice == slice && *until > now)
    }

    pub(super) fn slow_down(&mut self, seat: Seat, until: Duration) {
        self.slow.insert(seat, until);
    }

    /// New machines are as fast as all others.
    pub(super) fn speed_up(&mut self, slice: u32) {
        self.slow.retain(|seat, _| seat.slice != slice);
    }
}
