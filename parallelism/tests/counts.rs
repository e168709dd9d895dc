//! Counts against published models and against cases computed by hand.

use std::path::{Path, PathBuf};

use titan_parallelism::{Convention, flops_per_token, mfu, parameters, plan};
use titan_recipes::{Loaded, Overrides, Purpose, Recipe, Source, load, load_text};

/// The recipe that has these lines in its `[model]` table, and sequences of this length.
fn recipe(lines: &str, length: u64) -> Recipe {
    let text = format!(
        "version = 1\nname = \"t\"\n[model]\n{lines}\n[hardware]\naccelerator = \"cpu\"\n\
         [training]\nsteps = 1\n{}local_batch = 1\n[optimizer]\nlearning_rate = 1\n\
         [data]\nsources = [{{ path = \"x\" }}]\n",
        if length == 0 { String::new() } else { format!("sequence_length = {length}\n") }
    );
    let source = Source { name: "t.toml".into(), text, base: "/".into() };
    let files = titan_recipes::Disk::default();
    match load_text(source, &Overrides::default(), &files, Purpose::Plan) {
        Ok(loaded) => loaded.recipe,
        Err(report) => panic!("{}", report.render(false)),
    }
}

fn shipped(name: &str) -> Loaded {
    let path = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../recipes")).join(name);
    match load(&path, &Overrides::default(), Purpose::Plan) {
        Ok(loaded) => loaded,
        Err(report) => panic!("{}", report.render(false)),
    }
}

/// Totals of all published models, and the weights outside embedding and head (language models) or in all
/// experts. Counted by instantiating the classes of transformers and diffusers on the meta device.
#[test]
fn parameter_counts_equal_the_released_models() {
    for (family, size, total, active, blocks) in [
        ("llama3", "8b", 8_030_261_248_u64, 8_030_261_248_u64, 6_979_588_096_u64),
        ("llama3", "70b", 70_553_706_496, 70_553_706_496, 68_452_360_192),
        ("llama3", "405b", 405_853_388_800, 405_853_388_800, 401_650_696_192),
        ("qwen3", "0.6b", 596_049_920, 596_049_920, 440_467_456),
        ("qwen3", "1.7b", 1_720_574_976, 1_720_574_976, 1_409_410_048),
        ("qwen3", "4b", 4_022_468_096, 4_022_468_096, 3_633_511_936),
        ("qwen3", "8b", 8_190_735_360, 8_190_735_360, 6_946_075_648),
        ("qwen3", "14b", 14_768_307_200, 14_768_307_200, 13_212_482_560),
        ("qwen3", "32b", 32_762_123_264, 32_762_123_264, 31_206_298_624),
        ("qwen3-moe", "30b-a3b", 30_532_122_624, 3_353_032_704, 2_730_702_848),
        ("qwen3-moe", "235b-a22b", 235_093_634_560, 22_190_763_520, 20_946_103_808),
    ] {
        let recipe = recipe(&format!("family = \"{family}\"\nsize = \"{size}\""), 8);
        let count = parameters(&recipe.model);
        assert_eq!((count.total, count.active), (total, active), "{family} {size}");
        let tied = *recipe.model.decoder().unwrap().tie_embeddings;
        let outside = if tied { 1 } else { 2 } * count.embedding;
        assert_eq!(count.active - outside, blocks, "{family} {size}");
        assert_eq!(count.multiplying, blocks + count.embedding, "{family} {size}");
    }
    for (size, total) in [("dev", 11_901_408_320), ("schnell", 11_891_178_560), ("tiny", 2_295_344)]
    {
        let count = parameters(&recipe(&format!("family = \"flux\"\nsize = \"{size}\""), 0).model);
        assert_eq!(count.total, total, "flux {size}");
    }
}

