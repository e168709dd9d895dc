//! Lines of text and JSON, plain and compressed.

use std::fs;
use std::io::Write;
use std::path::PathBuf;

use flate2::write::GzEncoder;
use proptest::prelude::*;
use tempfile::{TempDir, tempdir};

use crate::source::testing::{Got, Reading, SMALL, exchange_fields, text_field, write};
use crate::source::{Error, Position, ReadError, Reader, Reason, TextDocuments};

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 3).unwrap()
}

fn text(text: &str, record: u64, offset: u64) -> Got {
    Got::Text(text.to_owned(), record, offset)
}

#[test]
fn lines_are_documents() {
    let folder = tempdir().unwrap();
    let lines = Reading::new(&write(&folder, "a.txt", "one\r\n\ntwo \nlast"));
    let expected = [text("one", 1, 0), text("", 2, 5), text("two ", 3, 6), text("last", 4, 11)];
    assert_eq!(lines.all(), expected);
    assert_eq!(lines.small().check_every_start(), expected);
}

#[test]
fn a_byte_order_mark_is_dropped_and_noted() {
    let folder = tempdir().unwrap();
    for name in ["a.txt", "a.jsonl"] {
        let body = if name == "a.txt" { "x\r\ny\r\n" } else { "{\"text\":\"x\"}\r\n" };
        let reading = Reading::new(&write(&folder, name, format!("\u{feff}{body}")));
        let mut reader = reading.open(Position::default()).unwrap();
        reader.by_ref().for_each(|batch| drop(batch.unwrap()));
        assert!(reader.notes().byte_order_mark);
        assert_eq!(reader.notes().crlf_lines, body.matches("\r\n").count() as u64);
        assert_eq!(reading.all()[0], text("x", 1, 3));
        reading.small().check_every_start();
    }
    let only = Reading::new(&write(&folder, "only.txt", "\u{feff}"));
    assert_eq!(only.all(), []);
    assert_eq!(only.whole().all(), []);
}

#[test]
fn an_empty_file_has_no_records() {
    let folder = tempdir().unwrap();
    for name in ["a.txt", "a.jsonl", "a.jsonl.gz", "a.txt.zst", "a.parquet", "a.arrow"] {
        let reading = Reading::new(&write(&folder, name, ""));
        assert_eq!(reading.all(), [], "{name}");
        assert_eq!(reading.whole().all(), [], "{name}");
    }
    for (name, bytes) in [("b.txt.gz", gzip(b"")), ("b.txt.zst", zstd(b""))] {
        assert_eq!(Reading::new(&write(&folder, name, bytes)).whole().all(), [], "{name}");
    }
}

#[test]
fn a_bad_byte_of_a_line_has_its_offset() {
    let folder = tempdir().unwrap();
    let reading = Reading::new(&write(&folder, "a.txt", b"ab\nc\xffd\ne\0\nok"));
    let bad = reading.bad();
    assert_eq!(bad.len(), 2);
    let place = |index: usize| (bad[index].place.record, bad[index].place.offset);
    assert_eq!((bad[0].reason, place(0)), (Reason::InvalidUtf8, (2, 4)));
    assert_eq!((bad[1].reason, place(1)), (Reason::NulCharacter, (3, 8)));
    assert!(bad[0].detail.starts_with("byte 0xff at offset 4 is not valid UTF-8"));
    reading.small().check_every_start();
}

#[test]
fn json_lines_are_records_and_blank_lines_are_not() {
    let folder = tempdir().unwrap();
    let body = "{\"q\":\"1\",\"a\":\"2\"}\n \t\r\n\n{\"a\":\"4\",\"q\":\"\\u00e9\"}\r\n";
    let reading = Reading::new(&write(&folder, "a.jsonl", body)).fields(exchange_fields());
    let pair = |q: &str, a: &str, record| Got::Exchange(q.to_owned(), a.to_owned(), record);
    assert_eq!(reading.all(), [pair("1", "2", 1), pair("é", "4", 4)]);
    reading.small().check_every_start();
}

