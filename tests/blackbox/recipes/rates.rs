//! `mfu`: from a measured throughput to the share of the peak.

use crate::recipes::{json, prints, recipe};
use crate::support::{Bench, Done};

fn mfu(bench: &Bench, recipe: &str, rate: &str, more: &[&str]) -> Done {
    let arguments = ["mfu", recipe, "--tokens-per-second-per-device", rate];
    bench.run(&[&arguments, more].concat())
}

#[test]
fn the_published_runs_have_their_published_utilisation() {
    let bench = Bench::new();
    for (name, rate, texts) in [
        ("qwen3_235b", "2236", &["28.8 %", "28.75", "29.3 s", "32768"][..]),
        ("qwen3_235b_8192", "2104", &["27.1 %", "262144"]),
        ("llama3_405b", "250", &["54.7 %"]),
    ] {
        let done = mfu(&bench, &recipe(name), rate, &[]).expect(0);
        prints(&done, texts);
        prints(&done, &["causal"]);
        let result = json(&mfu(&bench, &recipe(name), rate, &["--json"]).expect(0));
        let number = |key: &str| result[key].as_f64().unwrap_or_else(|| panic!("{key}: {result}"));
        let reckoned = number("flops_per_token") * rate.parse::<f64>().unwrap()
            / number("peak_flops_per_device");
        assert!((number("mfu") - reckoned).abs() < 1e-12, "{result}");
        assert!(number("step_seconds") > 1.0 && number("global_batch") > 1000.0);
        assert_eq!(result["convention"], "causal");
    }
}

#[test]
fn other_conventions_are_named_with_their_number() {
    let bench = Bench::new();
    let of = |convention: &str| {
        let more = ["--convention", convention];
        let done = mfu(&bench, &recipe("llama3_405b"), "250", &more).expect(0);
        prints(&done, &[&format!("{convention} convention")]);
        let result = json(
            &mfu(&bench, &recipe("llama3_405b"), "250", &[&more[..], &["--json"]].concat())
                .expect(0),
        );
        assert_eq!(result["convention"], convention);
        result["mfu"].as_f64().unwrap()
    };
    let (causal, palm, six) = (of("causal"), of("palm"), of("6n"));
    assert!(six < causal && causal < palm, "{six} {causal} {palm}");
    let done = mfu(&bench, "llama3_405b", "250", &["--convention", "7n"]).expect(2);
    done.says(&["7n", "causal, palm, 6n"]);
}

#[test]
fn unknown_chip_silently_uses_another_chips_peak() {
    // pytorch/torchtitan#4779; AMD-AGI/Primus#772: without a known peak there is no MFU.
    let bench = Bench::new();
    let done = mfu(&bench, "r.toml", "5", &[]).expect(0);
    prints(&done, &["n/a", "the peak of cpu is not known", "not known for cpu"]);
    assert!(!done.stdout.contains('%'), "{}", done.stdout);
    let result = json(&mfu(&bench, "r.toml", "5", &["--json"]).expect(0));
    assert!(result["mfu"].is_null() && result["peak_flops_per_device"].is_null(), "{result}");
    assert!(result["flops_per_token"].as_u64().is_some_and(|flops| flops > 0));
    let cuda = ["--set", "hardware.accelerator=cuda", "--json"];
    assert!(json(&mfu(&bench, "r.toml", "5", &cuda).expect(0))["mfu"].is_null());
    let peak = ["--set", "hardware.peak_tflops=0.001"];
    let done = mfu(&bench, "r.toml", "5", &peak).expect(0);
    prints(&done, &["0.1 %", "hardware.peak_tflops"]);
    let result = json(&mfu(&bench, "r.toml", "5", &[&peak[..], &["--json"]].concat()).expect(0));
    assert_eq!(result["peak_flops_per_device"], 1e9);
    assert!(result["mfu"].as_f64().is_some_and(|mfu| mfu > 0.0 && mfu < 0.01), "{result}");
}

#[test]
fn rates_that_are_none_are_refused() {
    let bench = Bench::new();
    for rate in ["0", "-1", "nan", "inf", "abc", "", "1e400", "2,236"] {
        let done = mfu(&bench, "r.toml", rate, &[]).expect(2);
        assert_eq!(done.stdout, "");
        done.says(&["--tokens-per-second-per-device", "must be"]);
    }
    bench.run(&["mfu", "r.toml"]).expect(2).says(&["--tokens-per-second-per-device"]);
}

#[test]
fn mfu_above_100_percent_is_an_accounting_error() {
    // pytorch/torchtitan#341, #1920
    let bench = Bench::new();
    for more in [&[][..], &["--json"]] {
        let done = mfu(&bench, &recipe("qwen3_235b"), "50000", more).expect(2);
        assert_eq!(done.stdout, "");
        done.says(&["accounting error", "643.0 %", "50000", "1153.5"]);
    }
}

#[test]
fn mfu_above_100_percent_from_flop_accounting() {
    // AI-Hypercomputer/maxtext#1972; facebookresearch/xformers#1404: attention of 4 layers, 16 heads of 96 (not of
    // 512 / 16) and 1024 tokens is 37,748,736 FLOPs a token when half of it is masked.
    let bench = Bench::new();
    bench.edit(
        "hidden_size = 32\nintermediate_size = 64\nnum_layers = 2\nnum_heads = 4\nnum_kv_heads = 2",
        "hidden_size = 512\nintermediate_size = 1024\nnum_layers = 4\nnum_heads = 16\nnum_kv_heads = 4\nhead_dim = 96",
    );
    let flops = |convention: &str| {
        let set = ["--set", "training.sequence_length=1024", "--convention", convention];
        let plan = json(&bench.run(&[&["plan", "r.toml", "--json"][..], &set].concat()).expect(0));
        assert_eq!(plan["convention"], convention);
        (plan["flops_per_token"].as_u64().unwrap(), plan["parameters"].clone())
    };
    let ((six, parameters), (causal, _), (palm, _)) = (flops("6n"), flops("causal"), flops("palm"));
    assert_eq!(causal - six, 37_748_736);
    assert_eq!(palm - six, 75_497_472);
    // The lookup of the embedding is no product; the output head is one.
    let number = |key: &str| parameters[key].as_u64().unwrap();
    assert_eq!(number("embedding"), 256 * 512);
    assert_eq!(six, 6 * number("multiplying"));
}

#[test]
fn of_experts_only_the_active_ones_count() {
    // AI-Hypercomputer/maxtext PR #678: of 8 experts a token meets 2.
    let bench = Bench::new();
    let plan = |per_token: &str| {
        let set = format!("model.experts_per_token={per_token}");
        let arguments = ["plan", "qwen3_moe_tiny", "--json", "--convention", "6n", "--set", &set];
        json(&bench.run(&arguments).expect(0))
    };
    let flops = |per_token: &str| plan(per_token)["flops_per_token"].as_u64().unwrap();
    // 2 layers of experts with 3 matrices of 256 x 256, forward and backward.
    assert_eq!(flops("8") - flops("2"), 6 * 6 * 2 * 3 * 256 * 256);
    assert_eq!(plan("8")["parameters"]["active"], plan("8")["parameters"]["total"]);
    assert_eq!(plan("2")["parameters"]["total"], plan("8")["parameters"]["total"]);
}
