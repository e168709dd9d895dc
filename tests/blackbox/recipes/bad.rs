//! Bad recipes: one line on stdout, the problem on stderr, exit code 2, and nothing created.

use std::fs;

use crate::recipes::rows::{
    CHOICES, KEYS, KINDS, MISSING, PLACES, RANGES, RULES, Row, SYNTAX, TEXTS,
};
use crate::recipes::{append, json, recipe};
use crate::support::{Bench, Done, json_lines};

/// What every refusal of `bad.toml` has, by `recipe check` and by `train`.
#[track_caller]
fn refused(bench: &Bench, place: &str, says: &[&str]) {
    let before = bench.names();
    let done = bench.run(&["recipe", "check", "bad.toml"]).expect(2);
    told(&done, place, says);
    assert!(done.stdout.starts_with("bad  bad.toml: 1 problem\n"), "{done:?}");
    assert_eq!(done.stdout.lines().count(), 1, "{done:?}");
    assert_eq!(bench.names(), before, "checking created something");
    let done = bench.run(&["train", "bad.toml"]).expect(2);
    told(&done, place, says);
    assert_eq!(bench.names(), before, "training created something");
}

#[track_caller]
fn told(done: &Done, place: &str, says: &[&str]) {
    let text = &done.stderr;
    for part in says.iter().chain(&[place]) {
        assert!(text.contains(part), "stderr does not say {part:?}:\n{text}");
    }
    assert!(place.is_empty() || text.contains('^'), "nothing is underlined:\n{text}");
    assert!(!text.contains("panicked") && !text.contains("Traceback"), "{text}");
}

#[track_caller]
fn all_refused(rows: &[Row]) {
    let bench = Bench::new();
    let sound = fs::read_to_string(bench.path("r.toml")).unwrap();
    bench.write("bad.toml", "");
    let mut wrong = Vec::new();
    for Row { from, to, place, says } in rows {
        let text = match *from {
            "" => format!("{sound}{to}"),
            from => {
                assert!(sound.contains(from), "the recipe has no {from:?}");
                sound.replacen(from, to, 1)
            }
        };
        bench.write("bad.toml", &text);
        let place = if place.is_empty() { String::new() } else { format!("bad.toml:{place}") };
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            refused(&bench, &place, says);
        }));
        if result.is_err() {
            wrong.push(*to);
        }
    }
    assert!(wrong.is_empty(), "not refused as they should be: {wrong:#?}");
}

#[test]
fn mistakes_of_syntax() {
    all_refused(SYNTAX);
}

#[test]
fn values_of_another_kind() {
    all_refused(KINDS);
}

#[test]
fn numbers_out_of_range() {
    all_refused(RANGES);
}

#[test]
fn words_that_are_no_choice() {
    all_refused(CHOICES);
}

#[test]
fn keys_and_tables_that_are_unknown_or_misplaced() {
    all_refused(KEYS);
}

#[test]
fn keys_and_tables_that_are_missing() {
    all_refused(MISSING);
}

#[test]
fn settings_that_do_not_agree() {
    all_refused(RULES);
}

#[test]
fn places_that_cannot_be_used() {
    all_refused(PLACES);
}

#[test]
fn texts_that_are_no_recipe() {
    let bench = Bench::new();
    for (bytes, place, says) in TEXTS {
        fs::write(bench.path("bad.toml"), bytes).unwrap();
        let before = bench.names();
        for command in [&["recipe", "check", "bad.toml"][..], &["train", "bad.toml"]] {
            let done = bench.run(command).expect(2);
            told(&done, if place.is_empty() { "" } else { place }, says);
        }
        assert_eq!(bench.names(), before);
    }
}

#[test]
fn files_that_are_no_recipe() {
    let bench = Bench::new();
    fs::create_dir(bench.path("bad.toml")).unwrap();
    refused(&bench, "", &["the recipe is a directory"]);
    fs::remove_dir(bench.path("bad.toml")).unwrap();
    refused(&bench, "", &["no such file"]);
    fs::write(bench.path("bad.toml"), vec![b'#'; (1 << 20) + 1]).unwrap();
    refused(&bench, "", &["larger than 1048576 bytes"]);
}

#[test]
fn a_wrong_line_in_a_recipe_that_another_extends_is_shown_there() {
    let bench = Bench::new();
    let sound = fs::read_to_string(bench.path("r.toml")).unwrap();
    fs::create_dir(bench.path("base")).unwrap();
    bench.write("base/low.toml", &sound.replace("steps = 6", "steps = \"6\""));
    bench.write("bad.toml", "extends = \"base/low.toml\"\n");
    fs::copy(bench.path("data.txt"), bench.path("base/data.txt")).unwrap();
    refused(&bench, "base/low.toml:18:9", &["remove the quotes: steps = 6"]);
    bench.write("base/low.toml", &sound.replace("[model]", "[model"));
    refused(&bench, "base/low.toml:4:7", &["expected `]`"]);
    bench.write("base/low.toml", "extends = \"../bad.toml\"\n");
    refused(&bench, "base/low.toml:1:11", &["extends itself"]);
}