#[test]
fn a_tied_head_is_stored_once_and_multiplies_once() {
    let model = "family = \"llama3\"\nsize = \"8b\"";
    let tied = parameters(&recipe(&format!("{model}\ntie_embeddings = true"), 8).model);
    let untied = parameters(&recipe(model, 8).model);
    assert_eq!(untied.total - tied.total, tied.embedding);
    assert_eq!(untied.multiplying, tied.multiplying);
}

/// The published TorchTPU runs (TFLOP/s of one v7x device: 1153.5).
#[test]
fn flops_per_token_give_the_published_mfu() {
    for (name, flops, rate, fraction, step_seconds) in [
        ("qwen3_235b.toml", 148_335_301_632_u64, 2236.0, 0.28754, 29.31),
        ("qwen3_235b_8192.toml", 148_335_301_632, 2104.0, 0.27057, 31.15),
        ("llama3_405b.toml", 2_523_980_857_344, 250.0, 0.54703, f64::NAN),
    ] {
        let Loaded { recipe, layout, .. } = shipped(name);
        let plan = plan(&recipe, &layout, Convention::Causal);
        assert_eq!(plan.flops_per_token, flops, "{name}");
        let peak = plan.peak_flops_per_device.unwrap();
        let reported = mfu(rate, flops, peak, Convention::Causal).unwrap();
        assert!((reported.fraction - fraction).abs() < 1e-5, "{name}: {reported:?}");
        let seconds = plan.tokens_per_step as f64 / (rate * plan.world as f64);
        assert!(
            step_seconds.is_nan() || (seconds - step_seconds).abs() < 5e-3,
            "{name}: {seconds}"
        );
    }
    assert_eq!(shipped("qwen3_235b.toml").layout.global_batch, 32_768);
    assert_eq!(shipped("qwen3_235b_8192.toml").layout.global_batch, 262_144);
    assert_eq!(shipped("qwen3_235b_8192.toml").layout.world, 16_384);
    let qwen = recipe("family = \"qwen3\"\nsize = \"8b\"", 4096);
    assert_eq!(flops_per_token(&qwen, Convention::Causal), 49_034_311_680);
}

/// The same two runs under the other conventions, by hand: P = 21,568,433,664 weights multiply a token of
/// Qwen3-235B, attention is 12 x 94 layers x 64 heads x 128 x 4096 positions = 37,849,399,296; for Llama 3 405B,
/// P = 403,752,042,496 and 12 x 126 x 128 x 128 x 8192 = 202,937,204,736.
#[test]
fn other_conventions_by_hand() {
    let qwen = shipped("qwen3_235b.toml").recipe;
    assert_eq!(flops_per_token(&qwen, Convention::SixN), 6 * 21_568_433_664);
    assert_eq!(flops_per_token(&qwen, Convention::Palm), 6 * 21_568_433_664 + 37_849_399_296);
    let llama = shipped("llama3_405b.toml").recipe;
    assert_eq!(flops_per_token(&llama, Convention::SixN), 6 * 403_752_042_496);
    assert_eq!(flops_per_token(&llama, Convention::Palm), 6 * 403_752_042_496 + 202_937_204_736);
}

#[test]
fn mfu_above_100_from_flop_accounting() {
    // pytorch/torchtitan#341, #1920; AI-Hypercomputer/maxtext#1972; facebookresearch/xformers#1404: each usual
    // mistake gives a different number.
    let odd = recipe(
        "family = \"llama3\"\nvocab_size = 256\nhidden_size = 512\nintermediate_size = 64\nnum_layers = 4\n\
         num_heads = 16\nnum_kv_heads = 4\nhead_dim = 96",
        1024,
    );
    let dense = flops_per_token(&odd, Convention::SixN);
    assert_eq!(flops_per_token(&odd, Convention::Causal) - dense, 37_748_736);
    assert_eq!(flops_per_token(&odd, Convention::Palm) - dense, 75_497_472);
    assert_eq!(dense, 6 * parameters(&odd.model).multiplying);
}

