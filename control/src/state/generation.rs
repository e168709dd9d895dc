//! One start of all ranks, from the hosts that it needs to the end of its ranks.

use std::time::Duration;

use super::{Busy, Drain, Phase, Quarantined, REMINDER, State, Then};
use crate::Seat;
use crate::action::{Action, Decision, Verdict};
use crate::failure::{Class, Failure, How};
use crate::world::{Choice, Standing, choose};

impl State {
    /// Takes slices in that are there and free, if the run is smaller than it should be.
    pub(super) fn grow(&mut self, now: Duration) {
        let Some(slices) = self.could_grow() else { return };
        let text = format!(
            "{slices} slices can be used, and the run has {}: it stops at a step to take them in",
            self.world.len()
        );
        self.say(Decision::Grow, text);
        // Nobody is in a hurry: the step under way and the save may take as long as they may at any time.
        let limits = &self.settings.limits;
        let grace = limits.drain.max(self.watch.limit(limits).0 + limits.save);
        self.drain(now, Drain::Regroup, grace);
    }

    pub(super) fn gather(&mut self, now: Duration, since: Duration) {
        self.gathered = now;
        if let Some(by) = self.stop.clone() {
            self.end(Verdict::Stopped { by, killed: false });
            return;
        }
        let waited = now.saturating_sub(since);
        let choice = |whole: &[u32]| {
            let (before, is_first) = (&self.world[..], self.is_first);
            choose(&self.settings, &Standing { whole, before, is_first, waited })
        };
        let whole = self.whole_slices(Busy::Excluded, Quarantined::Excluded);
        match choice(&whole) {
            Choice::These(slices) => return self.start(now, slices),
            Choice::Wait | Choice::GiveUp => {}
        }
        let all = self.whole_slices(Busy::Excluded, Quarantined::Included);
        match choice(&all) {
            Choice::These(slices) => {
                self.pardon(&slices);
                self.start(now, slices);
            }
            Choice::GiveUp => {
                let seats = self.absent();
                let text = format!(
                    "hosts that the run needs were not there after {} s: {}",
                    waited.as_secs(),
                    named(&seats)
                );
                self.say(Decision::End, text);
                self.end(Verdict::Absent { seats, waited });
            }
            Choice::Wait => self.say_who_is_absent(now),
        }
    }

    /// Who is waited for, now and then.
    pub(super) fn say_who_is_absent(&mut self, now: Duration) {
        if self.said_absent.is_some_and(|at| now < at + REMINDER) {
            return;
        }
        self.said_absent = Some(now);
        let seats = self.absent();
        let text = match seats.is_empty() {
            true => "the run waits for hosts that end their ranks or are not to be used".to_owned(),
            false => format!("the run waits for {}", named(&seats)),
        };
        self.say(Decision::Wait, text);
    }

    /// The seats that nobody has, of the slices that the run is meant for.
    pub(super) fn absent(&self) -> Vec<Seat> {
        let hosts = 0..self.settings.hosts_per_slice;
        let seats = (0..self.settings.slices)
            .flat_map(|slice| hosts.clone().map(move |host| Seat { slice, host }));
        seats.filter(|seat| !self.hosts.contains_key(seat)).collect()
    }

    pub(super) fn start(&mut self, now: Duration, slices: Vec<u32>) {
        let (before, count) = (self.world.len(), slices.len());
        let wanted = self.settings.slices as usize;
        self.generation += 1;
        self.world = slices.clone();
        let members: Vec<Seat> = self.members().collect();
        for seat in members {
            if let Some(host) = self.hosts.get_mut(&seat) {
                (host.holds, host.is_ready, host.finished) = (self.generation, false, None);
            }
        }
        self.failures.clear();
        self.evidence.clear();
        self.watch.begin(now, count);
        if count < wanted && (self.is_first || count < before) {
            let text =
                format!("{count} of {wanted} slices can be used: the run goes on with these");
            self.say(Decision::Shrink, text);
        }
        let which =
            if wanted > 1 { format!(" on slices {}", list(&slices)) } else { String::new() };
        self.say(Decision::Start, format!("start {}{which}", self.generation));
        (self.is_first, self.said_absent) = (false, None);
        self.phase = Phase::Starting { until: now + self.settings.limits.start };
        let (generation, after) = (self.generation, self.after.take());
        self.actions.push(Action::Start { generation, slices, after });
    }

