//! The same from an object store as from local files, whatever goes wrong on the way.

use std::fs;
use std::io::Write;
use std::path::Path;

use flate2::write::GzEncoder;
use parquet::file::properties::WriterProperties;
use tempfile::{TempDir, tempdir};

use super::RemoteTree;
use crate::source::find::find_in;
use crate::source::testing::{Reading, exchange_fields, prompt_field, spec, text_field, write};
use crate::source::{Error, Fields, Input, Position, ReadError, Reader, SourceSpec, TextDocuments};
use crate::source::{arrow, parquet as parquet_rows};
use titan_objects::Patience;
use titan_objects::fake::{Fake, Fault, HASTY, On, PATIENT};

const SERVICES: [&str; 2] = ["gs://bucket", "s3://bucket"];

fn spec_of(address: &str) -> SourceSpec {
    spec(Path::new(address))
}

/// What a path leads to in a store.
pub(super) fn find_on(
    fake: &Fake,
    spec: &SourceSpec,
    patience: Patience,
) -> crate::source::Result<Vec<Input>> {
    let (store, address) = fake.store(&spec.path, patience);
    find_in(&RemoteTree::new(store, &address), address.key(), spec)
}

fn remote(fake: &Fake, key: &str, patience: Patience) -> Input {
    let mut inputs = find_on(fake, &spec_of(&format!("gs://bucket/{key}")), patience).unwrap();
    assert_eq!(inputs.len(), 1);
    inputs.remove(0)
}

/// Two megabytes of JSON, so that an answer comes in many pieces.
fn corpus() -> Vec<u8> {
    let line = |n: u64| format!("{{\"text\":\"{}\"}}\n", format!("{n} ").repeat(n as usize % 97));
    (0..12_000).flat_map(|n| line(n).into_bytes()).collect()
}

