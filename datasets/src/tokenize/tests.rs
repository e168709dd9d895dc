//! Laws of tokenizing: the same bytes whatever the threads and the interruptions, and an account that closes.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use proptest::prelude::*;

use super::*;
use crate::shards::{DataKind, ShardIndex, SplitReader};
use crate::source::{Fields, SourceSpec, TextDocuments, find};
use crate::{Error, Tokenizer};

fn text_fields() -> Fields {
    Fields::Text { text: "text".to_owned() }
}

fn job(source: &Path, output: &Path, fields: Fields) -> Job {
    let spec = SourceSpec {
        path: source.display().to_string(),
        fields: fields.clone(),
        documents: TextDocuments::File,
        split: "train".to_owned(),
    };
    Job {
        inputs: find(&spec).unwrap(),
        fields,
        documents: TextDocuments::File,
        tokenizer: Arc::new(Tokenizer::Bytes),
        document_start: None,
        document_end: Some(10),
        validation_fraction: 0.0,
        on_bad_record: OnBadRecord::Fail,
        shard_tokens: 1 << 28,
        threads: 2,
        output: output.to_owned(),
        waits: false,
    }
}

fn run(job: &Job) -> crate::Result<Outcome> {
    tokenize(job, &AtomicBool::new(false), &mut |_| {})
}

/// Every file of a folder but those that say how it was made.
fn content(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let files = entries
        .map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap()));
    files.filter(|(name, _)| name != "lock").collect()
}

fn documents(folder: &Path, split: &str) -> Vec<(String, Option<String>)> {
    let reader = SplitReader::open(folder, split).unwrap();
    let documents = (0..reader.documents()).map(|number| {
        let document = reader.document(number).unwrap();
        let text = document.tokens.iter().map(|token| if *token < 0 { b'*' } else { *token as u8 });
        (String::from_utf8(text.collect()).unwrap(), document.extra)
    });
    documents.collect()
}

/// A source of several files in several formats, with about `lines` documents of many lengths.
fn corpus(folder: &Path, lines: u64) {
    for file in 0..3 {
        let mut text = String::new();
        for line in 0..lines {
            let length = (line * 37 + file * 11) % 700;
            let words = format!("{file} {line} ").repeat(length as usize / 5 + 1);
            text.push_str(
                &serde_json::json!({ "text": words, "other": format!("{line}") }).to_string(),
            );
            text.push('\n');
            if line % 50 == 7 {
                text.push_str("{\"text\": \"\", \"other\": \"\"}\n");
            }
        }
        fs::write(folder.join(format!("{file}.jsonl")), text).unwrap();
    }
    fs::write(folder.join("3.jsonl"), "").unwrap();
    fs::write(folder.join("4.txt"), "A text file.\nOf two lines.").unwrap();
}

#[test]
fn threads_do_not_matter() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("source");
    fs::create_dir(&source).unwrap();
    corpus(&source, 9_000);
    let outputs: Vec<_> = [1, 2, 7]
        .map(|threads| {
            let output = folder.path().join(format!("out{threads}"));
            let mut job = job(&source, &output, text_fields());
            (job.threads, job.validation_fraction, job.shard_tokens) = (threads, 0.1, 300_000);
            run(&job).unwrap();
            content(&output)
        })
        .into();
    assert!(outputs[0].len() > 40, "{:?}", outputs[0].keys());
    assert!(outputs[0] == outputs[1] && outputs[0] == outputs[2]);
}

#[test]
fn a_second_start_finds_everything_there() {
    let folder = tempfile::tempdir().unwrap();
    let (source, output) = (folder.path().join("a.txt"), folder.path().join("out"));
    fs::write(&source, "to be").unwrap();
    let first_job = job(&source, &output, text_fields());
    let first = run(&first_job).unwrap();
    let second = run(&first_job).unwrap();
    assert!(!first.was_done && second.was_done);
    assert_eq!(first.index, second.index);
    assert_eq!(documents(&output, "train"), [("to be\n".to_owned(), None)]);
    // The same folder is not taken for something else.
    let other = Job { document_end: None, ..first_job };
    let error = run(&other).unwrap_err().to_string();
    assert!(error.contains("which differs in the token after a document"), "{error}");
    fs::write(&source, "or not").unwrap();
    let changed = job(&source, &output, text_fields());
    let error = run(&changed).unwrap_err().to_string();
    assert!(error.contains("the files, or their content"), "{error}");
}

