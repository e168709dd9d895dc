//! Where the tokens go: none is lost in silence.

use std::collections::BTreeMap;

use serde_json::json;

use super::{Data, letters};

/// The bytes of the documents of B28.
const LENGTHS: [usize; 7] = [0, 1, 31, 32, 33, 64, 1000];

fn texts_of_lengths() -> Vec<String> {
    LENGTHS.iter().zip(1..).map(|(length, seed)| letters(seed, *length)).collect()
}

#[test]
fn empty_document_or_empty_file() {
    // B27: openai/gpt-2-output-dataset#51; huggingface/datasets#8444; instructlab/training#672
    let data = Data::new();
    data.write_texts("d/1.jsonl", &["first", "", "second", " ", "third"]);
    data.write("d/2.jsonl", "");
    data.write_texts("d/3.jsonl", &["", "fourth"]);
    data.write("d/4.jsonl", "");
    data.write("d/5.txt", "");
    data.write_texts("d/6.jsonl", &["fifth"]);
    data.write("d/7.jsonl", "");
    let there = ["first", "second", " ", "third", "fourth", "fifth"];
    let made = data.json(&["data", "tokenize", "d", "-o", "s", "--document-end", "10"]);
    let bytes: usize = there.iter().map(|text| text.len()).sum();
    // The token after a document is put after those that have a text, and after no other.
    assert_eq!((&made[0]["documents"], &made[0]["tokens"]), (&6.into(), &(bytes + 6).into()));
    let account = json!({
        "records": 8, "empty_documents": 2, "empty_files": 4, "bad": {}, "text_bytes": bytes
    });
    assert_eq!(made[0]["account"], account);
    assert_eq!(data.texts("s"), there.map(|text| format!("{text}\n")));

    // And a run says so.
    let sources = ["--set", r#"data.sources=[{path="d"}]"#];
    let small = ["--set", "training.sequence_length=4", "--set", "training.global_batch=2"];
    let facts = data.facts(&[&sources[..], &small].concat());
    assert_eq!((&facts["documents"], &facts["tokens_in"]), (&6.into(), &bytes.into()));
    let done = data.run(&[&["train", "r.toml", "--dry-run"][..], &sources, &small].concat());
    let done = done.expect(0);
    let said = done.stdout + &done.stderr;
    for text in ["passed over 4 empty files", "passed over 2 empty documents"] {
        assert!(said.contains(text), "{text}: {said}");
    }
}

#[test]
fn null_among_empty_documents_is_a_bad_record() {
    // B27
    let data = Data::new();
    let lines = "{\"text\": \"\"}\n{\"text\": \" \"}\n{\"text\": null}\n{\"text\": \"good\"}\n";
    data.write("1.jsonl", lines);
    data.write("2.jsonl", "");
    data.write_texts("3.jsonl", &["last"]);
    let tokenize = ["data", "tokenize", "1.jsonl", "2.jsonl", "3.jsonl", "-o", "s"];
    data.run(&tokenize).expect(3).says(&["1.jsonl:3: ", "\"text\" is null", "(byte 27)"]);
    assert!(!data.path("s").exists(), "something was left behind");
    let made = data.json(&[&tokenize[..], &["--on-bad-record", "skip"]].concat());
    let account = json!({
        "records": 5, "empty_documents": 1, "empty_files": 1, "bad": { "null": 1 }, "text_bytes": 9
    });
    assert_eq!(made[0]["account"], account);
    assert_eq!(data.texts("s"), [" ", "good", "last"]);
}

#[test]
fn documents_longer_or_shorter_than_a_sequence_silently_dropped() {
    // B28: facebookresearch/fairseq#1103; huggingface/trl#483; marin-community/marin#7130
    let data = Data::new();
    let texts = texts_of_lengths();
    data.write_texts("d.jsonl", &texts);
    let sources = ["--set", r#"data.sources=[{path="d.jsonl"}]"#];
    for end in ["none", "10"] {
        let end_setting = format!("data.document_end={end}");
        let settings = [&sources[..], &["--set", &end_setting]].concat();
        let ends = if end == "none" { "" } else { "\n" };
        let stream: Vec<i64> = texts
            .iter()
            .filter(|text| !text.is_empty())
            .flat_map(|text| format!("{text}{ends}").into_bytes())
            .map(i64::from)
            .collect();

        let facts = data.facts(&settings);
        let of = |key: &str| facts[key].as_u64().unwrap();
        assert_eq!(of("tokens_in"), stream.len() as u64);
        assert_eq!(of("tokens_in"), of("trained_per_epoch") + of("cropped") + of("remainder"));
        assert_eq!((of("documents"), of("cropped"), of("padded")), (6, 0, 0));
        assert!(of("remainder") <= 32, "{facts}");
        assert_eq!(of("trained_per_epoch"), 32 * of("samples"));
        for key in ["documents", "tokens_in", "trained_per_epoch", "cropped", "padded", "remainder"]
        {
            assert_eq!(facts["sources"][0][key], facts[key], "{key}");
        }

        // One epoch, row by row. Where a row is from follows from what is in it, not from what is said of it.
        let samples = of("samples");
        assert_eq!(samples % 4, 0, "an epoch of whole steps");
        let mut taken = vec![0; stream.len()];
        for row in data.rows(&format!("1..{}", samples / 4), &settings) {
            let places: Vec<usize> = stream
                .windows(33)
                .enumerate()
                .filter(|(_, window)| *window == row.tokens)
                .map(|(place, _)| place)
                .collect();
            let [place] = places[..] else { panic!("{row:?} is at {places:?}") };
            assert_eq!(row.id.epoch, 0);
            taken[place + 1..place + 33].iter_mut().for_each(|count| *count += 1);
        }
        let counts = taken.iter().fold(BTreeMap::new(), |mut counts, count| {
            *counts.entry(*count).or_insert(0) += 1;
            counts
        });
        // Every token is a target exactly once, but the remainder: the first, and what is too little for a row.
        let expected =
            BTreeMap::from([(0, of("remainder")), (1, stream.len() as u64 - of("remainder"))]);
        assert_eq!(counts, expected);
        assert_eq!(taken[0], 0);
        assert!(taken[1..].is_sorted_by(|a, b| a >= b), "a token in the middle is left out");
    }
}
