//! The batches of one rank.

use serde::{Deserialize, Serialize};

use crate::{BatchPlan, Error, Result, Samples, SourceConfig};

/// What a [`Loader`] needs to know; the same on every rank.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoaderConfig {
    /// The data.
    pub sources: Vec<SourceConfig>,
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
    samples: Samples,
    plan: BatchPlan,
    batch_len: usize,
}

impl Loader {
    /// Opens the data, and checks that it is enough for a step of different samples.
    ///
    /// # Errors
    /// See [`Samples::open`] and [`BatchPlan::check`].
    pub fn open(config: &LoaderConfig) -> Result<Self> {
        let LoaderConfig { sources, sequence_length, seed, plan } = config;
        plan.check()?;
        let batch_len = batch_len(*sequence_length, plan)?;
        let samples = Samples::open(sources, *sequence_length, *seed, plan.global_batch)?;
        Ok(Self { samples, plan: *plan, batch_len })
    }

    /// The samples of the run.
    pub fn samples(&self) -> &Samples {
        &self.samples
    }

    /// How a step is shared out.
    pub fn plan(&self) -> BatchPlan {
        self.plan
    }

    /// The number of tokens that [`fill`](Self::fill) writes: `A * B * (T + 1)`.
    pub fn batch_len(&self) -> usize {
        self.batch_len
    }

    /// Writes the tokens of `rank` in `step` (from 0) in row-major shape `[A, B, T + 1]`, in the form of
    /// [`Samples::read`].
    ///
    /// A step that spans two epochs may hold a sample twice, once for each.
    ///
    /// # Errors
    /// A file cannot be read or is not what it was; or arguments that do not fit the plan.
    pub fn fill(&self, step: u64, rank: u64, out: &mut [i32]) -> Result<()> {
        self.check_arguments(step, rank, out.len())?;
        let mut rows = out.chunks_exact_mut(self.samples.row_len());
        for micro in 0..self.plan.accumulation {
            for (row, tokens) in (0..self.plan.local_batch).zip(&mut rows) {
                let sample = self.samples.locate(self.plan.place(step, micro, rank, row));
                self.samples.read(sample, tokens)?;
            }
        }
        Ok(())
    }

    fn check_arguments(&self, step: u64, rank: u64, len: usize) -> Result<()> {
        let Self { plan, batch_len, .. } = self;
        let misuse = |what, value, expected| Err(Error::Misuse { what, value, expected });
        if step < plan.first_step || step > plan.last_step() {
            let expected = format!("{} to {}", plan.first_step, plan.last_step());
            return misuse("the step", step, expected);
        }
        if rank >= plan.data_parallel_degree {
            let expected = format!("below the data-parallel degree, {}", plan.data_parallel_degree);
            return misuse("the data-parallel rank", rank, expected);
        }
        if len != *batch_len {
            let row_len = self.samples.row_len();
            let expected =
                format!("{} x {} x {row_len} = {batch_len}", plan.accumulation, plan.local_batch);
            return misuse("the number of tokens in the buffer of a batch", len as u64, expected);
        }
        Ok(())
    }
}

/// The tokens of a batch of one rank.
fn batch_len(sequence_length: u64, plan: &BatchPlan) -> Result<usize> {
    let row = sequence_length.saturating_add(1);
    let batch = row.saturating_mul(plan.accumulation).saturating_mul(plan.local_batch);
    // The size of a vector in bytes is an isize.
    let limit = (isize::MAX as usize / size_of::<i32>()) as u64;
    if batch > limit {
        return Err(Error::HugeBatch { tokens: batch, limit });
    }
    Ok(batch as usize)
}

#[cfg(test)]
#[cfg(feature = "prepare")]
#[path = "loader_tests.rs"]
mod tests;