#[test]
fn a_folder_of_something_else_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let (source, output) = (folder.path().join("a.txt"), folder.path().join("out"));
    fs::write(&source, "x").unwrap();
    fs::create_dir(&output).unwrap();
    fs::write(output.join("thesis.txt"), "years of work").unwrap();
    let error = run(&job(&source, &output, text_fields())).unwrap_err();
    assert!(matches!(error, Error::OtherShards { .. }), "{error}");
    assert_eq!(content(&output).len(), 1);
}

#[test]
fn a_bad_record_is_named_and_nothing_stays() {
    let folder = tempfile::tempdir().unwrap();
    let (source, output) = (folder.path().join("a.jsonl"), folder.path().join("out"));
    fs::write(&source, "{\"text\": \"good\"}\n{\"text\": null}\n{\"txt\": 1}\n").unwrap();
    let job = job(&source, &output, text_fields());
    let error = run(&job).unwrap_err();
    let Error::BadRecord { record, offset, .. } = &error else { panic!("{error}") };
    assert_eq!((*record, *offset), (2, Some(17)));
    assert!(!output.exists());

    let skip = Job { on_bad_record: OnBadRecord::Skip, ..job };
    let account = run(&skip).unwrap().index.account;
    assert_eq!(account.records, 3);
    let bad: BTreeMap<&str, u64> =
        account.bad.iter().map(|(word, n)| (word.as_str(), *n)).collect();
    assert_eq!(bad, BTreeMap::from([("missing-field", 1), ("null", 1)]));
    let list = fs::read_to_string(output.join("skipped.jsonl")).unwrap();
    assert_eq!(list.lines().count(), 2);
    assert!(list.contains("\"record\":2,\"offset\":17,\"reason\":\"null\""), "{list}");
}

#[test]
fn responses_are_learned_and_prompts_are_not() {
    let folder = tempfile::tempdir().unwrap();
    let (source, output) = (folder.path().join("a.jsonl"), folder.path().join("out"));
    let lines = [
        "{\"q\": \"two\", \"a\": \"2\"}",
        "{\"q\": \"\", \"a\": \"x\"}",
        "{\"q\": \"none\", \"a\": \"\"}",
    ];
    fs::write(&source, lines.join("\n")).unwrap();
    let fields = Fields::Exchange { prompt: "q".to_owned(), response: "a".to_owned() };
    let job = Job { document_start: Some(62), ..job(&source, &output, fields) };
    let index = run(&job).unwrap().index;
    assert_eq!(index.kind, DataKind::Instruction);
    let texts: Vec<String> =
        documents(&output, "train").into_iter().map(|(text, _)| text).collect();
    assert_eq!(texts, ["****2\n", "*x\n"]);
    assert_eq!((index.splits["train"].targets, index.account.empty_documents), (4, 1));
}

#[test]
fn prompts_keep_their_other_fields() {
    let folder = tempfile::tempdir().unwrap();
    let (source, output) = (folder.path().join("a.jsonl"), folder.path().join("out"));
    fs::write(
        &source,
        "{\"answer\": 4, \"prompt\": \"2+2\"}\n{\"prompt\": \"?\", \"answer\": [1, null]}\n",
    )
    .unwrap();
    run(&job(&source, &output, Fields::Prompt { prompt: "prompt".to_owned() })).unwrap();
    let found = documents(&output, "train");
    assert_eq!(found[0].0, "2+2");
    let extra =
        |n: usize| serde_json::from_str::<serde_json::Value>(found[n].1.as_ref().unwrap()).unwrap();
    assert_eq!(extra(0), serde_json::json!({"answer": 4}));
    assert_eq!(extra(1), serde_json::json!({"answer": [1, null]}));
}

#[test]
fn what_is_held_out_depends_on_the_text_alone() {
    let folder = tempfile::tempdir().unwrap();
    let texts: Vec<String> = (0..2000).map(|n| format!("text number {}", n % 1500)).collect();
    let held_out = |name: &str, texts: &mut dyn Iterator<Item = &String>| {
        let (source, output) =
            (folder.path().join(format!("{name}.jsonl")), folder.path().join(name));
        let lines: Vec<String> =
            texts.map(|text| serde_json::json!({ "text": text }).to_string()).collect();
        fs::write(&source, lines.join("\n")).unwrap();
        let job = Job { validation_fraction: 0.2, ..job(&source, &output, text_fields()) };
        run(&job).unwrap();
        let mut held: Vec<String> =
            documents(&output, "validation").into_iter().map(|(t, _)| t).collect();
        let train: Vec<String> = documents(&output, "train").into_iter().map(|(t, _)| t).collect();
        assert_eq!(held.len() + train.len(), lines.len());
        assert!(held.iter().all(|text| !train.contains(text)), "a text is in both");
        held.sort();
        held
    };
    let forwards = held_out("forwards", &mut texts.iter());
    assert_eq!(forwards, held_out("backwards", &mut texts.iter().rev()));
    let share = forwards.len() as f64 / 2000.0;
    assert!((0.15..0.25).contains(&share), "{share}");
}

