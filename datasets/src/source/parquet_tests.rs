use parquet::basic::Compression;
use parquet::data_type::{DoubleType, Int32Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use proptest::prelude::*;
use std::path::PathBuf;
use tempfile::{TempDir, tempdir};

use crate::source::Reason;
use crate::source::testing::{
    Got, Reading, exchange_fields, prompt_field, text_field, write as write_file,
};

use super::*;

const SCHEMA: &str = "message m {
    optional binary text (UTF8); required binary q (UTF8); optional binary a;
    required int32 n; optional group l (LIST) { repeated group list { optional double element; } }
}";

/// Rows of `text` and `a` in groups; `q` is the number of the row.
pub(in crate::source) fn write(
    folder: &TempDir,
    groups: &[Vec<Option<&[u8]>>],
    properties: WriterProperties,
) -> PathBuf {
    let path = folder.path().join("a.parquet");
    let file = std::fs::File::create(&path).unwrap();
    let schema = Arc::new(parse_message_type(SCHEMA).unwrap());
    let mut writer = SerializedFileWriter::new(file, schema, Arc::new(properties)).unwrap();
    let mut first = 0;
    for rows in groups {
        let mut group = writer.next_row_group().unwrap();
        let levels: Vec<i16> = rows.iter().map(|row| i16::from(row.is_some())).collect();
        let values: Vec<ByteArray> =
            rows.iter().flatten().map(|row| ByteArray::from(row.to_vec())).collect();
        let numbers: Vec<i32> = (first..first + rows.len() as i32).collect();
        let names: Vec<ByteArray> =
            numbers.iter().map(|n| ByteArray::from(format!("q{n}").into_bytes())).collect();
        let halves: Vec<f64> = numbers.iter().map(|n| f64::from(*n) / 2.0).collect();
        let full = vec![3i16; rows.len()];
        let starts = vec![0i16; rows.len()];
        first += rows.len() as i32;
        for column in 0..5 {
            let mut column_writer = group.next_column().unwrap().unwrap();
            let written = match column {
                0 | 2 => {
                    column_writer.typed::<ByteArrayType>().write_batch(&values, Some(&levels), None)
                }
                1 => column_writer.typed::<ByteArrayType>().write_batch(&names, None, None),
                3 => column_writer.typed::<Int32Type>().write_batch(&numbers, None, None),
                _ => column_writer.typed::<DoubleType>().write_batch(
                    &halves,
                    Some(&full),
                    Some(&starts),
                ),
            };
            written.unwrap();
            column_writer.close().unwrap();
        }
        group.close().unwrap();
    }
    writer.close().unwrap();
    path
}

fn plain(folder: &TempDir, groups: &[Vec<Option<&[u8]>>]) -> PathBuf {
    write(folder, groups, WriterProperties::builder().build())
}

fn small_pages(codec: Compression, dictionary: bool) -> WriterProperties {
    WriterProperties::builder()
        .set_compression(codec)
        .set_dictionary_enabled(dictionary)
        .set_data_page_row_count_limit(3)
        .set_write_batch_size(3)
        .build()
}

#[test]
fn every_codec_and_encoding_gives_the_same_from_every_start() {
    let groups: Vec<Vec<Option<&[u8]>>> = vec![
        vec![Some(b"one"), None, Some("zwei €".as_bytes()), Some(b""), Some(b"one")],
        vec![],
        vec![Some(b"a text that fills a batch by itself"); 9],
        vec![None; 4],
    ];
    let expected: Vec<_> = groups
        .iter()
        .flatten()
        .zip(1..)
        .map(|(row, record)| row.map(|text| (String::from_utf8(text.to_vec()).unwrap(), record)))
        .collect();
    for codec in [
        Compression::UNCOMPRESSED,
        Compression::SNAPPY,
        Compression::GZIP(Default::default()),
        Compression::ZSTD(Default::default()),
        Compression::LZ4,
        Compression::LZ4_RAW,
    ] {
        for dictionary in [false, true] {
            let folder = tempdir().unwrap();
            let path = write(&folder, &groups, small_pages(codec, dictionary));
            let all = Reading::new(&path).small().check_every_start();
            assert_eq!(all.len(), expected.len());
            for (got, expected) in all.iter().zip(&expected) {
                match (got, expected) {
                    (Got::Text(text, record, 0), Some(expected)) => {
                        assert_eq!((text, record), (&expected.0, &expected.1));
                    }
                    (Got::Bad(bad), None) => assert_eq!(bad.reason, Reason::Null),
                    other => panic!("{other:?}"),
                }
            }
        }
    }
}

#[test]
fn a_bad_row_has_its_number() {
    let folder = tempdir().unwrap();
    let path = plain(&folder, &[vec![Some(b"ok")], vec![Some(b"a\xff"), None, Some(b"\0")]]);
    let bad = Reading::new(&path).bad();
    let found: Vec<_> = bad.iter().map(|bad| (bad.reason, bad.place.record)).collect();
    assert_eq!(found, [(Reason::InvalidUtf8, 2), (Reason::Null, 3), (Reason::NulCharacter, 4)]);
    assert_eq!(
        bad[0].detail,
        "column \"text\": byte 0xff, byte 1 of the value, is not valid UTF-8"
    );
}

