//! `[validation]`: the loss on data that is not trained on.

use serde::{Serialize, Serializer};

use crate::reader::Context;
use crate::source::{Item, Loc};
use crate::tables::data::{DataSource, read_sources};
use crate::tables::training::MOST_STEPS;
use crate::tree::Table;

/// The loss on data that is not trained on.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Validation {
    /// Steps between two validations.
    pub interval_steps: Item<u64>,
    /// Batches of one validation; `all` reads every source to its end.
    #[serde(serialize_with = "number_or_all")]
    pub steps: Item<Option<u64>>,
    /// Files and folders.
    pub sources: Item<Vec<DataSource>>,
    /// Where the table was written.
    #[serde(skip)]
    pub at: Option<Loc>,
}

const ALL: &str = "all";

fn number_or_all<S: Serializer>(item: &Item<Option<u64>>, s: S) -> Result<S::Ok, S::Error> {
    match item.value {
        Some(number) => s.serialize_u64(number),
        None => s.serialize_str(ALL),
    }
}

impl Validation {
    pub(crate) fn read(cx: &mut Context<'_>, root: &Table) -> Option<Self> {
        let mut t = cx.optional_section(root, "validation");
        let (exists, at) = (t.exists(), t.at());
        let interval_steps = t.integer("interval_steps", 1, MOST_STEPS);
        let interval_steps = t.required(interval_steps, 1, "500");
        let steps = t.word_or_integer("steps", ALL, 1, MOST_STEPS);
        let steps = t.or(steps, None);
        let sources = read_sources(&mut t, "validation.sources");
        let sources = t.required(sources, Vec::new(), "[{ path = \"validation.txt\" }]");
        t.finish();
        exists.then_some(Self { interval_steps, steps, sources, at })
    }
}
