//! Recipes and data files that cannot be read, on a real disk.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::channel;
use std::time::Duration;

use expect_test::{Expect, expect};
use tempfile::TempDir;
use titan_recipes::{Location, Overrides, Purpose, Report, load};

use crate::support::{SOUND, said};

/// A folder with a sound recipe `small.toml` and its data.
fn folder() -> TempDir {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("small.toml"), SOUND).unwrap();
    fs::write(folder.path().join("data.txt"), "text").unwrap();
    folder
}

/// What is said about a file, with `DIR` for its folder. A file that makes loading wait is a failure.
fn said_of(folder: &Path, name: &str) -> String {
    let (sender, receiver) = channel();
    let path = if name.starts_with('/') { PathBuf::from(name) } else { folder.join(name) };
    std::thread::spawn(move || {
        let _ = sender.send(said(&load(&path, &Overrides::default(), Purpose::Train)));
    });
    let text = receiver.recv_timeout(Duration::from_secs(20)).expect("loading waits");
    format!("{}\n", text.replace(folder.to_str().unwrap(), "DIR"))
}

fn check(folder: &TempDir, name: &str, expected: Expect) {
    expected.assert_eq(&said_of(folder.path(), name));
}

/// Checks a recipe file with this content.
fn check_content(content: &[u8], expected: Expect) {
    let folder = folder();
    fs::write(folder.path().join("bad.toml"), content).unwrap();
    check(&folder, "bad.toml", expected);
}

#[test]
fn a_sound_recipe_knows_its_data_by_an_absolute_path() {
    let folder = folder();
    let loaded =
        load(&folder.path().join("small.toml"), &Overrides::default(), Purpose::Train).unwrap();
    assert_eq!(
        *loaded.recipe.data.sources[0].path,
        Location::Local(folder.path().join("data.txt"))
    );
}

