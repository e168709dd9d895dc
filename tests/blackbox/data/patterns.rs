//! Patterns and folders: what they match, and what is no data.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;

use super::{Data, letters};

#[test]
fn a_name_that_is_not_utf8_panics_in_a_pattern() {
    let data = Data::new();
    data.write_texts("pan/a.jsonl", &["a"]);
    data.write_texts("pan/deep/b.jsonl", &["b"]);
    let odd = OsStr::from_bytes(b"\xff");
    fs::write(data.path("pan").join(odd), "").unwrap();
    fs::create_dir(data.path("pan/deep").join(odd)).unwrap();
    fs::write(data.path("pan/deep").join(odd).join("c.jsonl"), "{\"text\": \"c\"}\n").unwrap();
    let cases: [(&str, &[&str]); 5] = [
        ("pan/*.jsonl", &["a"]),
        ("pan/**/*.jsonl", &["a", "b"]),
        ("*/*/b.jsonl", &["b"]),
        ("pan/deep/*/c.jsonl", &[]),
        ("p?n/./*/../*.jsonl", &["a"]),
    ];
    for (number, (pattern, texts)) in cases.iter().enumerate() {
        let output = format!("s{number}");
        let done = data.run(&["data", "tokenize", pattern, "-o", &output]);
        if texts.is_empty() {
            done.expect(2).says(&["no data file matches this glob"]);
        } else {
            done.expect(0);
            assert_eq!(data.texts(&output), *texts, "{pattern}");
        }
    }
}

#[test]
fn a_pattern_of_hidden_folders_matches_the_parent_folder() {
    let data = Data::new();
    data.write_texts("outside.jsonl", &["outside"]);
    data.write_texts("in/here.jsonl", &["here"]);
    data.write_texts("in/.hidden/there.jsonl", &["there"]);
    let mut command = data.bench.command(&["data", "tokenize", ".*/*.jsonl", "-o", "../s"]);
    command.current_dir(data.path("in"));
    crate::support::Running::start(command).wait_for(super::LIMIT).expect(0);
    assert_eq!(data.texts("s"), ["there"]);
}

#[test]
fn the_second_start_reads_what_the_first_has_written() {
    let data = Data::new();
    data.write("ne2/d.jsonl", "{\"text\": \"a\"}\n{\"text\": 1}\n");
    for (pattern, output) in [
        ("ne2/**/*.jsonl", "ne2/sh"),
        ("ne2/*/*.jsonl", "ne2/sh"),
        ("./ne2/**", "ne2/../ne2/sh"),
        ("./ne2/**", "gone/../ne2/sh"),
        ("ne*", "ne2/sh"),
        ("*", "sh"),
        ("**/*.json", "sh"),
    ] {
        let tokenize = ["data", "tokenize", pattern, "--on-bad-record", "skip", "-o", output];
        data.run(&tokenize).expect(2).says(&[
            &format!("--output {output}: the pattern {pattern} could match files in it"),
            "name a folder that the sources do not reach",
        ]);
    }
    assert!(!data.path("sh").exists() && !data.path("ne2/sh").exists());
    // What cannot match is no obstacle.
    for (number, pattern) in ["ne2/*.jsonl", "ne2/d*"].iter().enumerate() {
        let output = format!("ne2/sh{number}");
        let tokenize = ["data", "tokenize", pattern, "--on-bad-record", "skip", "-o", &output];
        data.run(&tokenize).expect(0);
    }
}

#[test]
fn files_of_token_shards_are_read_as_text() {
    let data = Data::new();
    data.write("c/d.jsonl", "{\"text\": \"a\"}\n{\"text\": 1}\n");
    let skip = ["--on-bad-record", "skip"];
    data.run(&[&["data", "tokenize", "c/d.jsonl", "-o", "c/sh"][..], &skip].concat()).expect(0);
    data.run(&["data", "tokenize", "data.txt", "-o", "d/other"]).expect(0);
    fs::remove_file(data.path("d/other/job.json")).unwrap();
    fs::remove_file(data.path("d/other/train-00000.tokens")).unwrap();
    // Not finished, and not locked any more.
    data.run(&["data", "tokenize", "data.txt", "-o", "e/cut"]).expect(0);
    fs::remove_file(data.path("e/cut/index.json")).unwrap();
    fs::remove_file(data.path("e/cut/lock")).unwrap();
    for (source, folder) in [
        ("c", "c/sh"),
        ("c/**/*.jsonl", "c/sh"),
        ("c/*", "c/sh"),
        ("c/s*/*.json", "c/sh"),
        ("d", "d/other"),
        ("e", "e/cut"),
        ("e/cut", "e/cut"),
        ("e/**/*", "e/cut"),
    ] {
        let text = format!("{folder}: these are token shards, whose files are not read as text");
        let told = ["name the files that are to be read, or move the shards elsewhere", &text];
        data.run(&["data", "tokenize", source, "-o", "s"]).expect(2).says(&told);
        data.run(&["data", "verify", source]).expect(2).says(&told);
        let sources = format!("data.sources=[{{path={source:?}}}]");
        data.run(&["train", "r.toml", "--set", &sources]).expect(2).says(&told);
    }
    data.nothing_ran();
    // A file that is named is data, and an index of something else too.
    let named = ["data", "tokenize", "c/sh/skipped.jsonl", "--text-field", "reason", "-o", "s"];
    data.run(&named).expect(0);
    assert_eq!(data.texts("s"), ["wrong-type"]);
    data.write("f/index.json", format!("{{\"format\": \"x\", \"text\": \"{}\"}}\n", letters(1, 9)));
    data.run(&["data", "tokenize", "f/*", "-o", "g"]).expect(0);
}
