//! Data that is too little for one step.

use std::time::{Duration, Instant};

use super::{Data, letters};

#[test]
fn data_too_small_for_a_step_is_refused_with_numbers_that_work() {
    let data = Data::new();
    data.write("data.txt", letters(1, 100));
    let train = ["train", "r.toml", "--run-dir", "out"];
    let start = Instant::now();
    data.run(&train).expect(3).says(&[
        "100 tokens make 3 samples of sequence_length 32",
        "takes global_batch 4 different samples",
        "lower training.global_batch to 3 or less",
        "lower training.sequence_length to 24 or less",
        "at least 129 tokens of data",
    ]);
    assert!(start.elapsed() < Duration::from_secs(10), "took {:?}", start.elapsed());
    data.nothing_ran();
    // With --json it is an end like any other.
    let done = data.run(&["train", "r.toml", "--json"]).expect(3);
    let end = crate::support::json_lines(&done.stdout).pop().unwrap();
    assert_eq!((&end["event"], &end["exit_code"]), (&"end".into(), &3.into()));
    assert!(end["error"].as_str().unwrap().contains("100 tokens"), "{end}");
    data.nothing_ran();

    // Each of its proposals works.
    for setting in ["training.global_batch=2", "training.sequence_length=24"] {
        data.run(&["train", "r.toml", "--dry-run", "--set", setting]).expect(0);
    }
    data.write("data.txt", letters(1, 129));
    data.run(&["train", "r.toml", "--dry-run"]).expect(0);
}

#[test]
fn data_without_a_token_is_refused() {
    let data = Data::new();
    data.write("empty.txt", "");
    data.write_texts("empty.jsonl", &["", ""]);
    for path in ["empty.txt", "empty.jsonl"] {
        let sources = format!("data.sources=[{{path=\"{path}\"}}]");
        let done = data.run(&["train", "r.toml", "--set", &sources]).expect(3);
        done.says(&["0 tokens", "give at least 129 tokens of data"]);
    }
    data.nothing_ran();
}

#[test]
fn of_a_mixture_the_source_that_is_too_small_is_named() {
    let data = Data::new();
    data.write("large.txt", letters(1, 5000));
    data.write("little.txt", letters(2, 40));
    let sources = r#"data.sources=[{path="large.txt",weight=1.0},{path="little.txt",weight=1.0}]"#;
    let done = data.run(&["train", "r.toml", "--set", sources]).expect(3);
    let done = done.says(&["little.txt: this source is too small", "40 tokens make 1 sample"]);
    assert!(!done.stderr.contains("large.txt"), "{}", done.stderr);
    data.nothing_ran();
    // As one they are enough.
    let plain = r#"data.sources=[{path="large.txt"},{path="little.txt"}]"#;
    data.run(&["train", "r.toml", "--dry-run", "--set", plain]).expect(0);
}
