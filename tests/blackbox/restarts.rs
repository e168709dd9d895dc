//! Ranks that die, stop or hang, in a run that goes on.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{
    Bench, Done, Running, floats, json_lines, none_left, processes_of, ranks, signal,
    wait_for_step, wait_until,
};

/// A run of seconds.
const RUN: [&str; 6] = ["train", "r.toml", "--json", "--set", "training.steps=600", "--run-dir"];

const CHECKPOINTS: &str = "\n[checkpoint]\ninterval_steps = 100\n";

/// How long what should take a second or two may take on a busy machine.
const SOON: Duration = Duration::from_secs(60);

struct Case {
    bench: Bench,
}

impl Case {
    /// The small recipe with something at its end.
    fn new(more: &str) -> Self {
        let bench = Bench::new();
        let recipe = fs::read_to_string(bench.path("r.toml")).unwrap();
        bench.write("r.toml", &format!("{recipe}{more}"));
        Self { bench }
    }

    fn start(&self, out: &str, more: &[&str]) -> Running {
        self.bench.start(&[&RUN[..], &[out], more].concat())
    }

    /// A run whose ranks obey signals as this Python code says, which each process executes when it starts.
    fn start_with(&self, python: &Path, code: &str, more: &[&str]) -> Running {
        fs::create_dir_all(self.bench.path("hooks")).unwrap();
        self.bench.write("hooks/sitecustomize.py", code);
        let mut command = self.bench.command(&[&RUN[..], &["out"], more].concat());
        command.env("TITAN_PYTHON", python).env("PYTHONPATH", self.bench.path("hooks"));
        Running::start(command)
    }

    fn ledger(&self, out: &str) -> Vec<Value> {
        json_lines(&fs::read_to_string(self.bench.path(out).join("ledger.jsonl")).unwrap())
    }

    /// Events of the ledger of one kind.
    fn events(&self, out: &str, name: &str) -> Vec<Value> {
        self.ledger(out).into_iter().filter(|line| line["event"] == name).collect()
    }

    /// Waits until as many starts have been made, and the last has done a step.
    fn wait_for_start(&self, out: &str, attempt: u64) {
        let path = self.bench.path(out).join("metrics.jsonl");
        wait_until(SOON, || {
            let text = fs::read_to_string(&path).ok()?;
            let last = text.lines().next_back()?;
            let line: Value = serde_json::from_str(last).ok()?;
            (line["attempt"].as_u64()? >= attempt).then_some(())
        });
    }

    /// Losses of all steps; each is there once.
    fn losses(&self, out: &str) -> Vec<f64> {
        let metrics = self.bench.metrics(out);
        let steps: Vec<u64> = metrics.iter().map(|line| line["step"].as_u64().unwrap()).collect();
        assert_eq!(steps, (1..=steps.len() as u64).collect::<Vec<_>>(), "one line for each step");
        floats(&metrics, "loss")
    }
}

fn event<'a>(lines: &'a [Value], name: &str) -> &'a Value {
    lines.iter().find(|line| line["event"] == name).unwrap_or_else(|| panic!("no {name}"))
}

fn lines(done: &Done) -> Vec<Value> {
    json_lines(&done.stdout)
}

