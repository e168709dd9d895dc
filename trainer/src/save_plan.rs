//! When a checkpoint is due.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::saver::Tier;

/// How often checkpoints are saved.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SaveInterval {
    /// After each step that this divides.
    Steps(u64),
    /// After the first step that ends so many seconds after the last save.
    Seconds(f64),
    /// After the time that loses least, if the run fails once in so many seconds.
    Auto {
        /// Mean time between failures of the whole run.
        mtbf_seconds: f64,
    },
}

/// When checkpoints are saved, and to which tiers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SavePlan {
    /// How often to the persistent tier.
    pub interval: SaveInterval,
    /// After each step that this divides to the local tier.
    pub local_steps: Option<u64>,
}

impl SavePlan {
    /// The tiers that all ranks know by themselves to be due after `step`; the last step is always saved.
    pub fn due_after(&self, step: u64, is_last: bool) -> Vec<Tier> {
        let is_local = self.local_steps.is_some_and(|steps| step.is_multiple_of(steps)) && !is_last;
        let is_persistent = self.interval.is_due_after(step) || is_last;
        let due = [(Tier::Local, is_local), (Tier::Persistent, is_persistent)];
        due.into_iter().filter(|(_, is_due)| *is_due).map(|(tier, _)| tier).collect()
    }
}

/// The shortest interval that is chosen: nobody wants to hear of a save more often.
const SHORTEST: f64 = 30.0;

/// The longest: what may be lost is also a matter of nerves.
const LONGEST: f64 = 1800.0;

impl SaveInterval {
    /// Whether all ranks know by themselves that a checkpoint is due after `step`.
    pub fn is_due_after(&self, step: u64) -> bool {
        matches!(self, Self::Steps(steps) if step.is_multiple_of(*steps))
    }

    /// Whether a checkpoint is due for the time that has passed since the last one, where training waited
    /// `cost_seconds` for that.
    pub fn is_overdue(&self, since_last: Duration, cost_seconds: f64) -> bool {
        let interval = match *self {
            Self::Steps(_) => return false,
            Self::Seconds(seconds) => seconds,
            Self::Auto { mtbf_seconds } => best_interval(cost_seconds, mtbf_seconds),
        };
        since_last.as_secs_f64() >= interval
    }
}

/// The interval between checkpoints that loses least time, in seconds: sqrt(2 x cost x mean time between failures)
/// (Young 1974; Daly, "A higher order estimate of the optimum checkpoint interval", 2006, whose further terms matter only
/// where a save takes a good part of the time between failures), within bounds.
pub fn best_interval(cost_seconds: f64, mtbf_seconds: f64) -> f64 {
    (2.0 * cost_seconds.max(0.0) * mtbf_seconds.max(0.0)).sqrt().clamp(SHORTEST, LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_that_of_young() {
        // One second every hour of failures: sqrt(7200).
        assert!((best_interval(1.0, 3600.0) - 84.853).abs() < 1e-3);
        assert_eq!(best_interval(0.0, 3600.0), SHORTEST);
        assert_eq!(best_interval(1.0, f64::INFINITY), LONGEST);
        assert_eq!(best_interval(f64::NAN, 1.0), SHORTEST);
    }

    #[test]
    fn each_tier_has_its_own_steps_and_the_last_is_for_good() {
        let plan = SavePlan { interval: SaveInterval::Steps(4), local_steps: Some(2) };
        assert_eq!(plan.due_after(1, false), []);
        assert_eq!(plan.due_after(2, false), [Tier::Local]);
        assert_eq!(plan.due_after(4, false), [Tier::Local, Tier::Persistent]);
        assert_eq!(plan.due_after(6, true), [Tier::Persistent]);
        let plan = SavePlan { interval: SaveInterval::Seconds(1.0), local_steps: None };
        assert_eq!(plan.due_after(4, false), []);
        assert_eq!(plan.due_after(4, true), [Tier::Persistent]);
    }

    #[test]
    fn steps_and_seconds_do_not_mix() {
        let steps = SaveInterval::Steps(5);
        assert!(steps.is_due_after(10) && !steps.is_due_after(11));
        assert!(!steps.is_overdue(Duration::MAX, 0.0));
        let seconds = SaveInterval::Seconds(2.0);
        assert!(!seconds.is_due_after(2));
        assert!(seconds.is_overdue(Duration::from_secs(2), 0.0));
        assert!(!seconds.is_overdue(Duration::from_secs(1), 0.0));
    }
}
