//! `[precision]`: number formats.

use serde::Serialize;

use crate::reader::Context;
use crate::source::Item;
use crate::tree::Table;
use crate::words::choice;

choice! {
    /// A format for computing or for reducing gradients.
    Format {
        /// 32-bit IEEE floating point.
        Float32 = "float32",
        /// 16 bits with the exponent of float32.
        Bfloat16 = "bfloat16",
    }
}

choice! {
    /// A format for the master copy of the parameters.
    MasterFormat {
        /// 32-bit IEEE floating point.
        Float32 = "float32",
    }
}

/// Number formats of the run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Precision {
    /// The master parameters and the optimizer state.
    pub params: Item<MasterFormat>,
    /// Forward and backward; parameters are cast before they are gathered.
    pub compute: Item<Format>,
    /// Gradients on the wire and their sum.
    pub reduce: Item<Format>,
}

impl Precision {
    pub(crate) fn read(cx: &mut Context<'_>, root: &Table) -> Self {
        let mut t = cx.section(root, "precision");
        let params = t.choice::<MasterFormat>("params");
        let params = t.or(params, MasterFormat::Float32);
        let compute = t.choice::<Format>("compute");
        let compute = t.or(compute, Format::Float32);
        let reduce = t.choice::<Format>("reduce");
        let reduce = t.or(reduce, Format::Float32);
        t.finish();
        Self { params, compute, reduce }
    }
}
