//! Generations at work: starts, steps and saves.

use std::time::Duration;

use super::agents::Order;
use super::run::{Happening, Simulation};
use super::scenario::{Interval, Saves};
use super::work::Task;
use crate::{Class, Doing, Event, Generation, How, Seat};

impl Simulation<'_> {
    /// A new generation goes on from the newest copy that its slices can get.
    pub(super) fn start(&mut self, generation: Generation, slices: Vec<u32>) {
        let copy = self.stores.newest(&slices);
        if copy.step < self.stores.persistent() {
            self.violate(format!("start {generation} goes on from step {}", copy.step));
        }
        if self.work.generation > 0 {
            self.outcome.restarts += 1;
        }
        self.account.go_on_from(self.now, copy.step);
        let hosts = slices.len() * self.scenario.settings.hosts_per_slice as usize;
        self.work.begin(self.now, generation, slices, hosts, copy);
        self.order_all(Order::start, generation);
    }

    /// The ranks of a host wait for those of all others before they begin.
    pub(super) fn one_is_ready(&mut self) {
        self.work.missing = self.work.missing.saturating_sub(1);
        if self.work.missing == 0 && !self.work.is_over && self.work.task().is_none() {
            self.next_step();
        }
    }

    fn next_step(&mut self) {
        let is_last = self.scenario.model.steps.is_some_and(|steps| self.work.step >= steps);
        if is_last || self.work.is_asked_to_stop {
            return self.save_for_the_last_time();
        }
        let mut takes = self.scenario.step_on(self.work.slices.len());
        if self.work.slices.iter().any(|slice| self.machines.is_slow(*slice, self.now)) {
            takes = takes.mul_f64(self.scenario.faults.slow_factor);
        }
        self.set_out(Task::Step, takes);
    }

    fn set_out(&mut self, task: Task, takes: Duration) {
        let at = self.work.set(self.now, task, takes);
        self.queue.push(at, Happening::Done { epoch: self.work.epoch() });
        self.go_on_or_stand_still();
    }

    /// All ranks stand still while one of them does.
    pub(super) fn go_on_or_stand_still(&mut self) {
        if self.work.task().is_none() {
            return;
        }
        if !self.machines.all_work(&self.work.slices) {
            self.work.pause(self.now);
        } else if let Some(at) = self.work.resume(self.now) {
            self.queue.push(at, Happening::Done { epoch: self.work.epoch() });
        }
    }

    pub(super) fn done(&mut self, epoch: u64) {
        if epoch != self.work.epoch() {
            return;
        }
        match self.work.task() {
            Some(Task::Step) => self.step_done(),
            Some(Task::Save) => self.copied(),
            Some(Task::LastCommit) => {
                self.work.abandon();
                let (generation, step) = (self.work.generation, self.work.step);
                if self.saved(generation, step, false) {
                    self.finish();
                }
            }
            None => {}
        }
    }

    fn step_done(&mut self) {
        let (generation, took) = (self.work.generation, self.work.took());
        self.work.step += 1;
        let (step, here) = (self.work.step, self.scenario.step_on(self.work.slices.len()));
        self.account.step_done(self.now, step, self.scenario.model.step, here);
        self.work.abandon();
        self.tell(&Event::Step { generation, step, took });
        // The state may have had something else in mind.
        if self.work.generation != generation || self.work.is_over {
            return;
        }
        match self.due() {
            (false, false) => self.next_step(),
            _ => self.save(),
        }
    }

    fn saves(&self) -> Option<&Saves> {
        self.scenario.model.saves.as_ref()
    }

    /// Whether a save to the local and to the persistent tier is due.
    fn due(&self) -> (bool, bool) {
        let Some(saves) = self.saves() else { return (false, false) };
        let step = self.work.step;
        let is_local = saves.local_steps.is_some_and(|steps| step.is_multiple_of(steps));
        let is_persistent = match saves.interval {
            Interval::Steps(steps) => step.is_multiple_of(steps),
            Interval::Time(time) => self.now.saturating_sub(self.work.saved_at) >= time,
        };
        (is_local, is_persistent)
    }

    fn save(&mut self) {
        let Some(blocked) = self.saves().map(|saves| saves.blocked) else { return };
        let generation = self.work.generation;
        self.tell(&Event::Doing { generation, doing: Doing::Saving });
        self.set_out(Task::Save, blocked);
    }

    /// The state is copied: training goes on while it is written.
    fn copied(&mut self) {
        let (generation, step) = (self.work.generation, self.work.step);
        let (is_local, is_persistent) = self.due();
        self.work.abandon();
        let Some(saves) = self.saves().cloned() else { return };
        if self.is_at_its_end() {
            self.set_out(Task::LastCommit, saves.commit);
            return;
        }
        let mut write = |is_local, takes| {
            let what = Happening::Saved { generation, step, is_local };
            self.queue.push(self.now + takes, what);
        };
        if is_local {
            write(true, saves.local_commit);
        }
        if is_persistent {
            write(false, saves.commit);
            self.work.saved_at = self.now;
        }
        self.next_step();
    }

    fn is_at_its_end(&self) -> bool {
        let is_last = self.scenario.model.steps.is_some_and(|steps| self.work.step >= steps);
        is_last || self.work.is_asked_to_stop
    }

    /// A save has been written by all ranks, if all are still there. Whether it counts.
    pub(super) fn saved(&mut self, generation: Generation, step: u64, is_local: bool) -> bool {
        if generation != self.work.generation || !self.machines.all_work(&self.work.slices) {
            return false;
        }
        if let Some((seat, class)) = self.what_is_wrong_with_disks(is_local) {
            self.fail_to_save(seat, class, step);
            return false;
        }
        if is_local {
            self.stores.commit_locally(&self.work.slices, step);
        } else {
            self.stores.commit(step);
            self.account.keep(step);
        }
        self.tell(&Event::Committed { step });
        true
    }

    fn what_is_wrong_with_disks(&mut self, is_local: bool) -> Option<(Seat, Class)> {
        let first = Seat { slice: *self.work.slices.first()?, host: 0 };
        let full = self.work.slices.iter().flat_map(|slice| self.machines.seats(*slice));
        let full = full.into_iter().find(|seat| self.machines.at(*seat).is_full);
        if let Some(seat) = full {
            // Whoever looks after the machines makes room before the next attempt.
            self.machines.of(seat).is_full = false;
            let class = if self.jitter.unit() < 0.5 { Class::Space } else { Class::Storage };
            return Some((seat, class));
        }
        (!is_local && self.stores.is_away(self.now)).then_some((first, Class::Storage))
    }

    fn fail_to_save(&mut self, seat: Seat, class: Class, step: u64) {
        let text = format!("the checkpoint of step {step} cannot be written");
        let step = self.work.step + 1;
        let how = How::Reported { step, class, is_consequence: false, text };
        self.break_ranks(seat, 0, how, Duration::ZERO);
    }

    fn save_for_the_last_time(&mut self) {
        let is_saved = self.stores.persistent() >= self.work.step;
        match self.saves() {
            Some(_) if !is_saved => self.save(),
            _ => self.finish(),
        }
    }

    /// Ranks say that they are done, and end.
    fn finish(&mut self) {
        let generation = self.work.generation;
        let completed = self.scenario.model.steps.is_some_and(|steps| self.work.step >= steps);
        for slice in self.work.slices.clone().into_iter().rev() {
            for seat in self.machines.seats(slice) {
                self.machines.end(seat);
                self.send(seat, Event::Finished { seat, generation, completed });
            }
        }
    }
}
