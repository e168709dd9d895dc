//! Runs that are stopped and killed lose nothing.

use std::fs;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::{LIMIT, Saved, events};
use crate::support::{json_lines, wait_for_step};

const ADAMW: [&str; 4] = ["--set", "optimizer.name=adamw", "--set", "optimizer.learning_rate=0.01"];

/// Numbers without a pattern that anybody could have built against.
struct Random(u64);

impl Random {
    fn new() -> Self {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        Self(time.as_nanos() as u64 | 1)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit
    }
}

#[test]
fn a_run_that_is_killed_at_any_moment_ends_as_if_it_had_not_been() {
    // More with TITAN_TEST_KILLS=50.
    let kills = std::env::var("TITAN_TEST_KILLS").map_or(4, |kills| kills.parse().unwrap());
    let saved = Saved::with("interval_steps = 2\nkeep_last = 2");
    let more = [&ADAMW[..], &["--set", "training.steps=60"]].concat();
    saved.train("whole", &more).expect(0);
    let mut random = Random::new();
    let mut ended = 0;
    for kill in 0..kills {
        let run = saved.start("killed", &more);
        // From before the first process to after the last step.
        let wait = Duration::from_millis(random.below(6000));
        thread::sleep(wait);
        run.signal("KILL");
        let done = run.wait_for(LIMIT);
        ended += u32::from(done.code == Some(0));
        let folder = saved.path("killed/checkpoints");
        if folder.exists() {
            let verified = saved.bench.run(&["checkpoint", "verify", "killed"]);
            assert!(matches!(verified.code, Some(0 | 5)), "{}", verified.stderr);
            assert!(!verified.stdout.contains("fault"), "kill {kill}: {}", verified.stdout);
        }
    }
    saved.train("killed", &more).expect(0);
    assert_eq!(saved.losses("killed"), saved.losses("whole"), "{ended} ended by themselves");
    saved.same_tensors("killed", "whole", 60);
    // What kills have left is gone.
    assert_eq!(saved.steps("killed").last(), Some(&60));
}

#[test]
fn a_run_in_five_legs_is_another_one() {
    let saved = Saved::new();
    saved.train("whole", &[&ADAMW[..], &["--set", "training.steps=10"]].concat()).expect(0);
    for leg in 1..=5 {
        let steps = format!("training.steps={}", 2 * leg);
        let more = [&ADAMW[..], &["--set", &steps]].concat();
        let done = saved.train("legs", &more).expect(0);
        assert_eq!(events(&done, "resume").len(), usize::from(leg > 1));
        // A leg of no steps changes nothing.
        let done = saved.train("legs", &more).expect(0);
        assert!(done.stdout.contains("\"final_step\":") && events(&done, "checkpoint").is_empty());
    }
    assert_eq!(saved.losses("legs"), saved.losses("whole"));
    saved.same_tensors("legs", "whole", 10);
}

#[test]
fn a_stop_loses_the_steps_since_the_last_save() {
    let saved = Saved::with("interval_steps = 100000");
    saved.train("whole", &["--set", "training.steps=300"]).expect(0);
    let more = ["--set", "training.steps=300"];
    let run = saved.start("stopped", &more);
    wait_for_step(&saved.bench, "stopped", 5);
    run.signal("TERM");
    let done = run.wait_for(LIMIT).expect(75);
    let step = events(&done, "checkpoint")[0]["step"].as_u64().unwrap();
    assert_eq!(saved.steps("stopped"), [step]);
    let done = saved.train("stopped", &more).expect(0);
    assert_eq!(events(&done, "resume")[0]["step"], step);
    assert_eq!(saved.losses("stopped"), saved.losses("whole"));
    saved.same_tensors("stopped", "whole", 300);
}

#[test]
fn a_restart_leaves_two_values_of_a_step() {
    let saved = Saved::with("interval_steps = 5");
    let more = ["--set", "training.steps=12"];
    saved.train("out", &more).expect(0);
    let whole = saved.losses("out");
    fs::remove_dir_all(saved.checkpoint("out", 12)).unwrap();
    fs::remove_dir_all(saved.checkpoint("out", 10)).unwrap();
    // A kill in the middle of a line.
    let metrics = saved.path("out/metrics.jsonl");
    let text = fs::read_to_string(&metrics).unwrap();
    fs::write(&metrics, &text[..text.len() - 20]).unwrap();
    saved.train("out", &more).expect(0);
    assert_eq!(saved.losses("out"), whole);
    let lines = saved.bench.metrics("out");
    let attempts: Vec<u64> = lines.iter().map(|line| line["attempt"].as_u64().unwrap()).collect();
    assert_eq!(attempts, [1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2]);
    let superseded = fs::read_to_string(saved.path("out/metrics.superseded.jsonl")).unwrap();
    assert_eq!(superseded.lines().count(), 6);
    let charts = fs::read_dir(saved.path("out/tensorboard")).unwrap();
    assert_eq!(charts.count(), 1);
    let ledger = fs::read_to_string(saved.path("out/ledger.jsonl")).unwrap();
    assert_eq!(ledger.matches("\"event\":\"run_started\"").count(), 2);
    assert_eq!(ledger.matches("\"event\":\"resumed\"").count(), 1);
}

#[test]
fn a_resume_at_the_end_of_an_epoch_does_no_work_and_reports_success() {
    let saved = Saved::new();
    // 16 sequences of 32 tokens: two steps are an epoch.
    let text = fs::read(saved.path("data.txt")).unwrap();
    fs::write(saved.path("data.txt"), &text[..16 * 32 + 1]).unwrap();
    let steps =
        |steps: &str| ["--set", "training.global_batch=8", "--set", steps].map(str::to_owned);
    let train = |out: &str, count: u64| {
        let more = steps(&format!("training.steps={count}"));
        saved.train(out, &more.each_ref().map(String::as_str)).expect(0)
    };
    train("whole", 6);
    for (done_before, count) in [(0, 2), (2, 4), (4, 6)] {
        let done = train("legs", count);
        let end = &events(&done, "end")[0];
        assert_eq!(end["final_step"], count);
        assert_eq!(saved.losses("legs").len() as u64, count);
        let lines = json_lines(&done.stdout);
        let updates = lines.iter().filter(|line| line["loss"].is_number()).count() as u64;
        assert_eq!(updates, count - done_before);
    }
    assert_eq!(saved.losses("legs"), saved.losses("whole"));
    saved.same_tensors("legs", "whole", 6);
    // Nothing is left to do, and that is what is said.
    let plain = ["train", "r.toml", "--run-dir", "legs", "--set", "training.global_batch=8"];
    let done = saved.bench.run(&[&plain[..], &["--set", "training.steps=6"]].concat()).expect(0);
    assert!(done.stdout.contains("nothing to do: step 6 is done, and the recipe asks for 6"));
}
