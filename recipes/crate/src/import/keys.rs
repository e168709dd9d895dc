//! The keys of TorchTitan: those of 0.2.2, and what older releases called them.

use crate::words::{JARO_WINKLER, similar};

use super::left_out::LEFT_OUT;

/// Keys that have a counterpart in a recipe, at least where their part of the training is switched on.
const CARRIED_OVER: &[&str] = &[
    "job.description",
    "job.dump_folder",
    "model.name",
    "model.flavor",
    "model.hf_assets_path",
    "model.tokenizer_path",
    "optimizer.name",
    "optimizer.lr",
    "optimizer.beta1",
    "optimizer.beta2",
    "optimizer.eps",
    "optimizer.weight_decay",
    "lr_scheduler.warmup_steps",
    "lr_scheduler.decay_ratio",
    "lr_scheduler.decay_type",
    "lr_scheduler.min_lr_factor",
    "training.dataset",
    "training.dataset_path",
    "training.local_batch_size",
    "training.global_batch_size",
    "training.seq_len",
    "training.max_norm",
    "training.steps",
    "training.dtype",
    "training.mixed_precision_param",
    "training.mixed_precision_reduce",
    "debug.seed",
    "parallelism.data_parallel_replicate_degree",
    "parallelism.data_parallel_shard_degree",
    "parallelism.tensor_parallel_degree",
    "parallelism.context_parallel_degree",
    "parallelism.expert_parallel_degree",
    "parallelism.pipeline_parallel_degree",
    "activation_checkpoint.mode",
    "compile.enable",
    "checkpoint.enable",
    "metrics.log_freq",
    "metrics.enable_tensorboard",
    "validation.enable",
];

/// Older spellings with those of 0.2.2; of several for one setting, the younger come first.
const RENAMED: &[(&str, &str)] = &[
    ("training.batch_size", "training.local_batch_size"),
    ("training.data_parallel_replicate_degree", "parallelism.data_parallel_replicate_degree"),
    ("training.data_parallel_shard_degree", "parallelism.data_parallel_shard_degree"),
    ("training.data_parallel_degree", "parallelism.data_parallel_shard_degree"),
    ("training.tensor_parallel_degree", "parallelism.tensor_parallel_degree"),
    ("training.disable_loss_parallel", "parallelism.disable_loss_parallel"),
    ("experimental.context_parallel_degree", "parallelism.context_parallel_degree"),
    ("experimental.context_parallel_rotate_method", "parallelism.context_parallel_rotate_method"),
    ("experimental.pipeline_parallel_degree", "parallelism.pipeline_parallel_degree"),
    ("experimental.pipeline_parallel_schedule", "parallelism.pipeline_parallel_schedule"),
    ("experimental.pipeline_parallel_schedule_csv", "parallelism.pipeline_parallel_schedule_csv"),
    ("experimental.pipeline_parallel_split_points", "parallelism.pipeline_parallel_split_points"),
    (
        "experimental.pipeline_parallel_microbatches",
        "parallelism.pipeline_parallel_microbatch_size",
    ),
    ("experimental.enable_async_tensor_parallel", "parallelism.enable_async_tensor_parallel"),
    ("experimental.enable_compiled_autograd", "parallelism.enable_compiled_autograd"),
    ("training.enable_compiled_autograd", "parallelism.enable_compiled_autograd"),
    ("experimental.custom_args_module", "job.custom_config_module"),
    ("training.compile", "compile.enable"),
    ("training.warmup_steps", "lr_scheduler.warmup_steps"),
    ("lr_scheduler.lr_min", "lr_scheduler.min_lr_factor"),
    ("training.seed", "debug.seed"),
    ("training.deterministic", "debug.deterministic"),
    ("training.debug_moe_force_load_balance", "debug.moe_force_load_balance"),
    ("job.print_args", "job.print_config"),
    ("checkpoint.enable_checkpoint", "checkpoint.enable"),
    ("checkpoint.model_weights_only", "checkpoint.last_save_model_only"),
    ("validation.enabled", "validation.enable"),
    ("memory_estimation.enabled", "memory_estimation.enable"),
];

/// A key as 0.2.2 spells it.
pub(super) fn modern(path: &str) -> &str {
    RENAMED.iter().find(|(old, _)| *old == path).map_or(path, |(_, new)| new)
}

/// How old a spelling is: 0 for that of 0.2.2.
pub(super) fn age(path: &str) -> usize {
    RENAMED.iter().position(|(old, _)| *old == path).map_or(0, |index| index + 1)
}

/// All keys of all releases. One that ends in `*` stands for all keys that begin like it.
fn all() -> impl Iterator<Item = &'static str> {
    let carried_over = CARRIED_OVER.iter().copied();
    let left_out = LEFT_OUT.iter().map(|entry| entry.key);
    carried_over.chain(left_out).chain(RENAMED.iter().map(|(old, _)| *old))
}

/// Whether TorchTitan has this very key.
pub(super) fn is_key(path: &str) -> bool {
    all().any(|key| key == path)
}

/// Whether TorchTitan has this table.
pub(super) fn is_table(path: &str) -> bool {
    all().any(|key| key.strip_prefix(path).is_some_and(|rest| rest.starts_with('.')))
}

/// The key that an unknown one was probably meant to be: one of the same table that differs by a few letters, one of
/// a table whose name does, or the same key of another table.
pub(super) fn nearest_key(path: &str) -> Option<&'static str> {
    let (table, key) = path.rsplit_once('.').unwrap_or(("", path));
    let split = || all().filter_map(|known| known.rsplit_once('.'));
    let tables: Vec<&str> = split().map(|(table, _)| table).collect();
    let home = match tables.contains(&table) {
        true => Some(table),
        false => similar(table, &tables, JARO_WINKLER),
    };
    let keys: Vec<&str> =
        split().filter(|(table, _)| Some(*table) == home).map(|(_, key)| key).collect();
    // TorchTitan's keys begin alike, so a common beginning means little.
    let meant = keys.iter().find(|known| **known == key).copied();
    let meant = meant.or_else(|| similar(key, &keys, 0.93));
    let here = split().find(|(table, known)| Some(*table) == home && Some(*known) == meant);
    let found = here.or_else(|| split().find(|(_, known)| *known == key));
    let whole = found.map(|(table, key)| format!("{table}.{key}"))?;
    all().find(|known| *known == whole)
}