#[test]
fn several_columns_stay_aligned() {
    let folder = tempdir().unwrap();
    let rows: Vec<String> = (0..100).map(|n| format!("answer {n}")).collect();
    let group = |range: std::ops::Range<usize>| -> Vec<Option<&[u8]>> {
        rows[range].iter().map(|row| Some(row.as_bytes())).collect()
    };
    let path =
        write(&folder, &[group(0..60), group(60..100)], small_pages(Compression::SNAPPY, true));
    let all = Reading::new(&path).fields(exchange_fields()).small().check_every_start();
    let expected: Vec<_> =
        (0..100).map(|n| Got::Exchange(format!("q{n}"), format!("answer {n}"), n + 1)).collect();
    assert_eq!(all, expected);
}

#[test]
fn a_prompt_comes_with_the_other_columns() {
    let folder = tempdir().unwrap();
    let path = plain(&folder, &[vec![Some(b"x")], vec![None, Some(b"y")]]);
    let all = Reading::new(&path).fields(prompt_field()).small().check_every_start();
    // "a" is a column of bytes.
    let rest =
        |text: &str, n: i32, half: &str| format!("{{\"text\":{text},\"n\":{n},\"l\":[{half}]}}");
    let prompt = |n: u64, rest| Got::Prompt(format!("q{n}"), rest, n + 1);
    assert_eq!(
        all[..2],
        [
            prompt(0, rest("\"x\"", 0, "0.0")),
            prompt(1, r#"{"text":null,"a":null,"n":1,"l":[0.5]}"#.to_owned())
        ]
    );
}

#[test]
fn a_column_that_cannot_be_text_is_an_error() {
    let folder = tempdir().unwrap();
    let path = plain(&folder, &[vec![Some(b"x")]]);
    let error = |name: &str| {
        let fields = Fields::Text { text: name.to_owned() };
        Reading::new(&path).fields(fields).open(Position::default()).err().unwrap().to_string()
    };
    let missing = error("txet");
    assert!(missing.contains("no column \"txet\"; did you mean \"text\"?"), "{missing}");
    assert!(missing.contains(r#"the columns are "text", "q", "a", "n", "l""#), "{missing}");
    assert!(error("n").contains("column \"n\" is INT32"), "{}", error("n"));
    assert!(error("n").contains(r#"columns of strings are "text", "q", "a""#), "{}", error("n"));
    assert!(error("l").contains("column \"l\" is nested"), "{}", error("l"));
}

#[test]
fn what_is_not_parquet_is_an_error() {
    let folder = tempdir().unwrap();
    for bytes in ["x", "PAR1 but nothing else behind it PAR1"] {
        let reading = Reading::new(&write_file(&folder, "b.parquet", bytes));
        let error = reading.open(Position::default()).err().unwrap().to_string();
        assert!(error.contains("b.parquet: this is not a whole Parquet file"), "{error}");
    }
    let path = plain(&folder, &[vec![Some(b"x")]]);
    let far = Position { offset: 2, record: 2 };
    let error = Reading::new(&path).open(far).err().unwrap().to_string();
    assert!(error.contains("changed"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn reading_can_start_at_the_end_of_any_batch(
        groups in prop::collection::vec(prop::collection::vec(prop::option::of("[ab]{0,30}"), 0..20), 0..4),
        batch in 1usize..80,
    ) {
        let folder = tempdir().unwrap();
        let groups: Vec<Vec<Option<&[u8]>>> = groups
            .iter()
            .map(|rows| rows.iter().map(|row| row.as_ref().map(|text| text.as_bytes())).collect())
            .collect();
        let path = write(&folder, &groups, small_pages(Compression::SNAPPY, true));
        let mut reading = Reading::new(&path).fields(text_field()).small();
        reading.limits.batch = batch;
        prop_assert_eq!(reading.check_every_start().len(), groups.iter().flatten().count());
    }

    /// A corrupt file is an error or other text, and never a panic.
    #[test]
    fn corrupt_bytes_are_an_error(at in 0usize..10_000, byte: u8) {
        let folder = tempdir().unwrap();
        let rows: Vec<Option<&[u8]>> = vec![Some(b"one"), None, Some(b"two"), Some(b"one")];
        let path = write(&folder, &[rows.clone(), rows], small_pages(Compression::SNAPPY, true));
        let mut bytes = std::fs::read(&path).unwrap();
        let at = at % bytes.len();
        bytes[at] = byte;
        std::fs::write(&path, bytes).unwrap();
        if let Ok(reader) = Reading::new(&path).open(Position::default()) {
            reader.for_each(drop);
        }
    }
}