#[test]
fn a_killed_rank_ends_a_run_or_changes_its_losses() {
    for (devices, rank) in [("2", 0), ("4", 3)] {
        let case = Case::new(CHECKPOINTS);
        let more = ["--devices", devices, "--set", "training.steps=300"];
        case.start("whole", &more).wait().expect(0);
        let run = case.start("out", &more);
        wait_for_step(&case.bench, "out", 130);
        signal(ranks(&case.bench, "out")[rank], "KILL");
        let done = run.wait().expect(0);
        let text = format!("rank {rank} was killed by signal 9 (SIGKILL)");
        let lines = lines(&done);
        let restart = event(&lines, "restart");
        assert_eq!(restart["reason"], text.as_str());
        assert_eq!(restart["attempt"], 2);
        let after = restart["after_step"].as_u64().unwrap();
        assert!([100, 200].contains(&after), "{after}");
        let recovered = event(&lines, "recovered");
        assert!(recovered["seconds"].as_f64().unwrap() > 0.0, "{recovered}");
        assert!(recovered["steps_lost"].as_u64().unwrap() <= 200, "{recovered}");
        assert_eq!(event(&lines, "end")["final_step"], 300);
        assert_eq!(case.losses("out"), case.losses("whole"));
        let attempts: Vec<Value> =
            case.bench.metrics("out").iter().map(|line| line["attempt"].clone()).collect();
        assert_eq!(attempts.iter().filter(|n| **n == 1).count() as u64, after);
        let failed = case.events("out", "worker_failed");
        let cause = failed.iter().find(|line| line["cause"] == true).unwrap();
        assert_eq!((&cause["rank"], &cause["attempt"]), (&rank.into(), &1.into()));
        assert_eq!(case.events("out", "restarted").len(), 1);
        none_left(&case.bench, "out");
    }
}

#[test]
fn a_run_without_checkpoints_does_not_begin_again() {
    let case = Case::new("");
    case.start("whole", &[]).wait().expect(0);
    let run = case.start("out", &[]);
    wait_for_step(&case.bench, "out", 100);
    signal(ranks(&case.bench, "out")[1], "KILL");
    let done = run.wait().expect(0);
    assert_eq!(event(&lines(&done), "restart")["after_step"], 0);
    assert_eq!(case.losses("out"), case.losses("whole"));
}

#[test]
fn failures_without_progress_are_tried_for_ever() {
    let case = Case::new("");
    let run =
        case.start("out", &["--set", "elastic.max_restarts=2", "--set", "training.steps=100000"]);
    for attempt in 1..=3 {
        // No step is further than that of the first start.
        wait_for_step(&case.bench, "out", if attempt == 1 { 300 } else { 1 });
        case.wait_for_start("out", attempt);
        signal(ranks(&case.bench, "out")[1], "KILL");
    }
    run.wait().expect(6).says(&[
        "error: rank 1 was killed by signal 9 (SIGKILL)",
        "the run was not started again: 2 of 2 restarts (elastic.max_restarts) brought no progress",
    ]);
    assert_eq!(case.events("out", "restarted").len(), 2);
    none_left(&case.bench, "out");
}

#[test]
fn a_stopped_rank_is_waited_for_without_end() {
    let case = Case::new(CHECKPOINTS);
    case.start("whole", &[]).wait().expect(0);
    let run = case.start("out", &["--set", "elastic.step_timeout_seconds=4"]);
    wait_for_step(&case.bench, "out", 120);
    signal(ranks(&case.bench, "out")[1], "STOP");
    let done = run.wait().expect(0).says(&["no progress for 4 s", "a step may take 4 s"]);
    let reason = event(&lines(&done), "restart")["reason"].clone();
    let reason = reason.as_str().unwrap();
    assert!(reason.starts_with("rank 1 is stuck in step "), "{reason}");
    assert!(reason.contains("its process is stopped (SIGSTOP"), "{reason}");
    assert_eq!(case.losses("out"), case.losses("whole"));
    // The others have said where they wait.
    let log = fs::read_to_string(case.bench.path("out/logs/rank-0.log")).unwrap();
    assert!(log.contains("(most recent call first)") && log.contains("mesh.py"), "{log}");
    none_left(&case.bench, "out");
}

#[test]
fn a_rank_that_was_stopped_for_a_moment_is_killed() {
    let case = Case::new(CHECKPOINTS);
    let run = case.start("out", &["--set", "elastic.step_timeout_seconds=20"]);
    wait_for_step(&case.bench, "out", 120);
    let rank = ranks(&case.bench, "out")[1];
    signal(rank, "STOP");
    std::thread::sleep(Duration::from_secs(2));
    signal(rank, "CONT");
    run.wait().expect(0);
    assert_eq!(case.events("out", "restarted"), [] as [Value; 0]);
}

