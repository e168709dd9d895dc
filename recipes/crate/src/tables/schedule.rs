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
        /// Warm-up, a stable peak, and a decay over the last steps (arXiv 2404.06395).
        Wsd = "wsd",
        /// Stays at the peak.
        Constant = "constant",
    }
}

choice! {
    /// The shape of the decay at the end of `wsd`.
    DecayKind {
        /// A straight line.
        Linear = "linear",
        /// Half a cosine wave.
        Cosine = "cosine",
        /// 1 minus the square root of the part that is done (arXiv 2405.18392).
        Sqrt = "sqrt",
    }
}

/// The learning rate over the run, as a factor of `optimizer.learning_rate`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Schedule {
    /// The shape after warm-up.
    pub kind: Item<ScheduleKind>,
    /// Steps of the straight rise from 0 to the peak.
    pub warmup_steps: Item<u64>,
    /// Steps of the decay of `wsd`; all that warm-up leaves for the other shapes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decay_steps: Option<Item<u64>>,
    /// The shape of the decay of `wsd`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decay_kind: Option<Item<DecayKind>>,
    /// The factor at the last step.
    pub final_fraction: Item<f64>,
}

impl Schedule {
    /// `steps` are those of the run.
    pub(crate) fn read(cx: &mut Context<'_>, root: &Table, steps: u64) -> Self {
        let mut t = cx.section(root, "schedule");
        let kind = t.choice::<ScheduleKind>("kind");
        let kind = t.or(kind, ScheduleKind::Cosine);
        let warmup_steps = t.integer("warmup_steps", 0, MOST_STEPS);
        let warmup_steps = t.or(warmup_steps, 0);
        let is_wsd = *kind == ScheduleKind::Wsd;
        let decay_steps = t.integer("decay_steps", 1, MOST_STEPS);
        let decay_steps = match is_wsd {
            true => Some(t.required(decay_steps, 1, &(steps / 5).max(1).to_string())),
            false => t.idle("decay_steps", decay_steps, "is for kind = \"wsd\""),
        };
        let decay_kind = t.choice::<DecayKind>("decay_kind");
        let decay_kind = match is_wsd {
            true => Some(t.or(decay_kind, DecayKind::Linear)),
            false => t.idle("decay_kind", decay_kind, "is for kind = \"wsd\""),
        };
        let final_fraction = t.number("final_fraction", FRACTION);
        let final_fraction = t.or(final_fraction, 0.1);
        t.finish();
        Self { kind, warmup_steps, decay_steps, decay_kind, final_fraction }
    }
}
