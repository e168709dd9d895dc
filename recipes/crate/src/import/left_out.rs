//! Keys without a counterpart, and what to say about each. Nothing is said where the value asks for what titan-tpu
//! does anyway.

use crate::shown::Shown;
use crate::tree::Value;

use super::config::{Config, Place};
use super::keys::nearest_key;

/// A key that no recipe has.
pub(super) struct LeftOut {
    /// The key; one that ends in `*` stands for all keys that begin like it.
    pub(super) key: &'static str,
    /// Values that change nothing.
    same: &'static [Same],
    /// The part of TorchTitan that it belongs to: when that is off, the key had no effect.
    part: &'static str,
    /// Why there is no counterpart, or what to use instead.
    why: &'static str,
}

/// A value that asks for what titan-tpu does anyway.
enum Same {
    No,
    Yes,
    Number(i128),
    Word(&'static str),
    Empty,
}
use Same::{Empty, No, Number, Word, Yes};

impl Same {
    fn is(&self, value: &Value) -> bool {
        match (self, value) {
            (No, Value::Boolean(value)) => !value,
            (Yes, Value::Boolean(value)) => *value,
            (Number(number), Value::Integer(value)) => number == value,
            (Word(word), Value::Text(text)) => word == text,
            (Empty, Value::Text(text)) => text.is_empty(),
            (Empty, Value::List(list)) => list.is_empty(),
            _ => false,
        }
    }
}

pub(super) const PROFILING: &str = "profiling";
pub(super) const MEMORY_SNAPSHOTS: &str = "the memory snapshot";
pub(super) const CHECKPOINTING: &str = "checkpointing";
pub(super) const TENSORBOARD: &str = "TensorBoard";
pub(super) const VALIDATION: &str = "validation";
pub(super) const COMPILATION: &str = "compilation";
pub(super) const PIPELINE: &str = "pipeline parallelism";
pub(super) const TENSOR: &str = "tensor parallelism";
pub(super) const CONTEXT: &str = "context parallelism";
pub(super) const EXPERT: &str = "expert parallelism";
pub(super) const SELECTIVE: &str = "selective activation checkpointing";
pub(super) const MEMORY_BUDGET: &str = "activation checkpointing by memory budget";
pub(super) const QUANTIZATION: &str = "quantization";
pub(super) const FAULT_TOLERANCE: &str = "fault tolerance";
pub(super) const MEMORY_ESTIMATION: &str = "memory estimation";
pub(super) const FLUX: &str = "FLUX";
const ALWAYS: &str = "";

/// Keys that switch a part on which a recipe does not have, or not by a key of its own.
const SWITCHES: &[(&str, &str)] = &[
    ("profiling.enable_profiling", PROFILING),
    ("profiling.enable_memory_snapshot", MEMORY_SNAPSHOTS),
    ("fault_tolerance.enable", FAULT_TOLERANCE),
    ("memory_estimation.enable", MEMORY_ESTIMATION),
];

const RUN_DIR: &str = "the run directory has fixed names; choose it with --run-dir";
const NO_PROFILER: &str = "a recipe has no profiler settings";
const NO_SNAPSHOTS: &str = "a recipe has no memory snapshots";
const NO_PIPELINE: &str = "there is no pipeline parallelism";
const NO_QUANTIZATION: &str =
    "there are no float8 or MX layers; `precision.compute` sets the number format";
const NO_TORCHFT: &str = "torchft has no counterpart";
const ONE_SELECTIVE: &str = "`remat.policy` = \"selective\" has no options";
const NO_BUDGET: &str = "`remat.policy` has no memory budget";
const NO_SAMPLING: &str = "no images are made during validation";
const NO_ENCODERS: &str = "a recipe does not name the encoders";
const COMPILER: &str = "the accelerator decides how the step is compiled";
const LOADER: &str = "the data loader is not configured by a recipe";
const COLLECTIVES: &str = "timeouts and traces of collectives are not configured by a recipe";
const FULL_STATE: &str = "every checkpoint holds the full state";
const LATEST: &str = "a run resumes from its newest checkpoint";
const EXTENSIONS: &str = "a recipe imports no Python modules";
const ESTIMATE: &str = "a recipe has no memory estimation";

const fn key(
    key: &'static str,
    same: &'static [Same],
    part: &'static str,
    why: &'static str,
) -> LeftOut {
    LeftOut { key, same, part, why }
}

/// Every key that has no counterpart, or has none while its part is off.
pub(super) const LEFT_OUT: &[LeftOut] = &[
    key("job.config_file", &[], ALWAYS, "a recipe does not name itself"),
    key("job.dump_folder", &[], ALWAYS, "the run directory is chosen with --run-dir"),
    key("job.print_config", &[No], ALWAYS, "the whole recipe is in every run directory"),
    key("job.save_config_file", &[Empty], ALWAYS, "the whole recipe is in every run directory"),
    key(
        "job.custom_config_module",
        // Those that FLUX needs in TorchTitan; its keys are known here.
        &[
            Empty,
            Word("torchtitan.models.flux.job_config"),
            Word("torchtitan.experiments.flux.job_config"),
        ],
        ALWAYS,
        EXTENSIONS,
    ),
    key("job.use_for_integration_test", &[No], ALWAYS, "only TorchTitan's own tests read it"),
    key("profiling.enable_profiling", &[No], ALWAYS, NO_PROFILER),
    key("profiling.save_traces_folder", &[], PROFILING, NO_PROFILER),
    key("profiling.profile_freq", &[], PROFILING, NO_PROFILER),
    key("profiling.profiler_active", &[], PROFILING, NO_PROFILER),
    key("profiling.profiler_warmup", &[], PROFILING, NO_PROFILER),
    key("profiling.enable_memory_snapshot", &[No], ALWAYS, NO_SNAPSHOTS),
    key("profiling.save_memory_snapshot_folder", &[], MEMORY_SNAPSHOTS, NO_SNAPSHOTS),
    key("metrics.disable_color_printing", &[No], ALWAYS, "colours follow the terminal"),
    key("metrics.enable_color_printing", &[], ALWAYS, "colours follow the terminal"),
    key("metrics.save_tb_folder", &[], TENSORBOARD, RUN_DIR),
    key("metrics.save_for_all_ranks", &[No], ALWAYS, "metrics are those of the whole run"),
    key("metrics.rank_0_only", &[Yes], ALWAYS, "metrics are those of the whole run"),
    key(
        "metrics.enable_wandb",
        &[No],
        ALWAYS,
        "there is no Weights & Biases; the run directory has metrics.jsonl and TensorBoard files",
    ),
    key("model.converters", &[Empty], ALWAYS, NO_QUANTIZATION),
    key("model.print_after_conversion", &[No], ALWAYS, NO_QUANTIZATION),
    key("model.norm_type", &[Word("rmsnorm")], ALWAYS, "the norm is RMSNorm"),
    key("optimizer.implementation", &[Word("fused")], ALWAYS, "there is one implementation"),
    key("optimizer.fused", &[Yes], ALWAYS, "there is one implementation"),
    key(
        "optimizer.early_step_in_backward",
        &[No],
        ALWAYS,
        "the optimizer steps once, after the backward pass",
    ),
    key("training.dataloader.*", &[], ALWAYS, LOADER),
    key(
        "training.enable_cpu_offload",
        &[No],
        ALWAYS,
        "parameters stay on the device; shard over more devices instead",
    ),
    key(
        "training.gc_freq",
        &[],
        ALWAYS,
        "Python's garbage collector is not configured by a recipe",
    ),
    key("training.gc_debug", &[No], ALWAYS, "there is no such debugging aid"),
    key("training.fp8_linear", &[Empty], ALWAYS, NO_QUANTIZATION),
    key("training.enable_fp8_linear", &[No], ALWAYS, NO_QUANTIZATION),
    key(
        "training.enable_loss_parallel",
        &[Yes],
        TENSOR,
        "the loss is always split with the output",
    ),
    key("training.img_size", &[], FLUX, ""),
    key("training.classifier_free_guidance_prob", &[], FLUX, ""),
    key("training.test_mode", &[No], FLUX, "there are no random encoders"),
    key("debug.deterministic", &[No], ALWAYS, "a recipe has no such key"),
    key("debug.deterministic_warn_only", &[No], ALWAYS, "there is nothing to choose"),
    key("debug.moe_force_load_balance", &[No], ALWAYS, "the router is never overruled"),
    key("encoder.max_t5_encoding_len", &[], FLUX, ""),
    key("encoder.*", &[], FLUX, NO_ENCODERS),
    key("inference.*", &[], FLUX, "making images is no part of training"),
    key(
        "parallelism.fsdp_reshard_after_forward",
        &[Word("default")],
        ALWAYS,
        "when sharded parameters are freed is decided by titan-tpu",
    ),
    key(
        "parallelism.enable_compiled_autograd",
        &[No],
        ALWAYS,
        "the backward pass is compiled with the step",
    ),
    key("parallelism.enable_sequence_parallel", &[Yes], TENSOR, "there is nothing to choose"),
    key(
        "parallelism.disable_loss_parallel",
        &[No],
        TENSOR,
        "the loss is always split with the output",
    ),
    key("parallelism.enable_async_tensor_parallel", &[No], TENSOR, "overlap is not configured"),
    key("parallelism.context_parallel_rotate_method", &[], CONTEXT, "there is nothing to choose"),
    key("parallelism.context_parallel_load_balancer", &[], CONTEXT, "there is nothing to choose"),
    key("parallelism.expert_tensor_parallel_degree", &[Number(1)], EXPERT, "experts are not split"),
    key("parallelism.expert_parallel_comm_backend", &[], EXPERT, "there is nothing to choose"),
    key("parallelism.pipeline_parallel_expert_parallel_overlap", &[No], PIPELINE, NO_PIPELINE),
    key("parallelism.module_fqns_per_model_part", &[], PIPELINE, NO_PIPELINE),
    key("parallelism.pipeline_parallel_split_points", &[Empty], PIPELINE, NO_PIPELINE),
    key("parallelism.pipeline_parallel_first_stage_less_layers", &[], PIPELINE, NO_PIPELINE),
    key("parallelism.pipeline_parallel_last_stage_less_layers", &[], PIPELINE, NO_PIPELINE),
    key("parallelism.pipeline_parallel_layers_per_stage", &[], PIPELINE, NO_PIPELINE),
    key("parallelism.pipeline_parallel_schedule", &[], PIPELINE, NO_PIPELINE),
    key("parallelism.pipeline_parallel_schedule_csv", &[Empty], PIPELINE, NO_PIPELINE),
    key("parallelism.pipeline_parallel_microbatch_size", &[], PIPELINE, NO_PIPELINE),
    key("experimental.pipeline_parallel_split_mode", &[], PIPELINE, NO_PIPELINE),
    key("experimental.custom_import", &[Empty], ALWAYS, EXTENSIONS),
    key("experimental.custom_model_path", &[Empty], ALWAYS, EXTENSIONS),
    key("experimental.torch_spmd", &[No], ALWAYS, "there is nothing to choose"),
    key("checkpoint.folder", &[], CHECKPOINTING, ""),
    key("checkpoint.interval", &[], CHECKPOINTING, ""),
    key("checkpoint.interval_type", &[Word("steps")], CHECKPOINTING, ""),
    key("checkpoint.keep_latest_k", &[], CHECKPOINTING, ""),
    key("checkpoint.initial_load_path", &[], CHECKPOINTING, ""),
    key("checkpoint.initial_load_in_hf", &[No], CHECKPOINTING, ""),
    key("checkpoint.initial_load_in_hf_quantized", &[No], CHECKPOINTING, "there is no such format"),
    key(
        "checkpoint.initial_load_model_only",
        &[Yes],
        CHECKPOINTING,
        "`model.init` has only weights",
    ),
    key("checkpoint.last_save_model_only", &[No], CHECKPOINTING, FULL_STATE),
    key(
        "checkpoint.last_save_in_hf",
        &[No],
        CHECKPOINTING,
        "checkpoints are not saved in the Hugging Face layout",
    ),
    key(
        "checkpoint.export_dtype",
        &[Word("float32")],
        CHECKPOINTING,
        "weights are kept in float32",
    ),
    key(
        "checkpoint.async_mode",
        &[],
        CHECKPOINTING,
        "how checkpoints are written is not configured",
    ),
    key("checkpoint.load_step", &[Number(-1)], CHECKPOINTING, LATEST),
    key("checkpoint.exclude_from_loading", &[Empty], CHECKPOINTING, LATEST),
    key(
        "checkpoint.enable_first_step_checkpoint",
        &[No],
        CHECKPOINTING,
        "checkpoints follow `checkpoint.interval_steps` alone",
    ),
    key(
        "checkpoint.create_seed_checkpoint",
        &[No],
        CHECKPOINTING,
        "initial weights follow `training.seed`",
    ),
    key("checkpoint.load_only", &[No], CHECKPOINTING, "what loads checkpoints also saves them"),
    key("checkpoint.enable_ft_dataloader_checkpoints", &[Yes], CHECKPOINTING, NO_TORCHFT),
    key("activation_checkpoint.selective_ac_option", &[], SELECTIVE, ONE_SELECTIVE),
    key(
        "activation_checkpoint.per_op_sac_force_recompute_mm_shapes_by_fqns",
        &[],
        SELECTIVE,
        ONE_SELECTIVE,
    ),
    key("activation_checkpoint.mm_checkpoint_frequency", &[], SELECTIVE, ONE_SELECTIVE),
    key("activation_checkpoint.early_stop", &[No], ALWAYS, "`remat` has no such option"),
    key("activation_checkpoint.memory_budget", &[], MEMORY_BUDGET, NO_BUDGET),
    key("activation_checkpoint.visualize_memory_budget_pareto", &[No], MEMORY_BUDGET, NO_BUDGET),
    key("activation_checkpoint.preserve_rng_state", &[], ALWAYS, "`remat` has no such option"),
    key("activation_checkpoint.determinism_check", &[], ALWAYS, "`remat` has no such option"),
    key("activation_checkpoint.debug", &[No], ALWAYS, "`remat` has no such option"),
    key("compile.components", &[], COMPILATION, "the whole step is compiled"),
    key("compile.backend", &[], COMPILATION, COMPILER),
    key("quantize.*", &[], QUANTIZATION, NO_QUANTIZATION),
    key("float8.*", &[], ALWAYS, NO_QUANTIZATION),
    key("mx.*", &[], QUANTIZATION, NO_QUANTIZATION),
    key("comm.*", &[], ALWAYS, COLLECTIVES),
    key("memory_estimation.enable", &[No], ALWAYS, ESTIMATE),
    key("memory_estimation.disable_fake_mode", &[No], MEMORY_ESTIMATION, ESTIMATE),
    key("fault_tolerance.enable", &[No], ALWAYS, NO_TORCHFT),
    key("fault_tolerance.*", &[], FAULT_TOLERANCE, NO_TORCHFT),
    key("liger_kernel.*", &[No], ALWAYS, "Liger kernels have no counterpart"),
    key("validation.dataset", &[], VALIDATION, ""),
    key("validation.dataset_path", &[], VALIDATION, ""),
    key("validation.freq", &[], VALIDATION, ""),
    key("validation.steps", &[], VALIDATION, ""),
    key("validation.local_batch_size", &[], VALIDATION, ""),
    key("validation.seq_len", &[], VALIDATION, ""),
    key("validation.dataloader.*", &[], VALIDATION, LOADER),
    key("validation.enable_classifier_free_guidance", &[No], VALIDATION, NO_SAMPLING),
    key("validation.classifier_free_guidance_scale", &[], VALIDATION, NO_SAMPLING),
    key("validation.denoising_steps", &[], VALIDATION, NO_SAMPLING),
    key("validation.eval_freq", &[], VALIDATION, NO_SAMPLING),
    key("validation.save_img_count", &[Number(0)], VALIDATION, NO_SAMPLING),
    key("validation.save_img_folder", &[], VALIDATION, NO_SAMPLING),
    key("validation.all_timesteps", &[No], VALIDATION, "there is nothing to choose"),
];

/// Accounts for every key that nothing else has used.
pub(super) fn note_the_rest(config: &mut Config<'_>) {
    for (key, part) in SWITCHES {
        let value = config.place(key).map(|place| config.value(place));
        if matches!(value, Some(Value::Boolean(true))) {
            config.switch_on(part);
        }
    }
    let converters = config.place("model.converters").map(|place| config.value(place));
    if converters.is_some_and(|value| !Empty.is(value)) {
        config.switch_on(QUANTIZATION);
    }
    for (place, key) in config.unsettled() {
        let exact = LEFT_OUT.iter().find(|entry| entry.key == key);
        let begins = |entry: &&LeftOut| {
            entry.key.strip_suffix('*').is_some_and(|beginning| key.starts_with(beginning))
        };
        match exact.or_else(|| LEFT_OUT.iter().find(begins)) {
            Some(entry) => left_out(config, place, entry),
            None => unknown(config, place),
        }
    }
}

fn left_out(config: &mut Config<'_>, place: Place, entry: &LeftOut) {
    if entry.same.iter().any(|same| same.is(config.value(place))) {
        config.settle(place);
    } else if entry.part == ALWAYS || config.is_on(entry.part) {
        config.dropped(Some(place), entry.why);
    } else if entry.part == FLUX {
        config.dropped(Some(place), "had no effect: the model is not FLUX");
    } else {
        config.dropped(Some(place), format!("had no effect: {} was off", entry.part));
    }
}

fn unknown(config: &mut Config<'_>, place: Place) {
    let text = match nearest_key(config.path(place)) {
        Some(near) => format!("not a TorchTitan key; did you mean {}?", Shown(near)),
        None => "not a TorchTitan key".to_owned(),
    };
    // It may have been meant to be one: then the default was taken in its place.
    config.changed(Some(place), text);
}
