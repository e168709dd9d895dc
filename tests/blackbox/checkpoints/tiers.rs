//! Two tiers: one that is fast and saved to often, one that lasts.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::{LIMIT, Saved, events};
use crate::support::{Done, wait_for_step, wait_until};

/// The steps whose checkpoints are in a folder.
fn steps_in(folder: &Path) -> Vec<u64> {
    let names = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.file_name());
    names.filter_map(|name| name.to_str()?.strip_prefix("step-")?.parse().ok()).collect()
}

fn wait_for(is_so: impl Fn() -> bool) {
    wait_until(LIMIT, || is_so().then_some(()));
}

/// A run with a local tier.
struct Tiers {
    saved: Saved,
}

impl Tiers {
    fn new(more: &str) -> Self {
        let saved = Saved::with("interval_steps = 60\nkeep_last = 2\nlocal_interval_steps = 2");
        let recipe = fs::read_to_string(saved.path("r.toml")).unwrap();
        let local = saved.path("fast");
        let table = format!("[checkpoint]\nlocal_directory = {local:?}\n{more}");
        saved.bench.write("r.toml", &recipe.replace("[checkpoint]\n", &table));
        Self { saved }
    }

    /// Kills a run once it has a checkpoint where it lasts, and a local one of a later step.
    fn kill(&self) {
        let run = self.saved.start("out", &["--set", "training.steps=100000"]);
        let newest = |steps: Vec<u64>| steps.into_iter().max();
        let persistent = || newest(steps_in(&self.saved.path("out/checkpoints")));
        wait_for(|| persistent().is_some() && newest(self.local_steps()) > persistent());
        run.signal("KILL");
        run.wait_for(LIMIT);
    }

    /// What the folder of the local tier has.
    fn local_steps(&self) -> Vec<u64> {
        let runs = fs::read_dir(self.saved.path("fast")).into_iter().flatten().flatten();
        runs.flat_map(|run| steps_in(&run.path())).collect()
    }

    fn list(&self) -> Vec<Value> {
        let done = self.saved.bench.run(&["checkpoint", "ls", "out", "--json"]).expect(0);
        serde_json::from_str(&done.stdout).unwrap()
    }

    /// The steps of a tier.
    fn steps(&self, tier: &str) -> Vec<u64> {
        let all = self.list();
        let of = all.iter().filter(|line| line["tier"] == tier);
        of.map(|line| line["step"].as_u64().unwrap()).collect()
    }

    /// Goes on until a few steps later, and makes sure that this is as if nothing had been.
    fn goes_on(&self, from: u64) -> Done {
        let steps = format!("training.steps={}", from + 3);
        let more = ["--set", steps.as_str()];
        let done = self.saved.train("out", &more).expect(0);
        assert_eq!(events(&done, "resume")[0]["step"], from);
        self.saved.train("whole", &more).expect(0);
        assert_eq!(self.saved.losses("out"), self.saved.losses("whole"));
        self.saved.same_tensors("out", "whole", from + 3);
        done
    }
}

#[test]
fn a_kill_costs_the_steps_since_the_last_persistent_save() {
    let tiers = Tiers::new("");
    tiers.kill();
    let local = tiers.steps("local").last().copied().unwrap();
    let persistent = tiers.steps("persistent");
    assert!(local.is_multiple_of(2) && Some(&local) > persistent.last(), "{local} {persistent:?}");
    assert!(persistent.iter().all(|step| step % 60 == 0));
    tiers.goes_on(local);
    // What is on the persistent tier is not kept in memory as well.
    assert_eq!(tiers.steps("local"), [0; 0]);
    assert_eq!(fs::read_dir(tiers.saved.path("fast")).unwrap().count(), 0);
}

#[test]
fn a_local_tier_that_is_gone_or_damaged_ends_a_run() {
    for damage in ["gone", "damaged"] {
        let tiers = Tiers::new("");
        tiers.kill();
        if damage == "gone" {
            fs::remove_dir_all(tiers.saved.path("fast")).unwrap();
        } else {
            for line in tiers.list().iter().filter(|line| line["tier"] == "local") {
                let path = line["path"].as_str().unwrap();
                let file = format!("{path}/rank-00001.safetensors");
                let mut content = fs::read(&file).unwrap();
                content[5000] ^= 1;
                fs::write(&file, content).unwrap();
            }
        }
        let last = tiers.steps("persistent").last().copied().unwrap();
        let done = tiers.goes_on(last);
        let skipped = events(&done, "resume")[0]["skipped"].as_array().unwrap().len();
        assert_eq!(skipped > 0, damage == "damaged" && tiers_is_newer(&done));
    }
}

