//! What the commands of data say, and which code they end with.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use serde_json::Value;

use super::{Data, LIMIT, flip, letters};
use crate::support::{Running, not_tested};

/// A text of so many megabytes in lines of a kilobyte.
fn long(megabytes: usize) -> String {
    let line = letters(1, 999) + "\n";
    line.repeat(megabytes * 1000)
}

#[test]
fn a_mistake_on_the_command_line_is_called_bad_data() {
    let data = Data::new();
    data.write_texts("d.jsonl", &["a", "b"]);
    data.run(&["data", "tokenize", "d.jsonl", "-o", "shards"]).expect(0);
    let cases: [(&[&str], &str); 8] = [
        (&["tokenize", "nothing.jsonl", "-o", "s"], "nothing.jsonl: there is no such file"),
        (&["tokenize", "d.jsonl/x", "-o", "s"], "d.jsonl/x: there is no such file"),
        (&["tokenize", "*.csv", "-o", "s"], "no data file matches this glob"),
        (&["tokenize", "d.jsonl", "-o", "d.jsonl/x"], "d.jsonl/x: cannot make this folder"),
        (&["tokenize", "d.jsonl", "-o", "d.jsonl"], "d.jsonl: cannot make this folder"),
        (&["tokenize", "d.jsonl", "--tokenizer", "no.json", "-o", "s"], "no.json"),
        (&["show", "shards", "--split", "test"], "no split `test`; they have train"),
        (&["show", "shards", "--documents", "-1"], "'-1' for '--documents <N>'"),
    ];
    for (arguments, text) in cases {
        data.run(&[&["data"], arguments].concat()).expect(2).says(&[text]);
        assert!(!data.path("s").exists(), "{arguments:?} left a folder");
    }
}

#[test]
fn shards_are_written_where_the_next_command_reads_them_as_text() {
    let data = Data::new();
    data.write_texts("c/d.jsonl", &["a", "b"]);
    symlink("c", data.path("link")).unwrap();
    for output in ["c", "c/shards", "link/shards", "./c/../c/shards"] {
        let done = data.run(&["data", "tokenize", "c", "-o", output]).expect(2);
        done.says(&[&format!("--output {output}: this is in c, whose files are read")]);
    }
    assert_eq!(fs::read_dir(data.path("c")).unwrap().count(), 1);
    data.run(&["data", "tokenize", "c", "-o", "shards"]).expect(0);
    let done = data.run(&["data", "tokenize", "shards", "-o", "again"]).expect(2);
    done.says(&["shards: these are token shards already"]);
}

#[test]
fn an_address_of_a_store_becomes_a_local_folder() {
    let data = Data::new();
    data.write_texts("d.jsonl", &["a", "b"]);
    let tokenize = ["data", "tokenize", "d.jsonl", "-o"];
    for output in ["s3://bucket/shards", "gs://bucket/shards"] {
        let done = data.run(&[&tokenize[..], &[output]].concat()).expect(2);
        done.says(&[output, "written to a local folder"]);
    }
    assert!(!data.path("s3:").exists() && !data.path("gs:").exists());
    let done = data.run(&[&tokenize[..], &["s", "--tokenizer", "s3://bucket/t.json"]].concat());
    done.expect(2).says(&["s3://bucket/t.json: the tokenizer must be a local file"]);
}

#[test]
fn folders_of_a_failed_attempt_stay() {
    let data = Data::new();
    data.write("bad.jsonl", "{\"text\": 1}\n");
    fs::create_dir(data.path("p")).unwrap();
    data.run(&["data", "tokenize", "bad.jsonl", "-o", "p/q/r"]).expect(3);
    assert_eq!(fs::read_dir(data.path("p")).unwrap().count(), 0, "p/q was left");
}

#[test]
fn no_document_is_no_word_worth() {
    let data = Data::new();
    data.write("empty.jsonl", "");
    let done = data.run(&["data", "tokenize", "empty.jsonl", "-o", "s"]).expect(0);
    done.says(&["warning: no document was found"]);
}

#[test]
fn checking_goes_on_after_a_signal() {
    let data = Data::new();
    data.write("big.txt", long(200));
    data.run(&["data", "tokenize", "big.txt", "-o", "s"]).expect(0);
    for arguments in
        [&["data", "verify", "s"][..], &["data", "verify", "big.txt", "--documents", "lines"]]
    {
        let running = data.start(arguments);
        thread::sleep(Duration::from_millis(100));
        running.signal("INT");
        let done = running.wait_for(Duration::from_secs(10));
        // A fast machine may have finished it.
        assert!(matches!(done.code, Some(75 | 0)), "{:?}: {}", done.code, done.stderr);
        if done.code == Some(75) {
            done.says(&["stopped before everything was checked"]);
        }
    }
}