#[test]
fn a_rank_that_spins_or_ignores_sigterm_is_not_found() {
    // pytorch/pytorch#76287; pytorch/elastic#134; PR pytorch/pytorch#185414
    let python = crate::python::python();
    let hooks = [
        ("def hang(*_):\n    while True:\n        pass\n", "hang (hooks/sitecustomize.py"),
        (
            "import time\ndef hang(*_):\n    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n    \
             time.sleep(10000)\n",
            "hang (hooks/sitecustomize.py",
        ),
    ];
    for (hook, place) in hooks {
        let case = Case::new(CHECKPOINTS);
        let code = format!("import signal\n{hook}signal.signal(signal.SIGUSR2, hang)\n");
        let run = case.start_with(&python, &code, &["--set", "elastic.step_timeout_seconds=4"]);
        wait_for_step(&case.bench, "out", 120);
        signal(ranks(&case.bench, "out")[1], "USR2");
        let done = run.wait().expect(0);
        let reason = event(&lines(&done), "restart")["reason"].clone();
        let reason = reason.as_str().unwrap();
        assert!(reason.starts_with("rank 1 is stuck in step "), "{reason}");
        assert!(reason.contains(place) && reason.contains("others wait for it"), "{reason}");
        let log = fs::read_to_string(case.bench.path("out/logs/rank-1.log")).unwrap();
        assert!(log.contains("in hang"), "{log}");
        none_left(&case.bench, "out");
    }
}

#[test]
fn an_exception_is_tried_again_at_the_same_place() {
    let python = crate::python::python();
    let case = Case::new(CHECKPOINTS);
    // Whatever step it comes in, the message has it.
    let code = "import signal\ndef fail(*_):\n    raise ValueError('a fault of the program')\n\
                signal.signal(signal.SIGUSR2, fail)\n";
    let run = case.start_with(&python, code, &["--set", "training.steps=100000"]);
    for attempt in 1..=3 {
        case.wait_for_start("out", attempt);
        wait_for_step(&case.bench, "out", 30 * attempt as usize);
        signal(ranks(&case.bench, "out")[1], "USR2");
    }
    run.wait().expect(6).says(&[
        "error: rank 1 failed in step ",
        "ValueError: a fault of the program",
        "the run was not started again: the program has failed too often: 2 restarts",
    ]);
    assert_eq!(case.events("out", "restarted").len(), 2);
    none_left(&case.bench, "out");
}

#[test]
fn the_worker_host_is_missing_when_ranks_are_to_be_started_again() {
    let case = Case::new(CHECKPOINTS);
    let run = case.start("out", &[]);
    wait_for_step(&case.bench, "out", 120);
    let ranks = ranks(&case.bench, "out");
    signal(worker_host(&case, &ranks), "KILL");
    signal(ranks[0], "KILL");
    let done = run.wait().expect(0);
    assert_eq!(event(&lines(&done), "end")["final_step"], 600);
    none_left(&case.bench, "out");
}

#[test]
fn a_checkpoint_that_was_damaged_after_it_was_made_ends_a_run() {
    let case = Case::new(CHECKPOINTS);
    case.start("whole", &[]).wait().expect(0);
    let run = case.start("out", &[]);
    wait_for_step(&case.bench, "out", 320);
    let ranks = ranks(&case.bench, "out");
    signal(ranks[0], "STOP");
    let folder = case.bench.path("out/checkpoints");
    let mut steps: Vec<_> = fs::read_dir(&folder).unwrap().map(|e| e.unwrap().path()).collect();
    steps.retain(|path| path.join("manifest.json").exists());
    steps.sort();
    let newest = steps.last().unwrap();
    let mut files = fs::read_dir(newest).unwrap().map(|entry| entry.unwrap().path());
    let file = files.find(|path| path.extension().is_some_and(|e| e == "safetensors")).unwrap();
    let mut bytes = fs::read(&file).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(&file, bytes).unwrap();
    signal(ranks[1], "KILL");
    let done = run.wait().expect(0);
    let newest = newest.file_name().unwrap().to_string_lossy().into_owned();
    let step: u64 = newest.trim_start_matches("step-").parse().unwrap();
    done.says(&[&format!("the checkpoint of step {step} cannot be used")]);
    assert_eq!(case.losses("out"), case.losses("whole"));
}

