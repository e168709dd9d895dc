//! Places that a recipe names: addresses, paths, tokenizers, and files of other machines.

use std::fs;
use std::path::Path;

use expect_test::{Expect, expect};
use titan_recipes::{Disk, Loaded, Purpose, Report};

use crate::bases::{EXPERTS, clean, edit, mended, told};
use crate::support::{SOUND, edited, expect_report, load_for, load_from, said, with};

fn source(path: &str) -> String {
    edited(&[("data.txt", path)])
}

#[test]
fn addresses_of_object_stores() {
    for path in ["gs://bucket/folder", "s3://bucket/folder", "gs://bucket"] {
        clean(&source(path));
    }
    told(
        &source("http://host/data"),
        expect![[r#"
        error: a data source cannot be at http://
          --> r.toml:27:21
           |
        27 | sources = [{ path = "http://host/data" }]
           |                     ^^^^^^^^^^^^^^^^^^ unknown scheme
           |
           = help: allowed: a local path, gs:// or s3://
    "#]],
    );
    told(
        &source("file:///data/x.txt"),
        expect![[r#"
        error: a data source cannot be at file://
          --> r.toml:27:21
           |
        27 | sources = [{ path = "file:///data/x.txt" }]
           |                     ^^^^^^^^^^^^^^^^^^^^ unknown scheme
           |
           = help: write the path alone: "/data/x.txt"
    "#]],
    );
    told(
        &source("hf://datasets/x"),
        expect![[r#"
        error: a data source cannot be at hf://
          --> r.toml:27:21
           |
        27 | sources = [{ path = "hf://datasets/x" }]
           |                     ^^^^^^^^^^^^^^^^^ unknown scheme
           |
           = help: allowed: a local path, gs:// or s3://
    "#]],
    );
    told(
        &source("GS://bucket/x"),
        expect![[r#"
        error: a data source cannot be at GS://
          --> r.toml:27:21
           |
        27 | sources = [{ path = "GS://bucket/x" }]
           |                     ^^^^^^^^^^^^^^^ unknown scheme
           |
           = help: allowed: a local path, gs:// or s3://
    "#]],
    );
    told(
        &source("gs:///folder"),
        expect![[r#"
        error: a data source needs a bucket and a path
          --> r.toml:27:21
           |
        27 | sources = [{ path = "gs:///folder" }]
           |                     ^^^^^^^^^^^^^^ not an address
           |
           = help: for example: gs://bucket/path
    "#]],
    );
    told(
        &source("s3://bucket/a b"),
        expect![[r#"
            error: a data source has a space in its address
              --> r.toml:27:21
               |
            27 | sources = [{ path = "s3://bucket/a b" }]
               |                     ^^^^^^^^^^^^^^^^^ an address has no spaces
               |
               = help: write %20 for a space in the name of an object
        "#]],
    );
}

#[test]
fn addresses_with_a_slash_missing() {
    told(
        &source("gs:/bucket/x"),
        expect![[r#"
            error: a data source at `gs:/bucket/x` is neither a path nor an address
              --> r.toml:27:21
               |
            27 | sources = [{ path = "gs:/bucket/x" }]
               |                     ^^^^^^^^^^^^^^ a slash is missing
               |
               = help: write "gs://bucket/x"
        "#]],
    );
}

#[test]
fn a_password_in_an_address_is_never_shown() {
    let text = source("s3://key:hush@bucket/x?token=hush");
    let loaded = clean(&text);
    let shown = format!("{loaded:?}{}", loaded.recipe.to_toml(&loaded.layout).unwrap());
    assert!(!shown.contains("hush"), "{shown}");
    told(
        &source("http://key:hush@host/x"),
        expect![[r#"
        error: a data source cannot be at http://
          --> r.toml:27:21
           |
        27 | sources = [{ path = "http://key:****@host/x" }]
           |                     ^^^^^^^^^^^^^^^^^^^^^^^^ unknown scheme
           |
           = help: allowed: a local path, gs:// or s3://
    "#]],
    );
    told(
        &edit(&text, &[("[data]", "[data]\nsource = 1")]),
        expect![[r#"
        error: unknown key `source` in [data]
          --> r.toml:27:1
           |
        27 | source = 1
           | ^^^^^^ unknown
           |
           = help: did you mean `sources`? That is set already
    "#]],
    );
    // What a run has written down can be looked at, but it cannot be run again.
    let masked = source("s3://key:********@bucket/x");
    clean(&masked);
    let text = said(&load_for(Purpose::Train, &masked, &[]));
    assert!(text.contains("the password of this address was masked"), "{text}");
}

#[test]
fn a_tokenizer_that_is_neither_a_word_nor_a_file() {
    told(
        &with("data", "tokenizer = \"byte\""),
        expect![[r#"
        error: `data.tokenizer` has no choice "byte"
          --> r.toml:27:13
           |
        27 | tokenizer = "byte"
           |             ^^^^^^ unknown choice
           |
           = help: did you mean "bytes"?
    "#]],
    );
    told(
        &with("data", "tokenizer = \"llama3\""),
        expect![[r#"
        error: `data.tokenizer` has no choice "llama3"
          --> r.toml:27:13
           |
        27 | tokenizer = "llama3"
           |             ^^^^^^^^ unknown choice
           |
           = help: allowed: "bytes", or the path of a tokenizer.json
    "#]],
    );
    told(
        &with("data", "tokenizer = \"\""),
        expect![[r#"
        error: `data.tokenizer` has no choice ""
          --> r.toml:27:13
           |
        27 | tokenizer = ""
           |             ^^ unknown choice
           |
           = help: allowed: "bytes", or the path of a tokenizer.json
    "#]],
    );
    told(
        &with("data", "tokenizer = \"none/tokenizer.jsn\""),
        expect![[r#"
        error: cannot read the tokenizer `none/tokenizer.jsn`: no such file
          --> r.toml:27:13
           |
        27 | tokenizer = "none/tokenizer.jsn"
           |             ^^^^^^^^^^^^^^^^^^^^ no such file
           |
           = help: relative paths here start from /recipes
    "#]],
    );
    told(
        &with("data", "tokenizer = \"https://host/tokenizer.json\""),
        expect![[r#"
        error: a tokenizer cannot be at https://
          --> r.toml:27:13
           |
        27 | tokenizer = "https://host/tokenizer.json"
           |             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ unknown scheme
           |
           = help: allowed: a local path, gs:// or s3://
    "#]],
    );
}

#[test]
fn a_vocabulary_smaller_than_that_of_its_tokenizer() {
    let text = with("data", "tokenizer = \"tokenizer.json\"");
    told(
        &text,
        expect![[r#"
        error: `model.vocab_size` = 256 is smaller than the 1000 ids of the tokenizer `/recipes/tokenizer.json`, added tokens included
          --> r.toml:6:14
           |
         6 | vocab_size = 256
           |              ^^^ must be at least 1000
        ...
        27 | tokenizer = "tokenizer.json"
           |             ---------------- this tokenizer
           |
           = help: write vocab_size = 1000, or a rounder number above it
    "#]],
    );
    mended(&text, &["model.vocab_size=1000"]);
    let sized = edit(EXPERTS, &[("[data]", "[data]\ntokenizer = \"tokenizer.json\"")]);
    told(
        &sized,
        expect![[r#"
            error: `model.vocab_size` = 256 (of size "tiny") is smaller than the 1000 ids of the tokenizer `/recipes/tokenizer.json`, added tokens included
              --> r.toml:21:13
               |
            21 | tokenizer = "tokenizer.json"
               |             ^^^^^^^^^^^^^^^^ its largest id is 999
               |
               = help: write vocab_size = 1000, or a rounder number above it
        "#]],
    );
    mended(&sized, &["model.vocab_size=1000"]);
}

/// What `recipe check` says of a recipe on the disk.
fn on_disk(folder: &Path, text: &str) -> Result<Loaded, Report> {
    let path = folder.join("r.toml");
    fs::write(&path, text).unwrap();
    titan_recipes::load(&path, &titan_recipes::Overrides::default(), Purpose::Check)
}

#[track_caller]
fn of_tokenizer(content: &str, expected: Expect) {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("data.txt"), "text").unwrap();
    fs::write(folder.path().join("tokenizer.json"), content).unwrap();
    let result = on_disk(folder.path(), &with("data", "tokenizer = \"tokenizer.json\""));
    let text = said(&result).replace(folder.path().to_str().unwrap(), "FOLDER");
    expected.assert_eq(&format!("{text}\n"));
}

#[test]
fn tokenizers_on_the_disk() {
    let added =
        r#"{"added_tokens": [{"id": 256, "content": "<s>"}], "model": {"vocab": {"a": 0}}}"#;
    of_tokenizer(
        added,
        expect![[r#"
        error: `model.vocab_size` = 256 is smaller than the 257 ids of the tokenizer `FOLDER/tokenizer.json`, added tokens included
          --> FOLDER/r.toml:6:14
           |
         6 | vocab_size = 256
           |              ^^^ must be at least 257
        ...
        27 | tokenizer = "tokenizer.json"
           |             ---------------- this tokenizer
           |
           = help: write vocab_size = 257, or a rounder number above it
    "#]],
    );
    of_tokenizer(
        "not json",
        expect![[r#"
        error: cannot read the tokenizer `tokenizer.json`: it is not a tokenizer.json of Hugging Face's tokenizers: expected ident at line 1 column 2
          --> FOLDER/r.toml:27:13
           |
        27 | tokenizer = "tokenizer.json"
           |             ^^^^^^^^^^^^^^^^ it is not a tokenizer.json of Hugging Face's tokenizers: expected ident at line 1 column 2
    "#]],
    );
    of_tokenizer(
        r#"{"model": {"vocab": {}}}"#,
        expect![[r#"
        error: cannot read the tokenizer `tokenizer.json`: it has no tokens
          --> FOLDER/r.toml:27:13
           |
        27 | tokenizer = "tokenizer.json"
           |             ^^^^^^^^^^^^^^^^ it has no tokens
    "#]],
    );
    of_tokenizer(
        r#"{"model_max_length": 8192}"#,
        expect![[r#"
        error: cannot read the tokenizer `tokenizer.json`: it is not a tokenizer.json of Hugging Face's tokenizers: missing field `model` at line 1 column 26
          --> FOLDER/r.toml:27:13
           |
        27 | tokenizer = "tokenizer.json"
           |             ^^^^^^^^^^^^^^^^ it is not a tokenizer.json of Hugging Face's tokenizers: missing field `model` at line 1 column 26
    "#]],
    );
    of_tokenizer(
        "",
        expect![[r#"
        error: cannot read the tokenizer `tokenizer.json`: it is empty
          --> FOLDER/r.toml:27:13
           |
        27 | tokenizer = "tokenizer.json"
           |             ^^^^^^^^^^^^^^^^ it is empty
    "#]],
    );
}

/// The same missing files, where the run is on this machine and where it is not.
#[test]
fn missing_files_are_errors_here_and_warnings_elsewhere() {
    let missing = |text: &str| {
        let text = text.replace("data.txt", "corpus.txt");
        edit(
            &text,
            &[
                ("[data]", "[data]\ntokenizer = \"t/other.json\""),
                ("[model]", "[model]\ninit = \"weights\""),
            ],
        )
    };
    told(
        &missing(SOUND),
        expect![[r#"
            error: cannot read config.json of the model folder `weights`: no such file
             --> r.toml:5:8
              |
            5 | init = "weights"
              |        ^^^^^^^^^ no such file
              |
              = help: relative paths here start from /recipes

            error: cannot read the tokenizer `t/other.json`: no such file
              --> r.toml:28:13
               |
            28 | tokenizer = "t/other.json"
               |             ^^^^^^^^^^^^^^ no such file
               |
               = help: relative paths here start from /recipes

            error: cannot read the data file `corpus.txt`: no such file
              --> r.toml:29:21
               |
            29 | sources = [{ path = "corpus.txt" }]
               |                     ^^^^^^^^^^^^ no such file
               |
               = help: relative paths here start from /recipes
        "#]],
    );
    let elsewhere = missing(EXPERTS);
    told(
        &elsewhere,
        expect![[r#"
            warning: cannot read config.json of the model folder `weights` on this machine: no such file
             --> r.toml:5:8
              |
            5 | init = "weights"
              |        ^^^^^^^^^ no such file
              |
              = help: relative paths here start from /recipes

            warning: cannot read the tokenizer `t/other.json` on this machine: no such file
              --> r.toml:22:13
               |
            22 | tokenizer = "t/other.json"
               |             ^^^^^^^^^^^^^^ no such file
               |
               = help: relative paths here start from /recipes

            warning: cannot read the data file `corpus.txt` on this machine: no such file
              --> r.toml:23:21
               |
            23 | sources = [{ path = "corpus.txt" }]
               |                     ^^^^^^^^^^^^ no such file
               |
               = help: relative paths here start from /recipes
        "#]],
    );
    let tpu7x = edit(&elsewhere, &[("v5e", "tpu7x"), ("4x4", "2x2x4")]);
    let result = load_for(Purpose::Check, &tpu7x, &[]);
    assert_eq!(result.unwrap().warnings.diagnostics.len(), 3);
    // To reckon with it no file matters; to train it here, all of them.
    assert_eq!(said(&load_for(Purpose::Plan, &missing(SOUND), &[])), "");
    let report = load_for(Purpose::Train, &tpu7x, &[]).unwrap_err();
    let missing = report.diagnostics.iter().filter(|d| d.message.contains("no such file"));
    assert_eq!(missing.count(), 3, "{}", report.render(false));
}

#[test]
fn a_folder_for_checkpoints_that_cannot_be_made() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("data.txt"), "text").unwrap();
    let text = with("checkpoint", "directory = \"FOLDER/data.txt/x\"");
    let text = text.replace("FOLDER", folder.path().to_str().unwrap());
    let result = on_disk(folder.path(), &text);
    let text = said(&result).replace(folder.path().to_str().unwrap(), "FOLDER");
    assert!(text.contains("`checkpoint.directory` cannot be used: FOLDER/data.txt"), "{text}");
    let text = with("checkpoint", "directory = \"FOLDER/new/x\"");
    let text = text.replace("FOLDER", folder.path().to_str().unwrap());
    assert_eq!(said(&on_disk(folder.path(), &text)), "");
    assert!(!folder.path().join("new").exists(), "checking makes nothing");
}

#[test]
fn the_disk_is_what_it_says() {
    // The stub of these tests and the disk must agree on what a missing file is called.
    let result = load_from(Purpose::Check, SOUND, &[], &Disk::default());
    expect_report(
        &result,
        expect![[r#"
        error: cannot read the data file `data.txt`: no such file
          --> r.toml:27:21
           |
        27 | sources = [{ path = "data.txt" }]
           |                     ^^^^^^^^^^ no such file
           |
           = help: relative paths here start from /recipes
    "#]],
    );
}
