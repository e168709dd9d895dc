//! `[parallelism]`: the mesh axes. World = replicate x shard.

use serde::Serialize;

use crate::reader::Context;
use crate::source::Item;
use crate::tree::Table;
use crate::words::Auto;

/// Degrees of the mesh axes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Parallelism {
    /// Copies of the sharded model (the outer axis of HSDP).
    pub replicate: Item<u64>,
    /// Devices that one copy of the parameters is spread over (FSDP). `auto` takes what `replicate` leaves.
    pub shard: Item<Auto<u64>>,
}

impl Parallelism {
    pub(crate) fn read(cx: &mut Context<'_>, root: &Table) -> Self {
        let mut t = cx.section(root, "parallelism");
        let replicate = t.integer("replicate", 1, 1 << 20);
        let replicate = t.or(replicate, 1);
        let shard = t.auto_or_integer("shard", 1, 1 << 20);
        let shard = t.or(shard, Auto::Auto);
        t.later(&["expert", "tensor", "context"]);
        t.finish();
        Self { replicate, shard }
    }
}
