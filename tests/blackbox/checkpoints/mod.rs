//! Checkpoints: what is saved, what a run goes on from, and what is never lost.

mod damage;
mod dcp;
mod folders;
mod hugging_face;
mod kills;
mod meshes;
mod retention;
mod stores;
mod tiers;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use crate::support::{Bench, Done, Running, floats, json_lines};

/// No run here takes longer, except one that has to install the Python environment first.
const LIMIT: Duration = Duration::from_secs(1200);

/// The small recipe with checkpoints every two steps.
struct Saved {
    bench: Bench,
}

impl Saved {
    fn new() -> Self {
        Self::with("interval_steps = 2")
    }

    /// With this table, and a rate that does not depend on the number of steps.
    fn with(checkpoint: &str) -> Self {
        let bench = Bench::new();
        let tables =
            format!("[schedule]\nkind = \"constant\"\n[checkpoint]\n{checkpoint}\n\n[data]");
        bench.edit("[data]", &tables);
        Self { bench }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.bench.path(name)
    }

    fn start(&self, out: &str, more: &[&str]) -> Running {
        let train = ["train", "r.toml", "--json", "--run-dir", out];
        self.bench.start(&[&train[..], more].concat())
    }

    fn train(&self, out: &str, more: &[&str]) -> Done {
        self.start(out, more).wait_for(LIMIT)
    }

    /// The checkpoint of a step.
    fn checkpoint(&self, out: &str, step: u64) -> PathBuf {
        self.path(out).join(format!("checkpoints/step-{step:08}"))
    }

    /// The steps whose checkpoints are there, and nothing else in the folder.
    #[track_caller]
    fn steps(&self, out: &str) -> Vec<u64> {
        let entries = fs::read_dir(self.path(out).join("checkpoints")).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let step = |name: String| name.strip_prefix("step-").unwrap_or(&name).parse().unwrap();
        let mut steps: Vec<u64> = names.map(step).collect();
        steps.sort_unstable();
        steps
    }

    /// The tensors of a checkpoint, file by file.
    fn tensors(&self, out: &str, step: u64) -> BTreeMap<String, Vec<u8>> {
        let entries = fs::read_dir(self.checkpoint(out, step)).unwrap().map(Result::unwrap);
        let files = entries.filter(|entry| entry.file_name() != "manifest.json");
        files
            .map(|file| (file.file_name().into_string().unwrap(), fs::read(file.path()).unwrap()))
            .collect()
    }

    /// Fails unless two runs have the same tensors after a step, to the bit.
    #[track_caller]
    fn same_tensors(&self, left: &str, right: &str, step: u64) {
        let (left, right) = (self.tensors(left, step), self.tensors(right, step));
        assert_eq!(left.keys().collect::<Vec<_>>(), right.keys().collect::<Vec<_>>());
        for (name, content) in &left {
            // Not assert_eq: it would print megabytes.
            assert!(*content == right[name], "{name} differs");
        }
    }

    /// The loss of each step, of which there must be one value each.
    #[track_caller]
    fn losses(&self, out: &str) -> Vec<f64> {
        let lines = self.bench.metrics(out);
        let steps: Vec<u64> = lines.iter().map(|line| line["step"].as_u64().unwrap()).collect();
        assert_eq!(steps, (1..=steps.len() as u64).collect::<Vec<_>>());
        floats(&lines, "loss")
    }
}

/// The lines of an event.
fn events(done: &Done, event: &str) -> Vec<Value> {
    json_lines(&done.stdout).into_iter().filter(|line| line["event"] == event).collect()
}
