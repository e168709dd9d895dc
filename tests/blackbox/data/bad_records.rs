//! Records that cannot be read, a row each; and what only looks like one.

use std::fs;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::Data;
use crate::support::json_lines;
use crate::support::not_tested;

/// A file with one bad record.
struct Bad {
    name: &'static str,
    content: Vec<u8>,
    more: &'static [&'static str],
    /// Line, and byte in the decompressed file.
    place: (u64, u64),
    reason: &'static str,
    says: &'static [&'static str],
    /// Texts that are read when it is passed over.
    left: Vec<String>,
}

fn bad(name: &'static str, content: &[u8], place: (u64, u64), reason: &'static str) -> Bad {
    let left = vec!["one".to_owned(), "three".to_owned()];
    Bad { name, content: content.to_vec(), more: &[], place, reason, says: &[], left }
}

/// Between two good records.
fn record(name: &'static str, middle: &[u8], at: u64, reason: &'static str) -> Bad {
    let content = [b"{\"text\": \"one\"}\n", middle, b"\n{\"text\": \"three\"}\n"].concat();
    bad(name, &content, (2, 16 + at), reason)
}

fn compressed(program: &str, content: &[u8]) -> Vec<u8> {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), content).unwrap();
    let output = Command::new(program).arg("-c").arg(file.path()).stderr(Stdio::inherit()).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{program}");
    output.stdout
}

/// `(the texts, as records)`.
fn many_lines() -> (Vec<String>, String) {
    let texts: Vec<String> = (0..3000u64).map(|n| super::letters(n, 20)).collect();
    let lines = texts.iter().map(|text| json!({ "text": text }).to_string() + "\n").collect();
    (texts, lines)
}

fn rows() -> Vec<Bad> {
    let lines: &[&str] = &["--documents", "lines"];
    let (texts, many) = many_lines();
    let gzip = compressed("gzip", many.as_bytes());
    let garbage = [&gzip[..], b"garbage after the end"].concat();
    let end = many.len() as u64;
    vec![
        Bad {
            says: &["byte 0xff in column 12 is not valid UTF-8"],
            ..record("utf8.jsonl", b"{\"text\": \"t\xffo\"}", 11, "invalid-utf8")
        },
        Bad {
            says: &["byte 0xff", "is not valid UTF-8"],
            more: lines,
            ..bad("utf8.txt", b"one\nt\xffo\nthree\n", (2, 5), "invalid-utf8")
        },
        Bad {
            says: &["byte 0xff at offset 5"],
            left: Vec::new(),
            ..bad("whole.txt", b"one\nt\xffo\nthree\n", (2, 5), "invalid-utf8")
        },
        Bad {
            says: &["EOF while parsing an object in column 15"],
            ..record("brace.jsonl", b"{\"text\": \"two\"", 14, "broken-json")
        },
        Bad {
            says: &["trailing characters in column 16"],
            ..record("trailing.jsonl", b"{\"text\": \"two\"}x", 15, "broken-json")
        },
        Bad {
            says: &["the line is an array", "each line must be an object"],
            ..record("array.jsonl", b"[\"two\"]", 0, "not-an-object")
        },
        Bad {
            says: &["the line is a string"],
            ..record("string.jsonl", b"\"two\"", 0, "not-an-object")
        },
        Bad {
            says: &[
                "no field \"text\"",
                "did you mean \"txet\"?",
                "the record has \"id\", \"txet\"",
            ],
            ..record("field.jsonl", b"{\"id\": 2, \"txet\": \"two\"}", 0, "missing-field")
        },
        Bad {
            says: &["\"text\" is a number; it must be a string"],
            ..record("number.jsonl", b"{\"text\": 2}", 0, "wrong-type")
        },
        Bad {
            says: &["\"text\" is null; it must be a string"],
            ..record("null.jsonl", b"{\"text\": null}", 0, "null")
        },
        Bad {
            says: &["control character"],
            ..record("nul.jsonl", b"{\"text\": \"t\0o\"}", 11, "broken-json")
        },
        Bad {
            says: &["\"text\" has a U+0000"],
            ..record("escape.jsonl", b"{\"text\": \"t\\u0000o\"}", 0, "nul-character")
        },
        Bad {
            says: &["byte 0x00 at offset 5 is a NUL"],
            more: lines,
            ..bad("nul.txt", b"one\nt\0o\nthree\n", (2, 5), "nul-character")
        },
        Bad {
            says: &["\"p\" is null"],
            more: &["--prompt-field", "p", "--response-field", "text"],
            left: vec!["1one".to_owned()],
            ..bad(
                "pair.jsonl",
                b"{\"p\": \"1\", \"text\": \"one\"}\n{\"p\": null, \"text\": \"two\"}\n",
                (2, 26),
                "null",
            )
        },
        Bad {
            says: &["decompression stopped at byte", "unexpected end of file"],
            left: texts.clone(),
            ..bad("cut.jsonl.gz", &gzip[..gzip.len() - 4], (3001, end), "truncated")
        },
        Bad {
            says: &["decompression stopped at byte", "invalid gzip header"],
            left: texts,
            ..bad("garbage.jsonl.gz", &garbage, (3001, end), "truncated")
        },
    ]
}