#[test]
fn a_limit_of_the_size_of_files_kills_without_a_word() {
    let data = Data::new();
    data.write("d.txt", long(4));
    let limited = |arguments: &str| {
        let binary = env!("CARGO_BIN_EXE_titan-tpu");
        let script = format!("ulimit -f 1000; exec {binary} data tokenize {arguments}");
        let mut command = Command::new("bash");
        let output = command.arg("-c").arg(script).current_dir(data.path(".")).output().unwrap();
        assert_eq!(output.status.signal(), None);
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, stderr) = limited("d.txt --documents lines -o s");
    assert_eq!(code, Some(7), "{stderr}");
    assert!(stderr.contains("cannot write this file: File too large"), "{stderr}");
    assert!(stderr.contains("ulimit -f"), "{stderr}");
    // What was said is true.
    data.run(&["data", "tokenize", "d.txt", "--documents", "lines", "-o", "s"]).expect(0);
    data.run(&["data", "verify", "s"]).expect(0);
}

#[test]
fn damage_of_what_shards_were_made_from_is_found_by_nobody() {
    let data = Data::new();
    data.write_texts("d.jsonl", &["a", "b"]);
    data.run(&["data", "tokenize", "d.jsonl", "-o", "s"]).expect(0);
    flip(&data.path("s/job.json"), 0);
    let done = data.run(&["data", "verify", "s"]).expect(3);
    assert!(done.stdout.contains("s/job.json: says no more what the shards were made from"));
}

#[test]
fn a_cache_that_cannot_be_written_is_no_fault_of_the_data() {
    let data = Data::new();
    data.write("file", "in the way");
    let mut command = data.bench.command(&["data", "show", "r.toml"]);
    command.env("TITAN_DATA_CACHE", data.path("file/x"));
    let done = Running::start(command).wait_for(LIMIT).expect(8);
    done.says(&["cannot make this folder", "set TITAN_DATA_CACHE to a folder that can be written"]);
}

#[test]
fn a_cursor_of_prompts_is_taken_for_one_of_another_length() {
    let data = Data::new();
    data.write_texts("d.jsonl", &["a", "b"]);
    data.run(&["data", "show", "r.toml", "--steps", "1", "--write-cursor", "c"]).expect(0);
    let mut cursor: Value = serde_json::from_slice(&fs::read(data.path("c")).unwrap()).unwrap();
    cursor["order"]["sequence_length"] = 0.into();
    data.write("c", cursor.to_string());
    let done = data.run(&["data", "show", "r.toml", "--steps", "1", "--cursor", "c"]).expect(2);
    done.says(&["it is of prompts, and this is text"]);
}

#[test]
fn one_field_for_prompt_and_response_is_called_bad_data() {
    let data = Data::new();
    data.write_texts("d.jsonl", &["a"]);
    let fields = ["--prompt-field", "text", "--response-field", "text"];
    for command in [&["data", "tokenize", "d.jsonl", "-o", "s"][..], &["data", "verify", "d.jsonl"]]
    {
        let done = data.run(&[command, &fields].concat()).expect(2);
        done.says(&["prompt and response are both the field \"text\"; name two fields"]);
    }
}

#[test]
fn a_folder_that_cannot_be_looked_at_is_called_bad_data() {
    let data = Data::new();
    data.write_texts("d.jsonl", &["a"]);
    symlink("loop", data.path("loop")).unwrap();
    let long = "x".repeat(300);
    for (output, text) in [
        ("loop", "loop/job.json: cannot look at this file: Too many levels of symbolic links"),
        ("loop/deep", "loop/deep/job.json: cannot look at this file: Too many levels"),
        (long.as_str(), "cannot look at this file: File name too long"),
    ] {
        data.run(&["data", "tokenize", "d.jsonl", "-o", output]).expect(2).says(&[text]);
    }
    let mut command = data.bench.command(&["data", "show", "r.toml"]);
    command.env("TITAN_DATA_CACHE", data.path("loop"));
    let done = Running::start(command).wait_for(LIMIT).expect(8);
    done.says(&[
        "cannot look at this file",
        "set TITAN_DATA_CACHE to a folder that can be written",
    ]);
}

#[test]
fn permissions_of_folders_are_called_bad_data() {
    let data = Data::new();
    data.write_texts("d.jsonl", &["a"]);
    data.run(&["data", "show", "r.toml"]).expect(0);
    let closed = data.path("closed");
    fs::create_dir(&closed).unwrap();
    let close = |folder: &Path, mode| {
        fs::set_permissions(folder, fs::Permissions::from_mode(mode)).unwrap();
    };
    close(&closed, 0o000);
    let shards = data.bench.shards().remove(0);
    if fs::read_dir(&closed).is_ok() {
        return not_tested("permissions, which do not hold for this user");
    }
    let done = data.run(&["data", "tokenize", "d.jsonl", "-o", "closed/s"]).expect(2);
    done.says(&["closed/s/job.json: cannot look at this file: Permission denied"]);
    close(&closed, 0o700);
    for (path, mode) in [(shards.clone(), 0o000), (shards.join("index.json"), 0o000)] {
        let before = fs::metadata(&path).unwrap().permissions();
        close(&path, mode);
        let done = data.run(&["data", "show", "r.toml"]).expect(8);
        done.says(&["Permission denied", "set TITAN_DATA_CACHE to a folder"]);
        fs::set_permissions(&path, before).unwrap();
    }
}
