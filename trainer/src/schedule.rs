//! The learning rate as a pure function of the step.

use std::f64::consts::PI;

use serde::{Deserialize, Serialize};
use titan_recipes::Recipe;
use titan_recipes::tables::schedule::ScheduleKind;

/// A learning-rate schedule over a whole run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LearningRate {
    /// The highest rate, at the end of warm-up.
    pub peak: f64,
    /// The shape after warm-up.
    pub kind: ScheduleKind,
    /// Steps of the straight rise to the peak.
    pub warmup_steps: u64,
    /// Steps of the run.
    pub total_steps: u64,
    /// The rate of the last step as a fraction of the peak.
    pub final_fraction: f64,
}

impl LearningRate {
    /// The schedule of a recipe.
    pub fn of(recipe: &Recipe) -> Self {
        Self {
            peak: *recipe.optimizer.learning_rate,
            kind: *recipe.schedule.kind,
            warmup_steps: *recipe.schedule.warmup_steps,
            total_steps: *recipe.training.steps,
            final_fraction: *recipe.schedule.final_fraction,
        }
    }

    /// The rate of step `step`, counted from 1.
    ///
    /// Warm-up step `s` of `w` has `s / w` of the peak, so that no step is wasted at a rate of 0. After it, with
    /// progress `p` from 0 to 1 at the last step and final fraction `f`: linear is `1 - (1 - f) p`, cosine is
    /// `f + (1 - f) (1 + cos(pi p)) / 2` (Loshchilov and Hutter, SGDR, equation 5).
    pub fn at(&self, step: u64) -> f64 {
        if step <= self.warmup_steps {
            return self.peak * step as f64 / self.warmup_steps as f64;
        }
        let length = self.total_steps.saturating_sub(self.warmup_steps).max(1);
        let progress = ((step - self.warmup_steps) as f64 / length as f64).min(1.0);
        let floor = self.final_fraction;
        let factor = match self.kind {
            ScheduleKind::Cosine => floor + (1.0 - floor) * 0.5 * (1.0 + (PI * progress).cos()),
            ScheduleKind::Linear => 1.0 - (1.0 - floor) * progress,
            ScheduleKind::Constant => 1.0,
        };
        self.peak * factor
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn schedule(kind: ScheduleKind, warmup_steps: u64, total_steps: u64) -> LearningRate {
        LearningRate { peak: 2.0, kind, warmup_steps, total_steps, final_fraction: 0.1 }
    }

    #[test]
    fn known_points_of_each_kind() {
        let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-12, "{a} is not {b}");
        let cosine = schedule(ScheduleKind::Cosine, 10, 110);
        close(cosine.at(1), 0.2);
        close(cosine.at(10), 2.0);
        close(cosine.at(60), 2.0 * (0.1 + 0.9 * 0.5));
        close(cosine.at(110), 0.2);
        close(schedule(ScheduleKind::Linear, 0, 100).at(50), 2.0 * 0.55);
        close(schedule(ScheduleKind::Linear, 0, 100).at(100), 0.2);
        close(schedule(ScheduleKind::Constant, 5, 100).at(99), 2.0);
        close(schedule(ScheduleKind::Cosine, 7, 7).at(7), 2.0);
    }

    proptest! {
        #[test]
        fn rises_to_the_peak_once_then_never_rises_again(
            kind in prop::sample::select(vec![ScheduleKind::Cosine, ScheduleKind::Linear, ScheduleKind::Constant]),
            warmup in 0_u64..50,
            rest in 1_u64..200,
        ) {
            let schedule = schedule(kind, warmup, warmup + rest);
            for step in 2..=warmup + rest {
                let (before, now) = (schedule.at(step - 1), schedule.at(step));
                prop_assert!(now > 0.0 && now <= 2.0 + 1e-12);
                if step <= warmup { prop_assert!(now > before) } else { prop_assert!(now <= before + 1e-12) }
            }
        }
    }
}
