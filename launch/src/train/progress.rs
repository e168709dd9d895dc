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
    /// Steps that were done before, and once more after a failure.
    again: u64,
    /// The furthest step.
    furthest: u64,
    /// Wall time of all steps.
    seconds: f64,
    first_loss: Option<f64>,
    /// Pairs of token and expert of one step, over all layers.
    pairs_per_step: u64,
    /// Those of all steps that were left out.
    overflow: u64,
    /// Loss and seconds of the last steps.
    recent: VecDeque<(f64, f64)>,
}

impl Progress {
    pub(super) fn new(assembler: Assembler, steps: u64, pairs_per_step: u64) -> Self {
        Self {
            assembler,
            steps,
            steps_done: 0,
            again: 0,
            furthest: 0,
            seconds: 0.0,
            first_loss: None,
            pairs_per_step,
            overflow: 0,
            recent: VecDeque::with_capacity(WINDOW + 1),
        }
    }

    /// Goes on with another start of the run; what ranks of the one before have reported of steps that not all have done is
    /// forgotten.
    pub(super) fn start_again(&mut self, assembler: Assembler) {
        self.assembler = assembler;
    }

    /// Takes one rank's report, and returns the step's record if that was the last rank.
    pub(super) fn add(&mut self, step: RankStep) -> Option<StepRecord> {
        let record = self.assembler.add(step)?;
        if record.step > self.furthest {
            self.steps_done += 1;
        } else {
            self.again += 1;
        }
        self.furthest = self.furthest.max(record.step);
        self.seconds += record.step_seconds;
        self.overflow += record.overflow();
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

    /// What was left out of the training, which nobody should have to look for.
    pub(super) fn left_out(&self) -> Option<String> {
        if self.overflow == 0 {
            return None;
        }
        let all = self.pairs_per_step as f64 * (self.steps_done + self.again) as f64;
        Some(format!(
            "{} of token and expert ({:.2} % of all) found no capacity and were left out; \
             parallelism.expert_capacity_factor = \"dropless\" leaves out none, a larger number fewer",
            words::plural(self.overflow, "pair"),
            100.0 * self.overflow as f64 / all
        ))
    }

    /// The steps of a run that has ended, in a line or two. `peak` says what utilisation is measured
    /// against, or why it is not.
    pub(super) fn summary(&self, ending: &str, world: u64, peak: &str) -> Vec<String> {
        let meter = self.assembler.meter();
        let steps = words::plural(self.steps_done, "step");
        let (Some(first), Some(last)) = (self.first_loss, self.recent_loss()) else {
            return vec![format!("{ending}: {steps}")];
        };
        let mut seconds = words::seconds(self.seconds);
        if self.again > 0 {
            seconds +=
                &format!(" ({} done again after failures)", words::plural(self.again, "step"));
        }
        let shown = self.recent.len();
        let rate = meter.tokens_per_second(self.steps_done + self.again, self.seconds);
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
    let left_out = match record.overflow() {
        0 => String::new(),
        pairs => format!("  left out {}", words::plural(pairs, "pair")),
    };
    format!(
        "step {:>width$}/{steps}  loss {:.5}  grad_norm {:.3}  lr {:.2e}  {} tokens/s  {}{mfu}{left_out}",
        record.step,
        record.loss,
        record.grad_norm,
        record.lr,
        words::count(record.tokens_per_second),
        words::seconds(record.step_seconds),
    )
}

#[cfg(test)]
mod tests {
    use titan_recipes::{Disk, Overrides, Purpose, Source, load_text};
    use titan_trainer::engine::ExpertLoad;
    use titan_trainer::metrics::Meter;

    use super::*;

    /// The progress of a run on one device with 100 pairs a step.
    fn progress() -> Progress {
        let text = "version = 1\n[model]\nfamily = \"qwen3-moe\"\nsize = \"tiny\"\n\
                    [hardware]\naccelerator = \"cpu\"\n[optimizer]\nlearning_rate = 1e-3\n\
                    [training]\nsteps = 3\nsequence_length = 64\nlocal_batch = 1\n\
                    [data]\nsources = [{ path = \"data.txt\" }]\n";
        let source = Source { name: "r.toml".into(), text: text.into(), base: "/".into() };
        let overrides = Overrides::default();
        let loaded = load_text(source, &overrides, &Disk::default(), Purpose::Plan).unwrap();
        let meter = Meter::new(&loaded.recipe, loaded.layout, 1);
        Progress::new(Assembler::new(meter), 3, 100)
    }

    fn step(step: u64, overflow: Option<u64>) -> RankStep {
        let load =
            |overflow| ExpertLoad { load: vec![1.0], max_load: 1.0, min_load: 1.0, overflow };
        RankStep {
            step,
            loss: 2.0,
            grad_norm: 1.0,
            lr: 1e-3,
            step_seconds: 0.5,
            data_seconds: 0.0,
            targets: None,
            experts: overflow.map(load),
        }
    }

    #[test]
    fn pairs_that_were_left_out_are_in_the_line_of_their_step_and_at_the_end() {
        let mut progress = progress();
        let lines: Vec<String> = [Some(1), Some(0), Some(2)]
            .into_iter()
            .zip(1..)
            .map(|(overflow, n)| plain(&progress.add(step(n, overflow)).unwrap(), 3))
            .collect();
        assert!(lines[0].ends_with("  left out 1 pair"), "{lines:?}");
        assert!(!lines[1].contains("left out"), "{lines:?}");
        assert!(lines[2].ends_with("  left out 2 pairs"), "{lines:?}");
        let said = progress.left_out().unwrap();
        assert!(said.starts_with("3 pairs of token and expert (1.00 % of all)"), "{said}");
    }

    #[test]
    fn where_nothing_was_left_out_nothing_is_said() {
        for overflow in [None, Some(0)] {
            let mut progress = progress();
            let record = progress.add(step(1, overflow)).unwrap();
            assert!(!plain(&record, 3).contains("left out"));
            assert_eq!(progress.left_out(), None);
        }
    }
}
