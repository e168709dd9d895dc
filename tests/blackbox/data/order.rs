//! The order of samples: resumed, it is that of a run that was never stopped.

use std::collections::BTreeSet;
use std::fs;
use std::thread;
use std::time::Duration;

use super::{Data, Id, Row, contents, ids, letters};
use crate::support::{floats, json_lines};

/// 8 sequences of a step on up to 4 devices.
const BATCH: [&str; 2] = ["--set", "training.global_batch=8"];

/// Worlds that legs have in turn.
const WORLDS: [&str; 4] = ["4", "2", "1", "4"];

/// 70 samples of 32 tokens and 20: a run of 120 goes through both more than once.
fn two_sources(data: &Data) {
    data.write("a.txt", letters(1, 70 * 32 + 9));
    data.write("b.txt", letters(2, 20 * 32 + 1));
}

const WEIGHTED: &str = r#"data.sources=[{path="a.txt",weight=3},{path="b.txt",weight=1}]"#;
const PLAIN: &str = r#"data.sources=[{path="a.txt"},{path="b.txt"}]"#;

/// One leg: a fresh process that goes on from the cursor and leaves its own.
fn leg(data: &Data, steps: u64, number: usize, settings: &[&str]) -> Vec<Row> {
    let mut arguments = vec!["--devices", WORLDS[number % 4], "--write-cursor", "c.json"];
    if number > 0 {
        arguments.extend(["--cursor", "c.json"]);
    }
    arguments.extend(settings);
    let rows = data.rows(&format!("1..{steps}"), &arguments);
    assert_eq!(rows.len() as u64, 8 * steps);
    rows
}

#[track_caller]
fn same(legs: &[Row], whole: &[Row], what: &str) {
    let (legs, whole) = (contents(legs), contents(whole));
    let place = legs.iter().zip(&whole).position(|(a, b)| a != b);
    assert!(place.is_none(), "{what}: place {place:?} of the run is another");
    assert_eq!(legs.len(), whole.len(), "{what}");
}

#[test]
fn second_resume_restarts_the_data_stream() {
    // B22: huggingface/datasets#8308, pull request 8295; pytorch/torchtitan#961
    let data = Data::new();
    two_sources(&data);
    for sources in [WEIGHTED, PLAIN] {
        let settings = [&BATCH[..], &["--set", sources]].concat();
        let whole = data.rows("1..15", &[&settings[..], &["--devices", "2"]].concat());
        assert!(whole.iter().any(|row| row.id.epoch > 0), "the run is too short to go around");
        for lengths in [&[7, 8][..], &[5, 5, 5], &[4, 4, 4, 3], &[3, 3, 3, 3, 3]] {
            let mut rows = Vec::new();
            for (number, steps) in lengths.iter().enumerate() {
                rows.extend(leg(&data, *steps, number, &settings));
            }
            same(&rows, &whole, &format!("legs {lengths:?} of {sources}"));
        }
        for (source, samples) in
            if sources == WEIGHTED { vec![(0, 70), (1, 20)] } else { vec![(0, 90)] }
        {
            epoch_by_epoch(&ids(&whole), source, samples);
        }
    }
}

/// A source is gone through epoch by epoch, and no sample comes twice in one.
#[track_caller]
fn epoch_by_epoch(ids: &[Id], source: u64, samples: usize) {
    let of_source: Vec<&Id> = ids.iter().filter(|id| id.source == source).collect();
    assert!(of_source.len() > samples, "source {source} does not go around");
    for (epoch, part) in of_source.chunks(samples).enumerate() {
        assert!(part.iter().all(|id| id.epoch == epoch as u64), "source {source}: {part:?}");
        let distinct: BTreeSet<&&Id> = part.iter().collect();
        assert_eq!(distinct.len(), part.len(), "a sample of source {source} came twice");
    }
}

#[test]
fn the_shares_of_a_mixture_are_true_at_every_moment() {
    let data = Data::new();
    two_sources(&data);
    let rows = data.rows("1..100", &[&BATCH[..], &["--set", WEIGHTED]].concat());
    let mut first = 0;
    for (count, id) in (1..).zip(ids(&rows)) {
        first += i32::from(id.source == 0);
        let share = f64::from(count) * 0.75;
        assert!((f64::from(first) - share).abs() <= 3.0, "{first} of {count} samples");
    }
}

