//! `[schedule]`: the learning rate over the run.

use serde::Serialize;

use crate::reader::{Context, FRACTION};
use crate::source::Item;
use crate::tables::training::MOST_STEPS;
use crate::tree::Table;
use crate::words::choice;

choice! {
    /// The shape of the learning rate after warm-up.
    ScheduleKind {
        /// Half a cosine wave down to the final fraction.
        Cosine = "cosine",
        /// A straight line down to the final fraction.
        Linear = "linear",
        /// Stays at the peak.
        Constant = "constant",
    }
}

/// Shapes of the recipe format that this version does not have yet.
const LATER: &[&str] = &["wsd"];

/// The learning rate over the run, as a factor of `optimizer.learning_rate`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Schedule {
    /// The shape after warm-up.
    pub kind: Item<ScheduleKind>,
    /// Steps of the straight rise from 0 to the peak.
    pub warmup_steps: Item<u64>,
    /// The factor at the last step.
    pub final_fraction: Item<f64>,
}

impl Schedule {
    pub(crate) fn read(cx: &mut Context<'_>, root: &Table) -> Self {
        let mut t = cx.section(root, "schedule");
        let kind = t.choice_with::<ScheduleKind>("kind", LATER);
        let kind = t.or(kind, ScheduleKind::Cosine);
        let warmup_steps = t.integer("warmup_steps", 0, MOST_STEPS);
        let warmup_steps = t.or(warmup_steps, 0);
        let final_fraction = t.number("final_fraction", FRACTION);
        let final_fraction = t.or(final_fraction, 0.1);
        t.finish();
        Self { kind, warmup_steps, final_fraction }
    }
}
