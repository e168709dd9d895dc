//! Batch and mesh arithmetic of a sound recipe.

use serde::{Deserialize, Serialize};

use crate::recipe::Recipe;
use crate::words::Auto;

/// How the global batch is spread over devices and micro-steps.
///
/// `world = replicate x shard`, and every device is data-parallel:
/// `global_batch = local_batch x world x accumulation`, never rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    /// Number of devices, and of worker processes.
    pub world: u64,
    /// Degree of the replicate axis.
    pub replicate: u64,
    /// Degree of the shard axis.
    pub shard: u64,
    /// Sequences per device and micro-step.
    pub local_batch: u64,
    /// Micro-steps per optimizer step.
    pub accumulation: u64,
    /// Sequences per optimizer step.
    pub global_batch: u64,
    /// Tokens of one sequence that are predicted.
    pub sequence_length: u64,
}

impl Layout {
    /// Tokens that one optimizer step learns from.
    pub fn global_tokens(&self) -> u64 {
        self.global_batch * self.sequence_length
    }
}

/// The shard degree, if the axes multiply to the world.
pub(crate) fn shard_degree(recipe: &Recipe) -> Option<u64> {
    let world = recipe.world();
    let replicate = *recipe.parallelism.replicate;
    let shard = match recipe.parallelism.shard.value {
        Auto::Auto => world / replicate,
        Auto::Fixed(shard) => shard,
    };
    (replicate * shard == world).then_some(shard)
}

/// Sequences that all devices work through in one micro-step.
pub(crate) fn batch_step(recipe: &Recipe) -> u64 {
    *recipe.training.local_batch * recipe.world()
}

/// The layout of a recipe that passed all rules.
pub(crate) fn layout(recipe: &Recipe) -> Option<Layout> {
    let shard = shard_degree(recipe)?;
    let step = batch_step(recipe);
    let global_batch = recipe.training.global_batch.fixed().unwrap_or(step);
    global_batch.is_multiple_of(step).then(|| Layout {
        world: recipe.world(),
        replicate: *recipe.parallelism.replicate,
        shard,
        local_batch: *recipe.training.local_batch,
        accumulation: global_batch / step,
        global_batch,
        sequence_length: *recipe.training.sequence_length,
    })
}

/// The multiples of `step` around `global`.
pub(crate) fn nearest_global_batches(global: u64, step: u64) -> Vec<u64> {
    let below = global / step * step;
    [below, below + step].into_iter().filter(|n| *n > 0).collect()
}
