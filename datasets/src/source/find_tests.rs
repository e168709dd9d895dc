use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use tempfile::{TempDir, tempdir};

use crate::source::testing::{exchange_fields, spec, write};
use crate::source::{Compression, Format, Origin};

use super::*;

/// The files that a path in the folder leads to, without the folder.
fn names(folder: &TempDir, path: &str) -> Vec<String> {
    names_of(folder, path, "train").unwrap()
}

fn names_of(folder: &TempDir, path: &str, split: &str) -> Result<Vec<String>> {
    let spec = SourceSpec { split: split.to_owned(), ..spec(&folder.path().join(path)) };
    let root = format!("{}/", folder.path().display());
    Ok(find(&spec)?.into_iter().map(|input| input.name.replacen(&root, "", 1)).collect())
}

fn failure(folder: &TempDir, path: &str) -> String {
    names_of(folder, path, "train").unwrap_err().to_string()
}

fn folder_with(files: &[&str]) -> TempDir {
    let folder = tempdir().unwrap();
    for name in files {
        write(&folder, name, "x");
    }
    folder
}

#[test]
fn a_file_is_described() {
    let folder = tempdir().unwrap();
    let path = write(&folder, "a.jsonl.gz", "1234");
    let inputs = find(&spec(&path)).unwrap();
    assert_eq!(inputs.len(), 1);
    assert_eq!((inputs[0].format, inputs[0].compression), (Format::JsonLines, Compression::Gzip));
    assert_eq!(inputs[0].bytes, 4);
    assert_eq!(inputs[0].origin, Origin::Local(path.clone()));
    fs::write(&path, "4321").unwrap();
    assert_ne!(find(&spec(&path)).unwrap()[0].identity, inputs[0].identity);
}

#[test]
fn a_folder_is_its_data_files_sorted() {
    let folder = folder_with(&[
        "b.jsonl",
        "a.txt",
        "deep/er/c.parquet",
        ".hidden.txt",
        ".git/x.txt",
        "README.md",
        "LICENSE.txt",
        "dataset_info.json",
        "state/x.md",
        "program.py",
        "cache-12.arrow",
    ]);
    assert_eq!(names(&folder, ""), ["a.txt", "b.jsonl", "deep/er/c.parquet", "state/x.md"]);
    assert_eq!(names(&folder, "deep"), ["deep/er/c.parquet"]);
    // A file that is named is data, whatever its name.
    assert_eq!(names(&folder, "README.md"), ["README.md"]);
    assert_eq!(names(&folder, "program.py"), ["program.py"]);
}

#[test]
fn the_split_is_chosen_by_name() {
    let flat = folder_with(&[
        "train-00001-of-00002.parquet",
        "train-00000-of-00002.parquet",
        "test-00000-of-00001.parquet",
        "trainer.txt",
    ]);
    assert_eq!(names(&flat, ""), ["train-00000-of-00002.parquet", "train-00001-of-00002.parquet"]);
    assert_eq!(names_of(&flat, "", "test").unwrap(), ["test-00000-of-00001.parquet"]);
    let error = names_of(&flat, "", "validation").unwrap_err().to_string();
    assert!(error.contains("named for the split \"validation\""), "{error}");

    let folders = folder_with(&["data/train/0.jsonl", "data/dev/0.jsonl", "extra.jsonl"]);
    assert_eq!(names(&folders, ""), ["data/train/0.jsonl"]);
    assert_eq!(names_of(&folders, "", "validation").unwrap(), ["data/dev/0.jsonl"]);

    let unnamed = folder_with(&["a.jsonl", "b.jsonl"]);
    assert_eq!(names(&unnamed, ""), ["a.jsonl", "b.jsonl"]);
}