#[test]
fn sigterm_to_a_worker_loses_its_work() {
    // KempnerInstitute/KempnerForge#177; allenai/olmoearth_pretrain#604
    let case = Case::new(CHECKPOINTS);
    let run = case.start("out", &["--set", "training.steps=100000"]);
    wait_for_step(&case.bench, "out", 130);
    signal(ranks(&case.bench, "out")[1], "TERM");
    let done = run.wait().expect(75);
    let end = event(&lines(&done), "end").clone();
    let saved = case.events("out", "checkpoint_saved");
    assert_eq!(saved.last().unwrap()["step"], end["final_step"], "the last step is saved");
    assert_eq!(case.events("out", "stop_requested")[0]["signal"], "SIGTERM to rank 1");
    none_left(&case.bench, "out");
}

#[test]
fn a_signal_between_two_starts_is_lost() {
    let case = Case::new("");
    let more = ["--set", "training.steps=100000", "--set", "elastic.max_restarts=100"];
    let run = case.start("out", &more);
    wait_for_step(&case.bench, "out", 20);
    for rank in ranks(&case.bench, "out") {
        signal(rank, "KILL");
    }
    run.signal("TERM");
    let done = run.wait();
    // As it happens to fall: before the next start, in it, or as the failure is being judged.
    assert!(matches!(done.code, Some(75 | 6)), "{done:?}");
    none_left(&case.bench, "out");
}

#[test]
fn a_signal_in_a_validation_is_not_looked_at() {
    // goodfire-ai/spd#677
    let validation = "\n[validation]\ninterval_steps = 1\nsources = [{ path = \"data.txt\" }]\n";
    let case = Case::new(&format!("{CHECKPOINTS}{validation}"));
    let run = case.start("out", &["--set", "training.steps=100000"]);
    wait_for_step(&case.bench, "out", 3);
    run.signal("TERM");
    let asked = Instant::now();
    let done = run.wait().expect(75);
    assert!(asked.elapsed() < Duration::from_secs(20), "took {:?}", asked.elapsed());
    let end = event(&lines(&done), "end").clone();
    let saved = case.events("out", "checkpoint_saved");
    assert_eq!(saved.last().unwrap()["step"], end["final_step"], "the last step is saved");
    none_left(&case.bench, "out");
}

#[test]
fn a_notice_of_preemption_is_not_seen() {
    let case = Case::new(CHECKPOINTS);
    let stopped = |run: Running, word: &str| {
        let done = run.wait().expect(75).says(&[&format!("notice: {word}: ending after the step")]);
        assert!(done.stdout.contains("\"exit_code\":75"), "{}", done.stdout);
    };
    let endless = ["--set", "training.steps=100000", "--set"];
    let run = case.start("a", &[&endless[..], &["elastic.preemption_notice=gone"]].concat());
    wait_for_step(&case.bench, "a", 20);
    case.bench.write("gone", "maintenance at noon\nand more");
    stopped(run, "maintenance at noon");

    // A page that has no news for three times.
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}/instance/preempted", server.local_addr().unwrap());
    let answers = std::thread::spawn(move || {
        for text in ["", "none", "FALSE\n", "TRUE"] {
            let (mut stream, _) = server.accept().unwrap();
            let mut request = [0; 4096];
            let length = stream.read(&mut request).unwrap();
            let request = String::from_utf8_lossy(&request[..length]).to_lowercase();
            assert!(request.contains("metadata-flavor: google"), "{request}");
            let head = format!(
                "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                text.len()
            );
            stream.write_all(format!("{head}{text}").as_bytes()).unwrap();
        }
    });
    let setting = format!("elastic.preemption_notice={address}");
    let run = case.start("b", &[&endless[..], &[&setting]].concat());
    stopped(run, "TRUE");
    answers.join().unwrap();
}

