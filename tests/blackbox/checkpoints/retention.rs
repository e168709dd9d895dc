//! Which checkpoints stay: pins, multiples, and what `prune` removes.

use std::fs;

use serde_json::{Value, json};

use super::{LIMIT, Saved, events};
use crate::support::{Done, wait_for_step};

impl Saved {
    fn prune(&self, more: &[&str]) -> Done {
        self.bench.run(&[&["checkpoint", "prune", "out"][..], more].concat())
    }

    /// A run of eight steps, a checkpoint of each.
    fn eight() -> Self {
        let saved = Self::with("interval_steps = 1\nkeep_last = 100");
        saved.train("out", &["--set", "training.steps=8"]).expect(0);
        saved
    }

    /// Changes a byte that only `verify` reads.
    fn damage(&self, step: u64) {
        let path = self.checkpoint("out", step).join("rank-00001.safetensors");
        let mut content = fs::read(&path).unwrap();
        *content.last_mut().unwrap() ^= 1;
        fs::write(path, content).unwrap();
    }

    fn pin(&self, step: u64, more: &[&str]) -> Done {
        let path = format!("out/checkpoints/step-{step:08}");
        self.bench.run(&[&["checkpoint", "pin", &path][..], more].concat())
    }
}

#[test]
fn a_run_removes_what_is_pinned_or_a_multiple() {
    let saved = Saved::with("interval_steps = 1\nkeep_last = 1\nkeep_every_steps = 4");
    let train = |steps: &str| saved.train("out", &["--set", steps]).expect(0);
    train("training.steps=3");
    assert_eq!(saved.steps("out"), [3]);
    saved.pin(3, &["--note", "before the change"]).expect(0);
    let done = train("training.steps=9");
    assert_eq!(events(&done, "resume")[0]["step"], 3);
    assert_eq!(saved.steps("out"), [3, 4, 8, 9]);
    // The pin is no fault of the checkpoint.
    let done = saved.bench.run(&["checkpoint", "verify", "out", "--json"]).expect(0);
    assert!(!done.stdout.contains("pinned.json"), "{}", done.stdout);
    let done = saved.bench.run(&["checkpoint", "ls", "out"]).expect(0);
    assert_eq!(done.stdout.matches("(pinned: before the change)").count(), 1, "{}", done.stdout);
    let done = saved.bench.run(&["checkpoint", "ls", "out", "--json"]).expect(0);
    let all: Vec<Value> = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!(all[0]["pin"]["note"], "before the change");
    assert!(all[0]["pin"]["made"].as_u64() > Some(1_700_000_000));
    assert_eq!(all[1]["pin"], Value::Null);
    saved.pin(3, &["--remove"]).expect(0);
    saved.pin(3, &["--remove"]).expect(0);
    train("training.steps=10");
    assert_eq!(saved.steps("out"), [4, 8, 10]);
}

#[test]
fn a_pin_is_put_on_something_else() {
    let saved = Saved::new();
    saved.train("out", &[]).expect(0);
    let pin = |path: &str| saved.bench.run(&["checkpoint", "pin", path]);
    pin("out").expect(2).says(&["this is no checkpoint", "step-00000006"]);
    pin("nowhere").expect(2).says(&["this is no checkpoint"]);
    fs::write(saved.checkpoint("out", 2).join("manifest.json"), "{}").unwrap();
    saved.pin(2, &[]).expect(5);
    saved.pin(4, &["--note", "x", "--remove"]).expect(2);
    assert!(!saved.checkpoint("out", 2).join("pinned.json").exists());
    // A torn pin is one too.
    fs::write(saved.checkpoint("out", 4).join("pinned.json"), "{\"no").unwrap();
    let done = saved.prune(&["--keep-last", "1"]).expect(0);
    assert!(done.stdout.contains("kept      pinned\n"), "{}", done.stdout);
    assert_eq!(saved.steps("out"), [2, 4, 6]);
}

