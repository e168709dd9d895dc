//! Data: what is read, in which order, what becomes of it, and what is refused.

mod accounts;
mod bad_records;
mod commands;
mod cursors;
mod instruction;
mod kills;
mod order;
mod outputs;
mod patterns;
mod remote;
mod shards;
mod show;
mod small;
mod validation;
mod verify;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{Bench, Done, Running, json_lines};

/// No command here takes longer, except one that has to install the Python environment first.
const LIMIT: Duration = Duration::from_secs(60);

/// Installing is bounded by the network.
const INSTALL: Duration = Duration::from_secs(1200);

/// The small recipe `r.toml` in a fresh directory.
struct Data {
    bench: Bench,
}

impl Data {
    fn new() -> Self {
        Self { bench: Bench::new() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.bench.path(name)
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    /// A file of records with these texts.
    fn write_texts(&self, name: &str, texts: &[impl AsRef<str>]) {
        let lines = texts.iter().map(|text| json!({ "text": text.as_ref() }).to_string() + "\n");
        self.write(name, lines.collect::<String>());
    }

    fn start(&self, arguments: &[&str]) -> Running {
        self.bench.start(arguments)
    }

    fn run(&self, arguments: &[&str]) -> Done {
        self.start(arguments).wait_for(LIMIT)
    }

    /// The JSON lines of a command that goes well.
    #[track_caller]
    fn json(&self, arguments: &[&str]) -> Vec<Value> {
        json_lines(&self.run(&[arguments, &["--json"]].concat()).expect(0).stdout)
    }

    /// Trains `r.toml` in the run directory `out`.
    fn train(&self, out: &str, more: &[&str]) -> Done {
        self.run(&[&["train", "r.toml", "--json", "--run-dir", out], more].concat())
    }

    /// The interpreter of the engine.
    fn python(&self) -> String {
        let done = self.start(&["setup", "--json"]).wait_for(INSTALL).expect(0);
        let lines = json_lines(&done.stdout);
        lines.iter().find_map(|line| line["python"].as_str()).unwrap().to_owned()
    }

    /// The rows of some steps of `r.toml`, in the order of (step, micro-step, rank, row), and nothing else.
    #[track_caller]
    fn rows(&self, steps: &str, more: &[&str]) -> Vec<Row> {
        let lines = self.json(&[&["data", "show", "r.toml", "--steps", steps], more].concat());
        let mut rows: Vec<Row> = lines.iter().flat_map(Row::of_step).collect();
        rows.sort_by_key(|row| row.place);
        rows
    }

    /// The texts of all documents of a folder of shards made of bytes.
    #[track_caller]
    fn texts(&self, folder: &str) -> Vec<String> {
        let lines = self.json(&["data", "show", folder, "--documents", "100000"]);
        let documents = lines.iter().filter(|line| line["event"] == "document");
        documents.map(|line| line["text"].as_str().unwrap().to_owned()).collect()
    }

    /// Everything that `train` says of the data before it would start.
    #[track_caller]
    fn facts(&self, more: &[&str]) -> Value {
        let lines = self.json(&[&["train", "r.toml", "--dry-run"], more].concat());
        lines.iter().find(|line| line["event"] == "run").unwrap()["data"].clone()
    }

    /// Fails if a run directory was made.
    #[track_caller]
    fn nothing_ran(&self) {
        for name in ["runs", "out"] {
            assert!(!self.path(name).exists(), "{name} was made");
        }
    }
}

/// Which sample it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Id {
    source: u64,
    epoch: u64,
    sample: u64,
}

/// A row of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Row {
    /// Step, micro-step, rank, row.
    place: [u64; 4],
    id: Id,
    tokens: Vec<i64>,
}

impl Row {
    fn of_step(line: &Value) -> Vec<Self> {
        assert_eq!(line["event"], "step", "{line}");
        let number = |value: &Value| value.as_u64().unwrap();
        let row = |row: &Value| Self {
            place: [
                number(&line["step"]),
                number(&row["micro_step"]),
                number(&row["rank"]),
                number(&row["row"]),
            ],
            id: Id {
                source: number(&row["source"]),
                epoch: number(&row["epoch"]),
                sample: number(&row["sample"]),
            },
            tokens: row["tokens"].as_array().unwrap().iter().map(|t| t.as_i64().unwrap()).collect(),
        };
        line["rows"].as_array().unwrap().iter().map(row).collect()
    }

    /// Tokens that are learned: a mark makes the others negative, and the first has nothing before it.
    fn targets(&self) -> u64 {
        self.tokens[1..].iter().filter(|token| **token >= 0).count() as u64
    }
}

/// What the model sees, whatever device computes it.
fn contents(rows: &[Row]) -> Vec<(Id, Vec<i64>)> {
    rows.iter().map(|row| (row.id, row.tokens.clone())).collect()
}

fn ids(rows: &[Row]) -> Vec<Id> {
    rows.iter().map(|row| row.id).collect()
}

/// Letters without a pattern: no two stretches of some length are alike.
fn letters(seed: u64, count: usize) -> String {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut letter = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        char::from(b'a' + (state >> 33) as u8 % 26)
    };
    (0..count).map(|_| letter()).collect()
}

/// The files of a folder; its lock says nothing.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(folder).unwrap().map(Result::unwrap);
    let named = entries.map(|entry| (entry.file_name().into_string().unwrap(), entry.path()));
    named
        .filter(|(name, _)| name != "lock")
        .map(|(name, path)| (name, fs::read(path).unwrap()))
        .collect()
}

/// Fails unless two folders have the same files, byte for byte.
#[track_caller]
fn same_files(left: &Path, right: &Path) {
    let (left, right) = (files(left), files(right));
    assert_eq!(left.keys().collect::<Vec<_>>(), right.keys().collect::<Vec<_>>());
    for (name, content) in &left {
        // Not assert_eq: it would print megabytes.
        assert!(*content == right[name], "{name} differs");
    }
}

/// Changes one bit of a file.
fn flip(path: &Path, offset: usize) {
    let mut content = fs::read(path).unwrap();
    content[offset] ^= 1;
    fs::write(path, content).unwrap();
}
