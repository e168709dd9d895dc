//! How runs end when something ends them: no process is left, the code and the message say what happened.

use std::fs;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::support::{
    Bench, json_lines, none_left, not_tested, processes_of, ranks, wait_for_step, wait_until,
};

/// A run that would take minutes, and ends with its first failure.
const LONG: [&str; 8] = [
    "train",
    "r.toml",
    "--run-dir",
    "out",
    "--set",
    "training.steps=100000",
    "--set",
    "elastic.max_restarts=0",
];

/// These runs would take minutes, and a busy machine can take seconds to end one.
const AT_ONCE: Duration = Duration::from_secs(20);

#[test]
fn sigint_and_sigterm_finish_the_step_and_end_all_workers() {
    for signal in ["INT", "TERM", "HUP"] {
        if signal == "HUP" && is_hangup_ignored() {
            not_tested("SIGHUP, because whoever started these tests ignores it (nohup)");
            continue;
        }
        let bench = Bench::new();
        let run = bench.start(&LONG);
        wait_for_step(&bench, "out", 3);
        run.signal(signal);
        let asked = Instant::now();
        let done =
            run.wait().expect(75).says(&[&format!("SIG{signal}: ending after the step under way")]);
        assert!(asked.elapsed() < AT_ONCE, "took {:?}", asked.elapsed());
        assert!(done.stdout.contains(&format!("stopped by SIG{signal}: ")), "{}", done.stdout);
        let ledger = json_lines(&fs::read_to_string(bench.path("out/ledger.jsonl")).unwrap());
        let end = ledger.last().unwrap();
        assert_eq!((&end["event"], &end["exit_code"]), (&"run_ended".into(), &75.into()));
        assert_eq!(end["final_step"].as_u64().unwrap() as usize, bench.metrics("out").len());
        none_left(&bench, "out");
    }
}

/// Then it is for the processes that are started too.
fn is_hangup_ignored() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap().trim();
    u64::from_str_radix(mask, 16).unwrap() & 1 != 0
}

#[test]
fn a_signal_during_start_up_ends_at_once() {
    for delay in [50, 700, 1500] {
        let bench = Bench::new();
        let run = bench.start(&LONG);
        std::thread::sleep(Duration::from_millis(delay));
        run.signal("TERM");
        let asked = Instant::now();
        run.wait().expect(75);
        assert!(asked.elapsed() < AT_ONCE, "took {:?}", asked.elapsed());
        none_left(&bench, "out");
    }
}

#[test]
fn launcher_killed_workers_live_on() {
    // vllm-project/vllm#55510; pytorch/pytorch#8805; GaTech-RL2/EgoVerse#682
    for after_steps in [0, 3] {
        let bench = Bench::new();
        let run = bench.start(&[&LONG[..], &["--devices", "4"]].concat());
        match after_steps {
            0 => wait_until(Duration::from_secs(60), || {
                (!processes_of(&bench, "out").is_empty()).then_some(())
            }),
            steps => wait_for_step(&bench, "out", steps),
        }
        run.signal("KILL");
        run.wait();
        none_left(&bench, "out");
    }
}

#[test]
fn a_worker_that_dies_stops_the_run_and_is_named() {
    for (rank, signal, text) in
        [(0, "KILL", "signal 9 (SIGKILL)"), (1, "SEGV", "signal 11 (SIGSEGV)")]
    {
        let bench = Bench::new();
        let run = bench.start(&LONG);
        wait_for_step(&bench, "out", 2);
        let pid = ranks(&bench, "out")[rank];
        crate::support::signal(pid, signal);
        let killed = Instant::now();
        let done = run.wait().expect(6);
        assert!(killed.elapsed() < Duration::from_secs(5), "took {:?}", killed.elapsed());
        done.says(&[
            &format!("error: rank {rank} was killed by {text} after step"),
            &format!("rank-{rank}.log"),
        ]);
        none_left(&bench, "out");
        let ledger = json_lines(&fs::read_to_string(bench.path("out/ledger.jsonl")).unwrap());
        let cause = ledger.iter().find(|line| line["cause"] == true).unwrap();
        assert_eq!((&cause["event"], &cause["rank"]), (&"worker_failed".into(), &rank.into()));
    }
}

#[test]
fn the_last_lines_of_a_crashed_worker_are_quoted() {
    // faulthandler writes the Python stack of a segmentation fault to the rank's log.
    let bench = Bench::new();
    let run = bench.start(&LONG);
    wait_for_step(&bench, "out", 2);
    crate::support::signal(ranks(&bench, "out")[1], "SEGV");
    run.wait().expect(6).says(&["Fatal Python error: Segmentation fault"]);
}