#[test]
fn a_saved_dataset_is_read_in_its_order() {
    let folder = folder_with(&["dict/train/1.arrow", "dict/train/0.arrow", "dict/test/0.arrow"]);
    write(&folder, "dict/dataset_dict.json", r#"{"splits": ["train", "test", "validation"]}"#);
    let state = r#"{"_data_files": [{"filename": "1.arrow"}, {"filename": "0.arrow"}], "x": 1}"#;
    write(&folder, "dict/train/state.json", state);
    write(&folder, "dict/test/state.json", r#"{"_data_files": [{"filename": "gone.arrow"}]}"#);
    let expected = ["dict/train/1.arrow", "dict/train/0.arrow"];
    assert_eq!(names(&folder, "dict"), expected);
    assert_eq!(names(&folder, "dict/train"), expected);
    assert_eq!(names(&folder, "di*"), expected);

    let error = |split| names_of(&folder, "dict", split).unwrap_err().to_string();
    assert!(error("tran").contains(
        "no split \"tran\"; did you mean \"train\"?; its splits are \"train\", \"test\", \"validation\""
    ), "{}", error("tran"));
    assert!(error("test").contains("gone.arrow: cannot find"), "{}", error("test"));
    assert!(error("validation").contains("state.json: cannot find"), "{}", error("validation"));
    write(&folder, "dict/test/state.json", "{}");
    assert!(error("test").contains("missing field `_data_files`"), "{}", error("test"));
}

#[test]
fn globs_match_sorted_and_once() {
    let folder = folder_with(&["b1.txt", "a1.txt", "c.log", "sub/a2.txt", ".a.txt", "README.txt"]);
    assert_eq!(names(&folder, "*.txt"), ["a1.txt", "b1.txt"]);
    assert_eq!(names(&folder, "[ab]?.*"), ["a1.txt", "b1.txt"]);
    assert_eq!(names(&folder, "**/*.txt"), ["a1.txt", "b1.txt", "sub/a2.txt"]);
    assert_eq!(names(&folder, "*"), ["a1.txt", "b1.txt", "c.log", "sub/a2.txt"]);
    assert_eq!(names(&folder, "*/a2.txt"), ["sub/a2.txt"]);
    assert_eq!(names(&folder, "*//./a2.txt"), ["sub/./a2.txt"]);
    assert_eq!(names(&folder, "*/"), ["sub/a2.txt"]);
    assert_eq!(names(&folder, "s*/../a*"), ["sub/../a1.txt"]);
    assert!(failure(&folder, ".a*").contains("no data file matches this glob"));
    let error = failure(&folder, "*.csv");
    assert!(error.contains("no data file matches this glob"), "{error}");
    let error = failure(&folder, "[.txt");
    assert!(error.contains("not a glob") && error.contains("[[].txt"), "{error}");
}

#[test]
fn token_shards_are_no_text() {
    let folder = folder_with(&[
        "a.jsonl",
        "made/index.json",
        "made/train-00000.tokens",
        "begun/job.json",
        "begun/train-00000.tokens",
        "web/index.json",
    ]);
    for (path, named) in [
        ("", "begun"),
        ("*", "begun"),
        ("made", "made"),
        ("m*/*.json", "made"),
        ("made/*.tokens", "made"),
        ("**/i*.json", "made"),
    ] {
        let error = failure(&folder, path);
        assert!(error.contains(&format!("{named}: these are token shards")), "{path}: {error}");
    }
    assert_eq!(names(&folder, "w*"), ["web/index.json"]);
    assert_eq!(names(&folder, "made/index.json"), ["made/index.json"]);
    // Without tokens the index says it itself.
    write(&folder, "web/index.json", "{\"format\": \"titan-tokens\", \"version\": 2}");
    assert!(failure(&folder, "web").contains("web: these are token shards"));
}

#[test]
fn a_path_that_exists_is_not_a_glob() {
    let folder = folder_with(&["a[1].txt", "a1.txt", "d*/x.txt", "dd/y.txt"]);
    assert_eq!(names(&folder, "a[1].txt"), ["a[1].txt"]);
    assert_eq!(names(&folder, "d*"), ["d*/x.txt"]);
}

#[test]
fn a_wrong_path_is_met_with_the_nearest() {
    let folder = folder_with(&["corpus/train.jsonl", "empty/.x"]);
    let error = failure(&folder, "corpus/trian.jsonl");
    assert!(error.contains("there is no such file or folder"), "{error}");
    assert!(error.contains("did you mean \"train.jsonl\"?"), "{error}");
    let error = failure(&folder, "corpsu/deep/train.jsonl");
    assert!(error.contains("did you mean \"corpus\"?"), "{error}");
    let error = failure(&folder, "empty");
    assert!(error.contains("has no data files; data files end in .jsonl"), "{error}");
    let bad = |path: &str| {
        let spec = SourceSpec { path: path.to_owned(), ..spec(folder.path()) };
        find(&spec).unwrap_err().to_string()
    };
    assert!(bad("").contains("the path is empty"));
    assert!(bad("~/x").contains("~ is not expanded"));
    assert!(bad("http://host/x").contains("http:// is no store that is known here"));
    assert!(bad("file:///x").contains("write the path alone: /x"));
    assert!(bad("a\0b").contains("NUL"));
}

#[test]
fn links_to_files_are_followed_and_loops_end() {
    let folder = folder_with(&["blobs/1", "data/a/x.txt"]);
    symlink("../blobs/1", folder.path().join("data/linked.parquet")).unwrap();
    symlink("..", folder.path().join("data/a/loop")).unwrap();
    symlink("a", folder.path().join("data/b")).unwrap();
    assert_eq!(names(&folder, "data"), ["data/a/x.txt", "data/linked.parquet"]);
    assert_eq!(names(&folder, "data/linked.parquet"), ["data/linked.parquet"]);
    assert!(!names(&folder, "data/**/*.txt").is_empty());
    symlink("nowhere", folder.path().join("data/broken.txt")).unwrap();
    assert!(failure(&folder, "data").contains("broken.txt: cannot find"));
    assert!(failure(&folder, "data/broken.txt").contains("link leads to"));
}

#[test]
fn only_regular_files_are_data() {
    let folder = tempdir().unwrap();
    let pipe = folder.path().join("pipe.txt");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    assert!(failure(&folder, "pipe.txt").contains("this is a pipe"));
    assert!(failure(&folder, "").contains("this is a pipe"));
    assert!(failure(&folder, "/dev/null").contains("this is a device"));
}

#[test]
fn formats_that_do_not_fit_are_refused() {
    let folder = folder_with(&["a.parquet.gz", "a.txt"]);
    assert!(failure(&folder, "a.parquet.gz").contains("decompress it first"));
    let spec = SourceSpec { fields: exchange_fields(), ..spec(&folder.path().join("a.txt")) };
    assert!(find(&spec).unwrap_err().to_string().contains("plain text"));
    let fields =
        crate::source::Fields::Exchange { prompt: "a".to_owned(), response: "a".to_owned() };
    let error = find(&SourceSpec { fields, ..spec }).unwrap_err().to_string();
    assert!(error.contains("both the field"), "{error}");
}
