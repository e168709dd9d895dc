//! What is said about the data of a run.

use serde::Serialize;
use titan_datasets::TokenAccount;
use titan_recipes::{Layout, Recipe};

use super::Data;
use crate::words;

/// The data of a run, in its `run` event and in its ledger.
#[derive(Clone, Debug, Serialize)]
pub(super) struct DataFacts<'a> {
    /// Of everything that is trained on.
    pub(super) fingerprint: String,
    /// Sequences of one epoch of each source, in all.
    samples: u64,
    #[serde(flatten)]
    account: TokenAccount,
    sources: Vec<SourceFacts<'a>>,
}

#[derive(Clone, Debug, Serialize)]
struct SourceFacts<'a> {
    name: &'a str,
    share: f64,
    samples: u64,
    #[serde(flatten)]
    account: TokenAccount,
}

impl<'a> DataFacts<'a> {
    pub(super) fn of(data: &'a Data) -> Self {
        let samples = &data.samples;
        let sources = data.sources.iter().enumerate().map(|(number, source)| SourceFacts {
            name: &source.name,
            share: samples.share_of(number),
            samples: samples.samples_of(number),
            account: samples.account_of(number),
        });
        Self {
            fingerprint: data.prepared.fingerprint(),
            samples: (0..samples.sources()).map(|source| samples.samples_of(source)).sum(),
            account: samples.account(),
            sources: sources.collect(),
        }
    }

    /// One line: the size of the data, and how often the run goes through it.
    pub(super) fn in_words(&self, recipe: &Recipe, layout: &Layout) -> String {
        let taken = (*recipe.training.steps * layout.global_batch) as f64;
        let epochs = |source: &SourceFacts<'_>| {
            format!("{:.2} epochs", taken * source.share / source.samples as f64)
        };
        let all = format!(
            "{} in {}, {}",
            words::plural(self.account.tokens_in, "token"),
            words::plural(self.account.documents, "document"),
            words::plural(self.samples, "sequence"),
        );
        match self.sources.as_slice() {
            [only] => format!("{all}, {}", epochs(only)),
            several => {
                let each = several.iter().map(|source| {
                    format!("{} {:.1} %, {}", source.name, 100.0 * source.share, epochs(source))
                });
                format!("{all} ({})", each.collect::<Vec<_>>().join("; "))
            }
        }
    }
}
