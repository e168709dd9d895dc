//! The axes of the mesh, Muon, documents and compiled steps, as a recipe asks for them.

use std::time::Duration;

use crate::support::{Bench, Done, floats, none_left, processes_of, signal, wait_until};

/// A compiler at work on two cores, for the smallest of models.
const COMPILE: Duration = Duration::from_secs(300);

/// A mixture in which every axis divides what it has to.
const EXPERTS: &str = r#"[model]
family = "qwen3-moe"
vocab_size = 256
hidden_size = 32
num_experts = 8
experts_per_token = 2
expert_intermediate_size = 24
num_layers = 2
num_heads = 4
num_kv_heads = 2
"#;

/// A bench whose recipe is a mixture, if `is_mixture`.
fn bench(is_mixture: bool) -> Bench {
    let bench = Bench::new();
    if is_mixture {
        let recipe = std::fs::read_to_string(bench.path("r.toml")).unwrap();
        let (head, rest) = recipe.split_once("[model]").unwrap();
        let (_, tail) = rest.split_once("[hardware]").unwrap();
        bench.write("r.toml", &format!("{head}{EXPERTS}\n[hardware]{tail}"));
    }
    bench
}

/// A run of six steps on so many devices.
fn run(bench: &Bench, out: &str, devices: &str, settings: &[&str], limit: Duration) -> Done {
    let mut arguments = vec!["train", "r.toml", "--run-dir", out, "--devices", devices];
    arguments.extend(settings.iter().flat_map(|setting| ["--set", setting]));
    bench.start(&arguments).wait_for(limit)
}

fn losses(bench: &Bench, out: &str, devices: &str, settings: &[&str]) -> Vec<f64> {
    run(bench, out, devices, settings, Duration::from_secs(60)).expect(0);
    floats(&bench.metrics(out), "loss")
}

#[track_caller]
fn assert_close(name: &str, expected: &[f64], found: &[f64]) {
    assert_eq!(expected.len(), found.len(), "{name}");
    for (a, b) in expected.iter().zip(found) {
        assert!((a - b).abs() < 1e-5, "{name}: {expected:?} and {found:?}");
    }
}

const TENSOR: &str = "parallelism.tensor=2";
const CONTEXT: &str = "parallelism.context=2";
const EXPERT: &str = "parallelism.expert=2";
const REPLICATE: &str = "parallelism.replicate=2";

#[test]
fn matrices_and_sequences_can_be_spread_over_devices() {
    let bench = bench(false);
    let one = losses(&bench, "one", "1", &[]);
    let meshes: [(&str, &[&str]); 5] = [
        ("2", &[TENSOR]),
        ("2", &[CONTEXT]),
        ("4", &[TENSOR, CONTEXT]),
        ("4", &[TENSOR, REPLICATE]),
        ("4", &[CONTEXT, "remat.policy=full"]),
    ];
    for (number, (devices, axes)) in meshes.iter().enumerate() {
        let found = losses(&bench, &number.to_string(), devices, axes);
        assert_close(&axes.join(" "), &one, &found);
    }
}

#[test]
fn experts_can_be_spread_over_devices() {
    let bench = bench(true);
    let one = losses(&bench, "one", "1", &[]);
    let meshes: [(&str, &[&str]); 4] = [
        ("2", &[EXPERT]),
        ("4", &["parallelism.expert=4"]),
        ("4", &[EXPERT, REPLICATE]),
        ("4", &["parallelism.expert=4", TENSOR, CONTEXT]),
    ];
    for (number, (devices, axes)) in meshes.iter().enumerate() {
        let found = losses(&bench, &number.to_string(), devices, axes);
        assert_close(&axes.join(" "), &one, &found);
    }
}

