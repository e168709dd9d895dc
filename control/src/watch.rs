//! How long ranks may go without progress.

use std::collections::VecDeque;
use std::time::Duration;

use crate::Doing;
use crate::settings::{Limits, StepLimit};

/// Steps that the usual duration is taken from.
const RECENT: usize = 31;

/// Watches the progress of one generation after the other.
#[derive(Clone, Debug, PartialEq, Default)]
pub(crate) struct Watch {
    /// Durations of the last steps, the newest last.
    recent: VecDeque<Duration>,
    /// How long the first step took, after which there was none that `recent` could know of.
    first: Duration,
    /// Slices of the generation: with fewer each step takes longer.
    slices: usize,
    /// When there was progress last.
    since: Duration,
    /// The last step of this generation; `None` before its first.
    step: Option<u64>,
    /// What ranks do instead of a step.
    doing: Option<Doing>,
}

impl Watch {
    /// Begins with a generation of some slices whose ranks are ready.
    pub(crate) fn begin(&mut self, now: Duration, slices: usize) {
        if std::mem::replace(&mut self.slices, slices) != slices {
            self.recent.clear();
        }
        (self.since, self.step, self.doing) = (now, None, None);
    }

    pub(crate) fn step_done(&mut self, now: Duration, step: u64, took: Duration) {
        // The first of a generation compiles and warms up.
        if self.step.is_none() {
            self.first = took;
        } else {
            self.recent.push_back(took);
            if self.recent.len() > RECENT {
                self.recent.pop_front();
            }
        }
        (self.since, self.step, self.doing) = (now, Some(step), None);
    }

    pub(crate) fn doing(&mut self, now: Duration, doing: Doing) {
        (self.since, self.doing) = (now, Some(doing));
    }

    /// The last step of this generation.
    pub(crate) fn last_step(&self) -> Option<u64> {
        self.step
    }

    /// How long the next progress may take, and what it is called.
    pub(crate) fn limit(&self, limits: &Limits) -> (Duration, &'static str) {
        let step = self.step_limit(limits);
        match (self.doing, self.step) {
            // The time is the saver's own, which ends before this and says what was slow.
            (Some(Doing::Saving), _) => (limits.save + step, "a save"),
            (Some(Doing::Validating), _) => (step.max(limits.first_step), "a validation"),
            (None, None) => (limits.first_step, "the first step"),
            (None, Some(_)) => (step, "a step"),
        }
    }

    fn step_limit(&self, limits: &Limits) -> Duration {
        match limits.step {
            StepLimit::Fixed(limit) => limit,
            StepLimit::Usual { times, least } => {
                let mut sorted: Vec<Duration> = self.recent.iter().copied().collect();
                sorted.sort_unstable();
                let usual = match sorted.get(sorted.len() / 2) {
                    Some(median) => *median * times,
                    // Nothing is known but a step that took longer than usual.
                    None => (self.first * times).min(limits.first_step),
                };
                least.max(usual)
            }
        }
    }

    /// When the limit is reached.
    pub(crate) fn deadline(&self, limits: &Limits) -> Duration {
        self.since + self.limit(limits).0
    }

    /// How long there has been none.
    pub(crate) fn silence(&self, now: Duration) -> Duration {
        now.saturating_sub(self.since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_may_take_ten_times_as_long_as_usual_but_at_least_a_minute() {
        let limits = Limits::default();
        let mut watch = Watch::default();
        let seconds = Duration::from_secs;
        watch.begin(seconds(5), 8);
        assert_eq!(watch.limit(&limits), (limits.first_step, "the first step"));
        watch.step_done(seconds(300), 1, seconds(295));
        let longest = limits.first_step;
        assert_eq!(watch.limit(&limits), (longest, "a step"), "the first one is all that is known");
        for step in 2..100 {
            // One in ten is slow.
            let took = if step % 10 == 0 { seconds(500) } else { seconds(8) };
            watch.step_done(seconds(300 + step), step, took);
        }
        assert_eq!(watch.limit(&limits), (seconds(80), "a step"));
        assert_eq!(watch.deadline(&limits), seconds(399 + 80));
        watch.doing(seconds(400), Doing::Saving);
        assert_eq!(watch.limit(&limits).0, limits.save + seconds(80));
        watch.doing(seconds(500), Doing::Validating);
        assert_eq!(watch.deadline(&limits), seconds(500) + limits.first_step);

        watch.begin(seconds(600), 8);
        assert_eq!(watch.limit(&limits), (limits.first_step, "the first step"));
        let fixed = Limits { step: StepLimit::Fixed(seconds(7)), ..limits };
        watch.step_done(seconds(601), 50, seconds(1));
        assert_eq!(watch.deadline(&fixed), seconds(608));
    }

    #[test]
    fn a_step_may_take_more_than_a_minute_from_the_second_on() {
        let limits = Limits::default();
        let seconds = Duration::from_secs;
        let mut watch = Watch::default();
        watch.begin(seconds(0), 1);
        watch.step_done(seconds(90), 1, seconds(90));
        assert_eq!(watch.limit(&limits), (seconds(900), "a step"));
        watch.step_done(seconds(92), 2, seconds(2));
        assert_eq!(watch.limit(&limits), (seconds(60), "a step"));
    }

    #[test]
    fn what_is_usual_on_all_slices_is_not_on_one() {
        let limits = Limits::default();
        let seconds = Duration::from_secs;
        let mut watch = Watch::default();
        watch.begin(seconds(0), 16);
        for step in 1..50 {
            watch.step_done(seconds(10 * step), step, seconds(10));
        }
        watch.begin(seconds(500), 1);
        watch.step_done(seconds(660), 50, seconds(160));
        assert_eq!(watch.limit(&limits), (seconds(1600), "a step"));
        // The same number again: what was usual is so still.
        watch.step_done(seconds(820), 51, seconds(160));
        watch.begin(seconds(900), 1);
        watch.step_done(seconds(901), 52, seconds(1));
        assert_eq!(watch.limit(&limits), (seconds(1600), "a step"));
    }
}
