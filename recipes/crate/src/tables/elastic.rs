//! `[elastic]`: what a run survives, and how it ends when it is told to.

use serde::Serialize;

use crate::reader::Context;
use crate::source::Item;
use crate::tree::Table;
use crate::words::Auto;

/// Restarts without progress, by default.
pub(crate) const USUAL_RESTARTS: u64 = 5;

/// What a run survives, and how it ends when it is told to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Elastic {
    /// Slices below which the run waits instead of going on. By default all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_slices: Option<Item<u64>>,
    /// Restarts after failures of machines, processes, the network and storage that bring no progress, before the run gives
    /// up.
    pub max_restarts: Item<u64>,
    /// Restarts after failures of the program, in all.
    pub max_application_restarts: Item<u64>,
    /// Seconds that a step may take; `auto` is 10 times the usual, and at least 60.
    pub step_timeout_seconds: Item<Auto<u64>>,
    /// Seconds until all ranks are ready, and from there until the first step is done; `auto` is half an hour.
    pub start_timeout_seconds: Item<Auto<u64>>,
    /// A file that appears, or a page (`http://`) that says something, when the machine will be gone soon.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preemption_notice: Option<Item<String>>,
    /// Seconds that workers have to finish their step after SIGINT or SIGTERM; then they are killed.
    pub grace_seconds: Item<u64>,
}

impl Elastic {
    pub(crate) fn read(cx: &mut Context<'_>, root: &Table) -> Self {
        let mut t = cx.section(root, "elastic");
        let min_slices = t.integer("min_slices", 1, 1024);
        let min_slices = t.optional(min_slices);
        let max_restarts = t.integer("max_restarts", 0, 1_000_000);
        let max_restarts = t.or(max_restarts, USUAL_RESTARTS);
        let application = t.integer("max_application_restarts", 0, 1_000_000);
        let max_application_restarts = t.or(application, 2);
        let step = t.auto_or_integer("step_timeout_seconds", 1, 86_400);
        let step_timeout_seconds = t.or(step, Auto::Auto);
        let start = t.auto_or_integer("start_timeout_seconds", 1, 86_400);
        let start_timeout_seconds = t.or(start, Auto::Auto);
        let preemption_notice = t.text("preemption_notice");
        let preemption_notice = t.optional(preemption_notice);
        let grace_seconds = t.integer("grace_seconds", 1, 3600);
        let grace_seconds = t.or(grace_seconds, 30);
        t.finish();
        Self {
            min_slices,
            max_restarts,
            max_application_restarts,
            step_timeout_seconds,
            start_timeout_seconds,
            preemption_notice,
            grace_seconds,
        }
    }
}