/// Of 8 experts a token meets 2, and the router: 3 x 64 x 32 weights each, and 8 x 64.
#[test]
fn idle_experts_are_not_counted() {
    let moe = |per_token: u64| {
        let lines = format!(
            "family = \"qwen3-moe\"\nvocab_size = 256\nhidden_size = 64\nnum_experts = 8\nexperts_per_token = {per_token}\n\
             expert_intermediate_size = 32\nnum_layers = 1\nnum_heads = 4\nnum_kv_heads = 2\nhead_dim = 16"
        );
        flops_per_token(&recipe(&lines, 8), Convention::SixN)
    };
    assert_eq!(moe(2) - moe(1), 6 * 3 * 64 * 32);
    let attention = 2 * 64 * 16 * (4 + 2) + 2 * 16;
    let rest = attention + 2 * 64 + 64 + 256 * 64 + 8 * 64;
    assert_eq!(moe(2), 6 * (2 * 3 * 64 * 32 + rest));
}

/// FLUX.1 tiny by hand: hidden 128, inner 512, 2 double and 4 single blocks, 16 image and 8 text tokens.
#[test]
fn flux_counts_each_weight_for_the_tokens_that_it_multiplies() {
    let tiny = recipe("family = \"flux\"\nsize = \"tiny\"", 0);
    let linear = |from: u64, to: u64| from * to + to;
    let stream = 4 * linear(128, 128) + 64 + linear(128, 512) + linear(512, 128);
    let image = linear(48, 128) + 2 * stream + linear(128, 48);
    let text = linear(32, 128) + 2 * stream;
    let single = 3 * linear(128, 128) + 64 + linear(128, 512) + linear(640, 128);
    let sample = linear(256, 128) + linear(24, 128) + 2 * linear(128, 128);
    let modulations = 2 * 2 * linear(128, 768) + 4 * linear(128, 384) + linear(128, 256);
    let all = 16 * image + 8 * text + 24 * 4 * single + sample + modulations;
    assert_eq!(flops_per_token(&tiny, Convention::SixN), 6 * all / 24);
    let attention = 12 * (2 + 4) * 128 * 24;
    assert_eq!(flops_per_token(&tiny, Convention::Causal), 6 * all / 24 + attention);
    assert_eq!(flops_per_token(&tiny, Convention::Palm), 6 * all / 24 + attention);
}

#[test]
fn more_than_the_peak_is_an_error_not_a_percentage() {
    assert!(mfu(1e6, 1_000_000, 1e11, Convention::Causal).is_err());
    assert_eq!(mfu(5e4, 1_000_000, 1e11, Convention::Causal).unwrap().fraction, 0.5);
}

#[test]
fn the_state_of_a_copy_is_spread_over_its_ranks() {
    let Loaded { recipe, layout, .. } = shipped("llama3_8b.toml");
    let memory = plan(&recipe, &layout, Convention::Causal).memory_per_device;
    assert_eq!(memory.parameters_bytes, (4 * 8_030_261_248_u64).div_ceil(layout.shard));
    assert_eq!(memory.optimizer_bytes, (8 * 8_030_261_248_u64).div_ceil(layout.shard));
    let parts = [memory.parameters_bytes, memory.gradients_bytes, memory.optimizer_bytes];
    assert_eq!(memory.state_bytes, parts.iter().sum::<u64>());
}

#[test]
fn every_shipped_recipe_has_a_plan_that_can_fit() {
    for shipped_recipe in titan_recipes::shipped::ALL {
        let Loaded { recipe, layout, .. } = shipped(&format!("{}.toml", shipped_recipe.name));
        let memory = plan(&recipe, &layout, Convention::Causal).memory_per_device;
        if let Some(hbm) = memory.hbm_bytes {
            assert!(2 * memory.state_bytes < hbm, "{}: {memory:?}", shipped_recipe.name);
        }
        assert!(Path::new(shipped_recipe.name).extension().is_none());
    }
}
