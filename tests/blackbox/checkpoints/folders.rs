//! The folder of the checkpoints: what is taken for one, what is removed, and what happens where there is no room.

use std::fs::{self, File};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use serde_json::Value;

use super::{LIMIT, Saved, events};
use crate::support::{Running, not_tested};

#[test]
fn look_alike_names_are_taken_for_checkpoints_or_removed() {
    let saved = Saved::with("interval_steps = 1\nkeep_last = 1");
    saved.train("out", &["--set", "training.steps=5"]).expect(0);
    assert_eq!(saved.steps("out"), [5]);
    let folder = saved.path("out/checkpoints");
    let strangers = [
        "step-100.backup",
        "foo-step-100",
        "step-0100",
        "step-99999999999999999999",
        "step--1",
        "step-00000100 copy",
        ".step-00000007.other.writing",
    ];
    for name in strangers {
        fs::create_dir(folder.join(name)).unwrap();
        for file in fs::read_dir(folder.join("step-00000005")).unwrap().map(Result::unwrap) {
            fs::copy(file.path(), folder.join(name).join(file.file_name())).unwrap();
        }
    }
    let before: Vec<Vec<u8>> = strangers
        .iter()
        .map(|name| fs::read(folder.join(name).join("manifest.json")).unwrap())
        .collect();
    let done = saved.train("out", &["--set", "training.steps=7"]).expect(0);
    assert_eq!(events(&done, "resume")[0]["step"], 5);
    for (name, content) in strangers.iter().zip(before) {
        assert_eq!(fs::read(folder.join(name).join("manifest.json")).unwrap(), content, "{name}");
        fs::remove_dir_all(folder.join(name)).unwrap();
    }
    assert_eq!(saved.steps("out"), [7]);
}

#[test]
fn latest_is_decided_by_clock_or_by_the_order_of_texts() {
    let saved = Saved::with("interval_steps = 1\nkeep_last = 100");
    saved.train("out", &["--set", "training.steps=11"]).expect(0);
    // Of the older one, everything is newer.
    let future = SystemTime::now() + Duration::from_secs(400_000_000);
    for path in [saved.checkpoint("out", 9), saved.checkpoint("out", 9).join("manifest.json")] {
        File::open(path).unwrap().set_modified(future).unwrap();
    }
    let done = saved.train("out", &["--dry-run", "--set", "training.steps=20"]).expect(0);
    assert_eq!(events(&done, "resume")[0]["step"], 11);
    let done = saved.bench.run(&["checkpoint", "ls", "out", "--json"]).expect(0);
    let all: Vec<Value> = serde_json::from_str(&done.stdout).unwrap();
    let steps: Vec<u64> = all.iter().map(|line| line["step"].as_u64().unwrap()).collect();
    assert_eq!(steps, (1..=11).collect::<Vec<_>>());
    assert!(all.iter().all(|line| line["committed"] == true && line["bytes"].as_u64() > Some(0)));
}

#[test]
fn the_last_save_collides_with_one_that_is_there() {
    let saved = Saved::with("interval_steps = 3");
    let done = saved.train("out", &[]).expect(0);
    let steps: Vec<u64> =
        events(&done, "checkpoint").iter().map(|e| e["step"].as_u64().unwrap()).collect();
    assert_eq!(steps, [3, 6]);
    let before = saved.tensors("out", 6);
    let done = saved.train("out", &[]).expect(0);
    assert!(events(&done, "checkpoint").is_empty());
    let end = events(&done, "end");
    assert_eq!((&end[0]["exit_code"], &end[0]["final_step"]), (&0.into(), &6.into()));
    assert_eq!(saved.tensors("out", 6), before);
}

#[test]
fn an_unusable_folder_is_found_hours_in() {
    let saved = Saved::new();
    fs::write(saved.path("file"), "in the way").unwrap();
    std::os::unix::fs::symlink("/nowhere/at/all", saved.path("dangling")).unwrap();
    for folder in ["file/checkpoints", "dangling/checkpoints", "dangling"] {
        let path = saved.path(folder);
        let setting = format!("checkpoint.directory={:?}", path.to_str().unwrap());
        let start = Instant::now();
        let done = saved.train("out", &["--set", &setting, "--set", "checkpoint.interval_steps=6"]);
        let done = done.expect(2);
        assert!(start.elapsed() < Duration::from_secs(5), "{folder}");
        assert!(done.stderr.contains(folder), "{}", done.stderr);
        assert!(!saved.path("out").exists(), "{folder}: a run directory was made");
    }
}

