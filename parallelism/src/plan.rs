//! What is known of a run before it starts, as far as it follows from the recipe alone.

use serde::Serialize;
use titan_recipes::tables::optimizer::OptimizerName;
use titan_recipes::{Layout, Recipe};

use crate::flops::{Convention, flops_per_token};
use crate::parameters::{Parameters, parameters};

/// What is known of a run before it starts. The names are those of `plan --json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan {
    /// Number of devices, and of worker processes.
    pub world: u64,
    /// Degrees of the mesh axes.
    pub mesh: MeshDegrees,
    /// Sequences per data-parallel rank and micro-step.
    pub local_batch: u64,
    /// Micro-steps per optimizer step.
    pub accumulation: u64,
    /// Sequences per optimizer step.
    pub global_batch: u64,
    /// Tokens of one sequence.
    pub sequence_length: u64,
    /// Tokens per optimizer step.
    pub tokens_per_step: u64,
    /// Tokens of the whole run.
    pub tokens: u64,
    /// Weights of the model.
    pub parameters: Parameters,
    /// FLOPs of forward and backward per token.
    pub flops_per_token: u64,
    /// How they are counted.
    pub convention: Convention,
    /// Peak of one device in FLOP/s, if it is known.
    pub peak_flops_per_device: Option<f64>,
    /// What each device keeps.
    pub memory_per_device: MemoryPerDevice,
}

/// Degrees of the mesh axes; world = replicate x shard x context x tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "the names are those of the axes")]
pub struct MeshDegrees {
    pub replicate: u64,
    pub shard: u64,
    pub expert: u64,
    pub context: u64,
    pub tensor: u64,
}

impl MeshDegrees {
    /// The degrees of a layout.
    pub fn of(layout: &Layout) -> Self {
        Self {
            replicate: layout.replicate,
            shard: layout.shard,
            expert: layout.expert,
            context: layout.context,
            tensor: layout.tensor,
        }
    }
}

/// Bytes that each device keeps from step to step. What a step needs on top, such as activations, is not in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct MemoryPerDevice {
    /// Master weights.
    pub parameters_bytes: u64,
    /// Gradients, in the format that they are reduced in.
    pub gradients_bytes: u64,
    /// Moments of the optimizer.
    pub optimizer_bytes: u64,
    /// The sum of the three.
    pub state_bytes: u64,
    /// Memory of the device, if it is known.
    pub hbm_bytes: Option<u64>,
}

/// Works out the plan of a recipe. A pure function: no I/O.
pub fn plan(recipe: &Recipe, layout: &Layout, convention: Convention) -> Plan {
    Plan {
        world: layout.world,
        mesh: MeshDegrees::of(layout),
        local_batch: layout.local_batch,
        accumulation: layout.accumulation,
        global_batch: layout.global_batch,
        sequence_length: layout.sequence_length,
        tokens_per_step: layout.global_tokens(),
        tokens: layout.global_tokens() * *recipe.training.steps,
        parameters: parameters(&recipe.model),
        flops_per_token: flops_per_token(recipe, convention),
        convention,
        peak_flops_per_device: recipe.hardware.peak_flops().map(|(peak, _)| peak),
        memory_per_device: memory(recipe, layout),
    }
}

/// The state is spread evenly over one copy of the model: its shard, context and tensor ranks (ZeRO, arXiv
/// 1910.02054, stage 3). Weights are float32; AdamW keeps two moments, SGD with momentum and Muon one, Muon two for
/// what is no matrix of a block.
fn memory(recipe: &Recipe, layout: &Layout) -> MemoryPerDevice {
    const FLOAT32: u64 = 4;
    let parameters = parameters(&recipe.model);
    let ranks = layout.shard * layout.context * layout.tensor;
    let spread = |bytes: u64| bytes.div_ceil(ranks);
    let moments = match *recipe.optimizer.name {
        OptimizerName::AdamW => 2 * parameters.total,
        OptimizerName::Sgd if *recipe.optimizer.momentum == 0.0 => 0,
        OptimizerName::Sgd => parameters.total,
        OptimizerName::Muon => {
            let tied = recipe.model.decoder().is_none_or(|decoder| *decoder.tie_embeddings);
            let outside = parameters.embedding * if tied { 1 } else { 2 };
            parameters.total + outside
        }
    };
    let gradient = match recipe.precision.reduce.value {
        titan_recipes::tables::precision::Format::Float32 => FLOAT32,
        titan_recipes::tables::precision::Format::Bfloat16 => FLOAT32 / 2,
    };
    let parameters_bytes = spread(FLOAT32 * parameters.total);
    let gradients_bytes = spread(gradient * parameters.total);
    let optimizer_bytes = spread(FLOAT32 * moments);
    MemoryPerDevice {
        parameters_bytes,
        gradients_bytes,
        optimizer_bytes,
        state_bytes: parameters_bytes + gradients_bytes + optimizer_bytes,
        hbm_bytes: recipe.hardware.accelerator.tpu().map(|tpu| tpu.hbm_bytes),
    }
}
