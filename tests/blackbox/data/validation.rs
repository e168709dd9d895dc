//! Validation: all of its data on any number of ranks.

use std::fs;

use serde_json::Value;

use super::{Data, letters};
use crate::support::{floats, json_lines, none_left};

/// Ten documents of unequal length in three files, and what they are trained on: three files too.
fn write_data(data: &Data) -> usize {
    let lengths: [&[usize]; 3] = [&[1, 700, 33], &[3], &[64, 2, 250, 5, 31, 90]];
    for (number, lengths) in lengths.iter().enumerate() {
        let texts: Vec<String> =
            lengths.iter().zip(10..).map(|(length, seed)| letters(seed, *length)).collect();
        data.write_texts(&format!("v{number}.jsonl"), &texts);
        data.write(&format!("t/{number}.txt"), letters(number as u64, 100 + 300 * number));
    }
    lengths.iter().map(|lengths| lengths.iter().sum::<usize>()).sum()
}

const TRAINING: [&str; 6] = [
    "--set",
    r#"data.sources=[{path="t"}]"#,
    "--set",
    "training.steps=2",
    "--set",
    "validation.interval_steps=1",
];

fn validate(data: &Data, out: &str, devices: &str, sources: &str) -> Vec<Value> {
    let done = data
        .train(out, &[&TRAINING[..], &["--set", sources, "--devices", devices]].concat())
        .expect(0);
    none_left(&data.bench, out);
    let file = fs::read_to_string(data.path(out).join("validation.jsonl")).unwrap();
    let lines = json_lines(&file);
    let events: Vec<Value> = json_lines(&done.stdout)
        .into_iter()
        .filter(|line| line["event"] == "validation")
        .map(|mut line| {
            line.as_object_mut().unwrap().remove("event");
            line
        })
        .collect();
    assert_eq!(events, lines, "stdout and validation.jsonl differ");
    assert_eq!(floats(&lines, "step"), [1.0, 2.0]);
    lines
}

#[test]
fn ranks_run_out_of_data_at_different_times_and_hang() {
    // B24: pytorch/torchtitan#1618, pull request 4807; PrimeIntellect-ai/prime-rl#2515; huggingface/datasets#6623
    let data = Data::new();
    let tokens = write_data(&data);
    let sources = r#"validation.sources=[{path="v0.jsonl"},{path="v1.jsonl"},{path="v2.jsonl"}]"#;
    let one = validate(&data, "w1", "1", sources);
    // Each of the three files has a first token, which nothing comes before.
    assert!(one.iter().all(|line| line["targets"] == tokens - 3), "{one:?}");
    for devices in ["2", "4"] {
        let many = validate(&data, &format!("w{devices}"), devices, sources);
        for (one, many) in one.iter().zip(&many) {
            assert_eq!(one["targets"], many["targets"], "{devices} devices");
            let loss = |line: &Value| line["loss"].as_f64().unwrap();
            assert!((loss(one) - loss(many)).abs() < 1e-5, "{devices} devices: {one} and {many}");
        }
    }
}

#[test]
fn ranks_without_a_row_of_validation_data_do_not_hang() {
    // B24, at its extreme: three of four ranks have nothing but padding.
    let data = Data::new();
    write_data(&data);
    let lines = validate(&data, "w4", "4", r#"validation.sources=[{path="v1.jsonl"}]"#);
    assert!(lines.iter().all(|line| line["targets"] == 2), "{lines:?}");
    assert!(lines.iter().all(|line| line["loss"].as_f64().unwrap() > 0.0), "{lines:?}");
}

#[test]
fn validation_data_with_nothing_to_predict_is_refused() {
    let data = Data::new();
    write_data(&data);
    data.write("one.txt", "x");
    let train = [&["train", "r.toml"][..], &TRAINING].concat();
    let run = |path: &str| {
        let sources = format!("validation.sources=[{{path=\"{path}\"}}]");
        data.run(&[&train[..], &["--set", &sources]].concat()).expect(3)
    };
    run("one.txt").says(&["no token to predict", "name more data in validation.sources"]);
    data.write("broken.jsonl", "{\"text\": 1}\n");
    run("broken.jsonl").says(&["broken.jsonl:1: field \"text\" is a number", "(byte 0)"]);
    data.nothing_ran();
}
