//! Every key that TorchTitan 0.2.2 has, with what becomes of it in a configuration where all parts are on.

use titan_recipes::import::NoteKind;

use crate::support::sound;

/// What becomes of a key.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fate {
    /// These words are in the recipe.
    Carried(&'static str),
    /// There is a note, and the recipe has these words.
    Changed(&'static str),
    /// There is a note.
    Dropped,
    /// The value asks for what titan-tpu does anyway.
    Same,
}
use Fate::{Carried, Changed, Dropped, Same};

/// Key, a value, what becomes of it.
pub(crate) const KEYS: &[(&str, &str, Fate)] = &[
    ("job.config_file", "'a.toml'", Dropped),
    ("job.dump_folder", "'/dump'", Carried("directory = \"/dump/")),
    ("job.description", "'some words'", Carried("# some words\n")),
    ("job.print_config", "true", Dropped),
    ("job.save_config_file", "'c.json'", Dropped),
    ("job.custom_config_module", "'my.module'", Dropped),
    ("profiling.enable_profiling", "true", Dropped),
    ("profiling.save_traces_folder", "'traces'", Dropped),
    ("profiling.profile_freq", "100", Dropped),
    ("profiling.profiler_active", "2", Dropped),
    ("profiling.profiler_warmup", "2", Dropped),
    ("profiling.enable_memory_snapshot", "true", Dropped),
    ("profiling.save_memory_snapshot_folder", "'m'", Dropped),
    ("metrics.log_freq", "13", Carried("every_steps = 13\n")),
    ("metrics.enable_tensorboard", "true", Carried("tensorboard = true\n")),
    ("metrics.disable_color_printing", "true", Dropped),
    ("metrics.save_tb_folder", "'tb'", Dropped),
    ("metrics.save_for_all_ranks", "true", Dropped),
    ("metrics.enable_wandb", "true", Dropped),
    ("model.name", "'llama3'", Carried("family = \"llama3\"\n")),
    ("model.flavor", "'8B'", Carried("size = \"8b\"\n")),
    ("model.hf_assets_path", "'/hf'", Carried("tokenizer = \"/hf/tokenizer.json\"")),
    ("model.converters", "['float8']", Dropped),
    ("model.print_after_conversion", "true", Dropped),
    ("optimizer.name", "'AdamW'", Carried("name = \"adamw\"\n")),
    ("optimizer.lr", "7e-4", Carried("learning_rate = 7e-4\n")),
    ("optimizer.beta1", "0.91", Carried("betas = [0.91, ")),
    ("optimizer.beta2", "0.94", Carried(", 0.94]\n")),
    ("optimizer.eps", "2e-8", Carried("epsilon = 2e-8\n")),
    ("optimizer.weight_decay", "0.03", Carried("weight_decay = 0.03 ")),
    ("optimizer.implementation", "'foreach'", Dropped),
    ("optimizer.early_step_in_backward", "true", Dropped),
    ("lr_scheduler.warmup_steps", "17", Carried("warmup_steps = 17\n")),
    ("lr_scheduler.decay_ratio", "0.5", Carried("kind = \"wsd\"\n")),
    ("lr_scheduler.decay_type", "'sqrt'", Carried("decay_kind = \"sqrt\"\n")),
    ("lr_scheduler.min_lr_factor", "0.07", Carried("final_fraction = 0.07 ")),
    ("training.dataset", "'c4'", Changed("gs://your-bucket/c4\"")),
    ("training.dataset_path", "'/data/c4'", Carried("path = \"/data/c4\"")),
    ("training.local_batch_size", "3", Carried("local_batch = 3\n")),
    ("training.global_batch_size", "1536", Carried("global_batch = 1536\n")),
    ("training.seq_len", "4096", Carried("sequence_length = 4096\n")),
    ("training.max_norm", "0.7", Carried("gradient_clip = 0.7\n")),
    ("training.steps", "777", Carried("\nsteps = 777\n")),
    ("training.enable_cpu_offload", "true", Dropped),
    ("training.dtype", "'bfloat16'", Changed("params = \"float32\"\n")),
    ("training.mixed_precision_param", "'bfloat16'", Carried("compute = \"bfloat16\"\n")),
    ("training.mixed_precision_reduce", "'float32'", Carried("reduce = \"float32\"\n")),
    ("training.gc_freq", "50", Dropped),
    ("training.gc_debug", "true", Dropped),
    ("training.dataloader.num_workers", "4", Dropped),
    ("training.img_size", "512", Dropped),
    ("training.classifier_free_guidance_prob", "0.4", Dropped),
    ("encoder.t5_encoder", "'t5'", Dropped),
    ("encoder.max_t5_encoding_len", "512", Dropped),
    ("debug.seed", "42", Carried("seed = 42\n")),
    ("debug.deterministic", "true", Dropped),
    ("debug.moe_force_load_balance", "true", Dropped),
    ("parallelism.data_parallel_replicate_degree", "2", Carried("replicate = 2\n")),
    ("parallelism.data_parallel_shard_degree", "4", Carried("shard = 4\n")),
    ("parallelism.fsdp_reshard_after_forward", "'never'", Dropped),
    ("parallelism.tensor_parallel_degree", "2", Carried("tensor = 2\n")),
    ("parallelism.context_parallel_degree", "2", Carried("context = 2\n")),
    ("parallelism.expert_parallel_degree", "2", Dropped),
    ("parallelism.pipeline_parallel_degree", "2", Dropped),
    ("parallelism.pipeline_parallel_schedule", "'1F1B'", Dropped),
    ("parallelism.pipeline_parallel_schedule_csv", "'a.csv'", Dropped),
    ("parallelism.pipeline_parallel_layers_per_stage", "4", Dropped),
    ("parallelism.pipeline_parallel_first_stage_less_layers", "1", Dropped),
    ("parallelism.pipeline_parallel_last_stage_less_layers", "1", Dropped),
    ("parallelism.pipeline_parallel_microbatch_size", "1", Dropped),
    ("parallelism.pipeline_parallel_expert_parallel_overlap", "true", Dropped),
    ("parallelism.module_fqns_per_model_part", "[['a'], ['b']]", Dropped),
    ("parallelism.enable_async_tensor_parallel", "true", Dropped),
    ("parallelism.disable_loss_parallel", "true", Dropped),
    ("parallelism.enable_compiled_autograd", "true", Dropped),
    ("parallelism.context_parallel_rotate_method", "'alltoall'", Dropped),
    ("parallelism.expert_tensor_parallel_degree", "2", Dropped),
    ("parallelism.expert_parallel_comm_backend", "'deepep'", Dropped),
    ("checkpoint.enable", "true", Carried("[checkpoint]\n")),
    ("checkpoint.folder", "'ckpt'", Carried("/ckpt\"\n")),
    ("checkpoint.interval", "123", Carried(" = 123\n")),
    ("checkpoint.initial_load_path", "'/weights'", Carried("init = \"/weights\"\n")),
    ("checkpoint.initial_load_model_only", "false", Dropped),
    ("checkpoint.initial_load_in_hf", "true", Carried("init = ")),
    ("checkpoint.initial_load_in_hf_quantized", "true", Dropped),
    ("checkpoint.last_save_model_only", "true", Dropped),
    ("checkpoint.last_save_in_hf", "true", Dropped),
    ("checkpoint.export_dtype", "'bfloat16'", Dropped),
    ("checkpoint.async_mode", "'async'", Dropped),
    ("checkpoint.keep_latest_k", "5", Carried("keep_last = 5\n")),
    ("checkpoint.load_step", "100", Dropped),
    ("checkpoint.exclude_from_loading", "['optimizer']", Dropped),
    ("checkpoint.enable_first_step_checkpoint", "true", Dropped),
    ("checkpoint.create_seed_checkpoint", "true", Dropped),
    ("checkpoint.load_only", "true", Dropped),
    ("checkpoint.enable_ft_dataloader_checkpoints", "false", Dropped),
    ("activation_checkpoint.mode", "'full'", Carried("policy = \"full\"\n")),
    ("activation_checkpoint.selective_ac_option", "'op'", Dropped),
    ("activation_checkpoint.per_op_sac_force_recompute_mm_shapes_by_fqns", "['a']", Dropped),
    ("activation_checkpoint.early_stop", "true", Dropped),
    ("activation_checkpoint.memory_budget", "0.5", Dropped),
    ("activation_checkpoint.visualize_memory_budget_pareto", "true", Dropped),
    ("compile.enable", "true", Carried("enabled = true\n")),
    ("compile.components", "['model']", Dropped),
    ("compile.backend", "'inductor'", Dropped),
    ("quantize.linear.float8.recipe_name", "'rowwise'", Dropped),
    ("quantize.linear.mx.filter_fqns", "['output']", Dropped),
    ("quantize.grouped_mm.float8.fqns", "['experts']", Dropped),
    ("comm.init_timeout_seconds", "300", Dropped),
    ("comm.train_timeout_seconds", "100", Dropped),
    ("comm.trace_buf_size", "100", Dropped),
    ("memory_estimation.enable", "true", Dropped),
    ("memory_estimation.disable_fake_mode", "true", Dropped),
    ("fault_tolerance.enable", "true", Dropped),
    ("fault_tolerance.group_size", "2", Dropped),
    ("fault_tolerance.semi_sync_method", "'diloco'", Dropped),
    ("experimental.custom_import", "'my.module'", Dropped),
    ("validation.enable", "true", Carried("[validation]\n")),
    ("validation.dataset", "'c4_validation'", Changed("gs://your-bucket/c4_validation\"")),
    ("validation.dataset_path", "'/data/val'", Carried("path = \"/data/val\"")),
    ("validation.local_batch_size", "5", Dropped),
    ("validation.seq_len", "1024", Dropped),
    ("validation.freq", "77", Carried("interval_steps = 77\n")),
    ("validation.steps", "33", Carried("\nsteps = 33\n")),
    ("job.print_args", "false", Same),
    ("profiling.enable_profiling", "false", Same),
    ("metrics.enable_wandb", "false", Same),
    ("metrics.rank_0_only", "true", Same),
    ("model.converters", "[]", Same),
    ("optimizer.implementation", "'fused'", Same),
    ("parallelism.pipeline_parallel_degree", "1", Same),
    ("parallelism.expert_parallel_degree", "1", Same),
    ("parallelism.fsdp_reshard_after_forward", "'default'", Same),
    ("checkpoint.enable", "false", Same),
    ("checkpoint.load_step", "-1", Same),
    ("fault_tolerance.enable", "false", Same),
    ("experimental.custom_import", "''", Same),
];

/// Keys of older releases, and of none.
pub(crate) const MORE_KEYS: &[(&str, &str, Fate)] = &[
    ("training.batch_size", "3", Carried("local_batch = 3\n")),
    ("training.warmup_steps", "17", Carried("warmup_steps = 17\n")),
    ("training.compile", "true", Carried("enabled = true\n")),
    ("training.tensor_parallel_degree", "2", Carried("tensor = 2\n")),
    ("training.seed", "42", Carried("seed = 42\n")),
    ("checkpoint.enable_checkpoint", "true", Carried("[checkpoint]\n")),
    ("checkpoint.interval_type", "'seconds'", Carried("interval_seconds")),
    ("model.tokenizer_path", "'/hf/tokenizer.model'", Changed("\"/hf/tokenizer.json\"")),
    ("model.norm_type", "'layernorm'", Dropped),
    ("float8.recipe_name", "'rowwise'", Dropped),
    ("training.epochs", "3", Changed("")),
    ("lr_schedular.warmup_steps", "3", Changed("")),
    ("dataloader.dataset", "'c4'", Changed("")),
    ("colour", "'red'", Changed("")),
];

/// Whether a key has found its fate, or a note says why not.
pub(crate) fn is_accounted_for(
    key: &str,
    fate: Fate,
    imported: &titan_recipes::import::Imported,
) -> bool {
    let is_noted = imported.notes.iter().any(|note| note.key == key);
    match fate {
        Carried(words) => is_noted || imported.recipe.contains(words),
        Changed(_) | Dropped => is_noted,
        Same => true,
    }
}

/// What a key needs to have an effect.
fn needs(key: &str) -> &'static str {
    match key {
        "checkpoint.initial_load_path" => {
            "checkpoint.enable = true\ncheckpoint.initial_load_in_hf = true\n"
        }
        "checkpoint.initial_load_in_hf" => {
            "checkpoint.enable = true\nmodel.hf_assets_path = '/hf'\n"
        }
        "checkpoint.folder" => "checkpoint.enable = true\njob.dump_folder = '/dump'\n",
        "validation.enable" | "checkpoint.enable" | "checkpoint.enable_checkpoint" => {
            "liger_kernel = {}\n"
        }
        _ if key.starts_with("checkpoint.") => "checkpoint.enable = true\n",
        _ if key.starts_with("validation.") => "validation.enable = true\n",
        "job.dump_folder" => "checkpoint.enable = true\n",
        // A text without any table of TorchTitan is not its configuration.
        _ => "liger_kernel = {}\n",
    }
}

#[test]
fn each_key_alone_has_its_fate() {
    for (key, value, fate) in KEYS.iter().chain(MORE_KEYS) {
        let imported = sound(&format!("{}{key} = {value}\n", needs(key)));
        let note = imported.notes.iter().find(|note| note.key == *key);
        let kind = note.map(|note| note.kind);
        match fate {
            Carried(words) => {
                assert_eq!(kind, None, "{key}: {note:?}");
                assert!(imported.recipe.contains(words), "{key}: {words}\n{}", imported.recipe);
            }
            Changed(words) => {
                assert_eq!(kind, Some(NoteKind::Changed), "{key}");
                assert!(imported.recipe.contains(words), "{key}: {words}\n{}", imported.recipe);
            }
            Dropped => assert_eq!(kind, Some(NoteKind::Dropped), "{key}: {note:?}"),
            Same => assert_eq!(kind, None, "{key}: {note:?}"),
        }
    }
}