#[test]
fn a_line_that_is_too_long_is_passed_over() {
    let folder = tempdir().unwrap();
    let exact = "x".repeat(SMALL.line);
    let long = "y".repeat(SMALL.line + 1);
    for body in [
        format!("a\n{exact}\n{long}\nb\n"),
        format!("{long}\nb"),
        format!("{long}\n{long}\n{exact}"),
        format!("a\nb\n{long}"),
        format!("{}\nb", "z".repeat(300_000)),
    ] {
        for (name, bytes) in
            [("a.txt", body.clone().into_bytes()), ("a.txt.gz", gzip(body.as_bytes()))]
        {
            let reading = Reading::new(&write(&folder, name, bytes)).small();
            let expected: Vec<_> = body
                .lines()
                .enumerate()
                .map(|(number, line)| (number as u64 + 1, line.len() > SMALL.line))
                .collect();
            let found: Vec<_> = reading
                .check_every_start()
                .into_iter()
                .map(|got| match got {
                    Got::Bad(bad) => {
                        assert_eq!(bad.reason, Reason::TooLong);
                        (bad.place.record, true)
                    }
                    Got::Text(_, record, _) => (record, false),
                    other => panic!("{other:?}"),
                })
                .collect();
            assert_eq!(found, expected);
        }
    }
}

/// A small file and what is in it.
fn small_file() -> (String, Vec<Got>) {
    let body: String = (0..40).map(|n| format!("{{\"text\":\"line {n} é\"}}\n")).collect();
    let folder = tempdir().unwrap();
    let all = Reading::new(&write(&folder, "a.jsonl", &body)).all();
    assert_eq!(all.len(), 40);
    (body, all)
}

fn check_cut(folder: &TempDir, name: &str, bytes: &[u8], all: &[Got]) -> bool {
    let mut found = Reading::new(&write(folder, name, bytes)).small().check_every_start();
    let bad = found.pop_if(|last| matches!(last, Got::Bad(_)));
    assert!(all.starts_with(&found), "{found:?}");
    match bad {
        Some(Got::Bad(bad)) => {
            assert_eq!(bad.reason, Reason::Truncated);
            assert_eq!(bad.place.record, found.len() as u64 + 1);
            true
        }
        _ => false,
    }
}

#[test]
fn a_compressed_file_cut_anywhere_gives_the_lines_before_the_cut() {
    let (body, all) = small_file();
    let folder = tempdir().unwrap();
    for (name, bytes) in
        [("a.jsonl.gz", gzip(body.as_bytes())), ("a.jsonl.zst", zstd(body.as_bytes()))]
    {
        for cut in 1..bytes.len() {
            assert!(check_cut(&folder, name, &bytes[..cut], &all), "{name} cut at {cut}");
        }
        assert!(!check_cut(&folder, name, &bytes, &all));
        for garbage in ["x", "garbage behind the end", "\0\0\0\0\0\0\0\0\0\0\0\0"] {
            let garbage = [&bytes, garbage.as_bytes()].concat();
            assert!(check_cut(&folder, name, &garbage, &all), "{name}");
        }
    }
}

#[test]
fn the_place_where_a_compressed_file_is_cut_is_the_end_of_its_text() {
    let folder = tempdir().unwrap();
    let mut bytes = gzip(b"one\ntwo");
    bytes.truncate(bytes.len() - 8);
    let path = write(&folder, "a.txt.gz", bytes);
    let bad = Reading::new(&path).bad();
    assert_eq!((bad[0].place.record, bad[0].place.offset), (2, 7));
    // As one document it has no good part.
    assert_eq!(Reading::new(&path).whole().check_every_start(), [Got::Bad(bad[0].clone())]);
}

#[test]
fn members_and_frames_are_read_to_the_last() {
    let (body, all) = small_file();
    let folder = tempdir().unwrap();
    let (one, two) = body.as_bytes().split_at(333);
    for (name, bytes) in [
        ("a.jsonl.gz", [gzip(one), gzip(b""), gzip(two)].concat()),
        ("a.jsonl.zst", [zstd(one), zstd(b""), zstd(two)].concat()),
    ] {
        assert!(!check_cut(&folder, name, &bytes, &all), "{name}");
    }
}

