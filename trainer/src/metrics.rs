//! One record per step, made from what all ranks report.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};
use titan_parallelism::{Convention, MfuError, flops_per_token, mfu};
use titan_recipes::{Layout, Recipe};

use crate::engine::ExpertLoad;
use crate::protocol::RankStep;

/// One step of the run: a line of `metrics.jsonl`. Names are stable; new ones may be added.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepRecord {
    /// The step, from 1.
    pub step: u64,
    /// Which start of the run computed it, from 1.
    pub attempt: u64,
    /// Mean cross-entropy in nats per token over the global batch; null if it is not finite.
    #[serde(deserialize_with = "or_nan")]
    pub loss: f64,
    /// Norm of the whole gradient before clipping; null if it is not finite.
    #[serde(deserialize_with = "or_nan")]
    pub grad_norm: f64,
    /// Learning rate.
    pub lr: f64,
    /// Tokens that the run has learned from, this step included.
    pub tokens: u64,
    /// Wall time of the step: the slowest rank's.
    pub step_seconds: f64,
    /// Time of the step spent waiting for data: the slowest rank's.
    pub data_seconds: f64,
    /// Trained tokens per second over all devices.
    pub tokens_per_second: f64,
    /// The same, per device.
    pub tokens_per_second_per_device: f64,
    /// Model FLOPs utilisation from 0 to 1; null when the peak of the device is unknown.
    pub mfu: Option<f64>,
    /// Micro-steps per optimizer step.
    pub accumulation: u64,
    /// Number of devices.
    pub world: u64,
    /// Targets of the step, where some tokens of the data are not learned; absent where all are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub targets: Option<u64>,
    /// How tokens were spread over the experts; absent where there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub experts: Option<ExpertLoad>,
}

/// A validation: a line of `validation.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ValidationRecord {
    /// The step after which the model was validated.
    pub step: u64,
    /// Which start of the run computed it, from 1.
    pub attempt: u64,
    /// Mean cross-entropy in nats per target; null if it is not finite.
    #[serde(deserialize_with = "or_nan")]
    pub loss: f64,
    /// Targets of the validation.
    pub targets: u64,
    /// Wall time: the slowest rank's.
    pub seconds: f64,
}

/// JSON has null where a number is not finite.
fn or_nan<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Option::<f64>::deserialize(deserializer).map(|number| number.unwrap_or(f64::NAN))
}

impl StepRecord {
    /// Pairs of token and expert that were left out for lack of capacity.
    pub fn overflow(&self) -> u64 {
        self.experts.as_ref().map_or(0, |experts| experts.overflow)
    }
}

/// What turns step times into throughput and utilisation.
#[derive(Clone, Debug)]
pub struct Meter {
    layout: Layout,
    flops_per_token: u64,
    peak_flops_per_device: Option<f64>,
    attempt: u64,
}

impl Meter {
    /// The meter of a run. The peak is the recipe's; none is known for a CPU.
    pub fn new(recipe: &Recipe, layout: Layout, attempt: u64) -> Self {
        Self {
            layout,
            flops_per_token: flops_per_token(recipe, Convention::Causal),
            peak_flops_per_device: recipe.hardware.peak_flops().map(|(peak, _)| peak),
            attempt,
        }
    }

    /// FLOPs of forward and backward per token, under the `causal` convention.
    pub fn flops_per_token(&self) -> u64 {
        self.flops_per_token
    }

    /// Tokens per second over all devices, for `steps` steps in `seconds`.
    pub fn tokens_per_second(&self, steps: u64, seconds: f64) -> f64 {
        if seconds > 0.0 { (steps * self.layout.global_tokens()) as f64 / seconds } else { 0.0 }
    }

    /// Utilisation at a throughput, `None` without a known peak.
    ///
    /// # Errors
    /// A utilisation above 1 is an accounting error.
    pub fn mfu(&self, tokens_per_second: f64) -> Result<Option<f64>, MfuError> {
        let Some(peak) = self.peak_flops_per_device else { return Ok(None) };
        let per_device = tokens_per_second / self.layout.world as f64;
        mfu(per_device, self.flops_per_token, peak, Convention::Causal)
            .map(|mfu| Some(mfu.fraction))
    }

    fn record(&self, ranks: &[RankStep]) -> Option<StepRecord> {
        let slowest = |of: fn(&RankStep) -> f64| ranks.iter().map(of).fold(0.0, f64::max);
        let first = ranks.first()?;
        let step_seconds = slowest(|rank| rank.step_seconds);
        let tokens_per_second = self.tokens_per_second(1, step_seconds);
        Some(StepRecord {
            step: first.step,
            attempt: self.attempt,
            loss: first.loss,
            grad_norm: first.grad_norm,
            lr: first.lr,
            tokens: first.step * self.layout.global_tokens(),
            step_seconds,
            data_seconds: slowest(|rank| rank.data_seconds),
            tokens_per_second,
            tokens_per_second_per_device: tokens_per_second / self.layout.world as f64,
            mfu: self.mfu(tokens_per_second).ok().flatten(),
            accumulation: self.layout.accumulation,
            world: self.layout.world,
            targets: first.targets,
            experts: ranks.iter().find_map(|rank| rank.experts.clone()),
        })
    }
}

/// Collects the reports of all ranks; a step is recorded when the last rank has reported it.
#[derive(Debug)]
pub struct Assembler {
    meter: Meter,
    waiting: BTreeMap<u64, Vec<RankStep>>,
}

impl Assembler {
    /// An assembler without steps.
    pub fn new(meter: Meter) -> Self {
        Self { meter, waiting: BTreeMap::new() }
    }

    /// Takes one rank's report, and returns the step's record if that was the last rank.
    pub fn add(&mut self, report: RankStep) -> Option<StepRecord> {
        let world = self.meter.layout.world;
        let step = report.step;
        let reports = self.waiting.entry(step).or_default();
        reports.push(report);
        if (reports.len() as u64) < world {
            return None;
        }
        let reports = self.waiting.remove(&step)?;
        self.meter.record(&reports)
    }

    /// The meter inside.
    pub fn meter(&self) -> &Meter {
        &self.meter
    }
}

#[cfg(test)]
#[path = "metrics_tests.rs"]
mod tests;