#[test]
fn tokens_without_capacity_are_counted_and_said() {
    let bench = bench(true);
    let settings = [EXPERT, "parallelism.expert_capacity_factor=1"];
    let done = run(&bench, "out", "2", &settings, Duration::from_secs(60)).expect(0);
    let metrics = bench.metrics("out");
    let left_out: u64 =
        metrics.iter().map(|line| line["experts"]["overflow"].as_u64().unwrap()).sum();
    assert!(left_out > 0);
    done.says(&[&format!("{left_out} pairs of token and expert"), "left out"]);
}

#[test]
fn muon_and_both_ways_to_balance_train() {
    let bench = bench(true);
    let learns = |out: &str, settings: &[&str]| {
        let steps = [&["training.steps=20"], settings].concat();
        let found = losses(&bench, out, "2", &steps);
        assert!(found[19] < found[0] - 0.3, "{out}: {found:?}");
        found
    };
    let muon = ["optimizer.name=muon", "optimizer.learning_rate=0.01", EXPERT];
    learns("muon", &muon);
    let bias =
        learns("bias", &["model.load_balancing=bias", "model.load_balancing_coefficient=0.1"]);
    let none = learns("none", &["model.load_balancing=none"]);
    let loss = learns("loss", &["model.load_balancing_coefficient=1"]);
    assert!(bias[19] != none[19] && loss[19] != none[19], "balancing changes nothing");
}

#[test]
fn attention_stays_inside_documents_where_it_is_told_to() {
    let bench = bench(false);
    // A document for each line of a play.
    let inside = ["training.document_mask=true", "data.document_end=10"];
    let across = losses(&bench, "across", "1", &[]);
    let one = losses(&bench, "one", "1", &inside);
    assert!((one[5] - across[5]).abs() > 1e-5, "the mask changes nothing");
    let two = losses(&bench, "two", "2", &[&inside[..], &[CONTEXT]].concat());
    assert_close("context", &one, &two);
    let plain =
        losses(&bench, "plain", "1", &[&inside[..], &["training.attention=plain"]].concat());
    assert_close("plain", &one, &plain);
    let z = losses(&bench, "z", "1", &["training.z_loss=0.1"]);
    assert_close("the loss of the first step is the cross entropy", &across[..1], &z[..1]);
    assert!((z[5] - across[5]).abs() > 1e-5, "the z-loss changes nothing");
}

#[test]
fn a_compiled_run_equals_an_eager_one() {
    let bench = bench(false);
    // What another run has compiled must not make this one pass.
    let cache = format!("env.TORCHINDUCTOR_CACHE_DIR={}", bench.path("cache").display());
    let settings = ["training.local_batch=2", "compile.enabled=true", &cache];
    let eager = losses(&bench, "eager", "2", &[]);
    let done = run(&bench, "compiled", "2", &settings, COMPILE).expect(0);
    assert!(done.stdout.contains("the step compiled"), "{}", done.stdout);
    let metrics = bench.metrics("compiled");
    assert_close("compiled", &eager, &floats(&metrics, "loss"));
    // Compiling is over before the first step, and is not counted as one.
    let seconds = floats(&metrics, "step_seconds");
    assert!(seconds[0] < 5.0, "{seconds:?}");
    for rank in 0..2 {
        let log = bench.path(&format!("compiled/logs/rank-{rank}.log"));
        assert_eq!(std::fs::read_to_string(log).unwrap(), "");
    }
    none_left(&bench, "compiled");
}

#[test]
fn a_compiler_does_not_outlive_its_run() {
    let bench = bench(false);
    let cache = format!("env.TORCHINDUCTOR_CACHE_DIR={}", bench.path("cache").display());
    let arguments =
        ["train", "r.toml", "--run-dir", "out", "--set", "compile.enabled=true", "--set"];
    let run = bench.start(&[&arguments[..], &[&cache]].concat());
    // Three processes are the host and its ranks; any other is at work for the compiler.
    wait_until(COMPILE, || (processes_of(&bench, "out").len() > 3).then_some(()));
    signal(run.pid(), "KILL");
    none_left(&bench, "out");
}
