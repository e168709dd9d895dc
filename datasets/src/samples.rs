//! The samples of a run: from a place in the run to the tokens at it.

use serde::{Deserialize, Serialize};

use crate::order::mix;
use crate::{Mixture, Order, Packing, Result, SplitPath, TokenAccount, TokenStream};

/// Data that is read as one stream, and its share of the samples.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SourceConfig {
    /// For messages.
    pub name: String,
    /// What the stream is made of, in order.
    pub splits: Vec<SplitPath>,
    /// Relative to the weights of the other sources.
    pub weight: f64,
}

/// Which sample it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct SampleId {
    /// The source, from 0.
    pub source: usize,
    /// How often the source was gone through before.
    pub epoch: u64,
    /// The sample of that source: tokens from `sample * sequence_length` on.
    pub sample: u64,
}

/// All samples of a run, in the order of the run.
#[derive(Debug)]
pub struct Samples {
    sources: Vec<Source>,
    mixture: Mixture,
    /// T + 1.
    row_len: usize,
}

#[derive(Debug)]
struct Source {
    stream: TokenStream,
    packing: Packing,
    order: Order,
}

impl Samples {
    /// Opens the sources, and checks that each is enough for its part of a step of different samples.
    ///
    /// # Errors
    /// Files are missing or not what they were, or there is too little data.
    pub fn open(
        sources: &[SourceConfig],
        sequence_length: u64,
        seed: u64,
        global_batch: u64,
    ) -> Result<Self> {
        let weights: Vec<f64> = sources.iter().map(|source| source.weight).collect();
        let mixture = Mixture::new(&weights)?;
        let mut opened = Vec::with_capacity(sources.len());
        for (number, source) in sources.iter().enumerate() {
            let stream = TokenStream::open(&source.splits)?;
            let packing = Packing::new(stream.tokens(), sequence_length)?;
            let part = (mixture.share(number) * global_batch as f64).ceil() as u64;
            let samples =
                packing.enough_for(part).map_err(|error| error.of_source(sources, number))?;
            let order = Order::new(seed_of(seed, number), samples);
            opened.push(Source { stream, packing, order });
        }
        let row_len = usize::try_from(sequence_length.saturating_add(1)).unwrap_or(usize::MAX);
        Ok(Self { sources: opened, mixture, row_len })
    }

    /// The sample at place `global` of the run.
    pub fn locate(&self, global: u64) -> SampleId {
        let (source, place) = self.mixture.locate(global);
        let order = &self.sources[source].order;
        let (epoch, index) = (place / order.samples(), place % order.samples());
        SampleId { source, epoch, sample: order.sample(epoch, index) }
    }

    /// Writes the tokens of a sample: T + 1 of them. One that is not learned is given as `!id`, which is negative.
    ///
    /// # Errors
    /// See [`TokenStream::read`].
    pub fn read(&self, id: SampleId, out: &mut [i32]) -> Result<()> {
        let source = &self.sources[id.source];
        source.stream.read(source.packing.start(id.sample), out)
    }

    /// Tokens of a sample: T + 1.
    pub fn row_len(&self) -> usize {
        self.row_len
    }

    /// Whether some tokens are not learned.
    pub fn is_masked(&self) -> bool {
        self.sources.iter().any(|source| source.stream.is_masked())
    }

    /// The number of sources.
    pub fn sources(&self) -> usize {
        self.sources.len()
    }

    /// Samples of an epoch of a source.
    pub fn samples_of(&self, source: usize) -> u64 {
        self.sources[source].order.samples()
    }

    /// The share of a source of the samples, in parts of [`MIXTURE_PARTS`](crate::MIXTURE_PARTS).
    pub fn parts_of(&self, source: usize) -> u64 {
        self.mixture.parts(source)
    }

    /// The share of a source of the samples, from 0 to 1.
    pub fn share_of(&self, source: usize) -> f64 {
        self.mixture.share(source)
    }

    /// Where the tokens of a source go in one epoch.
    pub fn account_of(&self, source: usize) -> TokenAccount {
        let Source { stream, packing, .. } = &self.sources[source];
        TokenAccount { documents: stream.documents(), ..packing.account() }
    }

    /// Where the tokens of all sources go, each in one epoch of its own.
    pub fn account(&self) -> TokenAccount {
        (0..self.sources()).map(|source| self.account_of(source)).sum()
    }
}

/// The seed of the order of a source: orders of equally large sources must not be alike.
pub(crate) fn seed_of(seed: u64, source: usize) -> u64 {
    if source == 0 { seed } else { mix(seed ^ mix(source as u64)) }
}
