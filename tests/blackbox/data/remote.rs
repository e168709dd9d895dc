//! Data in object stores, against `fake_store.py`, which serves a folder as a bucket.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use super::{Data, files};
use crate::support::{Running, repository};

/// A store that ends with the test.
struct Store {
    process: Child,
    /// Held open: the store ends when it closes.
    stdin: Option<ChildStdin>,
    port: String,
}

impl Store {
    fn new(data: &Data, options: &[&str]) -> Self {
        let mut process = Command::new("python3")
            .arg(repository().join("tests/blackbox/fake_store.py"))
            .arg(data.path("bucket"))
            .args(options)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut port = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut port).unwrap();
        let stdin = process.stdin.take();
        Self { process, stdin, port: port.trim().to_owned() }
    }

    /// A command that finds the store.
    fn command(&self, data: &Data, arguments: &[&str]) -> Command {
        let address = format!("http://127.0.0.1:{}", self.port);
        let mut command = data.bench.command(arguments);
        command.env("STORAGE_EMULATOR_HOST", &address).env("AWS_ENDPOINT_URL", &address);
        command.env("AWS_ALLOW_HTTP", "true").env("AWS_SKIP_SIGNATURE", "true");
        command
    }

    fn run(&self, data: &Data, arguments: &[&str]) -> crate::support::Done {
        Running::start(self.command(data, arguments)).wait()
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.stdin = None;
        let _ = self.process.wait();
    }
}

/// A bucket with files of several kinds, and the same files beside it.
fn bucket(data: &Data) {
    for folder in ["bucket", "local"] {
        for file in 0..5 {
            let texts: Vec<String> =
                (0..400).map(|n| format!("text {n} of file {file} ").repeat(9)).collect();
            data.write_texts(&format!("{folder}/corpus/{file}.jsonl"), &texts);
        }
        data.write(&format!("{folder}/corpus/notes.txt"), "A text.");
        let gzip =
            Command::new("gzip").arg(data.path(&format!("{folder}/corpus/3.jsonl"))).status();
        assert!(gzip.unwrap().success());
    }
}

#[test]
fn a_store_gives_the_tokens_of_local_files() {
    let data = Data::new();
    bucket(&data);
    data.run(&["data", "tokenize", "local/corpus", "-o", "whole"]).expect(0);
    data.run(&["data", "tokenize", "local/corpus/*.jsonl", "-o", "lines"]).expect(0);
    // Pages of two names, three refusals and a body that breaks off.
    let store = Store::new(&data, &["--page", "2", "--fail-first", "3", "--cut-after", "5000"]);
    for (address, output, local) in [
        ("gs://bucket/corpus", "g1", "whole"),
        ("s3://bucket/corpus/", "s1", "whole"),
        ("gs://bucket/corpus/*.jsonl", "g2", "lines"),
        ("s3://bucket/c*/?.jsonl", "s2", "lines"),
    ] {
        store.run(&data, &["data", "tokenize", address, "-o", output]).expect(0);
        let tokens = |folder| files(&data.path(folder)).remove("train-00000.tokens");
        assert!(tokens(output) == tokens(local), "{address}");
    }
}

#[test]
fn shards_in_a_store_are_fetched_once_and_checked() {
    let data = Data::new();
    bucket(&data);
    data.run(&["data", "tokenize", "local/corpus", "-o", "bucket/shards"]).expect(0);
    let sources = "data.sources=[{path=\"s3://bucket/shards\"}]";
    let show = ["data", "show", "r.toml", "--steps", "1..3", "--json", "--set"];
    let local =
        data.run(&[&show[..], &["data.sources=[{path=\"bucket/shards\"}]"]].concat()).expect(0);
    {
        let store = Store::new(&data, &[]);
        let remote = store.run(&data, &[&show[..], &[sources]].concat()).expect(0);
        assert_eq!(remote.stdout, local.stdout);
        store.run(&data, &[&show[..], &[sources]].concat()).expect(0);
        // The data commands take the address too.
        let verified = store.run(&data, &["data", "verify", "s3://bucket/shards"]).expect(0);
        assert!(verified.stdout.contains("all good"), "{}", verified.stdout);
        let shown = store.run(&data, &["data", "show", "s3://bucket/shards"]).expect(0);
        assert!(shown.stdout.contains("document 0"), "{}", shown.stdout);
        // A question mark in a recipe is a part of a pattern, not a query with a secret.
        let pattern = "data.sources=[{path=\"s3://bucket/corpus/?.jsonl\"}]";
        store.run(&data, &[&show[..], &[pattern]].concat()).expect(0);
    }
    assert_eq!(data.bench.shards().len(), 2);
    // A flipped byte in the store is found before anything reads it.
    let mut tokens = std::fs::read(data.path("bucket/shards/train-00000.tokens")).unwrap();
    tokens[70_000] ^= 1;
    data.write("bucket/flipped/train-00000.tokens", &tokens);
    for name in ["index.json", "train-00000.index"] {
        std::fs::copy(
            data.path("bucket/shards").join(name),
            data.path("bucket/flipped").join(name),
        )
        .unwrap();
    }
    let store = Store::new(&data, &[]);
    let flipped = "data.sources=[{path=\"gs://bucket/flipped\"}]";
    store
        .run(&data, &["train", "r.toml", "--set", flipped])
        .expect(3)
        .says(&["train-00000.tokens"]);
    data.nothing_ran();
}

#[test]
fn what_is_wrong_with_an_address_is_said_in_time() {
    let data = Data::new();
    bucket(&data);
    let store = Store::new(&data, &[]);
    for (address, words) in [
        ("gs://bucket/corpse", vec!["gs://bucket/corpse", "corpus"]),
        ("s3://bucket/corpus/*.parquet", vec!["*.parquet"]),
        ("s3://other/corpus", vec!["other"]),
        ("gs://", vec!["gs://"]),
    ] {
        let asked = Instant::now();
        let done = store.run(&data, &["data", "tokenize", address, "-o", "out"]);
        assert!(matches!(done.code, Some(2 | 3)), "{address}: {:?} {}", done.code, done.stderr);
        done.says(&words);
        assert!(asked.elapsed() < Duration::from_secs(20), "{address} took {:?}", asked.elapsed());
        assert!(!data.path("out").exists());
    }
}
