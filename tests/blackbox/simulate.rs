//! `titan-tpu simulate`: how much of the time a run makes progress on machines that fail.

use serde_json::Value;

use crate::support::{Bench, Done, repository};

/// The recipe of 8,192 chips.
fn large() -> String {
    repository().join("recipes/qwen3_235b_8192.toml").to_str().unwrap().to_owned()
}

fn simulate(bench: &Bench, arguments: &[&str]) -> Done {
    let recipe = large();
    bench.run(&[&["simulate", &recipe], arguments].concat())
}

fn json(done: &Done) -> Value {
    serde_json::from_str(&done.stdout).unwrap_or_else(|e| panic!("{e}: {}", done.stdout))
}

/// The sum of the categories, in seconds.
fn sum(result: &Value) -> f64 {
    result["categories"].as_object().unwrap().values().map(|value| value.as_f64().unwrap()).sum()
}

#[test]
fn a_month_on_8192_chips_is_explained_and_to_shrink_is_better_than_to_wait() {
    let bench = Bench::new();
    let done = simulate(&bench, &["--hours", "720", "--mtbf-hours", "3"]).expect(0);
    for text in [
        "8 slices of 256 hosts, for 720 hours",
        "the run can use 4, 8 of them; a lost one is back after 12 minutes",
        "goodput",
        "lost steps",
        "waits for slices cost most",
        "against wait",
    ] {
        assert!(done.stdout.contains(text), "stdout does not say {text:?}:\n{}", done.stdout);
    }
    let done = simulate(&bench, &["--mtbf-hours", "3", "--json"]).expect(0);
    let result = json(&done);
    let policies = result["policies"].as_array().unwrap();
    let goodput: Vec<f64> =
        policies.iter().map(|policy| policy["goodput"].as_f64().unwrap()).collect();
    let names: Vec<&Value> = policies.iter().map(|policy| &policy["policy"]).collect();
    assert_eq!(names, ["wait", "shrink", "spare"]);
    assert!(goodput.is_sorted() && goodput[0] > 0.9 && goodput[0] < goodput[1], "{goodput:?}");
    for policy in policies {
        assert!((sum(policy) - 720.0 * 3600.0).abs() < 1e-3, "{policy}");
        assert!(policy["failures"]["lose_slice"].as_u64() > Some(20), "{policy}");
    }
    assert_eq!(result["usable_slices"], serde_json::json!([4, 8]));
    assert_eq!(bench.names(), ["data.txt", "r.toml"], "nothing is created");
}

#[test]
fn a_seed_is_a_history() {
    let bench = Bench::new();
    let arguments = ["--hours", "48", "--mtbf-hours", "2", "--policy", "shrink", "--history"];
    let with = |seed: &str| {
        simulate(&bench, &[&arguments[..], &["--seed", seed]].concat()).expect(0).stdout
    };
    let first = with("5");
    assert_eq!(first, with("5"));
    assert_ne!(first, with("6"));
    assert!(first.contains("FAULT ") && first.contains("start 2 on slices"), "{first}");
}

#[test]
fn one_policy_is_one_object() {
    let bench = Bench::new();
    let arguments =
        ["--hours", "24", "--policy", "spare", "--spares", "2", "--seed", "9", "--json"];
    let result = json(&simulate(&bench, &[&arguments[..], &["--history"]].concat()).expect(0));
    assert_eq!((&result["policy"], &result["seed"]), (&"spare".into(), &9.into()));
    assert!(result["goodput"].as_f64().unwrap() > 0.9, "{result}");
    assert!((sum(&result) - result["wall_seconds"].as_f64().unwrap()).abs() < 1e-3, "{result}");
    assert!(result["failures"].is_object() && result["history"].is_array(), "{result}");
    // Several histories are added up.
    let result = json(&simulate(&bench, &[&arguments[..], &["--runs", "3"]].concat()).expect(0));
    assert_eq!(result["goodputs"].as_array().unwrap().len(), 3);
    assert!((sum(&result) - 3.0 * 24.0 * 3600.0).abs() < 1e-3, "{result}");
}

#[test]
fn a_run_that_may_not_be_started_again_ends_with_the_first_fault_that_ends_it() {
    let bench = Bench::new();
    let arguments = ["--mtbf-hours", "3", "--set", "elastic.max_restarts=0", "--policy", "wait"];
    let done = simulate(&bench, &arguments).expect(0);
    assert!(done.stdout.contains("ENDED after"), "{}", done.stdout);
    assert!(done.stdout.contains("elastic.max_restarts is 0"), "{}", done.stdout);
}

#[test]
fn without_min_slices_there_is_nothing_to_shrink_to() {
    let bench = Bench::new();
    let text = std::fs::read_to_string(large()).unwrap().replace("min_slices = 4", "# none");
    bench.write("all.toml", &text);
    let done = bench.run(&["simulate", "all.toml", "--hours", "24"]).expect(0);
    assert!(done.stdout.contains("the run needs all 8"), "{}", done.stdout);
    assert!(done.stdout.contains("cannot shrink"), "{}", done.stdout);
}

#[test]
fn what_cannot_be_simulated_is_refused() {
    let bench = Bench::new();
    let cases: [(&[&str], &str); 8] = [
        (&["--mtbf-hours", "0"], "must be from 0.01 to"),
        (&["--mtbf-hours", "NaN"], "must be from 0.01 to"),
        (&["--hours", "-5"], "must be from 0.1 to"),
        (&["--hours", "many"], "must be a number"),
        (&["--policy", "hope"], "possible values: wait, shrink, spare"),
        (&["--history"], "--policy <POLICY>"),
        (&["--set", "elastic.min_slices=5"], "the global batch of 262144 sequences cannot stay"),
        (&["--set", "elastic.min_slices=9"], "is more than the 8 of `hardware.slices`"),
    ];
    for (arguments, text) in cases {
        let done = simulate(&bench, arguments).expect(2).says(&[text]);
        assert_eq!(done.stdout, "", "{arguments:?}");
    }
    // How fast the processor of this machine is, nobody knows.
    bench.run(&["simulate", "r.toml"]).expect(2).says(&["--step-seconds 2.5"]);
    bench.run(&["simulate", "r.toml", "--step-seconds", "0.5", "--hours", "2"]).expect(0);
}
