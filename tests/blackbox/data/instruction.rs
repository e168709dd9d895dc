//! Instruction data, and the cache that its tokens are in.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::SystemTime;

use serde_json::json;

use super::{Data, letters};
use crate::support::floats;

/// Prompts and responses of many lengths.
fn write_pairs(data: &Data, seed: u64) {
    let pair = |n: u64| {
        let prompt = letters(seed + 2 * n, 3 + (n as usize * 7) % 60);
        let response = letters(seed + 2 * n + 1, 1 + (n as usize * 11) % 40);
        json!({ "id": n, "question": prompt, "answer": response }).to_string() + "\n"
    };
    data.write("d.jsonl", (0..40).map(pair).collect::<String>());
}

const PAIRS: [&str; 4] = [
    "--set",
    r#"data.sources=[{path="d.jsonl",prompt_field="question",response_field="answer"}]"#,
    "--set",
    "training.steps=3",
];

#[test]
fn prompts_are_learned_or_responses_are_counted_wrongly_on_other_devices() {
    let data = Data::new();
    write_pairs(&data, 1);
    let mut losses = Vec::new();
    for devices in ["1", "2"] {
        let settings = [&PAIRS[..], &["--devices", devices]].concat();
        data.train(devices, &settings).expect(0);
        let metrics = data.bench.metrics(devices);
        let rows = data.rows("1..3", &settings);
        for (step, line) in (1..).zip(&metrics) {
            let of_step = rows.iter().filter(|row| row.place[0] == step);
            let targets: u64 = of_step.map(super::Row::targets).sum();
            assert_eq!(line["targets"], targets, "step {step} on {devices} devices");
            assert!((1..4 * 32).contains(&targets), "{targets}: not some of the tokens");
        }
        losses.push(floats(&metrics, "loss"));
    }
    for (one, two) in losses[0].iter().zip(&losses[1]) {
        assert!((one - two).abs() < 1e-5, "{losses:?}");
    }
    assert!(losses[0].len() == 3 && losses[0][2] != losses[0][0], "{losses:?}");
}

#[test]
fn what_is_learned_is_the_response_and_its_end() {
    let data = Data::new();
    let pair = |prompt, response| json!({ "p": prompt, "r": response }).to_string() + "\n";
    data.write("d.jsonl", pair("ab", "cd") + &pair("", "e") + &pair("f", ""));
    let fields = ["--prompt-field", "p", "--response-field", "r"];
    let ends = ["--document-start", "1", "--document-end", "2"];
    let tokenize = ["data", "tokenize", "d.jsonl", "-o", "s"];
    let made = data.json(&[&tokenize[..], &fields, &ends].concat());
    // A pair without a response has nothing to learn.
    assert_eq!(
        (&made[0]["documents"], &made[0]["account"]["empty_documents"]),
        (&2.into(), &1.into())
    );
    let lines = data.json(&["data", "show", "s"]);
    let tokens: Vec<_> = lines
        .iter()
        .filter(|line| line["event"] == "document")
        .map(|line| &line["tokens"])
        .collect();
    let hidden = |id: i64| -id - 1;
    let first = json!([hidden(1), hidden(97), hidden(98), 99, 100, 2]);
    assert_eq!(tokens[0], &first);
    // Where there is no prompt, all is learned but the token before it, which nothing predicts.
    assert_eq!(tokens[1], &json!([hidden(1), 101, 2]));
    assert_eq!(made[0]["targets"], 5);
}

#[test]
fn the_token_before_a_document_is_learned_without_a_prompt() {
    let data = Data::new();
    // The last response begins with it.
    let pairs = [("", "ab"), ("p", "ab"), ("", "\nab")];
    let lines = pairs.map(|(prompt, response)| json!({ "p": prompt, "r": response }).to_string());
    data.write("d.jsonl", lines.join("\n"));
    let fields = ["--prompt-field", "p", "--response-field", "r", "--document-start", "10"];
    let tokenize = ["data", "tokenize", "d.jsonl", "-o", "s"];
    let made = data.json(&[&tokenize[..], &fields].concat());
    assert_eq!((&made[0]["targets"], &made[0]["tokens"]), (&6.into(), &10.into()));
    let lines = data.json(&["data", "show", "s"]);
    let tokens: Vec<_> = lines[1..].iter().map(|line| line["tokens"].clone()).collect();
    assert_eq!(tokens, [json!([-11, 97, 98]), json!([-11, -113, 97, 98]), json!([-11, 97, 98])]);
    // Of text, everything is learned, and so is this.
    data.write_texts("t.jsonl", &["ab"]);
    let start = ["--document-start", "10"];
    let made = data.json(&[&["data", "tokenize", "t.jsonl", "-o", "t"][..], &start].concat());
    assert_eq!(made[0]["targets"], 3);
}

/// When each file of the data cache was written, without the locks.
fn written(data: &Data) -> BTreeMap<PathBuf, SystemTime> {
    let mut times = BTreeMap::new();
    for folder in data.bench.shards() {
        for file in fs::read_dir(folder).unwrap() {
            let file = file.unwrap();
            if file.file_name() != "lock" {
                times.insert(file.path(), file.metadata().unwrap().modified().unwrap());
            }
        }
    }
    times
}

#[test]
fn the_same_data_is_tokenized_twice_or_changed_data_is_not() {
    let data = Data::new();
    write_pairs(&data, 1);
    let fingerprint = |more: &[&str]| {
        data.facts(&[&PAIRS[..], more].concat())["fingerprint"].as_str().unwrap().to_owned()
    };
    let first = fingerprint(&[]);
    let before = written(&data);
    assert!(!before.is_empty());
    assert_eq!(fingerprint(&[]), first);
    // What the tokens do not depend on.
    assert_eq!(fingerprint(&["--set", "training.seed=7", "--devices", "1"]), first);
    assert_eq!(written(&data), before, "the tokens were made again");

    let size = fs::metadata(data.path("d.jsonl")).unwrap().len();
    write_pairs(&data, 1000);
    assert_eq!(fs::metadata(data.path("d.jsonl")).unwrap().len(), size, "of the same size");
    let second = fingerprint(&[]);
    assert_ne!(second, first, "the changed data was not read");
    assert!(written(&data).len() > before.len());
    assert_ne!(fingerprint(&["--set", "data.document_end=10"]), second);
    // The content counts, not when it was written: shards of the same content are the same data.
    write_pairs(&data, 1);
    assert_eq!(fingerprint(&[]), first);
}

#[test]
fn data_of_the_same_size_and_time_but_other_content_is_not_read() {
    let data = Data::new();
    let path = data.path("data.txt");
    let fingerprint = || data.facts(&[])["fingerprint"].clone();
    let first = fingerprint();
    let time = fs::metadata(&path).unwrap().modified().unwrap();
    let mut content = fs::read(&path).unwrap();
    content[77] ^= 1;
    fs::write(&path, content).unwrap();
    fs::File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), time);
    assert_ne!(fingerprint(), first);
}