#[test]
fn a_file_that_changed_is_not_read() {
    let folder = tempdir().unwrap();
    let path = write(&folder, "a.txt", "one\ntwo\n");
    let reading = Reading::new(&path);
    let far = Position { offset: 9, record: 2 };
    assert!(matches!(reading.open(far), Err(Error::Read(ReadError::Changed { .. }))));
    fs::write(&path, "one\ntwo\nthree\n").unwrap();
    let error = reading.open(Position::default()).err().unwrap();
    assert!(matches!(error, Error::Read(ReadError::Changed { .. })), "{error}");
}

#[test]
fn plain_text_has_no_fields_to_take() {
    let folder = tempdir().unwrap();
    let reading = Reading::new(&write(&folder, "a.txt", "x")).fields(exchange_fields());
    let error = reading.open(Position::default()).err().unwrap().to_string();
    assert!(error.contains("plain text, which has no field \"q\" and \"a\""), "{error}");
}

#[test]
fn a_batch_of_the_standard_size_is_about_a_mebibyte() {
    let folder = tempdir().unwrap();
    let line = format!("{}\n", "x".repeat(999));
    let input = Reading::new(&write(&folder, "a.txt", line.repeat(5000))).input;
    let reader =
        Reader::open(&input, &text_field(), TextDocuments::Line, Position::default()).unwrap();
    let sizes: Vec<_> = reader.map(|batch| batch.unwrap().text_bytes()).collect();
    assert_eq!(sizes, [1_049_000, 1_049_000, 1_049_000, 1_049_000, 804_000]);
}

#[test]
fn readers_and_batches_can_be_sent() {
    fn sent<T: Send>() {}
    sent::<Reader>();
    sent::<crate::source::RawBatch>();
}

/// Lines that are records, bad records, blank or too long.
fn nearly_lines() -> impl Strategy<Value = Vec<u8>> {
    let pieces = vec![
        "a",
        "é",
        "\n",
        "\n",
        "\r\n",
        " ",
        "\0",
        "{\"text\":\"x\"}\n",
        "{\"text\":null}\n",
        "{}\n",
        "\n{\"text\":\"\\ud83d\\ude00 y\"}\n",
        "[1]\n",
        "\u{feff}",
        "this is a line which is longer than it may be",
    ];
    let piece = prop_oneof![
        12 => prop::sample::select(pieces).prop_map(|text| text.as_bytes().to_vec()),
        1 => any::<u8>().prop_map(|byte| vec![byte]),
    ];
    prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn reading_can_start_at_the_end_of_any_batch(content in nearly_lines(), batch in 1usize..40) {
        let folder = tempdir().unwrap();
        let mut expected: Vec<Option<Vec<Got>>> = vec![None; 3];
        for (name, bytes) in [
            ("a.txt", content.clone()),
            ("a.jsonl", content.clone()),
            ("a.txt.gz", gzip(&content)),
            ("a.jsonl.zst", zstd(&content)),
        ] {
            let path: PathBuf = write(&folder, name, bytes);
            for (index, reading) in
                [Reading::new(&path).small(), Reading::new(&path).small().whole()].into_iter().enumerate()
            {
                let mut reading = reading;
                reading.limits.batch = batch;
                let all = reading.check_every_start();
                // Compression makes no difference.
                let kind = if name.contains("json") { 2 } else { index };
                let expected = expected[kind].get_or_insert_with(|| all.clone());
                prop_assert_eq!(&all, expected);
            }
        }
    }

    /// Corrupt bytes never panic, and never change what is given from any start.
    #[test]
    fn corrupt_compressed_bytes_are_a_bad_record(at in 0usize..10_000, byte: u8) {
        let (body, _) = small_file();
        let folder = tempdir().unwrap();
        for (name, mut bytes) in
            [("a.jsonl.gz", gzip(body.as_bytes())), ("a.jsonl.zst", zstd(body.as_bytes()))]
        {
            let at = at % bytes.len();
            bytes[at] = byte;
            Reading::new(&write(&folder, name, bytes)).small().check_every_start();
        }
    }
}
