//! The learning rate as a pure function of the step.

use std::f64::consts::PI;

use serde::{Deserialize, Serialize};
use titan_recipes::Recipe;
use titan_recipes::tables::schedule::{DecayKind, ScheduleKind};

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
    /// Steps of the decay at the end of `wsd`, and its shape.
    pub decay: Option<(u64, DecayKind)>,
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
            decay: (recipe.schedule.decay_steps.as_deref().copied())
                .zip(recipe.schedule.decay_kind.as_deref().copied()),
            final_fraction: *recipe.schedule.final_fraction,
        }
    }

    /// The rate of step `step`, counted from 1.
    ///
    /// Warm-up step `s` of `w` has `s / w` of the peak, so that no step is wasted at a rate of 0. The decay takes all
    /// steps after it, or the last ones of `wsd`. With progress `p` from 0 before the decay to 1 at the last step and
    /// final fraction `f` the rate is `f + (1 - f) l` of the peak, where `l` is `1 - p` (linear), `(1 + cos(pi p)) / 2`
    /// (cosine: Loshchilov and Hutter, SGDR, equation 5) or `1 - sqrt(p)` (Haegele et al., arXiv 2405.18392).
    pub fn at(&self, step: u64) -> f64 {
        if step <= self.warmup_steps {
            return self.peak * step as f64 / self.warmup_steps as f64;
        }
        let after_warmup = self.total_steps.saturating_sub(self.warmup_steps);
        let (length, shape) = match (self.kind, self.decay) {
            (ScheduleKind::Constant, _) | (ScheduleKind::Wsd, None) => return self.peak,
            (ScheduleKind::Wsd, Some((steps, shape))) => (steps.min(after_warmup), shape),
            (ScheduleKind::Cosine, _) => (after_warmup, DecayKind::Cosine),
            (ScheduleKind::Linear, _) => (after_warmup, DecayKind::Linear),
        };
        let done = (step + length).saturating_sub(self.total_steps).min(length);
        let progress = done as f64 / length.max(1) as f64;
        let left = match shape {
            DecayKind::Linear => 1.0 - progress,
            DecayKind::Cosine => 0.5 * (1.0 + (PI * progress).cos()),
            DecayKind::Sqrt => 1.0 - progress.sqrt(),
        };
        let factor = self.final_fraction + (1.0 - self.final_fraction) * left;
        self.peak * factor
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn schedule(kind: ScheduleKind, warmup_steps: u64, total_steps: u64) -> LearningRate {
        let decay = Some((total_steps / 5, DecayKind::Sqrt));
        LearningRate { peak: 2.0, kind, warmup_steps, total_steps, decay, final_fraction: 0.1 }
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
        let wsd = schedule(ScheduleKind::Wsd, 10, 100);
        close(wsd.at(11), 2.0);
        close(wsd.at(80), 2.0);
        close(wsd.at(85), 2.0 * (0.1 + 0.9 * 0.5));
        close(wsd.at(100), 0.2);
    }

    proptest! {
        #[test]
        fn rises_to_the_peak_once_then_never_rises_again(
            kind in prop::sample::select(vec![ScheduleKind::Cosine, ScheduleKind::Linear, ScheduleKind::Wsd, ScheduleKind::Constant]),
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
