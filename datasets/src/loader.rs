//! The batches of one rank.

use crate::{BatchPlan, Error, Order, Packing, Result, SourceFile, TokenStream};

/// What a [`Loader`] needs to know; the same on every rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoaderConfig {
    /// The files, as [`verify`](crate::verify) found them.
    pub files: Vec<SourceFile>,
    /// T, inputs of one sample.
    pub sequence_length: u64,
    /// The seed of the order.
    pub seed: u64,
    /// How a step is shared out.
    pub plan: BatchPlan,
}

/// Gives the tokens of any step to any rank. It has no position: what it gives depends on the
/// arguments only.
#[derive(Debug)]
pub struct Loader {
    stream: TokenStream,
    packing: Packing,
    order: Order,
    plan: BatchPlan,
    /// T + 1.
    row_len: usize,
    batch_len: usize,
}

impl Loader {
    /// Opens the files, and checks that they are enough for a step of different samples.
    pub fn open(config: &LoaderConfig) -> Result<Self> {
        let LoaderConfig { files, sequence_length, seed, plan } = config;
        plan.check()?;
        let stream = TokenStream::open(files)?;
        let packing = Packing::new(stream.tokens(), *sequence_length)?;
        let order = Order::new(*seed, packing.enough_for(plan.global_batch)?);
        let (row_len, batch_len) = lengths(*sequence_length, plan)?;
        Ok(Self { stream, packing, order, plan: *plan, row_len, batch_len })
    }

    /// How the stream is cut into samples.
    pub fn packing(&self) -> Packing {
        self.packing
    }

    /// How a step is shared out.
    pub fn plan(&self) -> BatchPlan {
        self.plan
    }

    /// The number of tokens that [`fill`](Self::fill) writes: `A * B * (T + 1)`.
    pub fn batch_len(&self) -> usize {
        self.batch_len
    }

    /// Writes the tokens of `rank` in `step` (from 0) in row-major shape `[A, B, T + 1]`.
    ///
    /// A step that spans two epochs may hold a sample twice, once for each.
    pub fn fill(&self, step: u64, rank: u64, out: &mut [i32]) -> Result<()> {
        self.check_arguments(step, rank, out.len())?;
        let mut bytes = vec![0; self.row_len];
        let mut rows = out.chunks_exact_mut(self.row_len);
        for micro in 0..self.plan.accumulation {
            for (row, tokens) in (0..self.plan.local_batch).zip(&mut rows) {
                let sample = self.order.global_sample(self.plan.place(step, micro, rank, row));
                self.stream.read(self.packing.start(sample), &mut bytes)?;
                for (token, byte) in tokens.iter_mut().zip(&bytes) {
                    *token = i32::from(*byte);
                }
            }
        }
        Ok(())
    }

    fn check_arguments(&self, step: u64, rank: u64, len: usize) -> Result<()> {
        let Self { plan, row_len, batch_len, .. } = self;
        let misuse = |what, value, expected| Err(Error::Misuse { what, value, expected });
        if step > plan.last_step() {
            return misuse("the step", step, format!("at most {}", plan.last_step()));
        }
        if rank >= plan.data_parallel_degree {
            let expected = format!("below the data-parallel degree, {}", plan.data_parallel_degree);
            return misuse("the data-parallel rank", rank, expected);
        }
        if len != *batch_len {
            let expected =
                format!("{} x {} x {row_len} = {batch_len}", plan.accumulation, plan.local_batch);
            return misuse("the number of tokens in the buffer of a batch", len as u64, expected);
        }
        Ok(())
    }
}

/// The tokens of a row and of a batch of one rank.
fn lengths(sequence_length: u64, plan: &BatchPlan) -> Result<(usize, usize)> {
    let row = sequence_length.saturating_add(1);
    let batch = row.saturating_mul(plan.accumulation).saturating_mul(plan.local_batch);
    // The size of a vector in bytes is an isize.
    let limit = (isize::MAX as usize / size_of::<i32>()) as u64;
    if batch > limit {
        return Err(Error::HugeBatch { tokens: batch, limit });
    }
    Ok((row as usize, batch as usize))
}

#[cfg(test)]
#[path = "loader_tests.rs"]
mod tests;
