//! Tokenizing that is stopped: whatever stops it, the same command goes on to the same bytes.

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use super::{Data, letters, same_files};
use crate::support::{Running, json_lines};

/// Everything that a folder of shards can have: two splits, targets, several shards, a list of skipped records.
const ARGUMENTS: [&str; 14] = [
    "data",
    "tokenize",
    "big.jsonl",
    "--prompt-field",
    "p",
    "--response-field",
    "r",
    "--validation-fraction",
    "0.1",
    "--shard-tokens",
    "5000000",
    "--on-bad-record",
    "skip",
    "--json",
];

/// No tokenization here takes longer.
const LONG: Duration = Duration::from_secs(110);

fn write_big(data: &Data, megabytes: usize) {
    let mut text = String::with_capacity((megabytes << 20) + 200);
    for n in 0.. {
        if text.len() >= megabytes << 20 {
            break;
        }
        let prompt = if n % 50 == 49 { "null".to_owned() } else { format!("\"What is {n}?\"") };
        let response = format!("It is {n}, as was said before, and once more so.");
        writeln!(text, "{{\"p\": {prompt}, \"r\": \"{response}\"}}").unwrap();
    }
    data.write("big.jsonl", text);
}

fn start(data: &Data, output: &str, more: &[&str]) -> Running {
    data.start(&[&ARGUMENTS[..], &["-o", output], more].concat())
}