    pub(super) fn all_ready(&mut self, now: Duration) {
        let is_ready = |seat: Seat| self.hosts.get(&seat).is_some_and(|host| host.is_ready);
        if matches!(self.phase, Phase::Starting { .. }) && self.members().all(is_ready) {
            self.watch.begin(now, self.world.len());
            self.phase = Phase::Training { began: now };
        }
    }

    pub(super) fn too_late_to_start(&mut self, now: Duration) {
        let is_ready = |seat: &Seat| self.hosts.get(seat).is_some_and(|host| host.is_ready);
        let late: Vec<Seat> = self.members().filter(|seat| !is_ready(seat)).collect();
        let seconds = self.settings.limits.start.as_secs();
        for seat in late {
            let class = Class::Infrastructure;
            let text = format!("the ranks of this host were not all ready after {seconds} s");
            self.failures.push(Failure { seat, rank: None, how: How::NotStarted { class, text } });
        }
        self.kill(now, Then::Judge);
    }

    pub(super) fn all_finished(&mut self, now: Duration) {
        let finished = |seat: Seat| self.hosts.get(&seat).and_then(|host| host.finished);
        if !self.members().all(|seat| finished(seat).is_some()) || !self.failures.is_empty() {
            return;
        }
        let completed = self.members().all(|seat| finished(seat) == Some(true));
        match self.phase {
            _ if completed => self.end(Verdict::Completed),
            Phase::Draining { why: Drain::Regroup, .. } if self.stop.is_none() => {
                self.phase = Phase::Gathering { since: now };
            }
            _ => {
                let by = self.stop.clone().unwrap_or_else(|| "a rank".to_owned());
                self.end(Verdict::Stopped { by, killed: false });
            }
        }
    }

    pub(super) fn drain(&mut self, now: Duration, why: Drain, grace: Duration) {
        self.phase = Phase::Draining { until: now + grace, why };
        self.actions.push(Action::Stop { generation: self.generation });
    }

    pub(super) fn stop_requested(&mut self, now: Duration, by: &str) {
        let again = self.stop.is_some();
        let first = self.stop.get_or_insert_with(|| by.to_owned()).clone();
        let stopped = || Verdict::Stopped { by: first.clone(), killed: false };
        let text = match &self.phase {
            Phase::Training { .. } if !again && self.watch.last_step().is_some() => {
                self.drain(now, Drain::Stop, self.settings.limits.drain);
                "ranks end after the step under way, and save"
            }
            // They are about to stop in any case.
            Phase::Draining { until, .. } if !again => {
                self.phase = Phase::Draining { until: *until, why: Drain::Stop };
                "ranks end after the step under way, and save"
            }
            // What follows is decided once it is known what has failed.
            Phase::Settling { .. } | Phase::Clearing { .. } if !again => "the run ends",
            Phase::Gathering { .. } | Phase::BackingOff { .. } => {
                self.end(stopped());
                "there are no ranks"
            }
            Phase::Clearing { .. } | Phase::Ended => "ranks are being killed",
            Phase::Settling { .. } => {
                self.kill(now, Then::Judge);
                "ranks are killed"
            }
            // Before the first step there is nothing to save.
            _ => {
                self.kill(now, Then::End(stopped()));
                "ranks are killed"
            }
        };
        self.say(Decision::Stop, format!("{by}: {text}"));
    }
}

/// The first few seats.
fn named(seats: &[Seat]) -> String {
    const SHOWN: usize = 8;
    let first: Vec<String> = seats.iter().take(SHOWN).map(Seat::to_string).collect();
    match seats.len().saturating_sub(SHOWN) {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}

/// `0 to 3`, `0, 2 and 3`.
fn list(slices: &[u32]) -> String {
    let text = |slice: &u32| slice.to_string();
    match slices {
        [] => "none".to_owned(),
        [only] => text(only),
        [first, .., last] if (last - first) as usize + 1 == slices.len() => {
            format!("{first} to {last}")
        }
        [others @ .., last] => {
            let others: Vec<String> = others.iter().map(text).collect();
            format!("{} and {last}", others.join(", "))
        }
    }
}
