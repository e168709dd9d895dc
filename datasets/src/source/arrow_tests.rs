use std::path::PathBuf;

use arrow_array::types::Int32Type;
use arrow_array::{
    ArrayRef, DictionaryArray, Int32Array, LargeStringArray, ListArray, StringArray,
    StringViewArray,
};
use arrow_ipc::writer::{FileWriter, StreamWriter};
use proptest::prelude::*;
use tempfile::{TempDir, tempdir};

use crate::source::Reason;
use crate::source::testing::{Got, Reading, exchange_fields, prompt_field, write as write_file};

use super::*;

pub(in crate::source) type Rows<'a> = Vec<Option<&'a str>>;

#[derive(Clone, Copy, Debug)]
pub(in crate::source) enum Kind {
    Small,
    Large,
    View,
}

fn array(rows: &Rows<'_>, kind: Kind) -> ArrayRef {
    match kind {
        Kind::Small => Arc::new(StringArray::from(rows.clone())),
        Kind::Large => Arc::new(LargeStringArray::from(rows.clone())),
        Kind::View => Arc::new(StringViewArray::from(rows.clone())),
    }
}

fn record_batch(rows: &Rows<'_>, kind: Kind) -> RecordBatch {
    let numbers = Int32Array::from_iter_values(0..rows.len() as i32);
    let lists = rows.iter().map(|row| row.map(|text| vec![Some(text.len() as i32), None]));
    // The same for all batches, as the file format wants it.
    let keys = Int32Array::from_iter_values(rows.iter().map(|_| 0));
    let dictionary: DictionaryArray<Int32Type> =
        DictionaryArray::new(keys, Arc::new(StringArray::from(vec!["d"])));
    RecordBatch::try_from_iter_with_nullable([
        ("n", Arc::new(numbers) as ArrayRef, true),
        ("text", array(rows, kind), true),
        ("l", Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(lists)), true),
        ("q", array(rows, kind), true),
        ("a", array(rows, kind), true),
        ("d", Arc::new(dictionary), true),
    ])
    .unwrap()
}

