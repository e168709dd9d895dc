//! Batch and mesh arithmetic of a recipe.

use serde::{Deserialize, Serialize};

use crate::recipe::Recipe;
use crate::tables::parallelism::Replicate;
use crate::words::Auto;

/// How the global batch is spread over devices and micro-steps.
///
/// `world = replicate x shard x context x tensor`, of which `replicate x shard` ranks read data of their own:
/// `global_batch = local_batch x replicate x shard x accumulation`, never rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    /// Number of devices, and of worker processes.
    pub world: u64,
    /// Degree of the replicate axis.
    pub replicate: u64,
    /// Degree of the shard axis.
    pub shard: u64,
    /// Degree of the context axis.
    pub context: u64,
    /// Degree of the tensor axis.
    pub tensor: u64,
    /// Ranks that the experts of a block are spread over; divides shard x context x tensor.
    pub expert: u64,
    /// Sequences per data-parallel rank and micro-step.
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

    /// Ranks that read data of their own.
    pub fn data_parallel(&self) -> u64 {
        self.replicate * self.shard
    }

    /// Ranks that work on the same sequences: one data-parallel rank.
    pub fn ranks_per_sequence(&self) -> u64 {
        self.context * self.tensor
    }

    /// Which of the data-parallel ranks a rank belongs to, where
    /// `rank = ((replicate index x shard + shard index) x context + context index) x tensor + tensor index`.
    pub fn data_rank(&self, rank: u64) -> u64 {
        rank / self.ranks_per_sequence()
    }
}

/// Degrees of the mesh axes that multiply to the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mesh {
    pub(crate) replicate: u64,
    pub(crate) shard: u64,
    pub(crate) context: u64,
    pub(crate) tensor: u64,
}

impl Mesh {
    pub(crate) fn data_parallel(&self) -> u64 {
        self.replicate * self.shard
    }

    /// Ranks that the experts can be spread over.
    pub(crate) fn carriers(&self) -> u64 {
        self.shard * self.context * self.tensor
    }
}

impl Recipe {
    /// Number of devices, and of worker processes: what the topology gives on TPUs, and elsewhere what the recipe
    /// says, or else what its mesh needs.
    pub fn world(&self) -> u64 {
        let written = self.hardware.devices.fixed();
        let given = self.hardware.topology_devices().or(written);
        given.unwrap_or_else(|| self.fixed_axes().saturating_mul(self.least_shard()))
    }

    /// Degree of the replicate axis.
    pub(crate) fn replicate(&self) -> u64 {
        match *self.parallelism.replicate {
            Replicate::Slices => *self.hardware.slices,
            Replicate::Fixed(degree) => degree,
        }
    }

    /// What all axes but shard multiply to.
    pub(crate) fn fixed_axes(&self) -> u64 {
        let inner = *self.parallelism.context * *self.parallelism.tensor;
        self.replicate().saturating_mul(inner)
    }

    /// The smallest shard degree that the recipe allows.
    fn least_shard(&self) -> u64 {
        match *self.parallelism.shard {
            Auto::Fixed(shard) => shard,
            Auto::Auto => {
                let inner = *self.parallelism.context * *self.parallelism.tensor;
                let expert = *self.parallelism.expert;
                expert / gcd(expert, inner)
            }
        }
    }
}

pub(crate) fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// The degrees of the axes, if they multiply to the world.
pub(crate) fn mesh(recipe: &Recipe) -> Option<Mesh> {
    let (world, fixed) = (recipe.world(), recipe.fixed_axes());
    let shard = match *recipe.parallelism.shard {
        Auto::Auto => world / fixed,
        Auto::Fixed(shard) => shard,
    };
    (shard > 0 && fixed.checked_mul(shard) == Some(world)).then(|| Mesh {
        replicate: recipe.replicate(),
        shard,
        context: *recipe.parallelism.context,
        tensor: *recipe.parallelism.tensor,
    })
}

/// Sequences that all devices work through in one micro-step.
pub(crate) fn batch_step(recipe: &Recipe, mesh: &Mesh) -> u64 {
    *recipe.training.local_batch * mesh.data_parallel()
}

/// Sequences that the devices of one slice work through in one micro-step.
pub(crate) fn per_slice(recipe: &Recipe, mesh: &Mesh) -> u64 {
    batch_step(recipe, mesh) / *recipe.hardware.slices
}

/// Numbers of slices that the global batch can be spread over, ascending.
pub(crate) fn slices_for_the_batch(recipe: &Recipe) -> Option<Vec<u64>> {
    let mesh = mesh(recipe)?;
    let per_slice = per_slice(recipe, &mesh);
    let global = recipe.training.global_batch.fixed().unwrap_or(batch_step(recipe, &mesh));
    let divides = |n: &u64| global.is_multiple_of(per_slice * n);
    Some((1..=*recipe.hardware.slices).filter(divides).collect())
}

/// Numbers of slices that a recipe which passed all rules can go on with, ascending: at least `elastic.min_slices`, and
/// such that the global batch stays the same. The last one is all of them.
pub fn usable_slices(recipe: &Recipe) -> Vec<u64> {
    let slices = *recipe.hardware.slices;
    let least = recipe.elastic.min_slices.as_ref().map_or(slices, |least| **least);
    let mut usable = slices_for_the_batch(recipe).unwrap_or_default();
    usable.retain(|n| *n >= least && *n < slices);
    usable.push(slices);
    usable
}

/// The layout of a recipe that passed all rules.
pub(crate) fn layout(recipe: &Recipe) -> Option<Layout> {
    let mesh = mesh(recipe)?;
    let step = batch_step(recipe, &mesh);
    let global_batch = recipe.training.global_batch.fixed().unwrap_or(step);
    let Mesh { replicate, shard, context, tensor } = mesh;
    global_batch.is_multiple_of(step).then(|| Layout {
        world: recipe.world(),
        replicate,
        shard,
        context,
        tensor,
        expert: *recipe.parallelism.expert,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_that_differ_in_context_and_tensor_index_alone_read_the_same_data() {
        let (replicate, shard, context, tensor) = (2, 3, 2, 4);
        let layout = Layout {
            world: replicate * shard * context * tensor,
            replicate,
            shard,
            context,
            tensor,
            expert: 1,
            local_batch: 1,
            accumulation: 1,
            global_batch: replicate * shard,
            sequence_length: 16,
        };
        let mut rank = 0;
        for of_replicate in 0..replicate {
            for of_shard in 0..shard {
                for _ in 0..context * tensor {
                    assert_eq!(layout.data_rank(rank), of_replicate * shard + of_shard, "{rank}");
                    rank += 1;
                }
            }
        }
        assert_eq!((rank, layout.data_rank(rank - 1) + 1), (layout.world, layout.data_parallel()));
    }
}
