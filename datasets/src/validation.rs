//! The batches of a validation: all of its data, once, in its order.
//!
//! Every rank has equally many batches, whatever the data: rows that are left over are padding, of which nothing is
//! learned. So no rank waits for one that has run out, and the loss is that of all tokens on any number of ranks.

use serde::{Deserialize, Serialize};

use crate::{Error, Packing, Result, SplitPath, TokenStream};

/// What is not learned from: id 0, marked as no target.
pub const PADDING: i32 = !0;

/// What a [`Validation`] needs to know; the same on every rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ValidationConfig {
    /// The data, each split a stream of its own.
    pub splits: Vec<SplitPath>,
    /// T, inputs of one row.
    pub sequence_length: u64,
    /// W, ranks that read different data.
    pub data_parallel_degree: u64,
    /// B, rows per rank and batch.
    pub local_batch: u64,
    /// At most this many rows are taken, from the beginning.
    pub rows: Option<u64>,
}

/// The batches of one rank.
#[derive(Debug)]
pub struct Validation {
    /// Each with the number of its first row.
    streams: Vec<(u64, TokenStream)>,
    rows: u64,
    config: ValidationConfig,
}

impl Validation {
    /// Opens the data.
    ///
    /// # Errors
    /// Files are missing or not what they were, or there is not a single token to predict.
    pub fn open(config: &ValidationConfig) -> Result<Self> {
        let mut rows = 0;
        let mut streams = Vec::with_capacity(config.splits.len());
        for split in &config.splits {
            let stream = TokenStream::open(std::slice::from_ref(split))?;
            Packing::new(stream.tokens(), config.sequence_length)?;
            // The last row may be shorter than the others.
            let count = stream.tokens().saturating_sub(1).div_ceil(config.sequence_length);
            streams.push((rows, stream));
            rows += count;
        }
        if rows == 0 {
            return Err(Error::NothingToValidate);
        }
        let rows = config.rows.map_or(rows, |most| rows.min(most));
        Ok(Self { streams, rows, config: config.clone() })
    }

    /// Batches of each rank.
    pub fn batches(&self) -> u64 {
        self.rows.div_ceil(self.config.data_parallel_degree * self.config.local_batch)
    }

    /// Tokens of a batch: B * (T + 1).
    pub fn batch_len(&self) -> usize {
        (self.config.local_batch * (self.config.sequence_length + 1)) as usize
    }

    /// Targets of one validation, padding not counted. Those of instruction data that are not learned count here.
    pub fn tokens(&self) -> u64 {
        let length = self.config.sequence_length;
        let of = |(first, stream): &(u64, TokenStream)| {
            let rows = self.rows.saturating_sub(*first);
            stream.tokens().saturating_sub(1).min(rows.saturating_mul(length))
        };
        self.streams.iter().map(of).sum()
    }

    /// Writes batch `batch` of `rank`, in row-major shape `[B, T + 1]`.
    ///
    /// # Errors
    /// See [`TokenStream::read`].
    pub fn fill(&self, batch: u64, rank: u64, out: &mut [i32]) -> Result<()> {
        let ValidationConfig { sequence_length, data_parallel_degree, local_batch, .. } =
            self.config;
        let first = (batch * data_parallel_degree + rank) * local_batch;
        let row_len = sequence_length as usize + 1;
        for (row, tokens) in (first..first + local_batch).zip(out.chunks_exact_mut(row_len)) {
            tokens.fill(PADDING);
            if row >= self.rows {
                continue;
            }
            let part = self.streams.partition_point(|(start, _)| *start <= row) - 1;
            let (start, stream) = &self.streams[part];
            let position = (row - start) * sequence_length;
            let count = (stream.tokens() - position).min(row_len as u64);
            stream.read(position, &mut tokens[..count as usize])?;
        }
        Ok(())
    }
}