/// Why an input cannot be read, at its beginning or later.
fn failure(input: &Input) -> ReadError {
    match Reader::open(input, &text_field(), TextDocuments::Line, Position::default()) {
        Ok(reader) => reader.filter_map(Result::err).next().unwrap(),
        Err(Error::Read(error)) => error,
        Err(error) => panic!("{error}"),
    }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// A file of each format, and the fields to read of it.
fn all_formats() -> (TempDir, Vec<(&'static str, Fields)>) {
    let folder = tempdir().unwrap();
    let lines: String = (0..40)
        .map(|n| format!("{{\"text\":\"document {n}\",\"q\":\"{n}\",\"a\":\"b\"}}\n"))
        .collect();
    write(&folder, "a.jsonl", &lines);
    write(&folder, "a.jsonl.gz", gzip(lines.as_bytes()));
    write(&folder, "a.jsonl.zst", zstd::encode_all(lines.as_bytes(), 3).unwrap());
    let text: String = (0..60).map(|n| format!("Line {n} of grüße.\n")).collect();
    write(&folder, "a.txt", &text);
    write(&folder, "a.txt.gz", gzip(text.as_bytes()));
    let rows: Vec<Option<&[u8]>> = vec![Some(b"one".as_slice()), None, Some(b"three"), Some(b"4")];
    parquet_rows::tests::write(&folder, &[rows.clone(), rows], WriterProperties::new());
    let batches = [vec![Some("one"), None], vec![Some("three"), Some("four"), Some("five")]];
    arrow::tests::write(&folder, &batches, arrow::tests::Kind::Small, true);
    fs::rename(folder.path().join("a.arrow"), folder.path().join("stream.arrow")).unwrap();
    arrow::tests::write(&folder, &batches, arrow::tests::Kind::Large, false);
    let files = vec![
        ("a.jsonl", text_field()),
        ("a.jsonl.gz", exchange_fields()),
        ("a.jsonl.zst", prompt_field()),
        ("a.txt", text_field()),
        ("a.txt.gz", text_field()),
        ("a.parquet", text_field()),
        ("a.parquet", prompt_field()),
        ("a.arrow", exchange_fields()),
        ("stream.arrow", text_field()),
    ];
    (folder, files)
}

#[test]
fn every_format_gives_what_local_files_give_from_every_start() {
    let (folder, files) = all_formats();
    let fake = Fake::of(folder.path());
    for (name, fields) in files {
        let local = Reading::new(&folder.path().join(name)).fields(fields).small();
        let expected = local.all();
        assert!(expected.len() > 3, "{name}");
        for service in SERVICES {
            let inputs = find_on(&fake, &spec_of(&format!("{service}/{name}")), PATIENT).unwrap();
            let input = inputs[0].clone();
            assert_eq!(input.name, format!("{service}/{name}"));
            assert_eq!(input.bytes, local.input.bytes);
            assert_eq!(
                (input.format, input.compression),
                (local.input.format, local.input.compression)
            );
            let remote = Reading { input, ..local.clone() };
            assert_eq!(remote.check_every_start(), expected, "{name} from {service}");
            if name.starts_with("a.txt") {
                assert_eq!(remote.whole().check_every_start(), local.clone().whole().all());
            }
        }
    }
}

#[test]
fn an_empty_object_has_no_records() {
    let fake = Fake::start();
    fake.put("a.jsonl.gz", "");
    let input = remote(&fake, "a.jsonl.gz", PATIENT);
    let mut reader =
        Reader::open(&input, &text_field(), TextDocuments::Line, Position::default()).unwrap();
    assert!(reader.next().is_none());
}

/// Reads a large object with a fault, and compares it with the local one.
fn survives(on: On, fault: Fault, times: usize, patience: Patience) -> Vec<String> {
    let folder = tempdir().unwrap();
    let local = Reading::new(&write(&folder, "a.jsonl", corpus()));
    let fake = Fake::of(folder.path());
    let input = remote(&fake, "a.jsonl", patience);
    fake.requests();
    fake.fault(on, fault, times);
    let remote = Reading { input, ..local.clone() };
    assert!(remote.all() == local.all(), "not the same documents");
    fake.requests()
}

#[test]
fn a_store_that_is_busy_at_first_is_asked_again() {
    assert_eq!(survives(On::Any, Fault::Status(503, "SlowDown"), 3, PATIENT).len(), 4);
    let fake = Fake::start();
    fake.put("a.jsonl", "{}");
    fake.fault(On::Any, Fault::Status(500, ""), 2);
    assert_eq!(remote(&fake, "a.jsonl", PATIENT).bytes, 2);
}

#[test]
fn an_answer_that_breaks_off_goes_on_where_it_broke() {
    let requests = survives(On::Get, Fault::CutAfter(700_000), 2, PATIENT);
    assert_eq!(requests.len(), 3);
    let size = corpus().len();
    assert!(requests[0].ends_with(&format!("bytes=0-{}", size - 1)), "{requests:?}");
    assert!(requests[1].ends_with(&format!("bytes=700000-{}", size - 1)), "{requests:?}");
    assert!(requests[2].ends_with(&format!("bytes=1400000-{}", size - 1)), "{requests:?}");
    // Nothing at all after the head, and a length that is wrong.
    survives(On::Get, Fault::CutAfter(0), 3, PATIENT);
    assert_eq!(survives(On::Get, Fault::Short(1_000_000), 1, PATIENT).len(), 2);
    // Silence in the middle.
    assert!(survives(On::Get, Fault::SilentAfter(300_000), 1, HASTY).len() >= 2);
}

#[test]
fn an_answer_that_always_breaks_off_is_an_error() {
    let fake = Fake::start();
    fake.put("a.jsonl", corpus());
    let input = remote(&fake, "a.jsonl", PATIENT);
    fake.fault(On::Get, Fault::CutAfter(0), 1000);
    let error = failure(&input).to_string();
    assert!(error.contains("gs://bucket/a.jsonl: cannot read this data file"), "{error}");
    assert!(error.contains("broke"), "{error}");
    fake.requests();
    assert!(fake.requests().is_empty(), "it was asked for on and on");
    let fake = Fake::start();
    fake.put("a.jsonl", corpus());
    let input = remote(&fake, "a.jsonl", PATIENT);
    fake.fault(On::Get, Fault::Short(usize::MAX), 1000);
    assert!(failure(&input).to_string().contains("ended too early"), "{}", failure(&input));
}

#[test]
fn a_changed_object_is_an_error_and_never_a_mix() {
    // Between the list and the read.
    let (folder, files) = all_formats();
    let fake = Fake::of(folder.path());
    for (name, _) in files {
        let input = remote(&fake, name, PATIENT);
        fake.put(name, vec![b'x'; input.bytes as usize]);
        let error = failure(&input);
        assert!(matches!(error, ReadError::Changed { .. }), "{name}: {error:?}");
        assert!(error.to_string().contains("it has another ETag"), "{error}");
        fake.put_folder(folder.path(), "");
    }
    // In the middle of an answer, which then breaks off.
    fake.put("big.jsonl", corpus());
    let input = remote(&fake, "big.jsonl", PATIENT);
    fake.fault(On::Get, Fault::ChangeAndCutAfter(b"{}", 500_000), 1);
    assert!(matches!(failure(&input), ReadError::Changed { .. }));
    // Another one of the same size, of which the store sends a part all the same.
    fake.put("big.jsonl", corpus());
    let input = remote(&fake, "big.jsonl", PATIENT);
    fake.put("big.jsonl", corpus());
    fake.ignore_if_match();
    let error = failure(&input);
    assert!(matches!(error, ReadError::Changed { .. }), "{error:?}");
    // Gone.
    let input = remote(&fake, "big.jsonl", PATIENT);
    fake.remove("big.jsonl");
    let error = failure(&input).to_string();
    assert!(error.contains("changed after it was found: it is no longer there"), "{error}");
}

#[test]
fn a_store_that_never_answers_is_an_error() {
    let fake = Fake::start();
    fake.put("a.jsonl", "{}");
    let input = remote(&fake, "a.jsonl", HASTY);
    fake.fault(On::Any, Fault::Silent, 1000);
    let error = failure(&input).to_string();
    assert!(error.contains("does not answer"), "{error}");
    let error = find_on(&fake, &spec_of("s3://bucket/a.jsonl"), HASTY).unwrap_err().to_string();
    assert!(
        error.contains(&format!("the store at {} does not answer", fake.endpoint())),
        "{error}"
    );
}

#[test]
fn tables_are_read_in_few_requests_of_few_connections() {
    let folder = tempdir().unwrap();
    let texts: Vec<String> = (0..3000).map(|n| format!("{n} ").repeat(200)).collect();
    let rows: Vec<Option<&[u8]>> = texts.iter().map(|text| Some(text.as_bytes())).collect();
    let groups: Vec<_> = rows.chunks(500).map(<[_]>::to_vec).collect();
    let properties = WriterProperties::builder()
        .set_dictionary_enabled(false)
        .set_data_page_size_limit(20_000)
        .build();
    let path = parquet_rows::tests::write(&folder, &groups, properties);
    let local = Reading::new(&path);
    let fake = Fake::of(folder.path());
    let input = remote(&fake, "a.parquet", PATIENT);
    fake.requests();
    let blocks = input.bytes.div_ceil(4 << 20);
    let remote = Reading { input, ..local.clone() };
    assert!(remote.all() == local.all());
    let requests = fake.requests();
    assert!(requests.len() as u64 <= 2 * blocks, "{} of {blocks} blocks", requests.len());
    assert!(fake.connections() <= 2, "{}", fake.connections());
}