#[test]
fn a_stopped_worker_does_not_keep_the_launcher_beyond_its_grace() {
    let bench = Bench::new();
    let run = bench.start(&[&LONG[..], &["--set", "elastic.grace_seconds=2"]].concat());
    wait_for_step(&bench, "out", 2);
    crate::support::signal(ranks(&bench, "out")[1], "STOP");
    run.signal("TERM");
    let asked = Instant::now();
    run.wait().expect(75).says(&["workers did not end within the grace and were killed"]);
    let took = asked.elapsed();
    assert!(took > Duration::from_millis(1900) && took < Duration::from_secs(6), "took {took:?}");
    none_left(&bench, "out");
}

#[test]
fn a_second_signal_does_not_wait() {
    let bench = Bench::new();
    let run = bench.start(&LONG);
    wait_for_step(&bench, "out", 2);
    crate::support::signal(ranks(&bench, "out")[0], "STOP");
    run.signal("INT");
    std::thread::sleep(Duration::from_millis(300));
    run.signal("INT");
    let asked = Instant::now();
    run.wait().expect(75);
    assert!(asked.elapsed() < AT_ONCE, "took {:?}", asked.elapsed());
    none_left(&bench, "out");
}

#[test]
fn a_loss_that_is_not_finite_ends_the_run_with_its_step() {
    let bench = Bench::new();
    let settings =
        ["--set", "optimizer.learning_rate=1e30", "--set", "training.gradient_clip=none"];
    let done = bench.run(&[&LONG[..], &settings].concat()).expect(4);
    let done = done.says(&["error: rank ", "the loss of step ", "lower optimizer.learning_rate"]);
    assert!(!done.stderr.contains("Traceback"), "{}", done.stderr);
    let metrics = fs::read_to_string(bench.path("out/metrics.jsonl")).unwrap();
    let lines = json_lines(&metrics);
    assert!(lines.last().unwrap()["loss"].is_null(), "{metrics}");
    none_left(&bench, "out");
}

#[test]
fn shards_that_change_under_a_run_end_it() {
    let bench = Bench::new();
    let run = bench.start(&LONG);
    wait_for_step(&bench, "out", 2);
    // What they were made from does not matter any more.
    fs::write(bench.path("data.txt"), "short").unwrap();
    wait_for_step(&bench, "out", 10);
    let tokens = bench.shards()[0].join("train-00000.tokens");
    fs::write(tokens, "short").unwrap();
    run.wait().expect(3).says(&["train-00000.tokens: this data file changed while in use"]);
    none_left(&bench, "out");
}

#[test]
fn a_reader_that_stops_reading_does_not_stop_the_supervision() {
    let bench = Bench::new();
    let mut command = bench.command(&[&LONG[..], &["--json"]].concat());
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    // Far more lines than a pipe holds, and nobody reads them.
    wait_for_step(&bench, "out", 800);
    crate::support::signal(child.id(), "TERM");
    let asked = Instant::now();
    let code = wait_until(Duration::from_secs(10), || child_status(&bench));
    assert_eq!(code, 75);
    child.wait().unwrap();
    assert!(asked.elapsed() < Duration::from_secs(8), "took {:?}", asked.elapsed());
    none_left(&bench, "out");
}

#[test]
fn a_worker_host_that_is_killed_before_there_are_ranks_is_named() {
    let bench = Bench::new();
    let run = bench.start(&LONG);
    let host = wait_until(Duration::from_secs(60), || processes_of(&bench, "out").first().copied());
    crate::support::signal(host, "KILL");
    let killed = Instant::now();
    run.wait().expect(6).says(&["the worker host was killed by signal 9 (SIGKILL)", "host.log"]);
    assert!(killed.elapsed() < Duration::from_secs(5), "took {:?}", killed.elapsed());
}

#[test]
fn a_run_whose_directory_was_removed_does_not_end_well() {
    let bench = Bench::new();
    let run = bench.start(&LONG);
    wait_for_step(&bench, "out", 2);
    fs::remove_dir_all(bench.path("out")).unwrap();
    run.wait().expect(6).says(&["out was removed while the run wrote to it"]);
}

#[test]
fn a_closed_pipe_does_not_end_a_run() {
    let bench = Bench::new();
    let mut command = bench.command(&["train", "r.toml", "--run-dir", "out"]);
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    drop(child.stdout.take());
    let status = wait_until(Duration::from_secs(60), || child_status(&bench));
    assert_eq!(status, 0);
    child.wait().unwrap();
}

/// The exit code in the ledger, once the run has ended.
fn child_status(bench: &Bench) -> Option<i64> {
    let ledger = fs::read_to_string(bench.path("out/ledger.jsonl")).ok()?;
    let end = ledger
        .lines()
        .last()
        .and_then(|line| serde_json::from_str::<serde_json::Value>(line).ok())?;
    (end["event"] == "run_ended").then(|| end["exit_code"].as_i64().unwrap())
}
