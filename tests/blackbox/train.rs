//! A run that goes well: what it prints and what it leaves behind.

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::support::{
    Bench, floats, json_lines, none_left, processes_of, repository, wait_for_step,
};

#[test]
fn a_run_trains_and_leaves_its_files() {
    let bench = Bench::new();
    let done = bench.run(&["train", "r.toml", "--run-dir", "out"]).expect(0);
    for text in
        ["step 1/6  loss 5.", "step 6/6  loss", "done: 6 steps", "MFU n/a (no peak known for cpu)"]
    {
        assert!(done.stdout.contains(text), "stdout does not say {text:?}:\n{}", done.stdout);
    }
    assert!(!done.stdout.contains('\x1b'), "colours in a pipe");

    let metrics = bench.metrics("out");
    assert_eq!(floats(&metrics, "step"), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let losses = floats(&metrics, "loss");
    assert!((losses[0] - 256_f64.ln()).abs() < 0.1, "{losses:?}");
    assert!(losses[5] < losses[0] - 0.2, "{losses:?}");
    let last = &metrics[5];
    assert_eq!((last["tokens"].as_u64(), last["world"].as_u64()), (Some(6 * 4 * 32), Some(2)));
    assert_eq!((last["attempt"].as_u64(), last["accumulation"].as_u64()), (Some(1), Some(2)));
    assert!(last["mfu"].is_null());
    for key in
        ["grad_norm", "lr", "step_seconds", "tokens_per_second", "tokens_per_second_per_device"]
    {
        assert!(last[key].as_f64().unwrap() > 0.0, "{key}");
    }
    assert!(last["data_seconds"].as_f64().unwrap() >= 0.0);

    let ledger = json_lines(&fs::read_to_string(bench.path("out/ledger.jsonl")).unwrap());
    let events: Vec<&str> = ledger.iter().map(|line| line["event"].as_str().unwrap()).collect();
    assert_eq!((events[0], *events.last().unwrap()), ("run_started", "run_ended"));
    assert_eq!(events.iter().filter(|event| **event == "step").count(), 6);
    assert_eq!(ledger.last().unwrap()["exit_code"], 0);
    assert!(ledger.windows(2).all(|pair| pair[0]["mono"].as_f64() <= pair[1]["mono"].as_f64()));

    for rank in 0..2 {
        assert_eq!(
            fs::read_to_string(bench.path(&format!("out/logs/rank-{rank}.log"))).unwrap(),
            ""
        );
    }
    assert_eq!(fs::read_dir(bench.path("out/tensorboard")).unwrap().count(), 1);
    none_left(&bench, "out");
}

#[test]
fn with_json_stdout_is_json_lines_and_nothing_else() {
    let bench = Bench::new();
    let done = bench.run(&["train", "r.toml", "--json", "--run-dir", "out"]).expect(0);
    assert_eq!(done.stderr, "");
    let lines = json_lines(&done.stdout);
    let steps: Vec<_> = lines.iter().filter(|line| line["event"].is_null()).cloned().collect();
    assert_eq!(steps, bench.metrics("out"), "the same objects as in metrics.jsonl");
    let import = lines.iter().find(|line| line["phase"] == "import").unwrap();
    assert!(import["seconds"].as_f64().unwrap() > 0.1);
    let first = lines.iter().find(|line| line["event"] == "first_step").unwrap();
    assert!(first["seconds"].as_f64() > import["seconds"].as_f64());
    let end = lines.last().unwrap();
    assert_eq!(
        (&end["event"], &end["exit_code"], &end["final_step"]),
        (&"end".into(), &0.into(), &6.into())
    );
    assert_eq!(end["final_loss"], steps[5]["loss"]);
}

#[test]
fn the_resolved_recipe_describes_the_same_run() {
    let bench = Bench::new();
    let first = [
        "train",
        "r.toml",
        "--run-dir",
        "a",
        "--set",
        "training.seed=7",
        "--set",
        "training.steps=3",
    ];
    bench.run(&first).expect(0);
    let resolved = fs::read_to_string(bench.path("a/recipe.toml")).unwrap();
    for line in [
        "seed = 7",
        "shard = 2",
        "devices = 2",
        "global_batch = 4",
        "head_dim = 8",
        "momentum = 0.0",
    ] {
        assert!(resolved.contains(&format!("\n{line}\n")), "no line {line:?} in\n{resolved}");
    }
    // From another folder: paths in it are absolute.
    fs::create_dir(bench.path("elsewhere")).unwrap();
    fs::rename(bench.path("a/recipe.toml"), bench.path("elsewhere/recipe.toml")).unwrap();
    bench.run(&["train", "elsewhere/recipe.toml", "--run-dir", "b"]).expect(0);
    assert_eq!(floats(&bench.metrics("a"), "loss"), floats(&bench.metrics("b"), "loss"));
    assert_eq!(resolved, fs::read_to_string(bench.path("b/recipe.toml")).unwrap());
}

#[test]
fn a_peak_in_the_recipe_gives_an_mfu_with_its_convention() {
    let bench = Bench::new();
    let arguments = ["train", "r.toml", "--run-dir", "out", "--set", "hardware.peak_tflops=0.5"];
    let done = bench.run(&arguments).expect(0);
    assert!(
        done.stdout.contains("% (causal convention, peak 0.5 TFLOP/s per device"),
        "{}",
        done.stdout
    );
    for line in bench.metrics("out") {
        // 6 P + 6 L H hd T, with P = 2 (2 x 32 x 8 x (4+2) + 3 x 32 x 64 + 2 x 32) + 32 + 256 x 32.
        let flops = 6.0 * (2.0 * 9280.0 + 32.0 + 8192.0) + 6.0 * 2.0 * 32.0 * 32.0;
        let expected = line["tokens_per_second_per_device"].as_f64().unwrap() * flops / 0.5e12;
        let mfu = line["mfu"].as_f64().unwrap();
        assert!((mfu / expected - 1.0).abs() < 1e-9, "{mfu} is not {expected}");
    }
}

#[test]
fn mfu_above_the_peak_is_called_an_error() {
    let bench = Bench::new();
    let arguments = ["train", "r.toml", "--run-dir", "out", "--set", "hardware.peak_tflops=1e-9"];
    let done = bench.run(&arguments).expect(0);
    assert!(done.stdout.contains("is an accounting error"), "{}", done.stdout);
    assert!(bench.metrics("out").iter().all(|line| line["mfu"].is_null()));
}

#[test]
fn bfloat16_compute_trains_close_to_float32() {
    let bench = Bench::new();
    bench.run(&["train", "r.toml", "--run-dir", "f32"]).expect(0);
    bench
        .run(&["train", "r.toml", "--run-dir", "bf16", "--set", "precision.compute=bfloat16"])
        .expect(0);
    let (exact, rounded) =
        (floats(&bench.metrics("f32"), "loss"), floats(&bench.metrics("bf16"), "loss"));
    for (a, b) in exact.iter().zip(&rounded) {
        assert!((a - b).abs() < 0.02, "{exact:?} {rounded:?}");
    }
    assert_ne!(exact, rounded, "bfloat16 had no effect");
}

#[test]
fn lines_are_printed_every_so_many_steps_but_every_step_is_recorded() {
    let bench = Bench::new();
    let done = bench
        .run(&["train", "r.toml", "--run-dir", "out", "--set", "metrics.every_steps=4"])
        .expect(0);
    let printed: Vec<&str> = done.stdout.lines().filter(|line| line.starts_with("step ")).collect();
    assert_eq!(printed.len(), 3, "steps 1, 4 and 6: {printed:?}");
    assert_eq!(bench.metrics("out").len(), 6);
}

#[test]
fn workers_get_the_secrets_that_nothing_else_shows() {
    const SECRET: &str = "hush-hush-17";
    let bench = Bench::new();
    bench.edit(
        "[data]",
        &format!("[env]\nA_TOKEN = \"{SECRET}\"\nB = {{ from = \"HOME\" }}\n\n[data]"),
    );
    let run = bench.start(&[
        "train",
        "r.toml",
        "--run-dir",
        "out",
        "--set",
        "training.steps=100000",
        "--devices",
        "2",
    ]);
    wait_for_step(&bench, "out", 2);
    let processes = processes_of(&bench, "out");
    assert_eq!(processes.len(), 3, "a host and two ranks");
    for pid in processes {
        let of = |file: &str| fs::read(format!("/proc/{pid}/{file}")).unwrap();
        let (environment, command_line) = (of("environ"), of("cmdline"));
        let variables: Vec<&[u8]> = environment.split(|byte| *byte == 0).collect();
        assert!(variables.contains(&format!("A_TOKEN={SECRET}").as_bytes()));
        assert!(variables.iter().any(|variable| variable.starts_with(b"B=/")));
        assert!(!String::from_utf8_lossy(&command_line).contains(SECRET));
    }
    run.signal("INT");
    let done = run.wait().expect(75);
    assert!(!done.stdout.contains(SECRET) && !done.stderr.contains(SECRET));
    let search =
        Command::new("grep").args(["-r", SECRET, "out"]).current_dir(bench.path("")).output();
    let found = String::from_utf8(search.unwrap().stdout).unwrap();
    assert_eq!(found, "", "a secret is in the run directory");
    // What was written down is no secret any more: it cannot be used again, but it can be looked at.
    bench.run(&["train", "out/recipe.toml", "--dry-run"]).expect(2).says(&["was masked"]);
    bench.run(&["plan", "out/recipe.toml"]).expect(0);
    let missing = ["train", "r.toml", "--set", "env.B={ from = \"NO_SUCH_VARIABLE\" }"];
    bench.run(&missing).expect(2).says(&["NO_SUCH_VARIABLE, which is not set"]);
}

#[test]
fn every_family_trains_and_what_is_computed_again_changes_nothing() {
    const SMALL: [&str; 4] = [
        "training.steps=8",
        "training.global_batch=8",
        "data.sources=[{ path = \"data.txt\" }]",
        "optimizer.learning_rate=1e-2",
    ];
    let bench = Bench::new();
    for name in ["llama3_tiny", "qwen3_tiny", "qwen3_moe_tiny"] {
        let recipe = repository().join(format!("recipes/{name}.toml"));
        let run = |out: &str, more: &[&str]| {
            let mut arguments = vec!["train", recipe.to_str().unwrap(), "--run-dir", out];
            arguments.extend(SMALL.iter().chain(more).flat_map(|set| ["--set", set]));
            bench.run(&arguments).expect(0);
            let losses = floats(&bench.metrics(out), "loss");
            assert!(losses[7] < losses[0] - 0.5, "{name} does not learn: {losses:?}");
            for line in bench.metrics(out) {
                check_experts(&line, name == "qwen3_moe_tiny");
            }
            losses
        };
        let kept = run(&format!("{name}-kept"), &["training.local_batch=4"]);
        let again = run(
            &format!("{name}-again"),
            &["training.local_batch=2", "remat.policy=full", "hardware.devices=4"],
        );
        for (kept, again) in kept.iter().zip(&again) {
            assert!((kept - again).abs() < 2e-3, "{name}: {kept} and {again}");
        }
    }
}

/// The load of the experts of a step, which a dense model does not have. Without a limit nothing is left out.
#[track_caller]
fn check_experts(line: &Value, has_experts: bool) {
    let experts = line.get("experts");
    assert_eq!(experts.is_some(), has_experts, "{line}");
    let Some(experts) = experts else { return };
    let load: Vec<f64> =
        experts["load"].as_array().unwrap().iter().map(|one| one.as_f64().unwrap()).collect();
    assert_eq!(load.len(), 8, "{line}");
    assert!((load.iter().sum::<f64>() / 8.0 - 1.0).abs() < 1e-3, "{line}");
    let [least, most] = ["min_load", "max_load"].map(|key| experts[key].as_f64().unwrap());
    // The load of one layer is further from even than that of all layers.
    assert!(load.iter().all(|one| (least - 1e-3..=most + 1e-3).contains(one)), "{line}");
    assert_eq!(experts["overflow"], 0, "{line}");
}