#[test]
fn prune_removes_what_is_needed() {
    let saved = Saved::eight();
    saved.pin(2, &["--note", "good"]).expect(0);
    saved.damage(8);
    let folder = saved.path("out/checkpoints");
    for name in ["step-0003", "step-00000003.superseded-2", "mine"] {
        fs::create_dir(folder.join(name)).unwrap();
        fs::copy(
            folder.join("step-00000001/manifest.json"),
            folder.join(name).join("manifest.json"),
        )
        .unwrap();
    }
    fs::create_dir(folder.join("step-00000099")).unwrap();
    fs::write(folder.join("step-00000099/precious"), "").unwrap();
    let more = ["--keep-last", "2", "--keep-every", "4"];
    let dry = saved.prune(&[&more[..], &["--dry-run"]].concat()).expect(0);
    assert!(dry.stdout.contains("would go"), "{}", dry.stdout);
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 12);
    let done = saved.prune(&[&more[..], &["--json"]].concat()).expect(0);
    let said: Value = serde_json::from_str(&done.stdout).unwrap();
    let lines = said["checkpoints"].as_array().unwrap();
    let of = |step: u64| lines.iter().find(|line| line["step"] == step).unwrap();
    let gone: Vec<u64> = (1..=8).filter(|step| of(*step)["removed"] == true).collect();
    assert_eq!(gone, [1, 3, 5]);
    for (step, why) in [
        (2, "pinned: good"),
        (4, "its step is a multiple of 4"),
        (6, "among the last 2"),
        (7, "the newest that is sound"),
        (8, "rank-00001.safetensors"),
        (99, "manifest.json"),
    ] {
        assert!(of(step)["why"].as_str().unwrap().contains(why), "{}", of(step));
    }
    assert_eq!((&said["dry_run"], said["freed_bytes"].as_u64() > Some(0)), (&json!(false), true));
    let mut names: Vec<String> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    let steps = [2, 4, 6, 7, 8].map(|step| format!("step-{step:08}"));
    let mut expected: Vec<String> =
        ["mine", "step-0003", "step-00000003.superseded-2", "step-00000099"]
            .map(str::to_owned)
            .into();
    expected.extend(steps);
    expected.sort();
    assert_eq!(names, expected);
    // A second time there is nothing to do, and a run goes on.
    saved.prune(&more).expect(0);
    fs::remove_dir_all(folder.join("step-00000099")).unwrap();
    let done = saved.train("out", &["--set", "training.steps=9"]).expect(0);
    assert_eq!(events(&done, "resume")[0]["step"], 7);
}

#[test]
fn prune_without_a_sound_checkpoint_removes_some() {
    let saved = Saved::eight();
    for step in 1..=8 {
        saved.damage(step);
    }
    let done = saved.prune(&["--keep-last", "2"]).expect(5);
    done.says(&["no checkpoint is sound, so none is removed", "step 1: "]);
    assert_eq!(saved.steps("out"), [1, 2, 3, 4, 5, 6, 7, 8]);
    for (arguments, code) in [
        (&["out/checkpoints/step-00000001"][..], 2),
        (&["nowhere"], 2),
        (&["out/logs"], 5),
        (&["out", "--keep-last", "0"], 2),
        (&["out", "--keep-every", "0"], 2),
    ] {
        saved.bench.run(&[&["checkpoint", "prune"][..], arguments].concat()).expect(code);
    }
}

#[test]
fn prune_removes_what_a_run_is_about_to_read() {
    let saved = Saved::with("interval_steps = 1\nkeep_last = 100");
    let run = saved.start("out", &["--set", "training.steps=100000"]);
    wait_for_step(&saved.bench, "out", 4);
    let pid = run.pid().to_string();
    for path in ["out", "out/checkpoints", "out/checkpoints/../checkpoints"] {
        let done = saved.bench.run(&["checkpoint", "prune", path, "--keep-last", "1"]).expect(2);
        done.says(&["is in use by", &pid]);
    }
    run.signal("KILL");
    run.wait_for(LIMIT);
    // Beside them may be one that was being written.
    let count = || {
        let entries = fs::read_dir(saved.path("out/checkpoints")).unwrap().map(Result::unwrap);
        entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("step-")).count()
    };
    assert!(count() > 2);
    saved.prune(&["--keep-last", "1"]).expect(0);
    assert_eq!(count(), 1);
}
