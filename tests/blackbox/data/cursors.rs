//! Cursors as files.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use serde_json::{Value, json};

use super::{Data, LIMIT};
use crate::support::{Done, Running};

/// A command in a line of a shell, where it is `"$@"`.
fn in_shell(data: &Data, line: &str, arguments: &[&str]) -> Done {
    let mut command = Command::new("bash");
    command.args(["-c", line, "bash", env!("CARGO_BIN_EXE_titan-tpu")]).args(arguments);
    command.current_dir(data.path("")).env("TITAN_DATA_CACHE", data.path("tokens"));
    Running::start(command).wait_for(LIMIT)
}

#[test]
fn a_cursor_that_cannot_be_written_is_lost() {
    let data = Data::new();
    let show = ["data", "show", "r.toml", "--steps", "1..3", "--write-cursor", "c.json"];
    in_shell(&data, "\"$@\"", &show).expect(0);
    let before = fs::read(data.path("c.json")).unwrap();
    let again = [&show[..], &["--cursor", "c.json"]].concat();
    let done = in_shell(&data, "ulimit -f 0; exec \"$@\"", &again).expect(7);
    done.says(&["cannot write c.json: File too large"]);
    assert_eq!(fs::read(data.path("c.json")).unwrap(), before);
    assert!(!data.bench.names().iter().any(|name| name.ends_with(".new")), "a part was left");
    // A link stays a link, and a device a device.
    symlink("c.json", data.path("link")).unwrap();
    data.rows("1", &["--cursor", "link", "--write-cursor", "link"]);
    assert!(fs::symlink_metadata(data.path("link")).unwrap().is_symlink());
    assert_ne!(fs::read(data.path("c.json")).unwrap(), before);
    data.rows("1", &["--write-cursor", "/dev/null"]);
    assert!(!fs::metadata("/dev/null").unwrap().is_file());
}

#[test]
fn a_reader_that_goes_away_keeps_the_cursor_back() {
    let data = Data::new();
    data.rows("1..9000", &["--write-cursor", "whole"]);
    let show = ["data", "show", "r.toml", "--steps", "1..9000", "--json", "--write-cursor", "cut"];
    let done = in_shell(&data, "\"$@\" | head -c 1000; exit ${PIPESTATUS[0]}", &show).expect(0);
    assert_eq!(done.stdout.len(), 1000);
    let read = |name: &str| fs::read_to_string(data.path(name)).unwrap();
    assert_eq!(read("cut"), read("whole"));
}

#[test]
fn a_place_beyond_all_places_overflows() {
    let data = Data::new();
    data.rows("1", &["--write-cursor", "c"]);
    let mut cursor: Value = serde_json::from_slice(&fs::read(data.path("c")).unwrap()).unwrap();
    for (samples, code) in [(u64::MAX, 2), (u64::MAX - 3, 2), (u64::MAX - 4, 0)] {
        cursor["samples"] = json!(samples);
        data.write("c", cursor.to_string());
        for more in [&["--steps", "1"][..], &[], &["--steps", "1", "--write-cursor", "d"]] {
            let show = [&["data", "show", "r.toml", "--cursor", "c"][..], more].concat();
            let done = data.run(&show).expect(code);
            if code == 2 {
                done.says(&[&format!("c: this is no cursor: samples is {samples}")]);
            }
        }
        let show = ["data", "show", "r.toml", "--cursor", "c", "--steps", "1..2"];
        data.run(&show).expect(2);
    }
}
