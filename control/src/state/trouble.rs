//! Failures, and what follows from them.

use std::time::Duration;

use super::{Host, Phase, State, Then};
use crate::Seat;
use crate::action::{Action, Decision, Verdict};
use crate::failure::{Failure, How, cause_of};
use crate::restart::Next;
use crate::settings::Settings;
use crate::stuck::{Evidence, who_is_stuck};

impl State {
    pub(super) fn fail(&mut self, now: Duration, failure: Failure) {
        if !self.has_ranks() {
            return;
        }
        let is_first = failure.is_certainly_first();
        self.say(Decision::Failure, failure.to_string());
        self.failures.push(failure);
        match self.phase {
            _ if is_first => self.kill(now, Then::Judge),
            Phase::Settling { .. } => {}
            _ => self.phase = Phase::Settling { until: now + self.settings.limits.settle },
        }
    }

    pub(super) fn diagnose(&mut self, now: Duration) {
        let (limit, what) = self.watch.limit(&self.settings.limits);
        let silence = self.watch.silence(now);
        let text = format!(
            "no progress for {:.0} s, and {what} may take {:.0} s: hosts are asked what their ranks do",
            silence.as_secs_f64(),
            limit.as_secs_f64()
        );
        self.say(Decision::Diagnose, text);
        self.evidence.clear();
        let began = if let Phase::Training { began } = self.phase { began } else { now };
        let until = now + self.settings.limits.evidence;
        self.phase = Phase::Diagnosing { until, began };
        self.actions.push(Action::Diagnose { generation: self.generation });
    }

    /// There is progress after all: ranks were slow, or word of them was.
    pub(super) fn go_on(&mut self) {
        if let Phase::Diagnosing { began, .. } = self.phase {
            self.say(Decision::Diagnose, "there is progress again");
            self.phase = Phase::Training { began };
        }
    }

    pub(super) fn name_the_stuck(&mut self, now: Duration) {
        let ranks: Vec<(Seat, Evidence)> = std::mem::take(&mut self.evidence)
            .into_iter()
            .flat_map(|(seat, ranks)| ranks.into_iter().map(move |rank| (seat, rank)))
            .collect();
        let all: Vec<Evidence> = ranks.iter().map(|(_, rank)| rank.clone()).collect();
        let suspect = who_is_stuck(&all);
        let of = |(seat, evidence): &(Seat, Evidence)| {
            (Some(evidence.rank) == suspect.rank).then_some((*seat, evidence.step))
        };
        let furthest = self.watch.last_step().unwrap_or(self.committed);
        let first = self.members().next().unwrap_or(Seat::ONLY);
        let (seat, step) = ranks.iter().find_map(of).unwrap_or((first, furthest));
        let seconds = self.watch.silence(now).as_secs();
        let text = format!("no progress for {seconds} s; {}", suspect.why);
        let how = How::Stuck { step: step + 1, text };
        self.fail(now, Failure { seat, rank: suspect.rank, how });
    }

    pub(super) fn kill(&mut self, now: Duration, then: Then) {
        self.phase = Phase::Clearing { until: now + self.settings.limits.clear, then };
        self.actions.push(Action::Kill { generation: self.generation });
    }

    /// Goes on once no rank is left.
    pub(super) fn clear(&mut self, now: Duration, until: Duration, then: Then) {
        if self.is_held() && now < until {
            return;
        }
        let holds = |host: &Host| host.holds > 0 && host.holds == self.generation;
        let holders: Vec<Seat> =
            self.hosts.iter().filter(|(_, host)| holds(host)).map(|(seat, _)| *seat).collect();
        for seat in &holders {
            // Its slice is not whole before it has said that they are gone.
            let text = format!("ranks on {seat} were killed and are still there");
            self.say(Decision::Membership, text);
        }
        match then {
            Then::End(verdict) => self.end(verdict),
            Then::Regroup => self.phase = Phase::Gathering { since: now },
            Then::Judge => self.judge(now),
        }
        if let Phase::Gathering { since } = self.phase {
            self.gather(now, since);
        }
    }

    /// What follows from the failures of this generation.
    pub(super) fn judge(&mut self, now: Duration) {
        let Some(cause) = cause_of(&self.failures) else {
            self.phase = Phase::Gathering { since: now };
            return;
        };
        let failure = self.failures[cause].clone();
        self.after = Some(failure.clone());
        if !matches!(failure.how, How::HostLost { .. }) && failure.rank.is_some() {
            self.blame(now, failure.seat);
        }
        let mark = if self.settings.saves { self.committed } else { self.furthest };
        let Settings { budgets, backoff, .. } = &self.settings;
        let next = self.restarts.after(&failure, mark, self.has_trained, budgets, backoff);
        match (next, self.stop.clone()) {
            (Next::Again(..), Some(by)) => {
                let why = format!("{by} asked it to stop");
                let failures = std::mem::take(&mut self.failures);
                self.say(Decision::End, format!("it is not started again: {why}"));
                self.end(Verdict::Failed { failures, cause, why });
            }
            (Next::Again(wait, text), None) => {
                let when = match wait {
                    Duration::ZERO => "at once".to_owned(),
                    wait => format!("in {:.0} s", wait.as_secs_f64()),
                };
                self.say(Decision::Restart, format!("{failure}; again {when}: {text}"));
                self.phase = Phase::BackingOff { until: now + wait };
                if wait == Duration::ZERO {
                    self.phase = Phase::Gathering { since: now };
                }
            }
            (Next::GiveUp(why), _) => {
                let failures = std::mem::take(&mut self.failures);
                self.say(Decision::GiveUp, format!("{failure}; {why}"));
                self.end(Verdict::Failed { failures, cause, why });
            }
        }
    }
}
