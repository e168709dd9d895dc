//! `[elastic]`: what a run survives, and how it ends when it is told to.

use serde::Serialize;

use crate::reader::Context;
use crate::source::Item;
use crate::tree::Table;

/// What a run survives, and how it ends when it is told to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Elastic {
    /// Slices below which the run waits instead of going on. By default all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_slices: Option<Item<u64>>,
    /// Restarts after failures before the run gives up.
    pub max_restarts: Item<u64>,
    /// Seconds that workers have to finish their step after SIGINT or SIGTERM; then they are killed.
    pub grace_seconds: Item<u64>,
}

impl Elastic {
    pub(crate) fn read(cx: &mut Context<'_>, root: &Table) -> Self {
        let mut t = cx.section(root, "elastic");
        let min_slices = t.integer("min_slices", 1, 1024);
        let min_slices = t.optional(min_slices);
        let max_restarts = t.integer("max_restarts", 0, 1_000_000);
        let max_restarts = t.or(max_restarts, 0);
        let grace_seconds = t.integer("grace_seconds", 1, 3600);
        let grace_seconds = t.or(grace_seconds, 30);
        t.finish();
        Self { min_slices, max_restarts, grace_seconds }
    }
}