#[test]
fn a_bad_record_is_named_by_its_place_or_passed_over_and_counted() {
    let data = Data::new();
    for Bad { name, content, more, place: (line, byte), reason, says, left } in rows() {
        data.write(name, content);
        let tokenize = [&["data", "tokenize", name, "-o", "s"][..], more].concat();
        let of = if name.ends_with(".gz") { " of the decompressed file" } else { "" };
        let (begin, end) = (format!("error: {name}:{line}: "), format!("(byte {byte}{of})"));
        let done = data.run(&tokenize).expect(3).says(&[&begin, &end]).says(says);
        done.says(&["add --on-bad-record skip"]);
        assert!(!data.path("s").exists(), "{name}: something was left behind");

        // `data verify` finds it too, and does not stop at it.
        let verify = [&["data", "verify", name, "--json"][..], more].concat();
        let found: Value = serde_json::from_str(&data.run(&verify).expect(3).stdout).unwrap();
        let fault = &found["faults"][0];
        assert_eq!((&fault["record"], &fault["offset"]), (&line.into(), &byte.into()), "{found}");
        assert_eq!(found["bad"], json!({ reason: 1 }), "{name}");

        let made = data.json(&[&tokenize[..], &["--on-bad-record", "skip"]].concat());
        assert_eq!(made[0]["account"]["bad"], json!({ reason: 1 }), "{name}");
        assert_eq!(made[0]["account"]["records"], left.len() + 1, "{name}");
        let list = json_lines(&fs::read_to_string(data.path("s/skipped.jsonl")).unwrap());
        let [skipped] = &list[..] else { panic!("{name}: {list:?}") };
        for (key, value) in
            [("file", json!(name)), ("record", json!(line)), ("offset", json!(byte))]
        {
            assert_eq!(skipped[key], value, "{name}: {skipped}");
        }
        assert_eq!(skipped["reason"], reason, "{name}");
        if !left.is_empty() {
            assert_eq!(data.texts("s"), left, "{name}");
        }
        fs::remove_dir_all(data.path("s")).unwrap();
    }
}

#[test]
fn a_gzip_file_that_was_cut_off_early_is_not_taken_for_a_whole_one() {
    let data = Data::new();
    let (texts, many) = many_lines();
    let gzip = compressed("gzip", many.as_bytes());
    for left in [gzip.len() / 2, gzip.len() - 9, 15, 5] {
        data.write("cut.jsonl.gz", &gzip[..left]);
        let tokenize = ["data", "tokenize", "cut.jsonl.gz", "-o", "s"];
        data.run(&tokenize).expect(3).says(&["error: cut.jsonl.gz:", "of the decompressed file)"]);
        let made = data.json(&[&tokenize[..], &["--on-bad-record", "skip"]].concat());
        assert_eq!(made[0]["account"]["bad"], json!({ "truncated": 1 }), "{left} bytes");
        let there = data.texts("s");
        assert!(there.len() <= texts.len() && there == texts[..there.len()], "{left} bytes");
        fs::remove_dir_all(data.path("s")).unwrap();
    }
}

