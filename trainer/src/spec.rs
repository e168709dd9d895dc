//! What the launcher tells every worker about the run, made once from the recipe.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use titan_datasets::{BatchPlan, LoaderConfig, SourceFile};
use titan_recipes::tables::optimizer::OptimizerName;
use titan_recipes::{Choice, Layout, Recipe};

use crate::schedule::LearningRate;

/// A data file as the launcher found it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DataFile {
    /// Absolute path.
    pub path: PathBuf,
    /// Size in bytes; a worker that finds another size refuses the file.
    pub bytes: u64,
}

/// The run, the same for every rank.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunSpec {
    /// Batch and mesh arithmetic.
    pub layout: Layout,
    /// Optimizer steps.
    pub steps: u64,
    /// The learning rate of each step.
    pub learning_rate: LearningRate,
    /// The data files, read as one stream.
    pub data: Vec<DataFile>,
    /// Seed of weights and order.
    pub seed: u64,
    /// What the Python engine is made from.
    pub engine: EngineConfig,
}

impl RunSpec {
    /// The run of a sound recipe. `threads` is the number that one worker computes with.
    ///
    /// # Errors
    /// The name of a setting that the engine cannot work with: recipes for training have none.
    pub fn new(
        recipe: &Recipe,
        layout: Layout,
        data: Vec<DataFile>,
        threads: u64,
    ) -> Result<Self, &'static str> {
        Ok(Self {
            layout,
            steps: *recipe.training.steps,
            learning_rate: LearningRate::of(recipe),
            data,
            seed: *recipe.training.seed,
            engine: EngineConfig::new(recipe, &layout, threads)?,
        })
    }

    /// What the loader of any rank needs.
    pub fn loader_config(&self) -> LoaderConfig {
        LoaderConfig {
            files: self
                .data
                .iter()
                .map(|file| SourceFile { path: file.path.clone(), bytes: file.bytes })
                .collect(),
            sequence_length: self.layout.sequence_length,
            seed: self.seed,
            plan: BatchPlan {
                global_batch: self.layout.global_batch,
                accumulation: self.layout.accumulation,
                data_parallel_degree: self.layout.world,
                local_batch: self.layout.local_batch,
            },
        }
    }
}

/// The configuration of the Python engine; `titan_tpu/config.py` has the other side.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EngineConfig {
    /// Architecture.
    pub model: ModelConfig,
    /// Degrees of the mesh axes.
    pub mesh: MeshConfig,
    /// Tokens of one sequence that are predicted.
    pub sequence_length: u64,
    /// Sequences per device and micro-step.
    pub local_batch: u64,
    /// Micro-steps per optimizer step.
    pub accumulation: u64,
    /// Targets of one global batch: the denominator of the loss.
    pub global_tokens: u64,
    /// Number formats.
    pub precision: PrecisionConfig,
    /// The update rule.
    pub optimizer: OptimizerConfig,
    /// What the backward pass computes again.
    pub remat: String,
    /// The norm that gradients are scaled down to.
    pub gradient_clip: Option<f64>,
    /// Seed of the initial weights.
    pub seed: u64,
    /// Name of the device in the engine.
    pub device: String,
    /// Threads that one worker computes with.
    pub threads: u64,
}

/// Architecture, as the engine takes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names are those of the recipe's [model] table")]
pub struct ModelConfig {
    pub family: String,
    pub vocab_size: u64,
    pub hidden_size: u64,
    pub intermediate_size: Option<u64>,
    pub experts: Option<ExpertsConfig>,
    pub num_layers: u64,
    pub num_heads: u64,
    pub num_kv_heads: u64,
    pub head_dim: u64,
    pub rope_theta: f64,
    pub rope_scaling: Option<RopeScalingConfig>,
    pub norm_eps: f64,
    pub tie_embeddings: bool,
    pub init_std: f64,
}

