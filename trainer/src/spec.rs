//! What the launcher tells every worker about the run, made once from the recipe.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use titan_checkpoint::Place;
use titan_datasets::{BatchPlan, LoaderConfig, SourceConfig, SplitPath, ValidationConfig};
use titan_recipes::tables::model::{Experts, Init};
use titan_recipes::tables::optimizer::OptimizerName;
use titan_recipes::{Choice, Layout, Location, Recipe};

use crate::save_plan::SavePlan;
use crate::saver::SaveSpec;
use crate::schedule::LearningRate;

/// The data of a run, as shards that are there.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DataSpec {
    /// What is trained on.
    pub sources: Vec<SourceConfig>,
    /// Whether some tokens of it are not learned.
    pub is_masked: bool,
    /// What the model is validated with.
    pub validation: Option<ValidationSpec>,
}

/// Validations of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ValidationSpec {
    /// Steps between two.
    pub interval_steps: u64,
    /// What they read.
    pub splits: Vec<SplitPath>,
    /// Rows of one, if not all.
    pub rows: Option<u64>,
}

/// How a run saves its state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Saving {
    /// Where.
    pub to: SaveSpec,
    /// How often.
    pub plan: SavePlan,
}

/// What a run goes on from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resume {
    /// The copies of the checkpoint, of which none has to be whole.
    pub copies: Vec<Place>,
    /// Whether one is where it lasts; a step that only the local tier has is saved again.
    pub is_persistent: bool,
    /// Optimizer steps that were done.
    pub step: u64,
    /// Samples that were trained on.
    pub samples: u64,
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
    /// The data.
    pub data: DataSpec,
    /// Seed of weights and order.
    pub seed: u64,
    /// What the Python engine is made from.
    pub engine: EngineConfig,
    /// How the state is saved, if it is.
    pub save: Option<Saving>,
    /// What the run goes on from; nothing for one that begins.
    pub resume: Option<Resume>,
    /// The folder whose weights a run that begins begins with, in Hugging Face's format; without one they are random.
    #[serde(default)]
    pub init: Option<PathBuf>,
}

impl RunSpec {
    /// The run of a sound recipe. `threads` is the number that one worker computes with.
    ///
    /// # Errors
    /// The name of a setting that the engine cannot work with: recipes for training have none.
    pub fn new(
        recipe: &Recipe,
        layout: Layout,
        data: DataSpec,
        threads: u64,
    ) -> Result<Self, &'static str> {
        Ok(Self {
            layout,
            steps: *recipe.training.steps,
            learning_rate: LearningRate::of(recipe),
            engine: EngineConfig::new(recipe, &layout, data.is_masked, threads)?,
            data,
            seed: *recipe.training.seed,
            save: None,
            resume: None,
            init: match &*recipe.model.init {
                Init::Folder(Location::Local(folder)) => Some(folder.clone()),
                Init::Random | Init::Folder(Location::Remote(_)) => None,
            },
        })
    }

    /// Steps that were done before this start of the run.
    pub fn steps_done(&self) -> u64 {
        self.resume.as_ref().map_or(0, |resume| resume.step)
    }

    /// What the loader of any rank needs.
    pub fn loader_config(&self) -> LoaderConfig {
        LoaderConfig {
            sources: self.data.sources.clone(),
            sequence_length: self.layout.sequence_length,
            seed: self.seed,
            plan: BatchPlan {
                global_batch: self.layout.global_batch,
                accumulation: self.layout.accumulation,
                data_parallel_degree: self.layout.data_parallel(),
                local_batch: self.layout.local_batch,
                first_step: self.steps_done(),
                first_sample: self.resume.as_ref().map_or(0, |resume| resume.samples),
            },
        }
    }

    /// What the validations of any rank need.
    pub fn validation_config(&self) -> Option<ValidationConfig> {
        let validation = self.data.validation.as_ref()?;
        Some(ValidationConfig {
            splits: validation.splits.clone(),
            sequence_length: self.layout.sequence_length,
            data_parallel_degree: self.layout.data_parallel(),
            local_batch: self.layout.local_batch,
            rows: validation.rows,
        })
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
    /// Rows that one rank can send to each expert rank, as a multiple of an even share; none has room for all.
    pub expert_capacity_factor: Option<f64>,
    /// Sequences per data-parallel rank and micro-step.
    pub local_batch: u64,
    /// Micro-steps per optimizer step.
    pub accumulation: u64,
    /// Targets of one global batch: the denominator of the loss, unless tokens are marked.
    pub global_tokens: u64,
    /// Whether batches can have tokens that are no targets; the denominator of the loss is then the number of those
    /// that are.
    #[serde(default)]
    pub loss_mask: bool,
    /// Number formats.
    pub precision: PrecisionConfig,
    /// The update rule.
    pub optimizer: OptimizerConfig,
    /// What the backward pass computes again.
    pub remat: String,
    /// Whether the step runs compiled.
    pub compile: bool,
    /// Weight of the squared logarithm of the softmax's denominator in the loss.
    pub z_loss: f64,
    /// The token that ends a document, if attention ends there too.
    pub document_end: Option<u64>,
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
    pub attention: String,
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
    pub load_balancing: String,
    /// 0 where nothing is balanced.
    pub load_balancing_coefficient: f64,
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

/// Degrees of the mesh axes: rank = ((replicate index x shard + shard index) x context + context index) x tensor +
/// tensor index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeshConfig {
    /// Copies of the sharded model.
    pub replicate: u64,
    /// Devices that one copy is spread over.
    pub shard: u64,
    /// Ranks that one sequence is spread over.
    pub context: u64,
    /// Ranks that one matrix is spread over.
    pub tensor: u64,
    /// Ranks that the experts of a block are spread over.
    pub expert: u64,
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
    /// Orthogonalised momentum for matrices, AdamW for the rest.
    Muon { momentum: f64, betas: [f64; 2], epsilon: f64, weight_decay: f64 },
    /// Stochastic gradient descent.
    Sgd { momentum: f64, weight_decay: f64 },
}