#[test]
fn a_leg_that_is_killed_or_does_nothing_moves_nothing() {
    // B22, with kill -9 between legs and a leg of 0 steps.
    let data = Data::new();
    two_sources(&data);
    let settings = [&BATCH[..], &["--set", WEIGHTED]].concat();
    let whole = data.rows("1..15", &[&settings[..], &["--devices", "1"]].concat());
    let mut rows = leg(&data, 3, 0, &settings);
    for number in 1..5 {
        let before = fs::read(data.path("c.json")).unwrap();
        let long = ["data", "show", "r.toml", "--json", "--steps", "1..1000000"];
        let cursors = ["--cursor", "c.json", "--write-cursor", "c.json"];
        let run = data.start(&[&long[..], &cursors, &settings].concat());
        thread::sleep(Duration::from_millis(50 * number as u64));
        run.signal("KILL");
        assert_eq!(run.wait().code, None, "it was done before it was killed");
        // A leg that looks and does no step.
        data.rows("1", &[&settings[..], &["--cursor", "c.json", "--devices", "4"]].concat());
        assert_eq!(fs::read(data.path("c.json")).unwrap(), before, "the cursor has moved");
        rows.extend(leg(&data, 3, number, &settings));
    }
    same(&rows, &whole, "five legs with kills between them");
}

#[test]
fn a_leg_of_no_steps_leaves_the_cursor_where_it_is() {
    let data = Data::new();
    data.rows("1..3", &["--write-cursor", "c.json"]);
    let before = fs::read(data.path("c.json")).unwrap();
    for more in [&["--cursor", "c.json"][..], &[]] {
        let show = ["data", "show", "r.toml", "--write-cursor", "c.json"];
        data.run(&[&show[..], more].concat()).expect(2).says(&["--write-cursor needs --steps"]);
    }
    let after = fs::read(data.path("c.json")).unwrap();
    assert_eq!(String::from_utf8(after), String::from_utf8(before));
}

#[test]
fn a_cursor_of_other_data_is_refused_with_what_differs() {
    let data = Data::new();
    two_sources(&data);
    let weighted = [&BATCH[..], &["--set", WEIGHTED]].concat();
    data.rows("1", &[&weighted[..], &["--write-cursor", "c.json"]].concat());
    let resume = ["data", "show", "r.toml", "--steps", "1", "--cursor", "c.json"];
    let refused = |more: &[&str], text: &str| {
        data.run(&[&resume[..], &BATCH, more].concat()).expect(2).says(&[text]);
    };
    let set = |text| ["--set", WEIGHTED, "--set", text];
    refused(&set("training.seed=1"), "training.seed was 0 and is 1");
    refused(&set("training.sequence_length=16"), "training.sequence_length was 32 and is 16");
    refused(&["--set", PLAIN], "the number of sources was 2 and is 1");
    let other = WEIGHTED.replace("weight=3", "weight=2");
    refused(&["--set", &other], "the weight of source 1 is another");
    data.write("b.txt", letters(3, 20 * 32 + 1));
    refused(&["--set", WEIGHTED], "the content of source 2 is another");
    data.write("b.txt", letters(2, 20 * 32 + 1));
    data.rows("1", &[&weighted[..], &["--cursor", "c.json"]].concat());
    data.write("c.json", "{\"samples\": 8");
    refused(&["--set", WEIGHTED], "c.json: this is no cursor");
}

