//! `[remat]`: what is computed again in the backward pass instead of being kept.

use serde::Serialize;

use crate::reader::Context;
use crate::source::Item;
use crate::tree::Table;
use crate::words::choice;

choice! {
    /// What the backward pass computes again.
    RematPolicy {
        /// Nothing: all activations are kept.
        None = "none",
        /// All but the results of matrix multiplications.
        Selective = "selective",
        /// Everything inside a block.
        Full = "full",
    }
}

/// What is computed again in the backward pass.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Remat {
    /// The policy.
    pub policy: Item<RematPolicy>,
}

impl Remat {
    pub(crate) fn read(cx: &mut Context<'_>, root: &Table) -> Self {
        let mut t = cx.section(root, "remat");
        let policy = t.choice::<RematPolicy>("policy");
        let policy = t.or(policy, RematPolicy::None);
        t.finish();
        Self { policy }
    }
}