impl OptimizerConfig {
    /// Whether it remembers two numbers for each weight, and not one.
    pub fn has_two_moments(&self) -> bool {
        matches!(self, Self::AdamW { .. })
    }
}

impl EngineConfig {
    fn new(
        recipe: &Recipe,
        layout: &Layout,
        loss_mask: bool,
        threads: u64,
    ) -> Result<Self, &'static str> {
        let (model, optimizer) = (&recipe.model, &recipe.optimizer);
        let decoder = model.decoder().ok_or("model.family")?;
        let scaling = decoder.rope_scaling.as_ref().and_then(|scaling| scaling.constants.as_ref());
        let weight_decay = *optimizer.weight_decay;
        let language = recipe.training.language.as_ref();
        let is_masked = language.is_some_and(|language| *language.document_mask);
        Ok(Self {
            model: ModelConfig {
                family: model.family.word().to_owned(),
                vocab_size: *decoder.vocab_size,
                hidden_size: *decoder.hidden_size,
                intermediate_size: decoder.intermediate_size().map(|size| **size),
                experts: decoder.experts().map(ExpertsConfig::new),
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
                attention: recipe.training.attention.word().to_owned(),
                norm_eps: *decoder.norm_eps,
                tie_embeddings: *decoder.tie_embeddings,
                init_std: *model.init_std,
            },
            mesh: MeshConfig {
                replicate: layout.replicate,
                shard: layout.shard,
                context: layout.context,
                tensor: layout.tensor,
                expert: layout.expert,
            },
            expert_capacity_factor: capacity_factor(recipe, layout),
            sequence_length: layout.sequence_length,
            local_batch: layout.local_batch,
            accumulation: layout.accumulation,
            global_tokens: layout.global_tokens(),
            loss_mask,
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
                OptimizerName::Muon => OptimizerConfig::Muon {
                    momentum: *optimizer.momentum,
                    betas: *optimizer.betas,
                    epsilon: *optimizer.epsilon,
                    weight_decay,
                },
            },
            remat: recipe.remat.policy.word().to_owned(),
            compile: *recipe.compile.enabled,
            z_loss: language.map_or(0.0, |language| *language.z_loss),
            document_end: recipe.data.end_id().filter(|_| is_masked),
            gradient_clip: *recipe.training.gradient_clip,
            seed: *recipe.training.seed,
            device: recipe.hardware.accelerator.word().to_owned(),
            threads,
        })
    }
}

impl ExpertsConfig {
    fn new(experts: &Experts) -> Self {
        Self {
            num_experts: *experts.num_experts,
            experts_per_token: *experts.experts_per_token,
            intermediate_size: *experts.expert_intermediate_size,
            load_balancing: experts.load_balancing.word().to_owned(),
            load_balancing_coefficient: experts
                .load_balancing_coefficient
                .as_ref()
                .map_or(0.0, |coefficient| **coefficient),
        }
    }
}

/// A factor of the expert degree has room for all pairs of a rank; it reads as none, so that nothing is counted in vain.
fn capacity_factor(recipe: &Recipe, layout: &Layout) -> Option<f64> {
    let factor = *recipe.parallelism.expert_capacity_factor;
    factor.filter(|factor| *factor < layout.expert as f64)
}

#[cfg(test)]
#[path = "spec_tests.rs"]
mod tests;
