//! `data verify` of several things at once.

use std::fs;

use serde_json::json;

use super::{Data, LIMIT, flip};
use crate::support::{Running, json_lines, repository};

#[test]
fn checking_ends_at_the_first_path_that_cannot_be_opened() {
    let data = Data::new();
    data.write_texts("good.jsonl", &["a"]);
    data.write("bad.jsonl", "{}\n");
    data.write(
        "two.toml",
        fs::read_to_string(data.path("r.toml")).unwrap().replace(
            "sources = [{ path = \"data.txt\" }]",
            "sources = [{ path = \"broken.parquet\" }, { path = \"good.jsonl\" }]",
        ),
    );
    data.write("broken.parquet", [0; 100]);
    data.run(&["data", "tokenize", "good.jsonl", "-o", "s"]).expect(0);
    flip(&data.path("s/index.json"), 300);
    let cases: [(&[&str], i32, &[&str]); 5] = [
        (&["gone", "good.jsonl", "bad.jsonl"], 2, &["good.jsonl", "bad.jsonl"]),
        (&["bad.jsonl", "gone", "good.jsonl"], 2, &["bad.jsonl", "good.jsonl"]),
        (&["bad.jsonl", "s", "gone", "good.jsonl"], 3, &["bad.jsonl", "good.jsonl"]),
        (&["bad.jsonl", "good.jsonl"], 3, &["bad.jsonl", "good.jsonl"]),
        (&["two.toml", "gone", "good.jsonl"], 3, &["good.jsonl", "good.jsonl"]),
    ];
    for (paths, code, checked) in cases {
        let done = data.run(&[&["data", "verify", "--json"], paths].concat()).expect(code);
        let lines = json_lines(&done.stdout);
        let names: Vec<_> = lines
            .iter()
            .map(|line| line["path"].as_str().unwrap().rsplit('/').next().unwrap())
            .collect();
        assert_eq!(names, checked, "{paths:?}");
        assert!(lines.iter().all(|line| line.get("tokens").is_none()), "records have no tokens");
        if paths.contains(&"gone") {
            done.says(&["error: gone: there is no such file or folder"]);
        }
    }
}

#[test]
fn flags_for_files_do_nothing_for_a_recipe() {
    let data = Data::new();
    for flags in [
        &["--text-field", "x"][..],
        &["--prompt-field", "x"],
        &["--documents", "lines"],
        &["--documents", "file"],
        &["--split", "train"],
    ] {
        let done = data.run(&[&["data", "verify", "data.txt", "r.toml"][..], flags].concat());
        let done =
            done.expect(2).says(&[&format!("{} is for files, and r.toml is a recipe", flags[0])]);
        assert_eq!(done.stdout, "", "something was read");
    }
    data.run(&["data", "verify", "data.txt", "r.toml"]).expect(0);
}

#[test]
fn the_name_of_a_shipped_recipe_is_no_file() {
    let data = Data::new();
    let mut command = data.bench.command(&["data", "verify", "llama3_tiny", "--json"]);
    command.current_dir(repository());
    let done = Running::start(command).wait_for(LIMIT).expect(0);
    let line = &json_lines(&done.stdout)[0];
    assert_eq!((&line["kind"], &line["ok"]), (&json!("records"), &json!(true)));
    // What is there has the name.
    data.write("llama3_tiny", "a");
    data.run(&["data", "verify", "llama3_tiny", "--documents", "lines"]).expect(0);
}
