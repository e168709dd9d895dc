//! Spellings of releases before 0.2.0.

use expect_test::expect;

use crate::support::{listed, sound, value};

#[test]
fn the_first_releases_are_understood() {
    let imported = sound(
        r#"[job]
dump_folder = "/runs"
print_args = false
use_for_integration_test = true

[metrics]
rank_0_only = true
enable_color_printing = true

[model]
name = "llama3"
flavor = "8B"
norm_type = "rmsnorm"
tokenizer_path = "/assets/tokenizer.model"

[optimizer]
name = "AdamW"
lr = 8e-4
fused = true

[training]
batch_size = 4
seq_len = 2048
warmup_steps = 2
max_norm = 1.0
steps = 10
data_parallel_replicate_degree = 2
data_parallel_shard_degree = 4
tensor_parallel_degree = 2
compile = true
mixed_precision_param = "float32"
mixed_precision_reduce = "float32"
enable_fp8_linear = false
dataset_path = "/data/c4"
seed = 1

[experimental]
context_parallel_degree = 2
pipeline_parallel_degree = 1

[checkpoint]
enable_checkpoint = true
folder = "ckpt"
interval_type = "seconds"
interval = 3600
model_weights_only = false
export_dtype = "float32"
async_mode = "disabled"
"#,
    );
    let expected = [
        ("training", "local_batch", "4"),
        ("training", "seed", "1"),
        ("schedule", "warmup_steps", "2"),
        ("schedule", "kind", "\"linear\""),
        ("parallelism", "replicate", "2"),
        ("parallelism", "shard", "4"),
        ("parallelism", "tensor", "2"),
        ("parallelism", "context", "2"),
        ("hardware", "devices", "32"),
        ("compile", "enabled", "true"),
        ("precision", "compute", "\"float32\""),
        ("checkpoint", "directory", "\"/runs/ckpt\""),
        ("checkpoint", "interval_seconds", "3600"),
        ("data", "tokenizer", "\"/assets/tokenizer.json\""),
    ];
    for (table, key, expected) in expected {
        assert_eq!(value(&imported.recipe, table, key), expected, "{table}.{key}");
    }
    expect![[r#"
        4 dropped job.use_for_integration_test: only TorchTitan's own tests read it
        8 dropped metrics.enable_color_printing: colours follow the terminal
        14 changed model.tokenizer_path: was a tokenizer.model; download the tokenizer.json of the same model to this place
        48 dropped checkpoint.async_mode: how checkpoints are written is not configured
    "#]].assert_eq(&listed(&imported.notes));
}

#[test]
fn of_two_spellings_the_modern_one_counts() {
    let imported = sound(
        "[training]\nbatch_size = 4\nlocal_batch_size = 2\ndata_parallel_degree = 2\n\
         data_parallel_shard_degree = 4\n[parallelism]\ndata_parallel_shard_degree = 16\n",
    );
    assert_eq!(value(&imported.recipe, "training", "local_batch"), "2");
    assert_eq!(value(&imported.recipe, "parallelism", "shard"), "16");
    expect![[r#"
          2 dropped training.batch_size: an older spelling of training.local_batch_size, which is set too and counts
          4 dropped training.data_parallel_degree: an older spelling of parallelism.data_parallel_shard_degree, which is set too and counts
          5 dropped training.data_parallel_shard_degree: an older spelling of parallelism.data_parallel_shard_degree, which is set too and counts
    "#]].assert_eq(&listed(&imported.notes));
}

#[test]
fn a_folder_of_a_tokenizer_gets_the_name_of_its_file() {
    let cases = [
        ("hf_assets_path = '/a/b'", "/a/b/tokenizer.json"),
        ("hf_assets_path = '/a/b/'", "/a/b/tokenizer.json"),
        ("tokenizer_path = '/a/b'", "/a/b/tokenizer.json"),
        ("tokenizer_path = '/a/b/tokenizer.json'", "/a/b/tokenizer.json"),
        ("tokenizer_path = '/a/original/tokenizer.model'", "/a/original/tokenizer.json"),
        ("tokenizer_path = 'tokenizer.model'", "./tokenizer.json"),
        ("hf_assets_path = '/new'\ntokenizer_path = '/old'", "/new/tokenizer.json"),
        ("", "./tests/assets/tokenizer/tokenizer.json"),
    ];
    for (line, expected) in cases {
        let recipe = sound(&format!("[model]\n{line}\n")).recipe;
        assert_eq!(value(&recipe, "data", "tokenizer"), format!("\"{expected}\""), "{line}");
    }
}