#[test]
fn a_disk_without_room_costs_the_checkpoints_that_are_there() {
    let saved = Saved::new();
    saved.train("out", &["--set", "training.steps=2"]).expect(0);
    let before = saved.tensors("out", 2);
    // Files of ranks have more than 100 KiB, and all others less.
    let script = "ulimit -f 100; exec \"$@\"";
    let run = saved.bench.command(&["train", "r.toml", "--json", "--run-dir", "out"]);
    let mut command = Command::new("bash");
    command.args(["-c", script, "bash"]).arg(run.get_program()).args(run.get_args());
    command.current_dir(saved.path("."));
    command.envs(run.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let done = Running::start(command).wait_for(LIMIT).expect(7);
    done.says(&[
        "the checkpoint of step 4 cannot be saved",
        "step-00000004",
        "File too large",
        "the checkpoints before it are as they were",
        "a checkpoint of this run has about",
    ]);
    assert_eq!(saved.steps("out"), [2]);
    assert_eq!(saved.tensors("out", 2), before);
    saved.train("out", &[]).expect(0);
    assert_eq!(saved.losses("out").len(), 6);
}

#[test]
fn awkward_paths_are_cut_off_or_misread() {
    let saved = Saved::new();
    for name in ["výstup 测试/😀 run", "it's \"quoted\"", "two\nlines", &"l".repeat(200)] {
        saved.train(name, &["--set", "training.steps=2"]).expect(0);
        let done = saved.train(name, &["--set", "training.steps=3"]).expect(0);
        assert_eq!(events(&done, "resume")[0]["step"], 2, "{name}");
        saved.bench.run(&["checkpoint", "verify", name]).expect(0);
    }
}

#[test]
fn checkpoints_of_another_run_are_continued_or_removed() {
    let saved = Saved::with("interval_steps = 2\nkeep_last = 1");
    let folder = saved.path("shared");
    let setting = format!("checkpoint.directory={:?}", folder.to_str().unwrap());
    saved.train("one", &["--set", &setting]).expect(0);
    // Another model: refused, with what differs.
    let done = saved.train("two", &["--set", &setting, "--set", "model.num_layers=1"]).expect(2);
    done.says(&["is of another run", "model.num_layers: 2 there, 1 here"]);
    assert!(!saved.path("two").exists());
    let done = saved.train("one", &["--set", &setting, "--set", "model.num_layers=1"]).expect(2);
    done.says(&["model.num_layers: 2 there, 1 here"]);
    // The same model goes on from there, and leaves alone what it has not made.
    let more = ["--set", &setting, "--set", "training.steps=10"];
    let done = saved.train("three", &more).expect(0);
    assert_eq!(events(&done, "resume")[0]["step"], 6);
    let mut names: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["step-00000006", "step-00000010"]);
}

#[test]
fn a_checkpoint_of_another_run_is_met_at_the_end() {
    let saved = Saved::new();
    let folder = saved.path("shared");
    let setting = format!("checkpoint.directory={:?}", folder.to_str().unwrap());
    saved.train("one", &["--set", &setting]).expect(0);
    for policy in ["never", "2"] {
        let done = saved.train("two", &["--set", &setting, "--resume", policy]).expect(2);
        done.says(&["is of the run one-", "this run would come to that step too"]);
        assert!(!saved.path("two").exists());
    }
    // Its own later ones are set aside.
    saved.train("one", &["--set", &setting, "--resume", "2"]).expect(0);
}

#[test]
fn an_export_to_an_address_goes_to_a_folder_of_that_name() {
    let saved = Saved::new();
    saved.train("out", &["--set", "training.steps=2"]).expect(0);
    for format in ["hugging-face", "dcp"] {
        let export = ["checkpoint", "export", "out", "--format", format, "--to", "gs://bucket/x"];
        saved.bench.run(&export).expect(2).says(&["is an address"]);
    }
    assert!(!saved.path("gs:").exists());
}

#[test]
fn a_full_disk_leaves_a_part_of_a_checkpoint() {
    let is_possible = Command::new("unshare").args(["-rm", "true"]).status();
    if !is_possible.is_ok_and(|status| status.success()) {
        not_tested("a full tmpfs, because this user may not mount one");
        return;
    }
    let saved = Saved::with("interval_steps = 2\nkeep_last = 100");
    let disk = saved.path("disk");
    fs::create_dir(&disk).unwrap();
    // Room for two checkpoints of 0.3 MB and a part of the third; what is on it is looked at before it vanishes.
    let script = "mount -t tmpfs -o size=800k tmpfs \"$0\" && \"$@\"; code=$?; find \"$0\" -type f -size +0; exit $code";
    let setting = format!("checkpoint.directory={:?}", disk.join("c").to_str().unwrap());
    let run = saved.bench.command(&["train", "r.toml", "--run-dir", "out", "--set", &setting]);
    let mut command = Command::new("unshare");
    command.args(["-rm", "bash", "-c", script]).arg(&disk);
    command.arg(run.get_program()).args(run.get_args()).current_dir(saved.path("."));
    command.envs(run.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let done = Running::start(command).wait_for(LIMIT).expect(7);
    let left: Vec<&str> = done.stdout.lines().filter(|line| line.contains("/disk/c/")).collect();
    assert_eq!(left.len(), 6, "{left:?}");
    assert!(left.iter().all(|path| path.contains("/c/step-0000000")), "{left:?}");
    done.says(&["the checkpoint of step 6 cannot be saved", "No space left on device", " free"]);
}
