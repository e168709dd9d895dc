//! Counts against published models and against cases computed by hand.

use std::path::Path;

use titan_parallelism::{Convention, flops_per_token, mfu, parameters};
use titan_recipes::tables::model::Model;
use titan_recipes::{Overrides, Source, load_text};

/// The model of a recipe that has these lines in its `[model]` table.
fn model(lines: &str) -> Model {
    let text = format!(
        "version = 1\nname = \"t\"\n[model]\nfamily = \"llama3\"\n{lines}\n[hardware]\naccelerator = \"cpu\"\n\
         [training]\nsteps = 1\nsequence_length = 8\nlocal_batch = 1\n[optimizer]\nlearning_rate = 1\n\
         [data]\nsources = [{{ path = \"x\" }}]\n"
    );
    let source = Source { name: "t.toml".into(), text, base: "/".into() };
    match load_text(source, &Overrides::default(), &|_: &Path| Ok(())) {
        Ok(loaded) => loaded.recipe.model,
        Err(report) => panic!("{}", report.render(false)),
    }
}

#[test]
fn llama_3_parameter_counts_equal_the_released_models() {
    // Counted by instantiating transformers' LlamaForCausalLM on the meta device.
    for (size, total, without_embedding_and_head) in [
        ("8b", 8_030_261_248_u64, 6_979_588_096_u64),
        ("70b", 70_553_706_496, 68_452_360_192),
        ("405b", 405_853_388_800, 401_650_696_192),
    ] {
        let count = parameters(&model(&format!("size = \"{size}\"")));
        assert_eq!(count.total, total, "{size}");
        assert_eq!(count.total - 2 * count.embedding, without_embedding_and_head, "{size}");
        assert_eq!(count.multiplying, total - count.embedding, "{size}");
    }
}

#[test]
fn a_tied_head_is_stored_once_and_multiplies_once() {
    let tied = parameters(&model("size = \"8b\"\ntie_embeddings = true"));
    let untied = parameters(&model("size = \"8b\""));
    assert_eq!(untied.total - tied.total, tied.embedding);
    assert_eq!(untied.multiplying, tied.multiplying);
}

#[test]
fn llama_3_405b_flops_per_token_give_the_published_mfu() {
    let flops = flops_per_token(&model("size = \"405b\""), 8192, Convention::Causal);
    assert_eq!(flops, 2_523_980_857_344);
    // 500 tokens/s per chip of two devices, peak 1153.5 TFLOP/s per device.
    let reported = mfu(250.0, flops, 1153.5e12, Convention::Causal).unwrap();
    assert!((reported.fraction - 0.547).abs() < 5e-4, "{reported:?}");
}

#[test]
fn mfu_above_100_from_flop_accounting() {
    // pytorch/torchtitan#341, #1920; AI-Hypercomputer/maxtext#1972; facebookresearch/xformers#1404: each usual
    // mistake gives a different number.
    let odd = model(
        "vocab_size = 256\nhidden_size = 512\nintermediate_size = 64\nnum_layers = 4\nnum_heads = 16\n\
         num_kv_heads = 4\nhead_dim = 96",
    );
    let dense = flops_per_token(&odd, 1024, Convention::SixN);
    assert_eq!(flops_per_token(&odd, 1024, Convention::Causal) - dense, 37_748_736);
    assert_eq!(flops_per_token(&odd, 1024, Convention::Palm) - dense, 75_497_472);
    assert_eq!(dense, 6 * parameters(&odd).multiplying);
}

#[test]
fn more_than_the_peak_is_an_error_not_a_percentage() {
    assert!(mfu(1e6, 1_000_000, 1e11, Convention::Causal).is_err());
    assert_eq!(mfu(5e4, 1_000_000, 1e11, Convention::Causal).unwrap().fraction, 0.5);
}