#[test]
fn of_several_bad_records_all_are_counted_by_reason() {
    let data = Data::new();
    let lines = "{\"text\": 1}\n{\"text\": \"a\"}\n{}\n{\"text\": null}\nx\n{\"text\": true}\n";
    data.write("1.jsonl", lines);
    data.write("2.jsonl", "[]\n{\"text\": \"b\"}\n");
    let tokenize = ["data", "tokenize", "1.jsonl", "2.jsonl", "-o", "s"];
    let made = data.json(&[&tokenize[..], &["--on-bad-record", "skip"]].concat());
    let counts = json!({
        "wrong-type": 2, "missing-field": 1, "null": 1, "broken-json": 1, "not-an-object": 1
    });
    assert_eq!(made[0]["account"]["bad"], counts);
    assert_eq!((&made[0]["account"]["records"], &made[0]["documents"]), (&8.into(), &2.into()));
    let list = json_lines(&fs::read_to_string(data.path("s/skipped.jsonl")).unwrap());
    let places: Vec<_> = list
        .iter()
        .map(|one| (one["file"].as_str().unwrap(), one["record"].as_u64().unwrap()))
        .collect();
    let expected = [
        ("1.jsonl", 1),
        ("1.jsonl", 3),
        ("1.jsonl", 4),
        ("1.jsonl", 5),
        ("1.jsonl", 6),
        ("2.jsonl", 1),
    ];
    assert_eq!(places, expected);
    assert_eq!(data.texts("s"), ["a", "b"]);
}

