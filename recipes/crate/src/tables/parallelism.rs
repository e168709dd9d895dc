//! `[parallelism]`: the mesh axes. World = replicate x shard x context x tensor.

use serde::{Serialize, Serializer};

use crate::diagnostic::Diagnostic;
use crate::reader::{AT_LEAST_ONE, Context, Section};
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

/// More ranks than any axis has.
const MOST: u64 = 1 << 20;

/// Degrees of the mesh axes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Parallelism {
    /// Copies of the sharded model (the outer axis of HSDP).
    pub replicate: Item<Replicate>,
    /// Devices that one copy of the parameters is spread over (FSDP). `auto` takes what the other axes leave.
    pub shard: Item<Auto<u64>>,
    /// Devices that the experts of a block are spread over; divides shard x context x tensor.
    pub expert: Item<u64>,
    /// Rows that one rank can send to each expert rank, as a multiple of an even share; `none` has room for all.
    #[serde(serialize_with = "number_or_dropless")]
    pub expert_capacity_factor: Item<Option<f64>>,
    /// Devices that one matrix is spread over.
    pub tensor: Item<u64>,
    /// Devices that one sequence is spread over.
    pub context: Item<u64>,
}

const DROPLESS: &str = "dropless";

fn number_or_dropless<S: Serializer>(
    item: &Item<Option<f64>>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match item.value {
        Some(number) => serializer.serialize_f64(number),
        None => serializer.serialize_str(DROPLESS),
    }
}

impl Parallelism {
    pub(crate) fn read(cx: &mut Context<'_>, root: &Table) -> Self {
        let mut t = cx.section(root, "parallelism");
        let replicate = t.word_or_integer("replicate", SLICES, 1, MOST);
        let replicate = replicate.map(|item| Item {
            value: item.value.map_or(Replicate::Slices, Replicate::Fixed),
            at: item.at,
        });
        let replicate = t.or(replicate, Replicate::Fixed(1));
        let shard = t.auto_or_integer("shard", 1, MOST);
        let shard = t.or(shard, Auto::Auto);
        let expert = read_degree(&mut t, "expert");
        let capacity = t.number_or_word(
            "expert_capacity_factor",
            DROPLESS,
            "to leave no token out",
            AT_LEAST_ONE,
        );
        let capacity = t.or(capacity, None);
        // A degree that is wrong reads as 1, and is no reason to warn.
        if *expert == 1
            && capacity.value.is_some()
            && let Some(at) = &capacity.at
            && !t.context().is_broken("parallelism.expert")
        {
            let message = "`parallelism.expert_capacity_factor` has no effect with expert = 1";
            let warning = Diagnostic::warning(message).at(at.clone()).label("not used");
            t.context().diagnostics.push(warning);
        }
        let (tensor, context) = (read_degree(&mut t, "tensor"), read_degree(&mut t, "context"));
        t.finish();
        Self { replicate, shard, expert, expert_capacity_factor: capacity, tensor, context }
    }
}

fn read_degree(t: &mut Section<'_, '_>, key: &'static str) -> Item<u64> {
    let degree = t.integer(key, 1, MOST);
    t.or(degree, 1)
}