#[test]
fn what_a_rank_has_started_outlives_it_or_the_launcher() {
    // vllm-project/vllm#55510; GaTech-RL2/EgoVerse#682
    let python = crate::python::python();
    let case = Case::new(CHECKPOINTS);
    let code = "import signal, subprocess\ndef work(*_):\n    for _ in range(2):\n        \
                subprocess.Popen(['sleep', '1000'])\nsignal.signal(signal.SIGUSR2, work)\n";
    let run = case.start_with(&python, code, &["--set", "training.steps=100000"]);
    let start_children = |attempt: u64| {
        case.wait_for_start("out", attempt);
        let ranks = ranks(&case.bench, "out");
        for rank in &ranks {
            signal(*rank, "USR2");
        }
        // The worker host is one, too.
        wait_until(SOON, || {
            (processes_of(&case.bench, "out").len() == 1 + ranks.len() * 3).then_some(())
        });
        ranks
    };
    let before = start_children(1);
    signal(before[1], "KILL");
    case.wait_for_start("out", 2);
    wait_until(SOON, || (processes_of(&case.bench, "out").len() == 3).then_some(()));

    let ranks = start_children(2);
    signal(ranks[0], "STOP");
    run.signal("KILL");
    run.wait();
    none_left(&case.bench, "out");
    // The lock and the checkpoints are free at once.
    let again = case.start("out", &["--set", "training.steps=100000"]);
    wait_until(SOON, || {
        let ledger = fs::read_to_string(case.bench.path("out/ledger.jsonl")).unwrap();
        ledger.contains("\"attempt\":3").then_some(())
    });
    again.signal("TERM");
    again.wait().expect(75);
}

#[test]
fn a_worker_host_that_is_killed_as_the_run_begins_ends_it() {
    let case = Case::new("");
    let run = case.start("out", &[]);
    let host = wait_until(SOON, || processes_of(&case.bench, "out").first().copied());
    signal(host, "KILL");
    run.wait().expect(0).says(&["the worker host was killed by signal 9 (SIGKILL); again at once"]);
}

/// The process that forks the ranks.
fn worker_host(case: &Case, ranks: &[u32]) -> u32 {
    let all = processes_of(&case.bench, "out");
    all.into_iter().find(|pid| !ranks.contains(pid)).unwrap()
}

#[test]
fn a_worker_host_that_is_stopped_is_asked_again_and_again() {
    let case = Case::new(CHECKPOINTS);
    let run = case.start("out", &["--set", "elastic.start_timeout_seconds=10"]);
    wait_for_step(&case.bench, "out", 120);
    let ranks = ranks(&case.bench, "out");
    signal(worker_host(&case, &ranks), "STOP");
    signal(ranks[1], "KILL");
    run.wait().expect(0).says(&["the ranks of this host were not all ready after 10 s"]);
    assert_eq!(case.events("out", "restarted").len(), 2);
    none_left(&case.bench, "out");
}

#[test]
fn a_worker_host_that_is_stopped_as_it_begins_is_waited_for_without_end() {
    let case = Case::new("");
    let run = case.start("out", &["--set", "elastic.start_timeout_seconds=3"]);
    let host = wait_until(SOON, || processes_of(&case.bench, "out").first().copied());
    signal(host, "STOP");
    run.wait().expect(6).says(&["error: the worker host was not ready after 3.0"]);
    none_left(&case.bench, "out");
}

#[test]
fn a_folder_that_was_removed_is_not_made_again() {
    let case = Case::new(CHECKPOINTS);
    let run = case.start("out", &[]);
    wait_for_step(&case.bench, "out", 120);
    let ranks = ranks(&case.bench, "out");
    signal(ranks[0], "STOP");
    for folder in ["out/checkpoints", "out/logs"] {
        fs::remove_dir_all(case.bench.path(folder)).unwrap();
    }
    signal(ranks[1], "KILL");
    let done = run.wait().expect(0);
    assert_eq!(event(&lines(&done), "restart")["after_step"], 0);
    assert!(case.bench.path("out/checkpoints/step-00000600/manifest.json").exists());
    assert!(case.bench.path("out/logs/rank-0.log").exists());
}
