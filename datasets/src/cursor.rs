//! Where a run is in its data: what a checkpoint remembers of it.

use serde::{Deserialize, Serialize};

use crate::order::ORDER_VERSION;

/// A place in the data of a run. It does not depend on the number of ranks, on accumulation, nor on the size of the
/// batch, so that any later world goes on exactly.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cursor {
    /// Samples that were trained on, of all ranks: the next sample of the run has this place.
    pub samples: u64,
    /// What makes the order: if any of it differs, the place means something else.
    pub order: OrderIdentity,
}

/// Everything that the order of samples depends on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderIdentity {
    /// [`ORDER_VERSION`].
    pub version: u32,
    /// `training.seed`.
    pub seed: u64,
    /// `training.sequence_length`.
    pub sequence_length: u64,
    /// The fingerprint of each source, and its share of the samples in parts of [`MIXTURE_PARTS`](crate::MIXTURE_PARTS).
    pub sources: Vec<(String, u64)>,
}

impl OrderIdentity {
    /// The identity of an order of this version.
    pub fn new(seed: u64, sequence_length: u64, sources: Vec<(String, u64)>) -> Self {
        Self { version: ORDER_VERSION, seed, sequence_length, sources }
    }

    /// What `self`, of a checkpoint, and `now` do not have in common, in words; empty if a run can go on exactly.
    pub fn differences(&self, now: &Self) -> Vec<String> {
        let mut found = Vec::new();
        let mut differ = |what: &str, then: u64, now: u64| {
            if then != now {
                found.push(format!("{what} was {then} and is {now}"));
            }
        };
        differ("the version of the order", self.version.into(), now.version.into());
        differ("training.seed", self.seed, now.seed);
        // Of prompts there is none.
        match (self.sequence_length, now.sequence_length) {
            (then, now) if then == now => {}
            (0, _) => found.push("it is of prompts, and this is text".to_owned()),
            (_, 0) => found.push("it is of text, and these are prompts".to_owned()),
            (then, now) => found.push(format!("training.sequence_length was {then} and is {now}")),
        }
        let (then, len) = (self.sources.len(), now.sources.len());
        if then != len {
            found.push(format!("the number of sources was {then} and is {len}"));
        }
        for (number, (then, now)) in self.sources.iter().zip(&now.sources).enumerate() {
            let number = number + 1;
            if then.0 != now.0 {
                found.push(format!("the content of source {number} is another"));
            }
            if then.1 != now.1 {
                found.push(format!("the weight of source {number} is another"));
            }
        }
        found
    }
}
