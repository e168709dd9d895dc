//! `[metrics]`: what is recorded, and how often it is shown.

use serde::Serialize;

use crate::reader::Context;
use crate::source::Item;
use crate::tree::Table;

/// What is recorded and shown.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Metrics {
    /// Steps between two printed lines. Every step is in `metrics.jsonl` all the same.
    pub every_steps: Item<u64>,
    /// Whether TensorBoard event files are written.
    pub tensorboard: Item<bool>,
}

impl Metrics {
    pub(crate) fn read(cx: &mut Context<'_>, root: &Table) -> Self {
        let mut t = cx.section(root, "metrics");
        let every_steps = t.integer("every_steps", 1, 1_000_000_000);
        let every_steps = t.or(every_steps, 1);
        let tensorboard = t.boolean("tensorboard");
        let tensorboard = t.or(tensorboard, true);
        t.finish();
        Self { every_steps, tensorboard }
    }
}
