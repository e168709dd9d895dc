//! Where a run writes.

use std::fs;
use std::process::Command;

use crate::support::{Bench, floats, wait_for_step};

#[test]
fn existing_output_directory_decides_what_the_run_does() {
    // meta-pytorch/torchforge#631; meta-pytorch/torchtune#481
    let bench = Bench::new();
    bench.run(&["train", "r.toml", "--run-dir", "out"]).expect(0);
    let before = fs::read_to_string(bench.path("out/metrics.jsonl")).unwrap();
    let done =
        bench.run(&["train", "r.toml", "--run-dir", "out", "--set", "training.seed=1"]).expect(2);
    done.says(&["out belongs to a run of another recipe", "training.seed: 0 there, 1 here"]);
    let wider = ["train", "r.toml", "--run-dir", "out", "--set", "model.hidden_size=64"];
    bench.run(&wider).expect(2).says(&["model.hidden_size: 32 there, 64 here"]);
    let again = bench.run(&["train", "r.toml", "--run-dir", "out"]).expect(2);
    again.says(&["the run directory out is not empty", "a run of the same recipe"]);
    assert_eq!(fs::read_to_string(bench.path("out/metrics.jsonl")).unwrap(), before);
    // A folder that is no run of ours.
    fs::create_dir(bench.path("other")).unwrap();
    bench.write("other/notes.txt", "mine");
    let done = bench.run(&["train", "r.toml", "--run-dir", "other"]).expect(2);
    done.says(&["the run directory other is not empty"]);
}

#[test]
fn two_runs_share_one_directory() {
    let bench = Bench::new();
    let run =
        bench.start(&["train", "r.toml", "--run-dir", "out", "--set", "training.steps=100000"]);
    wait_for_step(&bench, "out", 1);
    let holder = format!("in use by process {}", run.pid());
    bench.run(&["train", "r.toml", "--run-dir", "out"]).expect(2).says(&[&holder]);
    run.signal("INT");
    run.wait().expect(75);
}

#[test]
fn a_stale_lock_is_taken_over() {
    let bench = Bench::new();
    fs::create_dir(bench.path("out")).unwrap();
    bench.write("out/lock", r#"{"pid":1,"host":"elsewhere"}"#);
    let done = bench.run(&["train", "r.toml", "--run-dir", "out", "--set", "training.steps=1"]);
    done.expect(0).says(&["the lock of process 1 on elsewhere, which is gone, is taken over"]);
}

#[test]
fn runs_without_a_directory_of_their_own_never_share_one() {
    let bench = Bench::new();
    for _ in 0..2 {
        bench.run(&["train", "r.toml", "--set", "training.steps=1"]).expect(0);
    }
    let names: Vec<String> = fs::read_dir(bench.path("runs"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(names.len(), 2);
    assert!(names.iter().all(|name| name.starts_with("small-2")), "{names:?}");
}

#[test]
fn a_run_directory_that_cannot_be_made_is_refused() {
    let bench = Bench::new();
    bench.write("file", "");
    bench
        .run(&["train", "r.toml", "--run-dir", "file/out"])
        .expect(2)
        .says(&["file/out", "Not a directory"]);
    bench.run(&["train", "r.toml", "--run-dir", "file"]).expect(2).says(&["Not a directory"]);
    let long = "x".repeat(300);
    bench.run(&["train", "r.toml", "--run-dir", &long]).expect(2).says(&["File name too long"]);
}

#[test]
fn non_ascii_and_awkward_paths() {
    // pytorch/pytorch#185098, #75171, #99453
    let bench = Bench::new();
    for name in ["výstup 测试/😀 run", "a 'quoted' \"folder\"", "new\nline", &"y".repeat(250)]
    {
        let folder = bench.path(name);
        fs::create_dir_all(&folder).unwrap();
        fs::copy(bench.path("r.toml"), folder.join("r.toml")).unwrap();
        fs::copy(bench.path("data.txt"), folder.join("data.txt")).unwrap();
        let recipe = folder.join("r.toml");
        let out = folder.join("out");
        let arguments = ["train", recipe.to_str().unwrap(), "--run-dir", out.to_str().unwrap()];
        bench.run(&[&arguments[..], &["--set", "training.steps=2"]].concat()).expect(0);
        assert_eq!(floats(&bench.metrics(&format!("{name}/out")), "step"), [1.0, 2.0]);
        // The resolved recipe names its data by an absolute path through the same folders.
        let resolved = out.join("recipe.toml");
        bench.run(&["train", resolved.to_str().unwrap(), "--dry-run"]).expect(0);
    }
}

#[test]
fn disk_full_while_tokenizing() {
    let bench = Bench::new();
    let mut command = Command::new("bash");
    command.args(["-c", "ulimit -f 4; trap '' XFSZ; exec \"$@\"", "bash"]);
    command.args([env!("CARGO_BIN_EXE_titan-tpu"), "data", "tokenize", "data.txt", "-o", "out"]);
    command.current_dir(bench.path("")).env("NO_COLOR", "1");
    let done = crate::support::Running::start(command).wait();
    done.expect(7).says(&["train-00000.tokens: cannot write this file: File too large"]);
    // With room, the same command goes on.
    bench.run(&["data", "tokenize", "data.txt", "-o", "out"]).expect(0);
    bench.run(&["data", "verify", "out"]).expect(0);
}

#[test]
fn disk_full_while_training() {
    // A file size limit stands in for a full disk: it needs no mount, and every write fails in the same place.
    let bench = Bench::new();
    // Its data is there already.
    bench.run(&["train", "r.toml", "--dry-run"]).expect(0);
    let line = "ulimit -f 4; trap '' XFSZ; exec \"$@\"";
    let mut command = Command::new("bash");
    command.args(["-c", line, "bash", env!("CARGO_BIN_EXE_titan-tpu")]);
    command.args(["train", "r.toml", "--run-dir", "out", "--set", "training.steps=100000"]);
    command
        .args(["--set", "metrics.tensorboard=false"])
        .current_dir(bench.path(""))
        .env("NO_COLOR", "1")
        .env("TITAN_DATA_CACHE", bench.shards()[0].parent().unwrap());
    let done = crate::support::Running::start(command).wait();
    done.expect(7).says(&["metrics.jsonl"]);
    crate::support::none_left(&bench, "out");
}
