//! Faults strike, and pass.

use std::time::Duration;

use super::faults::{Fault, FaultKind};
use super::random::pick;
use super::run::{Happening, Simulation};
use crate::{Class, Event, ExitStatus, Failure, How, Seat};

impl Simulation<'_> {
    pub(super) fn strike(&mut self, fault: Fault) {
        *self.outcome.faults.entry(fault.kind).or_default() += 1;
        let Some(seat) = self.whom(&fault) else {
            self.outcome.note(self.now, format!("{}: no machine is there", fault.kind.name()));
            return;
        };
        let text = match fault.kind {
            FaultKind::KillRank => self.kill_rank(seat, &fault),
            FaultKind::HangRank => self.hang_rank(seat, &fault),
            FaultKind::SlowHost => {
                self.machines.slow_down(seat, self.now + fault.lasts);
                format!("{seat} is slow for {}", seconds(fault.lasts))
            }
            FaultKind::CutHost => {
                self.cut(seat, fault.lasts);
                format!("{seat} is cut off for {}", seconds(fault.lasts))
            }
            FaultKind::CutSlice => {
                for seat in self.machines.seats(seat.slice) {
                    self.cut(seat, fault.lasts);
                }
                format!("slice {} is cut off for {}", seat.slice, seconds(fault.lasts))
            }
            FaultKind::LoseSlice => {
                self.vanish(seat.slice);
                format!("the machines of slice {} vanish", seat.slice)
            }
            FaultKind::Preemption => self.preempt(seat.slice, fault.lasts),
            FaultKind::FullDisk => {
                self.machines.of(seat).is_full = true;
                format!("the disk of {seat} is full")
            }
            FaultKind::StorageOutage => {
                self.stores.go_away(self.now + fault.lasts);
                format!("the store is away for {}", seconds(fault.lasts))
            }
        };
        self.outcome.note(self.now, text);
    }

    /// A host of the current generation, or, where there is none, of any slice that is there.
    fn whom(&self, fault: &Fault) -> Option<Seat> {
        let is_there = |slice: &u32| self.machines.is_whole(*slice);
        let members: Vec<u32> = self.work.slices.iter().copied().filter(is_there).collect();
        let slices = match members.is_empty() {
            true => (0..self.machines.slices()).filter(is_there).collect(),
            false => members,
        };
        let slice = slices[pick(fault.slice, slices.len())?];
        let host = pick(fault.host, self.scenario.settings.hosts_per_slice as usize)? as u32;
        Some(Seat { slice, host })
    }

    fn local_rank(&self, fault: &Fault) -> u64 {
        pick(fault.rank, self.scenario.ranks_per_host as usize).unwrap_or(0) as u64
    }

    fn kill_rank(&mut self, seat: Seat, fault: &Fault) -> String {
        let Some(ranks) = self.machines.at(seat).ranks else {
            return format!("a process on {seat} is killed that is no rank");
        };
        let local = self.local_rank(fault);
        let rank = self.rank(seat, local);
        let died = How::Died { status: ExitStatus::Signal(9) };
        if ranks.generation == self.work.generation && ranks.is_ready {
            self.others_lose_a_peer(seat);
        }
        self.break_ranks(seat, local, died, self.scenario.model.notice);
        format!("rank {rank} on {seat} is killed")
    }

    /// A rank elsewhere sees that its peer is gone, before or after that is told by the agent of the peer.
    fn others_lose_a_peer(&mut self, seat: Seat) {
        let slices = self.work.slices.clone();
        let seats = slices.into_iter().flat_map(|slice| self.machines.seats(slice));
        let Some(other) = seats.into_iter().find(|other| *other != seat) else { return };
        let generation = self.work.generation;
        let is_there = |machine: &super::machines::Machine| {
            machine.ranks.is_some_and(|ranks| ranks.generation == generation && !ranks.is_broken)
        };
        if self.work.missing > 0 || !is_there(self.machines.at(other)) {
            return;
        }
        let (class, text) = (Class::Infrastructure, "the connection to a peer was lost".to_owned());
        let step = self.work.step + 1;
        let how = How::Reported { step, class, is_consequence: true, text };
        let failure = Failure { seat: other, rank: Some(self.rank(other, 0)), how };
        self.send(other, Event::Failed { generation, failure });
    }

    fn hang_rank(&mut self, seat: Seat, fault: &Fault) -> String {
        let local = self.local_rank(fault);
        let rank = self.rank(seat, local);
        let Some(ranks) = &mut self.machines.of(seat).ranks else {
            return format!("a process on {seat} stands still that is no rank");
        };
        ranks.hung = Some(local);
        self.look_at(seat);
        format!("rank {rank} on {seat} stands still")
    }

    fn cut(&mut self, seat: Seat, lasts: Duration) {
        let machine = self.machines.at(seat);
        if machine.is_cut() || !machine.is_up {
            return;
        }
        let last = self.falls_silent(seat);
        let cut_until = self.now + lasts;
        self.machines.of(seat).cut_until = Some(cut_until);
        self.queue.push(cut_until, Happening::Healed { seat, cut_until });
        if let Some(lease) = self.scenario.settings.limits.lease {
            // The answer to its last beat counts from when it sent that.
            let model = &self.scenario.model;
            let sent = last.saturating_sub(model.latency + model.jitter);
            let at = (sent + lease).saturating_sub(model.fence_margin).max(self.now);
            self.queue.push(at, Happening::Fence { seat, cut_until });
        }
        self.look_at(seat);
    }

    pub(super) fn healed(&mut self, seat: Seat, cut_until: Duration) {
        let machine = self.machines.of(seat);
        if machine.cut_until != Some(cut_until) || !machine.is_up {
            return;
        }
        machine.cut_until = None;
        self.speaks_again(seat);
        self.look_at(seat);
    }

    fn preempt(&mut self, slice: u32, notice: Duration) -> String {
        for seat in self.machines.seats(slice) {
            self.machines.of(seat).is_leaving = true;
            let why = "its machine is preempted".to_owned();
            self.send(seat, Event::Leaving { seat, why, within: Some(notice) });
        }
        self.queue.push(self.now + notice, Happening::Vanish { slice });
        format!("slice {slice} will be preempted in {}", seconds(notice))
    }

    /// The notice is over, if the machines have not gone before.
    pub(super) fn leaves(&mut self, slice: u32) {
        if self.machines.seats(slice).all(|seat| self.machines.at(seat).is_leaving) {
            self.vanish(slice);
        }
    }

    /// The machines of a slice are gone, with all they had.
    pub(super) fn vanish(&mut self, slice: u32) {
        if !self.machines.is_whole(slice) {
            return;
        }
        self.stores.forget(slice);
        self.machines.speed_up(slice);
        for seat in self.machines.seats(slice) {
            if !self.machines.at(seat).is_cut() {
                self.falls_silent(seat);
            }
            self.machines.end(seat);
            let machine = self.machines.of(seat);
            (machine.is_up, machine.cut_until) = (false, None);
            machine.incarnation += 1;
            machine.barred = 0;
            (machine.is_full, machine.is_leaving) = (false, false);
            machine.held_messages.clear();
            machine.held_orders.clear();
            self.look_at(seat);
        }
        self.queue.push(self.now + self.scenario.model.boot, Happening::Booted { slice });
    }

    pub(super) fn booted(&mut self, slice: u32) {
        for seat in self.machines.seats(slice) {
            self.machines.of(seat).is_up = true;
            self.join(seat);
        }
    }
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}
