//! Who is there, and who is not to be used.

use std::time::Duration;

use super::{Busy, Drain, Host, Phase, Quarantined, State, Then};
use crate::action::{Action, Decision};
use crate::failure::{Failure, How};
use crate::settings::Policy;
use crate::world::larger;
use crate::{Generation, Seat};

impl State {
    /// The seats of this generation.
    pub(super) fn members(&self) -> impl Iterator<Item = Seat> + '_ {
        let hosts = self.settings.hosts_per_slice;
        self.world
            .iter()
            .flat_map(move |slice| (0..hosts).map(move |host| Seat { slice: *slice, host }))
    }

    pub(super) fn is_member(&self, seat: Seat) -> bool {
        self.world.contains(&seat.slice) && seat.host < self.settings.hosts_per_slice
    }

    /// The host of a seat that has ranks of this generation.
    pub(super) fn member(&mut self, seat: Seat, generation: Generation) -> Option<&mut Host> {
        let current = self.generation;
        self.hosts.get_mut(&seat).filter(|host| generation == current && host.holds == generation)
    }

    pub(super) fn joined(
        &mut self,
        now: Duration,
        seat: Seat,
        machine: &str,
        incarnation: u64,
        holds: Generation,
    ) {
        if seat.host >= self.settings.hosts_per_slice {
            let text = format!("{machine} is turned away: there is no {seat}");
            self.say(Decision::Membership, text);
            return;
        }
        if let Some(host) = self.hosts.get(&seat) {
            if host.incarnation == incarnation {
                return;
            }
            // The agent is a new process, and with the old one its ranks have ended.
            let text = format!("its agent began anew on {machine}");
            self.lose(now, seat, text);
        }
        let host = Host {
            machine: machine.to_owned(),
            incarnation,
            heard: now,
            holds,
            is_ready: false,
            finished: None,
            is_leaving: false,
        };
        self.hosts.insert(seat, host);
        self.heard_since = self.heard_since.min(now);
        if holds > 0 {
            // It was cut off for longer than its lease.
            self.actions.push(Action::Kill { generation: holds });
        }
        let (there, wanted) = (self.hosts.len(), self.wanted());
        self.say(Decision::Membership, format!("{machine} is {seat}; {there} of {wanted} hosts"));
    }

    pub(super) fn wanted(&self) -> u64 {
        u64::from(self.settings.slices) * u64::from(self.settings.hosts_per_slice)
    }

    pub(super) fn end_leases(&mut self, now: Duration) {
        let Some(lease) = self.settings.limits.lease else { return };
        if now < self.heard_since + lease {
            return;
        }
        let is_over = |host: &Host| now >= host.heard + lease;
        let lost: Vec<Seat> =
            self.hosts.iter().filter(|(_, host)| is_over(host)).map(|(seat, _)| *seat).collect();
        for seat in lost {
            let text = format!("not heard of for {:.1} s", lease.as_secs_f64());
            self.lose(now, seat, text);
        }
        self.heard_since = self.hosts.values().map(|host| host.heard).min().unwrap_or(now);
    }

    /// Says when a host was heard of last, be it in the future: the simulator keeps beats by the million to itself.
    pub(crate) fn set_heard(&mut self, seat: Seat, at: Duration) {
        if let Some(host) = self.hosts.get_mut(&seat) {
            host.heard = at;
            self.heard_since = self.heard_since.min(at);
        }
    }

    /// A host is gone, and with it its ranks.
    pub(super) fn lose(&mut self, now: Duration, seat: Seat, text: String) {
        let Some(host) = self.hosts.remove(&seat) else { return };
        let (there, wanted) = (self.hosts.len(), self.wanted());
        let said = format!("{seat} ({}) is gone: {text}; {there} of {wanted} hosts", host.machine);
        self.say(Decision::Membership, said);
        if host.holds == self.generation && host.holds > 0 {
            self.fail(now, Failure { seat, rank: None, how: How::HostLost { text } });
        }
    }

    pub(super) fn leaving(
        &mut self,
        now: Duration,
        seat: Seat,
        why: &str,
        within: Option<Duration>,
    ) {
        let Some(host) = self.hosts.get_mut(&seat) else { return };
        if std::mem::replace(&mut host.is_leaving, true) {
            return;
        }
        let text = format!("{seat} ({}) will be gone soon: {why}", host.machine);
        self.say(Decision::Membership, text);
        if self.is_member(seat) && self.has_ranks() {
            let grace = self.settings.limits.drain;
            let grace = within.map_or(grace, |within| within.min(grace));
            match self.phase {
                Phase::Training { .. } if self.watch.last_step().is_some() => {
                    self.drain(now, Drain::Regroup, grace);
                }
                Phase::Starting { .. } | Phase::Training { .. } => self.kill(now, Then::Regroup),
                _ => {}
            }
        }
    }

    /// Whether there are ranks that work.
    pub(super) fn has_ranks(&self) -> bool {
        matches!(
            self.phase,
            Phase::Starting { .. }
                | Phase::Training { .. }
                | Phase::Settling { .. }
                | Phase::Diagnosing { .. }
                | Phase::Draining { .. }
        )
    }

    /// Slices all of whose hosts are there, free and to be used.
    pub(super) fn whole_slices(&self, busy: Busy, quarantined: Quarantined) -> Vec<u32> {
        let hosts = self.settings.hosts_per_slice;
        let some_are_not = quarantined == Quarantined::Excluded
            && self.machines.values().any(|machine| machine.quarantined_until.is_some());
        // Hosts are in the order of their slices.
        let (mut whole, mut slice, mut count) = (Vec::new(), None, 0);
        for (seat, host) in &self.hosts {
            let is_free =
                host.holds == 0 || (busy == Busy::Included && host.holds == self.generation);
            let is_usable = !some_are_not || !self.is_quarantined(&host.machine);
            if slice.replace(seat.slice) != Some(seat.slice) {
                count = 0;
            }
            count += u32::from(is_free && is_usable && !host.is_leaving);
            if count == hosts && whole.last() != Some(&seat.slice) {
                whole.push(seat.slice);
            }
        }
        whole
    }

    /// The number of slices that a run which is smaller than it should be could have.
    pub(super) fn could_grow(&self) -> Option<u32> {
        let now = self.world.len() as u32;
        if self.settings.policy != Policy::Shrink || now >= self.settings.slices {
            return None;
        }
        // Most of the time there are not even as many hosts.
        let most = self.hosts.len() as u32 / self.settings.hosts_per_slice;
        larger(&self.settings, now, most)?;
        let whole = self.whole_slices(Busy::Included, Quarantined::Excluded);
        larger(&self.settings, now, whole.len() as u32)
    }

    pub(super) fn is_quarantined(&self, machine: &str) -> bool {
        self.machines.get(machine).is_some_and(|machine| machine.quarantined_until.is_some())
    }

    /// Notes that a failure began on a machine; too many, and it is not used for a while.
    pub(super) fn blame(&mut self, now: Duration, seat: Seat) {
        let Some(name) = self.hosts.get(&seat).map(|host| host.machine.clone()) else { return };
        let rule = self.settings.quarantine.clone();
        let machine = self.machines.entry(name.clone()).or_default();
        machine.failures.retain(|at| now.saturating_sub(*at) < rule.within);
        machine.failures.push(now);
        let count = machine.failures.len() as u32;
        let can_do_without = self.settings.slices > 1 || self.hosts.len() as u64 > self.wanted();
        if count < rule.failures || !can_do_without {
            return;
        }
        if let Some(machine) = self.machines.get_mut(&name) {
            machine.quarantined_until = Some(now + rule.lasts);
            machine.failures.clear();
        }
        let text = format!(
            "{count} failures began on {name} within {} minutes: it is not used for {} minutes",
            rule.within.as_secs() / 60,
            rule.lasts.as_secs() / 60
        );
        self.say(Decision::Quarantine, text);
    }

    pub(super) fn end_quarantines(&mut self, now: Duration) {
        let mut free = Vec::new();
        for (name, machine) in &mut self.machines {
            if machine.quarantined_until.is_some_and(|until| now >= until) {
                machine.quarantined_until = None;
                free.push(name.clone());
            }
        }
        for name in free {
            self.say(Decision::Quarantine, format!("{name} may be used again"));
        }
    }

    /// Takes the machines of some slices back in: better than not to run at all.
    pub(super) fn pardon(&mut self, slices: &[u32]) {
        let sits = self.hosts.iter().filter(|(seat, _)| slices.contains(&seat.slice));
        let names: Vec<String> = sits.map(|(_, host)| host.machine.clone()).collect();
        for name in names {
            let machine = self.machines.get_mut(&name);
            if machine.is_some_and(|machine| machine.quarantined_until.take().is_some()) {
                let text = format!("{name} is used again: without it the run could not go on");
                self.say(Decision::Quarantine, text);
            }
        }
    }

    /// Whether some host has ranks of this generation.
    pub(super) fn is_held(&self) -> bool {
        self.hosts.values().any(|host| host.holds > 0 && host.holds == self.generation)
    }
}