/// Waits until the run has done something, which must be before it ends.
#[track_caller]
fn wait(run: &mut Running, what: &str, is_there: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_there() {
        let ended = run.child.try_wait().unwrap();
        assert!(ended.is_none(), "it has ended ({ended:?}) before {what}: the corpus is too small");
        assert!(start.elapsed() < LONG, "nothing of {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// Bytes of everything in a folder.
fn size(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.metadata().ok()).map(|metadata| metadata.len()).sum()
}

fn kill(mut run: Running, what: &str, is_there: impl Fn() -> bool) {
    wait(&mut run, what, is_there);
    run.signal("KILL");
    assert_eq!(run.wait().code, None, "it was done before it was killed: {what}");
}

/// Runs to the end; whether it went on from what was saved.
fn finish(data: &Data, output: &str, more: &[&str]) -> bool {
    let done = start(data, output, more).wait_for(LONG).expect(0);
    let made = json_lines(&done.stdout).pop().unwrap();
    assert_eq!(made["done_before"], false);
    made["resumed"].as_bool().unwrap()
}

/// Seconds between two saves, and a little.
const SAVE: Duration = Duration::from_millis(5300);

#[test]
fn tokenizing_that_is_killed_loses_or_repeats_documents() {
    let data = Data::new();
    write_big(&data, 24);
    assert!(!finish(&data, "whole", &["--threads", "4"]));
    let (folder, saved) = (data.path("cut"), data.path("cut/progress.json"));
    for threads in ["1", "4"] {
        let start = || start(&data, "cut", &["--threads", threads]);
        // Before anything was written, and before anything was saved.
        kill(start(), "the folder", || data.path("cut/job.json").exists());
        kill(start(), "some shards", || size(&folder) > 5_000_000);
        assert!(!saved.exists(), "it takes seconds before anything is saved");
        // After the first save, with more behind it.
        let mut run = start();
        let before = size(&folder);
        wait(&mut run, "more shards", || size(&folder) > before);
        run.signal("STOP");
        thread::sleep(SAVE);
        run.signal("CONT");
        wait(&mut run, "a save", || saved.exists());
        let before = size(&folder);
        kill(run, "more than was saved", || size(&folder) > before + 1_000_000);
        for _ in 0..2 {
            let before = size(&folder);
            kill(start(), "more shards", || size(&folder) > before + 1_000_000);
            assert!(!data.path("cut/index.json").exists(), "it looks finished");
        }
        assert!(finish(&data, "cut", &["--threads", threads]), "it began anew");
        same_files(&data.path("whole"), &folder);

        // Once more there is nothing to do.
        let done = start().wait_for(LONG).expect(0);
        assert_eq!(json_lines(&done.stdout)[0]["done_before"], true);
        same_files(&data.path("whole"), &folder);
        fs::remove_dir_all(&folder).unwrap();
    }
}

#[test]
fn tokenizing_ends_with_75_at_a_signal_and_goes_on_after_it() {
    let data = Data::new();
    write_big(&data, 24);
    assert!(!finish(&data, "whole", &["--threads", "1"]));
    let folder = data.path("cut");
    for (signal, threads) in [("INT", "4"), ("TERM", "1"), ("INT", "3")] {
        let before = size(&folder);
        let mut run = start(&data, "cut", &["--threads", threads]);
        wait(&mut run, "more shards", || size(&folder) > before + 1_000_000);
        run.signal(signal);
        let asked = Instant::now();
        let done = run.wait().expect(75).says(&["the same command goes on where it ended"]);
        assert!(asked.elapsed() < Duration::from_secs(5), "took {:?}", asked.elapsed());
        assert_eq!(done.stdout, "");
        assert!(data.path("cut/progress.json").exists(), "nothing was saved");
        assert!(!data.path("cut/index.json").exists(), "it looks finished");

        // Killed soon after it went on, with more written than was saved.
        let before = size(&folder);
        let run = start(&data, "cut", &["--threads", threads]);
        kill(run, "more shards", || size(&folder) > before + 1_000_000);
    }
    // What is not finished is no data set yet.
    data.run(&["data", "show", "cut"]).expect(3).says(&["cut/index.json"]);
    assert!(finish(&data, "cut", &["--threads", "4"]), "it began anew");
    same_files(&data.path("whole"), &folder);
    data.run(&["data", "verify", "cut"]).expect(0);
}

/// What a kill leaves of a file that is written and then given its name, at each place where that is done.
#[test]
fn a_kill_between_writing_a_file_and_naming_it_blocks_the_folder() {
    let data = Data::new();
    write_big(&data, 1);
    finish(&data, "whole", &[]);
    data.write("cut/lock", "");
    data.write("cut/job.json.new", "{\"version\":");
    finish(&data, "cut", &[]);
    same_files(&data.path("whole"), &data.path("cut"));
    // A run that finds such a thing in its cache must not fail until someone empties that.
    let facts = data.facts(&[]);
    let folder = data.bench.shards().remove(0);
    fs::remove_dir_all(&folder).unwrap();
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("job.json.new"), "").unwrap();
    assert_eq!(data.facts(&[]), facts);
}

#[test]
fn a_kill_during_a_save_leaves_a_file_for_ever() {
    let data = Data::new();
    write_big(&data, 1);
    finish(&data, "whole", &[]);
    data.write("cut/lock", "");
    fs::copy(data.path("whole/job.json"), data.path("cut/job.json")).unwrap();
    for name in ["progress.json.new", "index.json.new"] {
        data.write(&format!("cut/{name}"), "{\"input\":");
    }
    finish(&data, "cut", &[]);
    same_files(&data.path("whole"), &data.path("cut"));
}

#[test]
fn two_processes_make_the_same_shards_at_once() {
    let data = Data::new();
    write_big(&data, 12);
    finish(&data, "whole", &[]);
    let mut first = start(&data, "o", &[]);
    wait(&mut first, "some shards", || size(&data.path("o")) > 1_000_000);
    // Stopped, so that it is certain that it still works while the other starts.
    first.signal("STOP");
    let second = start(&data, "o", &[]).wait_for(Duration::from_secs(20));
    first.signal("CONT");
    let second = second.expect(2).says(&["o: another process is making these shards now"]);
    assert_eq!(second.stdout, "");
    first.wait().expect(0);
    same_files(&data.path("whole"), &data.path("o"));
}

#[test]
fn two_processes_that_start_at_once_mistake_each_other_for_a_stranger() {
    let data = Data::new();
    for round in 0..20 {
        data.write_texts("d.jsonl", &[letters(round, 500)]);
        // What a run needs it waits for.
        let run = ["train", "r.toml", "--dry-run", "--set", r#"data.sources=[{path="d.jsonl"}]"#];
        for run in [data.start(&run), data.start(&run)] {
            run.wait().expect(0);
        }
        // Of two that are told to make the same, one may be refused, for the right reason.
        let folder = format!("s{round}");
        let tokenize = ["data", "tokenize", "d.jsonl", "-o", &folder];
        let both = [data.start(&tokenize), data.start(&tokenize)].map(Running::wait);
        assert!(both.iter().any(|done| done.code == Some(0)), "{both:?}");
        for done in both {
            if done.code != Some(0) {
                done.expect(2).says(&["another process is making these shards now"]);
            }
        }
        data.run(&["data", "verify", &folder]).expect(0);
    }
}
