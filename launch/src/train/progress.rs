//! How far the steps are: what the progress bar, the lines and the summary show.

use std::collections::VecDeque;

use titan_trainer::metrics::{Assembler, StepRecord};
use titan_trainer::protocol::RankStep;

use crate::words;

/// Steps that the shown throughput, the remaining time and the final loss are averaged over.
const WINDOW: usize = 20;

/// What is known about the steps so far.
pub(super) struct Progress {
    assembler: Assembler,
    steps: u64,
    steps_done: u64,
    /// Wall time of all steps.
    seconds: f64,
    first_loss: Option<f64>,
    /// Loss and seconds of the last steps.
    recent: VecDeque<(f64, f64)>,
}

impl Progress {
    pub(super) fn new(assembler: Assembler, steps: u64) -> Self {
        Self {
            assembler,
            steps,
            steps_done: 0,
            seconds: 0.0,
            first_loss: None,
            recent: VecDeque::with_capacity(WINDOW + 1),
        }
    }

    /// Takes one rank's report, and returns the step's record if that was the last rank.
    pub(super) fn add(&mut self, step: RankStep) -> Option<StepRecord> {
        let record = self.assembler.add(step)?;
        self.steps_done += 1;
        self.seconds += record.step_seconds;
        self.first_loss.get_or_insert(record.loss);
        self.recent.push_back((record.loss, record.step_seconds));
        if self.recent.len() > WINDOW {
            self.recent.pop_front();
        }
        Some(record)
    }

    fn recent_seconds(&self) -> f64 {
        self.recent.iter().map(|(_, seconds)| seconds).sum()
    }

    fn recent_loss(&self) -> Option<f64> {
        let sum: f64 = self.recent.iter().map(|(loss, _)| loss).sum();
        (!self.recent.is_empty()).then(|| sum / self.recent.len() as f64)
    }

    /// The words beside the progress bar.
    pub(super) fn live(&self, record: &StepRecord) -> String {
        let shown = self.recent.len() as u64;
        let rate = self.assembler.meter().tokens_per_second(shown, self.recent_seconds());
        let left = (self.steps - record.step) as f64 * self.recent_seconds() / shown.max(1) as f64;
        format!(
            "{}/{}  loss {:.4}  {} tokens/s  {} left",
            record.step,
            self.steps,
            record.loss,
            words::count(rate),
            words::seconds(left),
        )
    }

    /// The steps of a run that has ended, in a line or two. `peak` says what utilisation is measured
    /// against, or why it is not.
    pub(super) fn summary(&self, ending: &str, world: u64, peak: &str) -> Vec<String> {
        let meter = self.assembler.meter();
        let steps = words::plural(self.steps_done, "step");
        let (Some(first), Some(last)) = (self.first_loss, self.recent_loss()) else {
            return vec![format!("{ending}: {steps}")];
        };
        let seconds = words::seconds(self.seconds);
        let shown = self.recent.len();
        let rate = meter.tokens_per_second(self.steps_done, self.seconds);
        let mfu = match meter.mfu(rate) {
            Ok(Some(fraction)) => {
                format!("MFU {:.1} % (causal convention, {peak})", 100.0 * fraction)
            }
            Ok(None) => format!("MFU n/a ({peak})"),
            Err(error) => error.to_string(),
        };
        vec![
            format!(
                "{ending}: {steps} in {seconds}, loss {first:.3} -> {last:.3} (mean of the last {shown})"
            ),
            format!(
                "{} tokens/s, {} per device; {mfu}",
                words::count(rate),
                words::count(rate / world as f64)
            ),
        ]
    }
}

/// A step as a line of text.
pub(super) fn plain(record: &StepRecord, steps: u64) -> String {
    let width = steps.to_string().len();
    let mfu = record.mfu.map_or_else(String::new, |mfu| format!("  mfu {:.1} %", 100.0 * mfu));
    format!(
        "step {:>width$}/{steps}  loss {:.5}  grad_norm {:.3}  lr {:.2e}  {} tokens/s  {}{mfu}",
        record.step,
        record.loss,
        record.grad_norm,
        record.lr,
        words::count(record.tokens_per_second),
        words::seconds(record.step_seconds),
    )
}