pub(in crate::source) fn write(
    folder: &TempDir,
    batches: &[Rows<'_>],
    kind: Kind,
    stream: bool,
) -> PathBuf {
    let path = folder.path().join("a.arrow");
    let file = std::fs::File::create(&path).unwrap();
    let schema = record_batch(&Vec::new(), kind).schema();
    let batches = batches.iter().map(|rows| record_batch(rows, kind));
    if stream {
        let mut writer = StreamWriter::try_new(file, &schema).unwrap();
        batches.for_each(|batch| writer.write(&batch).unwrap());
        writer.finish().unwrap();
    } else {
        let mut writer = FileWriter::try_new(file, &schema).unwrap();
        batches.for_each(|batch| writer.write(&batch).unwrap());
        writer.finish().unwrap();
    }
    path
}

#[test]
fn streams_and_files_give_the_same_from_every_start() {
    let long = "a text that fills a batch by itself";
    let batches = [vec![Some("one"), None, Some(""), Some("é\0")], vec![], vec![Some(long); 3]];
    for kind in [Kind::Small, Kind::Large, Kind::View] {
        for stream in [true, false] {
            let folder = tempdir().unwrap();
            let path = write(&folder, &batches, kind, stream);
            let all = Reading::new(&path).small().check_every_start();
            assert_eq!(all.len(), 7, "{kind:?}");
            assert_eq!(all[0], Got::Text("one".to_owned(), 1, 0));
            assert_eq!(all[2], Got::Text(String::new(), 3, 0));
            assert_eq!(all[6], Got::Text(long.to_owned(), 7, 0));
            let bad = Reading::new(&path).bad();
            let found: Vec<_> = bad.iter().map(|bad| (bad.reason, bad.place.record)).collect();
            assert_eq!(found, [(Reason::Null, 2), (Reason::NulCharacter, 4)]);
        }
    }
}

#[test]
fn exchanges_and_prompts_are_read() {
    let folder = tempdir().unwrap();
    let path = write(&folder, &[vec![Some("x"), Some("y\"")]], Kind::Small, true);
    let reading = Reading::new(&path).small();
    assert_eq!(
        reading.clone().fields(exchange_fields()).check_every_start()[1],
        Got::Exchange("y\"".to_owned(), "y\"".to_owned(), 2)
    );
    assert_eq!(
        reading.fields(prompt_field()).check_every_start()[1],
        // "d" is a dictionary.
        Got::Prompt(
            "y\"".to_owned(),
            r#"{"n":1,"text":"y\"","l":[2,null],"a":"y\""}"#.to_owned(),
            2
        )
    );
}

#[test]
fn a_column_that_cannot_be_text_is_an_error() {
    let folder = tempdir().unwrap();
    let path = write(&folder, &[vec![Some("x")]], Kind::Small, true);
    let error = |name: &str| {
        let fields = Fields::Text { text: name.to_owned() };
        Reading::new(&path).fields(fields).open(Position::default()).err().unwrap().to_string()
    };
    assert!(error("txt").contains("no column \"txt\"; did you mean \"text\"?"), "{}", error("txt"));
    assert!(error("n").contains("column \"n\" is Int32"), "{}", error("n"));
    assert!(error("d").contains("column \"d\" is Dictionary"), "{}", error("d"));
    assert!(error("n").contains(r#"columns of strings are "text", "q", "a""#), "{}", error("n"));
}

#[test]
fn what_is_cut_off_is_an_error_and_never_a_panic() {
    let folder = tempdir().unwrap();
    for stream in [true, false] {
        let path = write(&folder, &[vec![Some("one"), None], vec![Some("x")]], Kind::Small, stream);
        let bytes = std::fs::read(&path).unwrap();
        let mut errors = 0;
        for cut in 1..bytes.len() {
            let reading = Reading::new(&write_file(&folder, "cut.arrow", &bytes[..cut]));
            match reading.open(Position::default()) {
                Ok(mut reader) => errors += u32::from(reader.any(|batch| batch.is_err())),
                Err(error) => {
                    let text = error.to_string();
                    assert!(text.contains("not a whole Arrow file"), "{cut}: {text}");
                    errors += 1;
                }
            }
        }
        assert!(errors > 0);
    }
    let reading = Reading::new(&write_file(&folder, "b.arrow", "not arrow at all"));
    assert!(reading.open(Position::default()).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn reading_can_start_at_the_end_of_any_batch(
        batches in prop::collection::vec(prop::collection::vec(prop::option::of("[ab]{0,30}"), 0..20), 0..4),
        batch in 1usize..80,
        stream: bool,
    ) {
        let folder = tempdir().unwrap();
        let batches: Vec<Rows<'_>> =
            batches.iter().map(|rows| rows.iter().map(Option::as_deref).collect()).collect();
        let mut reading = Reading::new(&write(&folder, &batches, Kind::Small, stream)).small();
        reading.limits.batch = batch;
        prop_assert_eq!(reading.check_every_start().len(), batches.iter().flatten().count());
    }

    /// A corrupt file is an error or other text, and never a panic.
    #[test]
    fn corrupt_bytes_are_an_error(at in 0usize..10_000, byte: u8, stream: bool) {
        let folder = tempdir().unwrap();
        let path = write(&folder, &[vec![Some("one"), None, Some("two")]], Kind::Small, stream);
        let mut bytes = std::fs::read(&path).unwrap();
        let at = at % bytes.len();
        bytes[at] = byte;
        std::fs::write(&path, bytes).unwrap();
        if let Ok(reader) = Reading::new(&path).open(Position::default()) {
            reader.for_each(drop);
        }
    }
}

#[test]
fn a_panic_of_the_crate_for_arrow_is_an_error() {
    let folder = tempdir().unwrap();
    let path = write(&folder, &[vec![Some("one"), None, Some("two")]], Kind::Small, true);
    let good = std::fs::read(&path).unwrap();
    let mut refused = 0;
    for at in 0..good.len() {
        let mut bytes = good.clone();
        bytes[at] = 0xff;
        let reading = Reading::new(&write_file(&folder, "b.arrow", bytes));
        refused += match reading.open(Position::default()) {
            Ok(mut reader) => u32::from(reader.any(|batch| batch.is_err())),
            Err(_) => 1,
        };
    }
    assert!(refused > 0);
}
