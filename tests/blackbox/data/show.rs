//! What `data show --json` prints.

use serde_json::{Value, json};

use super::Data;

fn of<'a>(lines: &'a [Value], event: &str) -> Vec<&'a Value> {
    lines.iter().filter(|line| line["event"] == event).collect()
}

#[test]
fn a_line_without_an_event() {
    let data = Data::new();
    data.write_texts("d.jsonl", &["a", "b"]);
    data.run(&["data", "tokenize", "d.jsonl", "-o", "s"]).expect(0);
    let lines = data.json(&["data", "show", "s"]);
    let events: Vec<_> = lines.iter().map(|line| line["event"].as_str().unwrap()).collect();
    assert_eq!(events, ["shards", "document", "document"]);
    assert_eq!((&lines[0]["format"], &lines[0]["version"]), (&json!("titan-tokens"), &json!(2)));
    assert_eq!(lines[0]["splits"]["train"]["documents"], 2);
    assert!(lines[1].get("source").is_none(), "shards have no sources");
}

#[test]
fn documents_of_one_source_look_like_those_of_another() {
    let data = Data::new();
    data.write_texts("d.jsonl", &["a".repeat(99), "b".repeat(99)]);
    data.write_texts("e.jsonl", &["c".repeat(99)]);
    for weight in ["", ",weight=1.0"] {
        let sources =
            format!(r#"data.sources=[{{path="d.jsonl"{weight}}},{{path="e.jsonl"{weight}}}]"#);
        let small = ["--set", &sources, "--set", "training.global_batch=2"];
        let lines = data.json(&[&["data", "show", "r.toml"][..], &small].concat());
        let documents: Vec<_> = of(&lines, "document")
            .iter()
            .map(|line| (line["source"].as_u64().unwrap(), line["document"].as_u64().unwrap()))
            .collect();
        assert_eq!(documents, [(0, 0), (0, 1), (1, 0)]);
    }
}

#[test]
fn sources_of_prompts_are_shown_to_people_alone() {
    let data = Data::new();
    let record = |n: u64| json!({ "prompt": format!("p{n}"), "answer": n }).to_string() + "\n";
    data.write("d.jsonl", (0..5).map(record).collect::<String>());
    data.write("e.jsonl", (5..8).map(record).collect::<String>());
    let settings = [
        "--set",
        r#"data.sources=[{path="d.jsonl",weight=1.0},{path="e.jsonl",weight=1.0}]"#,
        "--set",
        r#"rl.reward="exact-match""#,
        "--set",
        "rl.prompts_per_step=4",
        "--set",
        "rl.max_prompt_length=8",
        "--set",
        "rl.max_response_length=8",
    ];
    let lines = data.json(&[&["data", "show", "r.toml"][..], &settings].concat());
    let sources: Vec<_> = of(&lines, "source").into_iter().cloned().collect();
    let expected = [("d.jsonl", 5), ("e.jsonl", 3)];
    for (line, (name, prompts)) in sources.iter().zip(expected) {
        assert!(line["source"].as_str().unwrap().ends_with(name), "{line}");
        assert_eq!(line["prompts"], prompts);
    }
    assert_eq!(sources.len(), 2);
    assert_eq!(of(&lines, "document").len(), 6);
    let lines =
        data.json(&[&["data", "show", "r.toml", "--steps", "1..2"][..], &settings].concat());
    assert_eq!((of(&lines, "step").len(), lines.len()), (2, 2));
}
