//! The folder that shards are written to.

use std::fs;

use super::{Data, files, flip, letters};

/// A tokenizer of a few words.
const WORDS: &str = r#"{"version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
"pre_tokenizer": {"type": "Whitespace"}, "post_processor": null, "decoder": null,
"model": {"type": "WordLevel", "vocab": {"[UNK]": 0, "a": 1, "b": 2}, "unk_token": "[UNK]"}}"#;

#[test]
fn a_folder_with_other_content_is_refused_and_left_alone() {
    let data = Data::new();
    data.write("o/notes.txt", "mine");
    data.write("o/train-00000.tokens", "mine too");
    let before = files(&data.path("o"));
    let done = data.run(&["data", "tokenize", "data.txt", "-o", "o"]).expect(2);
    done.says(&["o: the folder is not empty, and has no shards in it", "name a new folder"]);
    assert_eq!(files(&data.path("o")), before);
    assert!(!data.path("o/lock").exists(), "a lock was left behind");
    // A bad record neither: what is removed is what was made.
    data.write("bad.jsonl", "{\"text\": 1}\n");
    data.run(&["data", "tokenize", "bad.jsonl", "-o", "o"]).expect(2);
    assert_eq!(files(&data.path("o")), before);
    // A file in its place.
    data.write("file", "mine");
    let done = data.run(&["data", "tokenize", "data.txt", "-o", "file"]);
    assert_ne!(done.code, Some(0));
    assert!(done.stderr.contains("file"), "{}", done.stderr);
    assert_eq!(fs::read_to_string(data.path("file")).unwrap(), "mine");
    // An empty folder is fine.
    fs::create_dir(data.path("new")).unwrap();
    data.run(&["data", "tokenize", "data.txt", "-o", "new"]).expect(0);
}

#[test]
fn shards_of_another_job_are_refused_with_what_differs() {
    let data = Data::new();
    data.write("words.json", WORDS);
    data.write_texts("d.jsonl", &["a b", "b"]);
    data.write_texts("e.jsonl", &["a b", "b"]);
    data.run(&["data", "tokenize", "d.jsonl", "-o", "s"]).expect(0);
    let before = files(&data.path("s"));
    let cases: [(&[&str], &str); 8] = [
        (&["--tokenizer", "words.json"], "which differs in the tokenizer"),
        (&["--document-start", "1"], "which differs in the token before a document"),
        (&["--document-end", "10"], "which differs in the token after a document"),
        (&["--validation-fraction", "0.5"], "which differs in the share held out"),
        (&["--on-bad-record", "skip"], "which differs in what happens at a bad record"),
        (&["--shard-tokens", "100"], "which differs in the size of a shard"),
        (&["--text-field", "other"], "which differs in the fields"),
        (&["e.jsonl"], "which differs in the files, or their content"),
    ];
    let tokenize = ["data", "tokenize", "d.jsonl", "-o", "s"];
    for (more, text) in cases {
        let done = data.run(&[&tokenize[..], more].concat()).expect(2);
        done.says(&["s: the folder has shards of another job", text, "name a new folder"]);
        assert_eq!(files(&data.path("s")), before, "{more:?}");
    }
    // Threads change nothing, and neither does the same command.
    let again = data.json(&[&tokenize[..], &["--threads", "3"]].concat());
    assert_eq!(again[0]["done_before"], true);
    data.write_texts("d.jsonl", &["a b", "c"]);
    data.run(&tokenize).expect(2).says(&["which differs in the files, or their content"]);
    assert_eq!(files(&data.path("s")), before);
}

#[test]
fn shards_that_do_not_suit_a_recipe_are_refused() {
    let data = Data::new();
    data.write("words.json", WORDS);
    data.write("d.txt", "a b ".repeat(500));
    data.run(&["data", "tokenize", "d.txt", "-o", "words", "--tokenizer", "words.json"]).expect(0);
    data.run(&["data", "tokenize", "data.txt", "-o", "bytes"]).expect(0);
    let train = |more: &[&str]| data.run(&[&["train", "r.toml", "--dry-run"][..], more].concat());
    let words = r#"data.sources=[{path="words"}]"#;
    let bytes = r#"data.sources=[{path="bytes"}]"#;
    train(&["--set", bytes]).expect(0);
    let done = train(&["--set", words]).expect(2);
    done.says(&["made with the tokenizer words.json, the recipe has bytes"]);
    let tokenizer = ["--set", "data.tokenizer=words.json"];
    train(&[&["--set", words][..], &tokenizer].concat()).expect(0);
    let done = train(&["--set", bytes, "--set", "model.vocab_size=100"]);
    assert_eq!(done.code, Some(2), "{}", done.stderr);
    let held_out = ["--set", "validation.interval_steps=1", "--set", "validation.fraction=0.1"];
    let done = train(&[&["--set", bytes][..], &held_out].concat()).expect(2);
    done.says(&["these shards hold out no documents for validation", "--validation-fraction"]);
}

#[test]
fn a_folder_of_a_failed_attempt_refuses_the_corrected_command() {
    let data = Data::new();
    data.write("broken.parquet", [0; 100]);
    let done = data.run(&["data", "tokenize", "broken.parquet", "-o", "s"]).expect(3);
    done.says(&["broken.parquet: this is not a whole Parquet file"]);
    data.run(&["data", "tokenize", "data.txt", "-o", "s"]).expect(0);
}

#[test]
fn shards_need_their_source_no_more() {
    let data = Data::new();
    data.write("d.txt", letters(1, 1000));
    data.run(&["data", "tokenize", "d.txt", "-o", "s"]).expect(0);
    // Shards do not need their source any more.
    flip(&data.path("d.txt"), 5);
    data.run(&["data", "verify", "s"]).expect(0);
    fs::remove_file(data.path("d.txt")).unwrap();
    assert_eq!(data.texts("s"), [letters(1, 1000)]);
}