#[test]
fn shuffle_buffer_or_mid_batch_position_lost() {
    // B23: huggingface/datasets#7901, pull request 8408; #7538
    let data = Data::new();
    data.write("data.txt", letters(1, 200 * 8 + 5));
    let settings =
        ["--set", "training.sequence_length=8", "--set", "training.global_batch=10", "--devices"];
    let with = |more: &[&'static str]| [&settings[..], more].concat();
    let whole = data.rows("1..40", &with(&["2"]));
    let whole_ids = ids(&whole);
    for (epoch, part) in whole_ids.chunks(200).enumerate() {
        let samples: BTreeSet<u64> = part.iter().map(|id| id.sample).collect();
        assert_eq!(samples, (0..200).collect(), "epoch {epoch}");
        assert!(part.iter().all(|id| id.epoch == epoch as u64), "epoch {epoch}");
    }
    let (first, second) = whole_ids.split_at(200);
    let order = |part: &[Id]| part.iter().map(|id| id.sample).collect::<Vec<_>>();
    assert_ne!(order(first), order(second), "both epochs have the same order");
    for stop in 1..=20 {
        let mut rows = data.rows(&format!("1..{stop}"), &with(&["1", "--write-cursor", "c.json"]));
        let rest = format!("1..{}", 40 - stop);
        rows.extend(data.rows(&rest, &with(&["2", "--cursor", "c.json"])));
        same(&rows, &whole, &format!("stopped after step {stop}"));
    }
}

#[test]
fn resume_at_an_epoch_boundary_does_no_work_and_reports_success() {
    // B29: verl-project/verl#7401; bghira/SimpleTuner#1172
    let data = Data::new();
    data.write("data.txt", letters(1, 16 * 32 + 7));
    assert_eq!(data.facts(&BATCH)["samples"], 16);
    let first = data.rows("1..2", &[&BATCH[..], &["--write-cursor", "c.json"]].concat());
    let rest = data.rows("1..4", &[&BATCH[..], &["--cursor", "c.json"]].concat());
    assert_eq!(rest.len(), 32, "four more steps of 8");
    let rows = [first, rest].concat();
    for (epoch, part) in ids(&rows).chunks(16).enumerate() {
        let samples: BTreeSet<u64> = part.iter().map(|id| id.sample).collect();
        assert_eq!(samples, (0..16).collect(), "epoch {epoch}");
        assert!(part.iter().all(|id| id.epoch == epoch as u64), "epoch {epoch}");
    }
    let done = data.train("out", &BATCH).expect(0);
    let end = json_lines(&done.stdout).pop().unwrap();
    assert_eq!((&end["exit_code"], &end["final_step"]), (&0.into(), &6.into()));
    assert_eq!(floats(&data.bench.metrics("out"), "step"), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
}

/// Steps are printed as they are read: any number of them takes no memory, and a reader may see enough.
#[test]
fn steps_without_end_fill_the_memory() {
    let data = Data::new();
    let line = "ulimit -v 2000000; exec \"$@\" | head -c 3000000 | wc -c";
    let mut command = std::process::Command::new("bash");
    command.args(["-c", line, "bash", env!("CARGO_BIN_EXE_titan-tpu")]);
    command.args(["data", "show", "r.toml", "--steps", "1..100000000000", "--json"]);
    command.current_dir(data.path("")).env("TITAN_DATA_CACHE", data.path("tokens"));
    let done = crate::support::Running::start(command).wait_for(super::LIMIT).expect(0);
    assert_eq!(done.stdout.trim(), "3000000");
    // Ctrl-C ends it too.
    let run = data.start(&[
        "data",
        "show",
        "r.toml",
        "--steps",
        "1..100000000000",
        "--json",
        "--write-cursor",
        "c",
    ]);
    thread::sleep(Duration::from_millis(500));
    run.signal("INT");
    run.wait().expect(75);
    assert!(!data.path("c").exists(), "a cursor was written for steps that were not shown");
    data.run(&["data", "show", "r.toml", "--steps", "18446744073709551615"])
        .expect(2)
        .says(&["no run has more than"]);
}

#[test]
fn flags_that_do_nothing_are_refused() {
    let data = Data::new();
    data.run(&["data", "tokenize", "data.txt", "-o", "s"]).expect(0);
    for flags in
        [&["--steps", "1"][..], &["--devices", "2"], &["--set", "a=1"], &["--write-cursor", "c"]]
    {
        data.run(&[&["data", "show", "s"][..], flags].concat())
            .expect(2)
            .says(&[flags[0], "needs a recipe"]);
    }
    data.run(&["data", "show", "r.toml", "--tokenizer", "t.json"])
        .expect(2)
        .says(&["data.tokenizer"]);
}