#[test]
fn a_directory() {
    let folder = folder();
    fs::create_dir(folder.path().join("recipes.toml")).unwrap();
    check(
        &folder,
        "recipes.toml",
        expect![[r#"
        error: the recipe is a directory
        --> DIR/recipes.toml
         = help: a recipe is a TOML file, for example recipes/llama3_tiny.toml
    "#]],
    );
}

#[test]
fn a_missing_file() {
    let folder = folder();
    check(
        &folder,
        "smal.toml",
        expect![[r#"
        error: cannot read the recipe: no such file
        --> DIR/smal.toml
         = help: did you mean DIR/small.toml?
    "#]],
    );
    check(
        &folder,
        "small",
        expect![[r#"
        error: cannot read the recipe: no such file
        --> DIR/small
         = help: did you mean DIR/small.toml?
    "#]],
    );
    check(
        &folder,
        "quite_different.toml",
        expect![[r#"
        error: cannot read the recipe: no such file
        --> DIR/quite_different.toml
         = help: a recipe is a TOML file, for example recipes/llama3_tiny.toml
    "#]],
    );
    check(
        &folder,
        "no_folder/small.toml",
        expect![[r#"
        error: cannot read the recipe: no such file
        --> DIR/no_folder/small.toml
         = help: a recipe is a TOML file, for example recipes/llama3_tiny.toml
    "#]],
    );
    symlink("nowhere", folder.path().join("dangling.toml")).unwrap();
    check(
        &folder,
        "dangling.toml",
        expect![[r#"
            error: cannot read the recipe: it is a link to nothing
            --> DIR/dangling.toml
             = help: a recipe is a TOML file, for example recipes/llama3_tiny.toml
        "#]],
    );
}

#[test]
fn a_path_through_a_file_and_a_loop() {
    let folder = folder();
    check(
        &folder,
        "small.toml/small.toml",
        expect![[r#"
        error: cannot read the recipe: not a directory
        --> DIR/small.toml/small.toml
         = help: a recipe is a TOML file, for example recipes/llama3_tiny.toml
    "#]],
    );
    symlink("loop.toml", folder.path().join("loop.toml")).unwrap();
    check(
        &folder,
        "loop.toml",
        expect![[r#"
        error: cannot read the recipe: too many levels of symbolic links
        --> DIR/loop.toml
         = help: a recipe is a TOML file, for example recipes/llama3_tiny.toml
    "#]],
    );
    check(
        &folder,
        &"n".repeat(300),
        expect![[r#"
        error: cannot read the recipe: file name too long
        --> DIR/nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn
         = help: a recipe is a TOML file, for example recipes/llama3_tiny.toml
    "#]],
    );
}

#[test]
fn an_empty_path() {
    let report = load(Path::new(""), &Overrides::default(), Purpose::Train).unwrap_err();
    expect![[r#"
        error: the path of the recipe is empty
         |
         = help: a recipe is a TOML file, for example recipes/llama3_tiny.toml
    "#]]
    .assert_eq(&format!("{}\n", report.render(false)));
}

#[test]
fn a_pipe_and_a_device() {
    let folder = folder();
    let made = Command::new("mkfifo").arg(folder.path().join("pipe.toml")).status().unwrap();
    assert!(made.success());
    check(
        &folder,
        "pipe.toml",
        expect![[r#"
        error: the recipe is not a regular file
        --> DIR/pipe.toml
         = help: a recipe is a TOML file, for example recipes/llama3_tiny.toml
    "#]],
    );
    check(
        &folder,
        "/dev/zero",
        expect![[r#"
        error: the recipe is not a regular file
        --> /dev/zero
         = help: a recipe is a TOML file, for example recipes/llama3_tiny.toml
    "#]],
    );
}

#[test]
fn a_file_that_cannot_be_read() {
    let folder = folder();
    let path = folder.path().join("small.toml");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
    // Root may read everything.
    if fs::File::open(&path).is_err() {
        check(
            &folder,
            "small.toml",
            expect![[r#"
                error: cannot read the recipe: permission denied
                --> DIR/small.toml
                 = help: check its permissions with ls -l
            "#]],
        );
    }
    // A regular file whose bytes nobody can read.
    check(
        &folder,
        "/proc/self/mem",
        expect![[r#"
        error: cannot read the recipe: input/output error
        --> /proc/self/mem
         = help: a recipe is a TOML file, for example recipes/llama3_tiny.toml
    "#]],
    );
}

#[test]
fn bytes_that_are_no_text() {
    check_content(
        b"version = 1\nname = \"\xff\xfe\"\n",
        expect![[r#"
        error: the recipe is not text: byte 0xff at offset 20 (line 2) is not UTF-8
        --> DIR/bad.toml
         = help: a recipe is a TOML file, for example recipes/llama3_tiny.toml
    "#]],
    );
    check_content(
        b"\xff\xfev\0e\0r\0",
        expect![[r#"
        error: the recipe is UTF-16 text; save it as UTF-8
        --> DIR/bad.toml
         = help: a recipe is a TOML file, for example recipes/llama3_tiny.toml
    "#]],
    );
    check_content(
        &[0x1f, 0x8b, 0x08, 0x00],
        expect![[r#"
        error: the recipe is not text: byte 0x8b at offset 1 (line 1) is not UTF-8
        --> DIR/bad.toml
         = help: a recipe is a TOML file, for example recipes/llama3_tiny.toml
    "#]],
    );
    check_content(
        "version = 1\nname = \"ü".as_bytes().split_last().unwrap().1,
        expect![[r#"
        error: the recipe is not text: byte 0xc3 at offset 20 (line 2) is not UTF-8
        --> DIR/bad.toml
         = help: a recipe is a TOML file, for example recipes/llama3_tiny.toml
    "#]],
    );
}

#[test]
fn a_file_that_is_too_large() {
    check_content(
        &vec![b'#'; (1 << 20) + 1],
        expect![[r#"
        error: the recipe is larger than 1048576 bytes
        --> DIR/bad.toml
         = help: a recipe is a TOML file, for example recipes/llama3_tiny.toml
    "#]],
    );
    check_content(
        &vec![b'#'; 1 << 20],
        expect![[r#"
        error: the recipe is empty
        --> DIR/bad.toml
         = help: start from a copy of recipes/llama3_tiny.toml
    "#]],
    );
}

#[test]
fn a_name_with_control_characters() {
    let folder = folder();
    fs::write(folder.path().join("a\u{1b}[31m\n.toml"), "").unwrap();
    check(
        &folder,
        "a\u{1b}[31m\n.toml",
        expect![[r#"
            error: the recipe is empty
            --> DIR/a\u{1b}[31m\n.toml
             = help: start from a copy of recipes/llama3_tiny.toml
        "#]],
    );
    check(
        &folder,
        "b\u{1b}[31m\n.toml",
        expect![[r#"
        error: cannot read the recipe: no such file
        --> DIR/b\u{1b}[31m\n.toml
         = help: did you mean DIR/a\u{1b}[31m\n.toml?
    "#]],
    );
}

#[test]
fn awkward_names_are_found_and_shown() {
    let folder = folder();
    let long = "n".repeat(200);
    for name in ["výstup 测试/😀 run", "a'b\"c", &long] {
        let inner = folder.path().join(name);
        fs::create_dir_all(&inner).unwrap();
        fs::write(inner.join("r.toml"), SOUND).unwrap();
        fs::write(inner.join("data.txt"), "text").unwrap();
        let loaded = load(&inner.join("r.toml"), &Overrides::default(), Purpose::Train).unwrap();
        assert_eq!(*loaded.recipe.data.sources[0].path, Location::Local(inner.join("data.txt")));
        let text = loaded.recipe.to_toml(&loaded.layout).unwrap();
        fs::write(folder.path().join("resolved.toml"), text).unwrap();
        let again =
            load(&folder.path().join("resolved.toml"), &Overrides::default(), Purpose::Train)
                .unwrap();
        assert_eq!((again.recipe.data, again.layout), (loaded.recipe.data, loaded.layout));
    }
}

#[test]
fn a_folder_that_a_recipe_cannot_name() {
    let folder = folder();
    let inner = folder.path().join(std::ffi::OsStr::from_bytes(b"\xff"));
    fs::create_dir(&inner).unwrap();
    fs::write(inner.join("r.toml"), SOUND).unwrap();
    fs::write(inner.join("data.txt"), "text").unwrap();
    let report: Report =
        load(&inner.join("r.toml"), &Overrides::default(), Purpose::Train).unwrap_err();
    let text = report.render(false).replace(folder.path().to_str().unwrap(), "DIR");
    expect![[r#"
        error: cannot use a data source `data.txt`: the name of its folder is not valid UTF-8, which a recipe cannot hold
          --> DIR/�/r.toml:27:21
           |
        27 | sources = [{ path = "data.txt" }]
           |                     ^^^^^^^^^^ in this folder
           |
           = help: rename the folder, or give an absolute path elsewhere
    "#]].assert_eq(&format!("{text}\n"));
}

/// Checks the sound recipe with another path of its data file.
fn check_data(folder: &TempDir, path: &str, expected: Expect) {
    let text = SOUND.replace("data.txt", path);
    fs::write(folder.path().join("r.toml"), text).unwrap();
    check(folder, "r.toml", expected);
}

#[test]
fn data_that_cannot_be_read() {
    let folder = folder();
    fs::create_dir(folder.path().join("texts")).unwrap();
    let made = Command::new("mkfifo").arg(folder.path().join("pipe.txt")).status().unwrap();
    assert!(made.success());
    check_data(
        &folder,
        "date.txt",
        expect![[r#"
        error: cannot read the data file `date.txt`: no such file
          --> DIR/r.toml:27:21
           |
        27 | sources = [{ path = "date.txt" }]
           |                     ^^^^^^^^^^ no such file
           |
           = help: did you mean `data.txt`?
                   relative paths here start from DIR
    "#]],
    );
    check_data(
        &folder,
        "/nowhere/at/all.txt",
        expect![[r#"
        error: cannot read the data file `/nowhere/at/all.txt`: no such file
          --> DIR/r.toml:27:21
           |
        27 | sources = [{ path = "/nowhere/at/all.txt" }]
           |                     ^^^^^^^^^^^^^^^^^^^^^ no such file
    "#]],
    );
    check_data(
        &folder,
        "~/data.txt",
        expect![[r#"
        error: cannot read the data file `~/data.txt`: no such file
          --> DIR/r.toml:27:21
           |
        27 | sources = [{ path = "~/data.txt" }]
           |                     ^^^^^^^^^^^^ no such file
           |
           = help: `~` has no meaning here: write the whole path
    "#]],
    );
    check_data(
        &folder,
        "texts",
        expect![[r#"
        error: cannot read the data file `texts`: it is an empty folder
          --> DIR/r.toml:27:21
           |
        27 | sources = [{ path = "texts" }]
           |                     ^^^^^^^ it is an empty folder
    "#]],
    );
    check_data(
        &folder,
        "pipe.txt",
        expect![[r#"
            error: cannot read the data file `pipe.txt`: it is not a regular file
              --> DIR/r.toml:27:21
               |
            27 | sources = [{ path = "pipe.txt" }]
               |                     ^^^^^^^^^^ it is not a regular file
        "#]],
    );
    check_data(
        &folder,
        "",
        expect![[r#"
            error: a data source must name a file or folder
              --> DIR/r.toml:27:21
               |
            27 | sources = [{ path = "" }]
               |                     ^^ not a path
               |
               = help: for example: path = "corpus.txt"
        "#]],
    );
    check_data(
        &folder,
        "a\\u0000b",
        expect![[r#"
            error: a data source must name a file or folder
              --> DIR/r.toml:27:21
               |
            27 | sources = [{ path = "a\u0000b" }]
               |                     ^^^^^^^^^^ not a path
               |
               = help: for example: path = "corpus.txt"
        "#]],
    );
}

/// What is in a source is for who reads it: an empty file is passed over there.
#[test]
fn data_of_many_kinds() {
    let folder = folder();
    fs::write(folder.path().join("empty.txt"), "").unwrap();
    fs::create_dir_all(folder.path().join("texts/a/b")).unwrap();
    fs::write(folder.path().join("texts/a/b/1.jsonl"), "{}").unwrap();
    symlink("a", folder.path().join("texts/link")).unwrap();
    // A path that exists is no pattern.
    fs::write(folder.path().join("[x] what?.txt"), "text").unwrap();
    for path in [
        "empty.txt",
        "texts",
        "texts/a/b/*.jsonl",
        "texts/**/*.jsonl",
        "texts/*/?/[0-9].jsonl",
        "**/1.jsonl",
        "texts/*/b",
        "texts/*",
        "texts/l*/b/*",
        "[x] what?.txt",
        "gs://bucket/shards/*.parquet",
        "s3://bucket/shards",
    ] {
        fs::write(folder.path().join("r.toml"), SOUND.replace("data.txt", path)).unwrap();
        assert_eq!(said_of(folder.path(), "r.toml"), "\n", "{path}");
    }
}

#[test]
fn patterns_that_match_nothing() {
    let folder = folder();
    fs::create_dir_all(folder.path().join("texts/a.txt")).unwrap();
    fs::write(folder.path().join("texts/.hidden.jsonl"), "{}").unwrap();
    // Links in circles, which nobody must follow for ever.
    for name in ["texts/up", "texts/again"] {
        symlink("..", folder.path().join(name)).unwrap();
    }
    check_data(
        &folder,
        "texts/*.jsonl",
        expect![[r#"
        error: cannot read the data files `texts/*.jsonl`: it matches no file
          --> DIR/r.toml:27:21
           |
        27 | sources = [{ path = "texts/*.jsonl" }]
           |                     ^^^^^^^^^^^^^^^ it matches no file
           |
           = help: looked in DIR/texts
    "#]],
    );
    check_data(
        &folder,
        "texts/**/*.jsonl",
        expect![[r#"
        error: cannot read the data files `texts/**/*.jsonl`: it matches no file
          --> DIR/r.toml:27:21
           |
        27 | sources = [{ path = "texts/**/*.jsonl" }]
           |                     ^^^^^^^^^^^^^^^^^^ it matches no file
           |
           = help: looked in DIR/texts
    "#]],
    );
    // The only match is a folder without anything in it.
    check_data(
        &folder,
        "texts/*.txt",
        expect![[r#"
        error: cannot read the data files `texts/*.txt`: it matches no file
          --> DIR/r.toml:27:21
           |
        27 | sources = [{ path = "texts/*.txt" }]
           |                     ^^^^^^^^^^^^^ it matches no file
           |
           = help: looked in DIR/texts
    "#]],
    );
    check_data(
        &folder,
        "nowhere/**/*.txt",
        expect![[r#"
            error: cannot read the data files `nowhere/**/*.txt`: there is no folder DIR/nowhere
              --> DIR/r.toml:27:21
               |
            27 | sources = [{ path = "nowhere/**/*.txt" }]
               |                     ^^^^^^^^^^^^^^^^^^ there is no folder DIR/nowhere
        "#]],
    );
    check_data(
        &folder,
        "texts/**.txt",
        expect![[r#"
        error: cannot read the data files `texts/**.txt`: `**` must stand between slashes, as in `texts/**/*.txt`
          --> DIR/r.toml:27:21
           |
        27 | sources = [{ path = "texts/**.txt" }]
           |                     ^^^^^^^^^^^^^^ `**` must stand between slashes, as in `texts/**/*.txt`
    "#]],
    );
    check_data(
        &folder,
        "texts/[a.txt",
        expect![[r#"
        error: cannot read the data files `texts/[a.txt`: a `[` has no `]`; the character itself is written `[[]`
          --> DIR/r.toml:27:21
           |
        27 | sources = [{ path = "texts/[a.txt" }]
           |                     ^^^^^^^^^^^^^^ a `[` has no `]`; the character itself is written `[[]`
    "#]],
    );
}

/// The name of the folder that a recipe is in is no pattern.
#[test]
fn a_pattern_in_a_folder_with_brackets() {
    let outer = folder();
    let inner = outer.path().join("[ab]*");
    fs::create_dir_all(&inner).unwrap();
    fs::create_dir(outer.path().join("a1")).unwrap();
    fs::write(outer.path().join("a1/data.md"), "text").unwrap();
    fs::write(inner.join("data.txt"), "text").unwrap();
    fs::write(inner.join("r.toml"), SOUND.replace("data.txt", "*.md")).unwrap();
    check(
        &outer,
        "[ab]*/r.toml",
        expect![[r#"
            error: cannot read the data files `*.md`: it matches no file
              --> DIR/[ab]*/r.toml:27:21
               |
            27 | sources = [{ path = "*.md" }]
               |                     ^^^^^^ it matches no file
               |
               = help: looked in DIR/[ab]*
        "#]],
    );
    let text = SOUND.replace("data.txt", "d*.txt");
    fs::write(inner.join("r.toml"), text).unwrap();
    let loaded = load(&inner.join("r.toml"), &Overrides::default(), Purpose::Train).unwrap();
    let expected = outer.path().join("[[]ab[]][*]/d*.txt");
    assert_eq!(loaded.recipe.data.sources[0].path.local(), Some(&*expected));
}