#[test]
fn a_recipe_decides_what_happens_at_a_bad_record() {
    let data = Data::new();
    let good = json!({ "text": super::letters(1, 400) });
    data.write("d.jsonl", format!("{good}\n{{\"text\": 7}}\n{good}\n"));
    let run = ["train", "r.toml", "--set", r#"data.sources=[{path="d.jsonl"}]"#];
    let done = data.run(&run).expect(3);
    done.says(&["d.jsonl:2: field \"text\" is a number", "(byte 412)", "on_bad_record = \"skip\""]);
    data.nothing_ran();
    let skip = [&run[..], &["--set", "data.on_bad_record=skip", "--dry-run"]].concat();
    let done = data.run(&skip).expect(0);
    let said = done.stdout + &done.stderr;
    assert!(said.contains("passed over 1 bad record (wrong-type)"), "{said}");
    // Every run says so, not only the one that made the tokens.
    let done = data.run(&skip).expect(0);
    let said = done.stdout + &done.stderr;
    assert!(said.contains("passed over 1 bad record (wrong-type)"), "{said}");
}

#[test]
fn what_only_looks_bad_is_read() {
    let data = Data::new();
    const LINES: &str = "{\"text\": \"one\"}\n{\"text\": \"two\"}\n{\"text\": \"three\"}\n";
    let good = ["one", "two", "three"];
    let check = |name: &str, content: &[u8], more: &[&str], texts: &[&str]| {
        data.write(name, content);
        let made = data.json(&[&["data", "tokenize", name, "-o", "s"][..], more].concat());
        let account = &made[0]["account"];
        assert_eq!((&account["bad"], &account["empty_files"]), (&json!({}), &0.into()), "{name}");
        assert_eq!(data.texts("s"), texts, "{name}");
        fs::remove_dir_all(data.path("s")).unwrap();
        data.run(&[&["data", "verify", name][..], more].concat()).expect(0);
    };
    let marked = format!("\u{feff}{LINES}");
    check("mark.jsonl", marked.as_bytes(), &[], &good);
    check("crlf.jsonl", LINES.replace('\n', "\r\n").as_bytes(), &[], &good);
    check("blank.jsonl", LINES.replace('\n', "\n\n \t\n").as_bytes(), &[], &good);
    check("unended.jsonl", LINES.trim_end().as_bytes(), &[], &good);
    check("lines.ndjson", LINES.as_bytes(), &[], &good);
    check("other.json", b"{\"a\": [1, {}], \"text\": \"one\", \"z\": null}\n", &[], &["one"]);
    check("unicode.jsonl", b"{\"text\": \"\\u00e9\\ud83d\\ude00\"}\n", &[], &["\u{e9}\u{1f600}"]);
    check("mark.txt", "\u{feff}one\ntwo".as_bytes(), &[], &["one\ntwo"]);
    check("lines.txt", b"one\r\ntwo\nthree", &["--documents", "lines"], &good);
    check("plain.md", b"# one\n\n", &[], &["# one\n\n"]);
    let gzip = compressed("gzip", LINES.as_bytes());
    check("lines.jsonl.gz", &gzip, &[], &good);
    check("twice.jsonl.gz", &gzip.repeat(2), &[], &[good, good].concat());
    check("text.txt.gz", &compressed("gzip", b"one\ntwo"), &[], &["one\ntwo"]);
    if Command::new("zstd").arg("--version").output().is_ok_and(|output| output.status.success()) {
        let zstd = compressed("zstd", LINES.as_bytes());
        check("lines.jsonl.zst", &zstd, &[], &good);
        check("twice.jsonl.zst", &zstd.repeat(2), &[], &[good, good].concat());
        check("lines.jsonl.zstd", &zstd, &[], &good);
        data.write("cut.jsonl.zst", &zstd[..zstd.len() - 3]);
        let cut = data.run(&["data", "tokenize", "cut.jsonl.zst", "-o", "s"]).expect(3);
        cut.says(&["error: cut.jsonl.zst:", "of the decompressed file)"]);
    } else {
        not_tested(".zst, because there is no program zstd");
    }
}

#[test]
fn a_bad_row_of_a_table_is_named_by_its_number() {
    const WRITE: &str = "
import sys, pyarrow as pa, pyarrow.parquet as pq, pyarrow.ipc as ipc
table = pa.table({'id': [1, 2, 3], 'text': ['one', None, 'three']})
pq.write_table(table, 'd.parquet', compression='zstd')
with ipc.new_file('d.arrow', table.schema) as file: file.write_table(table)
";
    let data = Data::new();
    let python = |program: &str| {
        let mut command = Command::new(data.python());
        command.args(["-c", program]).current_dir(data.path("")).stdout(Stdio::null());
        command.stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    };
    if !python("import pyarrow") {
        not_tested("Parquet and Arrow, because the Python environment has no pyarrow");
        return;
    }
    assert!(python(WRITE));
    for name in ["d.parquet", "d.arrow"] {
        let tokenize = ["data", "tokenize", name, "-o", "s"];
        let done = data.run(&tokenize).expect(3);
        done.says(&[&format!("error: {name}:2: "), "null"]);
        let made = data.json(&[&tokenize[..], &["--on-bad-record", "skip"]].concat());
        assert_eq!(made[0]["account"]["bad"], json!({ "null": 1 }), "{name}");
        assert_eq!(data.texts("s"), ["one", "three"]);
        let done = data.run(&["data", "tokenize", name, "-o", "t", "--text-field", "txet"]);
        done.expect(3).says(&[name, "\"text\""]);
        let content = fs::read(data.path(name)).unwrap();
        data.write(name, &content[..content.len() - 5]);
        let done = data.run(&["data", "tokenize", name, "-o", "u"]).expect(3);
        done.says(&[name, "is not a whole"]);
        for output in ["s", "t", "u"] {
            let _ = fs::remove_dir_all(data.path(output));
        }
    }
}