/// Whether the damaged copy was of a later step than the one that was taken.
fn tiers_is_newer(done: &Done) -> bool {
    let resume = &events(done, "resume")[0];
    let skipped = resume["skipped"].as_array().unwrap();
    skipped.iter().all(|skipped| skipped["step"].as_u64() > resume["step"].as_u64())
}

#[test]
fn two_damaged_copies_are_one_that_is_not() {
    let tiers = Tiers::new("");
    // Both tiers have step 40, and none a later one.
    let once = ["--set", "checkpoint.local_interval_steps=40"];
    let long = ["--set", "training.steps=100000", "--set", "checkpoint.interval_steps=40"];
    let run = tiers.saved.start("out", &[&long[..], &once].concat());
    let persistent = tiers.saved.checkpoint("out", 40);
    wait_for(|| persistent.exists() && tiers.local_steps() == [40]);
    run.signal("KILL");
    run.wait_for(LIMIT);
    assert_eq!((tiers.steps("local"), tiers.steps("persistent")), (vec![40], vec![40]));
    for (line, rank) in tiers.list().iter().zip(["rank-00000", "rank-00001"]) {
        let file = format!("{}/{rank}.safetensors", line["path"].as_str().unwrap());
        let mut content = fs::read(&file).unwrap();
        let last = content.len() - 1;
        content[last] ^= 1;
        fs::write(&file, content).unwrap();
    }
    tiers.saved.bench.run(&["checkpoint", "verify", "out"]).expect(5);
    let done = tiers.goes_on(40);
    assert!(!done.stderr.contains("cannot be used"), "{}", done.stderr);
}

#[test]
fn a_full_local_tier_ends_a_run() {
    let tiers = Tiers::new("");
    // A file is in the way of the second local save, and of all after it.
    let run = tiers.saved.start("out", &["--set", "training.steps=100000"]);
    wait_for_step(&tiers.saved.bench, "out", 3);
    let fast = tiers.saved.path("fast");
    let folder = fs::read_dir(&fast).unwrap().next().unwrap().unwrap().path();
    fs::rename(&folder, fast.join("away")).unwrap();
    fs::write(&folder, "in the way").unwrap();
    wait_for_step(&tiers.saved.bench, "out", 61);
    run.signal("TERM");
    let done = run.wait_for(LIMIT).expect(75).says(&["there is no local checkpoint of step"]);
    let persistent = events(&done, "checkpoint");
    let persistent = persistent.iter().filter(|event| event["tier"] == "persistent");
    assert!(persistent.count() >= 2, "{}", done.stdout);
    let ledger = fs::read_to_string(tiers.saved.path("out/ledger.jsonl")).unwrap();
    assert!(ledger.contains("\"event\":\"local_checkpoint_lost\""));
}

#[test]
fn an_unusable_local_folder_is_found_at_the_first_save() {
    let tiers = Tiers::new("");
    fs::write(tiers.saved.path("fast"), "in the way").unwrap();
    let done = tiers.saved.train("out", &[]).expect(2);
    done.says(&["checkpoint.local_directory"]);
}

#[test]
fn a_relative_local_folder_is_where_the_command_was_given() {
    let tiers = Tiers::new("");
    let recipe = fs::read_to_string(tiers.saved.path("r.toml")).unwrap();
    let absolute = format!("{:?}", tiers.saved.path("fast"));
    tiers.saved.bench.write("r.toml", &recipe.replace(&absolute, "\"fast\""));
    let run = tiers.saved.start("out", &["--set", "training.steps=100000"]);
    let there = || fs::read_dir(tiers.saved.path("out/fast")).is_ok_and(|runs| runs.count() == 1);
    wait_for(there);
    run.signal("TERM");
    run.wait_for(LIMIT).expect(75);
    // What is on the persistent tier is not kept twice.
    assert!(!there() && !tiers.saved.path("fast").exists());
}

#[test]
fn a_state_that_only_the_local_tier_has_is_called_done() {
    let tiers = Tiers::new("");
    tiers.kill();
    let local = tiers.steps("local").last().copied().unwrap();
    let steps = format!("training.steps={local}");
    let train = || tiers.saved.train("out", &["--set", &steps]).expect(0);
    let done = train();
    assert_eq!(events(&done, "checkpoint")[0]["step"], local);
    assert_eq!(events(&done, "end")[0]["final_step"], local);
    assert_eq!((tiers.steps("local"), tiers.steps("persistent").pop()), (vec![], Some(local)));
    tiers.saved.bench.run(&["checkpoint", "verify", "out"]).expect(0);
    assert!(events(&train(), "checkpoint").is_empty(), "it is saved twice");
}
