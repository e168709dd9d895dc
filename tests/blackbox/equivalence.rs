//! The same run on other numbers of devices, and the same run twice.

use crate::support::{Bench, floats, tiny};

fn losses(bench: &Bench, out: &str, settings: &[&str]) -> Vec<f64> {
    let tiny = tiny();
    let mut arguments = vec!["train", tiny.to_str().unwrap(), "--run-dir", out];
    arguments.extend_from_slice(settings);
    bench.run(&arguments).expect(0);
    let metrics = bench.metrics(out);
    let mut values = floats(&metrics, "loss");
    values.extend(floats(&metrics, "grad_norm"));
    values
}

fn largest_difference(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(x, y)| (x - y).abs()).fold(0.0, f64::max)
}

#[test]
fn one_two_and_four_devices_train_alike_with_sgd() {
    let bench = Bench::new();
    let settings = ["--set", "training.steps=20", "--set", "optimizer.name=sgd", "--devices"];
    let run = |n: &str| losses(&bench, n, &[&settings[..], &[n]].concat());
    let one = run("1");
    for n in ["2", "4"] {
        let difference = largest_difference(&one[..20], &run(n)[..20]);
        assert!(difference < 1e-5, "{n} devices differ by {difference}");
    }
}

#[test]
fn one_two_and_four_devices_train_alike_with_adamw() {
    let bench = Bench::new();
    let run = |n: &str| losses(&bench, n, &["--set", "training.steps=50", "--devices", n]);
    let one = run("1");
    for n in ["2", "4"] {
        let difference = largest_difference(&one[..50], &run(n)[..50]);
        assert!(difference < 2e-3, "{n} devices differ by {difference}");
    }
}

#[test]
fn replicas_train_as_shards_do() {
    let bench = Bench::new();
    let run = |out: &str, axes: &[&str]| {
        let mut arguments = vec!["train", "r.toml", "--run-dir", out, "--devices", "4"];
        arguments.extend_from_slice(axes);
        bench.run(&arguments).expect(0);
        floats(&bench.metrics(out), "loss")
    };
    let sharded = run("shard", &[]);
    for (out, replicate) in
        [("hybrid", "parallelism.replicate=2"), ("replicate", "parallelism.replicate=4")]
    {
        let difference = largest_difference(&sharded, &run(out, &["--set", replicate]));
        assert!(difference < 1e-5, "{out} differs by {difference}");
    }
}

#[test]
fn the_same_command_twice_gives_the_same_bits() {
    let bench = Bench::new();
    let settings = ["--set", "training.steps=10"];
    let bits = |values: Vec<f64>| values.into_iter().map(f64::to_bits).collect::<Vec<_>>();
    assert_eq!(bits(losses(&bench, "a", &settings)), bits(losses(&bench, "b", &settings)));
}

#[test]
fn accumulation_changes_nothing_but_the_number_of_micro_steps() {
    let bench = Bench::new();
    let run = |out: &str, local: &str| {
        bench
            .run(&["train", "r.toml", "--run-dir", out, "--devices", "1", "--set", local])
            .expect(0);
        let metrics = bench.metrics(out);
        (metrics[0]["accumulation"].as_u64().unwrap(), floats(&metrics, "loss"))
    };
    let (many, a) = run("a", "training.local_batch=1");
    let (one, b) = run("b", "training.local_batch=4");
    assert_eq!((many, one), (4, 1));
    assert!(largest_difference(&a, &b) < 1e-5);
}
