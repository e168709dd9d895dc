//! `[elastic]`: how the run ends when it is told to.

use serde::Serialize;

use crate::reader::Context;
use crate::source::Item;
use crate::tree::Table;

/// How the run ends when it is told to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Elastic {
    /// Seconds that workers have to finish their step after SIGINT or SIGTERM; then they are killed.
    pub grace_seconds: Item<u64>,
}

impl Elastic {
    pub(crate) fn read(cx: &mut Context<'_>, root: &Table) -> Self {
        let mut t = cx.section(root, "elastic");
        let grace_seconds = t.integer("grace_seconds", 1, 3600);
        let grace_seconds = t.or(grace_seconds, 30);
        t.later(&["min_slices", "max_restarts"]);
        t.finish();
        Self { grace_seconds }
    }
}
