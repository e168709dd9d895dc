//! Prompts for reinforcement learning: whole documents instead of samples of equal length, in the same kind of order.

use std::num::NonZeroU64;

use serde::Serialize;

use crate::samples::seed_of;
use crate::shards::{Document, SplitReader};
use crate::{Error, Mixture, Order, Result, SourceConfig};

/// Which prompt it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct PromptId {
    /// The source, from 0.
    pub source: usize,
    /// How often the source was gone through before.
    pub epoch: u64,
    /// The prompt of that source.
    pub document: u64,
}

/// All prompts of a run, in the order of the run: a pure function of the place, as for samples.
#[derive(Debug)]
pub struct Prompts {
    sources: Vec<Source>,
    mixture: Mixture,
}

#[derive(Debug)]
struct Source {
    /// Each with the number of its first prompt.
    splits: Vec<(u64, SplitReader)>,
    order: Order,
}

impl Prompts {
    /// Opens the sources.
    ///
    /// # Errors
    /// Files are missing or not what they were, or a source has fewer prompts than its part of a step takes.
    pub fn open(sources: &[SourceConfig], seed: u64, prompts_per_step: u64) -> Result<Self> {
        let weights: Vec<f64> = sources.iter().map(|source| source.weight).collect();
        let mixture = Mixture::new(&weights)?;
        let mut opened = Vec::with_capacity(sources.len());
        for (number, source) in sources.iter().enumerate() {
            let (mut splits, mut prompts) = (Vec::with_capacity(source.splits.len()), 0);
            for split in &source.splits {
                let reader = SplitReader::open(&split.folder, &split.split)?;
                let first = prompts;
                prompts += reader.documents();
                splits.push((first, reader));
            }
            let part = (mixture.share(number) * prompts_per_step as f64).ceil() as u64;
            let Some(count) = NonZeroU64::new(prompts).filter(|count| count.get() >= part) else {
                let name = source.name.clone();
                return Err(Error::TooFewPrompts { name, prompts, needed: part.max(1) });
            };
            opened.push(Source { splits, order: Order::new(seed_of(seed, number), count) });
        }
        Ok(Self { sources: opened, mixture })
    }

    /// The prompt at place `global` of the run.
    pub fn locate(&self, global: u64) -> PromptId {
        let (source, place) = self.mixture.locate(global);
        let order = &self.sources[source].order;
        let (epoch, index) = (place / order.samples(), place % order.samples());
        PromptId { source, epoch, document: order.sample(epoch, index) }
    }

    /// Its tokens, and the other fields of its record.
    ///
    /// # Errors
    /// See [`SplitReader::document`].
    pub fn read(&self, id: PromptId) -> Result<Document> {
        let splits = &self.sources[id.source].splits;
        let part =
            splits.partition_point(|(first, reader)| first + reader.documents() <= id.document);
        let Some((first, reader)) = splits.get(part) else {
            let expected = format!("below {}", self.prompts_of(id.source));
            return Err(Error::Misuse {
                what: "the number of a prompt",
                value: id.document,
                expected,
            });
        };
        reader.document(id.document - first)
    }

    /// The share of a source, in parts of [`MIXTURE_PARTS`](crate::MIXTURE_PARTS).
    pub fn parts_of(&self, source: usize) -> u64 {
        self.mixture.parts(source)
    }

    /// Prompts of a source.
    pub fn prompts_of(&self, source: usize) -> u64 {
        self.sources[source].order.samples()
    }
}

#[cfg(test)]
#[cfg(feature = "prepare")]
mod tests {
    use super::*;
    use crate::shards::DataKind;
    use crate::testing::Shards;

    fn shards(count: u32, shard_tokens: u64) -> Shards {
        let documents: Vec<_> = (0..count).map(|n| (vec![], vec![n; n as usize % 5 + 1])).collect();
        Shards::new(DataKind::Prompts, 1000, shard_tokens, &documents)
    }

    #[test]
    fn every_prompt_comes_once_an_epoch_with_its_fields() {
        let parts = [shards(30, 7), shards(13, 1000)];
        let mut source = parts[0].source(1.0);
        source.splits.push(parts[1].split());
        let prompts = Prompts::open(&[source], 3, 8).unwrap();
        for epoch in 0..3 {
            let mut seen: Vec<(Vec<i32>, String)> = (0..43)
                .map(|index| {
                    let id = prompts.locate(epoch * 43 + index);
                    assert_eq!(id.epoch, epoch);
                    let Document { tokens, extra } = prompts.read(id).unwrap();
                    (tokens, extra.unwrap())
                })
                .collect();
            seen.sort();
            let mut expected: Vec<(Vec<i32>, String)> = [30, 13]
                .into_iter()
                .flat_map(|count| 0..count)
                .map(|n: i32| (vec![n; n as usize % 5 + 1], format!("{{\"number\":{n}}}")))
                .collect();
            expected.sort();
            assert_eq!(seen, expected);
        }
    }

    #[test]
    fn too_few_prompts_for_a_step_are_refused() {
        let few = shards(5, 100);
        let error = Prompts::open(&[few.source(1.0)], 0, 6).unwrap_err().to_string();
        assert!(error.contains("has 5 prompts, but one step takes 6 different ones"), "{error}");
        assert!(Prompts::open(&[few.source(1.0), few.source(1.0)], 0, 10).is_ok());
    }
}