#[test]
fn a_flipped_bit_is_found_when_it_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let (source, output) = (folder.path().join("a.txt"), folder.path().join("out"));
    fs::write(&source, "0123456789".repeat(30_000)).unwrap();
    run(&job(&source, &output, text_fields())).unwrap();
    let tokens = output.join("train-00000.tokens");
    let mut bytes = fs::read(&tokens).unwrap();
    bytes[70_000] ^= 1;
    fs::write(&tokens, &bytes).unwrap();
    let reader = SplitReader::open(&output, "train").unwrap();
    let mut out = [0; 100];
    reader.read(0, &mut out).unwrap();
    reader.read(200_000, &mut out).unwrap();
    for start in [65_536, 99_999, 131_000] {
        let error = reader.read(start, &mut out).unwrap_err();
        assert!(
            matches!(&error, Error::Corrupt { offset: 65_536, path, .. } if *path == tokens),
            "{error}"
        );
    }
    let (_, findings) =
        crate::shards::verify_shards(&output, &AtomicBool::new(false), |_| {}).unwrap();
    assert_eq!(findings.bad.len(), 1);
    assert_eq!(findings.bad[0].offset, Some(65_536));
    // A file of another size is not even opened.
    fs::write(&tokens, &bytes[..1000]).unwrap();
    assert!(matches!(SplitReader::open(&output, "train"), Err(Error::Changed { found: 1000, .. })));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// Stopped anywhere and any number of times, with whatever was written since left in the files.
    #[test]
    fn interruptions_do_not_matter(
        stops in prop::collection::vec(1u64..6, 1..4),
        shard_tokens in prop::sample::select(vec![100_000u64, 1_000_000, 1 << 28]),
        fraction in prop::sample::select(vec![0.0, 0.3]),
        instruction in any::<bool>(),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("source");
        fs::create_dir(&source).unwrap();
        corpus(&source, 6_000);
        let fields = if instruction {
            fs::remove_file(source.join("4.txt")).unwrap();
            Fields::Exchange { prompt: "other".to_owned(), response: "text".to_owned() }
        } else {
            text_fields()
        };
        let whole = folder.path().join("whole");
        let mut job = job(&source, &whole, fields);
        (job.validation_fraction, job.shard_tokens, job.document_start) = (fraction, shard_tokens, Some(7));
        run(&job).unwrap();
        job.output = folder.path().join("parts");
        let mut was_stopped = false;
        for batches in stops {
            let (stop, seen) = (AtomicBool::new(false), AtomicU64::new(0));
            let result = tokenize(&job, &stop, &mut |_| {
                if seen.fetch_add(1, Ordering::Relaxed) + 1 == batches {
                    stop.store(true, Ordering::Relaxed);
                }
            });
            match result {
                Err(Error::Stopped) => was_stopped = true,
                other => {
                    other.unwrap();
                    break;
                }
            }
            // A kill leaves more in the files than was saved.
            for entry in fs::read_dir(&job.output).unwrap().map(Result::unwrap) {
                let name = entry.file_name().into_string().unwrap();
                if name.starts_with("train-") || name == "skipped.jsonl" {
                    let mut bytes = fs::read(entry.path()).unwrap();
                    if !is_finished(&job.output, &name) {
                        bytes.extend(b"written after the last save");
                        fs::write(entry.path(), bytes).unwrap();
                    }
                }
            }
        }
        run(&job).unwrap();
        prop_assert!(was_stopped);
        prop_assert!(content(&whole) == content(&job.output));
        let index = ShardIndex::read(&job.output).unwrap();
        let documents: u64 = index.splits.values().map(|split| split.documents).sum();
        let account = &index.account;
        prop_assert_eq!(account.records, documents + account.empty_documents + account.bad.values().sum::<u64>());
    }
}

/// Whether a file belongs to a shard that was finished when the tokenization stopped.
fn is_finished(folder: &Path, name: &str) -> bool {
    let progress = fs::read_to_string(folder.join("progress.json")).unwrap();
    let progress: serde_json::Value = serde_json::from_str(&progress).unwrap();
    let shards = progress["train"]["finished"].as_array().unwrap();
    shards.iter().any(|shard| name.starts_with(shard["name"].as_str().unwrap()))
}