/// A mixture of experts, as the engine takes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names are those of the recipe's [model] table")]
pub struct ExpertsConfig {
    pub num_experts: u64,
    pub experts_per_token: u64,
    pub intermediate_size: u64,
}

/// Stretched rotary positions, as the engine takes them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names are those of the recipe's [model] table")]
pub struct RopeScalingConfig {
    pub factor: f64,
    pub low_frequency_factor: f64,
    pub high_frequency_factor: f64,
    pub original_length: u64,
}

/// Degrees of the mesh axes; rank = replicate index x shard degree + shard index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeshConfig {
    /// Copies of the sharded model.
    pub replicate: u64,
    /// Devices that one copy is spread over.
    pub shard: u64,
}

/// Number formats, as the engine takes them; master parameters are always float32.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PrecisionConfig {
    /// Forward and backward.
    pub compute: String,
    /// Gradients on the wire and their sum.
    pub reduce: String,
}

/// The update rule, as the engine takes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "name", rename_all = "lowercase")]
#[allow(missing_docs, reason = "the names are those of the recipe's [optimizer] table")]
pub enum OptimizerConfig {
    /// Adam with decoupled weight decay.
    AdamW { betas: [f64; 2], epsilon: f64, weight_decay: f64 },
    /// Stochastic gradient descent.
    Sgd { momentum: f64, weight_decay: f64 },
}

impl EngineConfig {
    fn new(recipe: &Recipe, layout: &Layout, threads: u64) -> Result<Self, &'static str> {
        let (model, optimizer) = (&recipe.model, &recipe.optimizer);
        let decoder = model.decoder().ok_or("model.family")?;
        let scaling = decoder.rope_scaling.as_ref().and_then(|scaling| scaling.constants.as_ref());
        let weight_decay = *optimizer.weight_decay;
        Ok(Self {
            model: ModelConfig {
                family: model.family.word().to_owned(),
                vocab_size: *decoder.vocab_size,
                hidden_size: *decoder.hidden_size,
                intermediate_size: decoder.intermediate_size().map(|size| **size),
                experts: decoder.experts().map(|experts| ExpertsConfig {
                    num_experts: *experts.num_experts,
                    experts_per_token: *experts.experts_per_token,
                    intermediate_size: *experts.expert_intermediate_size,
                }),
                num_layers: *decoder.num_layers,
                num_heads: *decoder.num_heads,
                num_kv_heads: *decoder.num_kv_heads,
                head_dim: *decoder.head_dim,
                rope_theta: *decoder.rope_theta,
                rope_scaling: scaling.map(|scaling| RopeScalingConfig {
                    factor: *scaling.factor,
                    low_frequency_factor: *scaling.low_frequency_factor,
                    high_frequency_factor: *scaling.high_frequency_factor,
                    original_length: *scaling.original_length,
                }),
                norm_eps: *decoder.norm_eps,
                tie_embeddings: *decoder.tie_embeddings,
                init_std: *model.init_std,
            },
            mesh: MeshConfig { replicate: layout.replicate, shard: layout.shard },
            sequence_length: layout.sequence_length,
            local_batch: layout.local_batch,
            accumulation: layout.accumulation,
            global_tokens: layout.global_tokens(),
            precision: PrecisionConfig {
                compute: recipe.precision.compute.word().to_owned(),
                reduce: recipe.precision.reduce.word().to_owned(),
            },
            optimizer: match *optimizer.name {
                OptimizerName::AdamW => OptimizerConfig::AdamW {
                    betas: *optimizer.betas,
                    epsilon: *optimizer.epsilon,
                    weight_decay,
                },
                OptimizerName::Sgd => {
                    OptimizerConfig::Sgd { momentum: *optimizer.momentum, weight_decay }
                }
                OptimizerName::Muon => return Err("optimizer.name"),
            },
            remat: recipe.remat.policy.word().to_owned(),
            gradient_clip: *recipe.training.gradient_clip,
            seed: *recipe.training.seed,
            device: recipe.hardware.accelerator.word().to_owned(),
            threads,
        })
    }
}