#[test]
fn three_mistakes_are_three_messages_of_one_run() {
    let bench = Bench::new();
    bench.edit("steps = 6\nsequence_length = 32", "steps = 0\nseq_len = 32");
    let text = fs::read_to_string(bench.path("r.toml")).unwrap();
    bench.write("bad.toml", &text.replace("\"sgd\"", "\"adam\""));
    let done = bench.run(&["recipe", "check", "bad.toml"]).expect(2);
    told(&done, "bad.toml:18:9", &["bad.toml:19:1", "bad.toml:24:8"]);
    assert_eq!(done.stderr.matches("error:").count(), 3, "{}", done.stderr);
    assert_eq!(done.stdout, "bad  bad.toml: 3 problems\n");
    // In reading order.
    let places = ["bad.toml:18:9", "bad.toml:19:1", "bad.toml:24:8"].map(|p| done.stderr.find(p));
    assert!(places.is_sorted(), "{}", done.stderr);
}

#[test]
fn a_typo_in_a_table_and_a_key_in_the_wrong_one_say_where_they_belong() {
    let bench = Bench::new();
    append(&bench, "bad.toml", "\n[chekpoint]\nkeep_last = 2\n\n[schedule]\ngradient_clip = 1.0\n");
    let done = bench.run(&["recipe", "check", "bad.toml"]).expect(2);
    let texts = ["did you mean `checkpoint`?", "`gradient_clip` belongs to [training]"];
    told(&done, "bad.toml:30:2", &texts);
    assert_eq!(done.stdout, "bad  bad.toml: 2 problems\n");
}

#[test]
fn each_of_many_recipes_gets_its_line() {
    let bench = Bench::new();
    bench.write("bad.toml", "version = 2\n");
    let names = ["r.toml", "bad.toml", "nowhere.toml", "qwen3_8b"];
    let done = bench.run(&[&["recipe", "check"][..], &names].concat()).expect(2);
    let lines: Vec<&str> = done.stdout.lines().collect();
    let expected =
        ["ok   r.toml: ", "bad  bad.toml: 1 ", "bad  nowhere.toml: 1 ", "ok   qwen3_8b: "];
    assert_eq!(lines.len(), expected.len(), "{}", done.stdout);
    for (line, expected) in lines.iter().zip(expected) {
        assert!(line.starts_with(expected), "{line}");
    }
    told(&done, "bad.toml:1:11", &["no such file"]);
    bench.run(&["recipe", "check", "r.toml", &recipe("qwen3_tiny")]).expect(0);
    bench.run(&["recipe", "check"]).expect(2);
}

#[test]
fn a_verdict_as_json() {
    let bench = Bench::new();
    append(&bench, "bad.toml", "\n[schedule]\ndecay_kind = \"sqrt\"\nkind = \"linaer\"\n");
    let done = bench.run(&["recipe", "check", "r.toml", "bad.toml", "no.toml", "--json"]).expect(2);
    assert_eq!(done.stderr, "");
    let verdicts = json_lines(&done.stdout);
    assert_eq!(verdicts.len(), 3);
    assert_eq!(
        verdicts[0],
        serde_json::json!({ "recipe": "r.toml", "ok": true, "errors": 0, "problems": [] })
    );
    let bad = &verdicts[1];
    assert_eq!((&bad["recipe"], &bad["ok"]), (&"bad.toml".into(), &false.into()));
    let problems = bad["problems"].as_array().unwrap();
    let errors = problems.iter().filter(|problem| problem["severity"] == "error").count();
    assert_eq!(bad["errors"], errors);
    let error = problems.iter().find(|problem| problem["severity"] == "error").unwrap();
    assert_eq!(
        error["place"],
        serde_json::json!({ "source": "bad.toml", "line": 32, "column": 8 })
    );
    assert!(error["message"].as_str().unwrap().contains("linaer"), "{error}");
    assert!(error["help"].as_str().unwrap().contains("\"linear\""), "{error}");
    assert!(error["label"].is_string());
    let missing = &verdicts[2]["problems"][0];
    assert_eq!(
        (&missing["place"], &missing["severity"]),
        (&serde_json::Value::Null, &"error".into())
    );
    // A sound recipe that is worth a warning is sound.
    append(&bench, "warned.toml", "\n[elastic]\nmax_restarts = 10\n");
    let warned = json(&bench.run(&["recipe", "check", "warned.toml", "--json"]).expect(0));
    assert_eq!((&warned["ok"], &warned["errors"]), (&true.into(), &0.into()));
    assert_eq!(warned["problems"][0]["severity"], "warning");
}
