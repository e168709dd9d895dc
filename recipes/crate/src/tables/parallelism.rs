//! `[parallelism]`: the mesh axes. World = replicate x shard x context x tensor.

use serde::{Serialize, Serializer};

use crate::reader::Context;
use crate::source::Item;
use crate::tree::Table;
use crate::words::Auto;

/// How many copies of the sharded model there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replicate {
    /// One for each slice.
    Slices,
    /// So many.
    Fixed(u64),
}

impl Serialize for Replicate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Slices => serializer.serialize_str(SLICES),
            Self::Fixed(degree) => serializer.serialize_u64(*degree),
        }
    }
}

const SLICES: &str = "slices";

/// Degrees of the mesh axes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Parallelism {
    /// Copies of the sharded model (the outer axis of HSDP).
    pub replicate: Item<Replicate>,
    /// Devices that one copy of the parameters is spread over (FSDP). `auto` takes what the other axes leave.
    pub shard: Item<Auto<u64>>,
    /// Devices that the experts of a block are spread over; divides shard x context x tensor.
    pub expert: Item<u64>,
    /// Devices that one matrix is spread over.
    pub tensor: Item<u64>,
    /// Devices that one sequence is spread over.
    pub context: Item<u64>,
}

impl Parallelism {
    pub(crate) fn read(cx: &mut Context<'_>, root: &Table) -> Self {
        const MOST: u64 = 1 << 20;
        let mut t = cx.section(root, "parallelism");
        let replicate = t.word_or_integer("replicate", SLICES, 1, MOST);
        let replicate = replicate.map(|item| Item {
            value: item.value.map_or(Replicate::Slices, Replicate::Fixed),
            at: item.at,
        });
        let replicate = t.or(replicate, Replicate::Fixed(1));
        let shard = t.auto_or_integer("shard", 1, MOST);
        let shard = t.or(shard, Auto::Auto);
        let mut degree = |key| {
            let item = t.integer(key, 1, MOST);
            t.or(item, 1)
        };
        let (expert, tensor, context) = (degree("expert"), degree("tensor"), degree("context"));
        t.finish();
        Self { replicate, shard, expert, tensor, context }
    }
}
