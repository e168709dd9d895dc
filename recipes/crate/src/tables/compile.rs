//! `[compile]`: whether the step runs compiled.

use serde::Serialize;

use crate::reader::Context;
use crate::source::Item;
use crate::tree::Table;

/// Whether the step runs compiled.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Compile {
    /// Whether `torch.compile` takes the step.
    pub enabled: Item<bool>,
}

impl Compile {
    pub(crate) fn read(cx: &mut Context<'_>, root: &Table) -> Self {
        let mut t = cx.section(root, "compile");
        let enabled = t.boolean("enabled");
        let enabled = t.or(enabled, false);
        t.finish();
        Self { enabled }
    }
}
