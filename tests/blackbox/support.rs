//! A fresh directory with a small recipe, and the binary.

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

/// No command of a test takes longer, except the set-up of the Python environment.
const LIMIT: Duration = Duration::from_secs(120);

/// Runs take turns: side by side they would only share the same two cores, and every wait would be longer.
static TURN: Mutex<()> = Mutex::new(());

/// The repository.
pub(crate) fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// The shipped recipe.
pub(crate) fn tiny() -> PathBuf {
    repository().join("recipes/llama3_tiny.toml")
}

/// A directory of its own for a test, with a small recipe `r.toml` and its data.
pub(crate) struct Bench {
    folder: tempfile::TempDir,
    /// The tokens of data, outside the folder: no test finds those of another.
    tokens: tempfile::TempDir,
    _turn: MutexGuard<'static, ()>,
}

/// A model that trains in a blink, with the optimizer that does not amplify rounding.
const RECIPE: &str = r#"version = 1
name = "small"

[model]
family = "llama3"
vocab_size = 256
hidden_size = 32
intermediate_size = 64
num_layers = 2
num_heads = 4
num_kv_heads = 2

[hardware]
accelerator = "cpu"
devices = 2

[training]
steps = 6
sequence_length = 32
local_batch = 1
global_batch = 4

[optimizer]
name = "sgd"
learning_rate = 0.5

[data]
sources = [{ path = "data.txt" }]
"#;

impl Bench {
    pub(crate) fn new() -> Self {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = || tempfile::tempdir().unwrap();
        let bench = Self { folder: folder(), tokens: folder(), _turn: turn };
        bench.write("r.toml", RECIPE);
        let text = fs::read(repository().join("datasets/shakespeare/shakespeare.txt")).unwrap();
        fs::write(bench.path("data.txt"), &text[..20_000]).unwrap();
        bench
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    /// The recipe with one part replaced by another.
    pub(crate) fn edit(&self, from: &str, to: &str) {
        assert!(RECIPE.contains(from), "the recipe has no {from:?}");
        self.write("r.toml", &RECIPE.replace(from, to));
    }

    /// The names in the directory.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(self.folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_titan-tpu"));
        command.args(arguments).current_dir(self.folder.path()).env("NO_COLOR", "1");
        command.env("TITAN_DATA_CACHE", self.tokens.path());
        command
    }

    /// The folders of token shards that were made.
    pub(crate) fn shards(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.tokens.path()).unwrap();
        entries.map(|entry| entry.unwrap().path()).collect()
    }

    /// Runs the binary to its end.
    pub(crate) fn run(&self, arguments: &[&str]) -> Done {
        self.start(arguments).wait()
    }

    /// Starts the binary.
    pub(crate) fn start(&self, arguments: &[&str]) -> Running {
        Running::start(self.command(arguments))
    }

    /// Lines of `metrics.jsonl` of the run in `out`.
    pub(crate) fn metrics(&self, out: &str) -> Vec<Value> {
        json_lines(&fs::read_to_string(self.path(out).join("metrics.jsonl")).unwrap())
    }
}

/// Parses JSON lines; every line must be one.
pub(crate) fn json_lines(text: &str) -> Vec<Value> {
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}")))
        .collect()
}

/// The values of one key, of the lines that have it.
pub(crate) fn floats(lines: &[Value], key: &str) -> Vec<f64> {
    lines.iter().filter_map(|line| line[key].as_f64()).collect()
}

/// A command under way. Its output is read all the time, so that it never blocks on a full pipe.
pub(crate) struct Running {
    pub(crate) child: Child,
    stdout: thread::JoinHandle<String>,
    stderr: thread::JoinHandle<String>,
    started: Instant,
}

/// A command that has ended.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Running {
    pub(crate) fn start(mut command: Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        fn read(mut stream: impl Read + Send + 'static) -> thread::JoinHandle<String> {
            thread::spawn(move || {
                let mut bytes = Vec::new();
                stream.read_to_end(&mut bytes).unwrap();
                String::from_utf8_lossy(&bytes).into_owned()
            })
        }
        let stdout = read(child.stdout.take().unwrap());
        let stderr = read(child.stderr.take().unwrap());
        Self { child, stdout, stderr, started: Instant::now() }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, name: &str) {
        signal(self.pid(), name);
    }

    pub(crate) fn wait(self) -> Done {
        self.wait_for(LIMIT)
    }

    pub(crate) fn wait_for(mut self, limit: Duration) -> Done {
        let status: ExitStatus = loop {
            match self.child.try_wait().unwrap() {
                Some(status) => break status,
                None if self.started.elapsed() > limit => {
                    self.child.kill().unwrap();
                    self.child.wait().unwrap();
                    let (out, err) = (self.stdout.join().unwrap(), self.stderr.join().unwrap());
                    panic!("still running after {limit:?}\n{out}\n{err}");
                }
                None => thread::sleep(Duration::from_millis(5)),
            }
        };
        Done {
            code: status.code(),
            stdout: self.stdout.join().unwrap(),
            stderr: self.stderr.join().unwrap(),
        }
    }
}

impl Done {
    /// Fails unless the command ended with this code.
    #[track_caller]
    pub(crate) fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "stdout:\n{}\nstderr:\n{}", self.stdout, self.stderr);
        self
    }

    /// Fails unless stderr says all of this.
    #[track_caller]
    pub(crate) fn says(self, texts: &[&str]) -> Self {
        for text in texts {
            assert!(self.stderr.contains(text), "stderr does not say {text:?}:\n{}", self.stderr);
        }
        self
    }
}

/// Sends a signal to a process.
pub(crate) fn signal(pid: u32, name: &str) {
    let status =
        Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status().unwrap();
    assert!(status.success(), "kill -{name} {pid}");
}

/// Waits until `what` gives something.
pub(crate) fn wait_until<T>(limit: Duration, what: impl Fn() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = what() {
            return value;
        }
        assert!(start.elapsed() < limit, "nothing after {limit:?}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until a run has done `step` steps.
pub(crate) fn wait_for_step(bench: &Bench, out: &str, step: usize) {
    let path = bench.path(out).join("metrics.jsonl");
    wait_until(LIMIT, || {
        let lines = fs::read_to_string(&path).unwrap_or_default().lines().count();
        (lines >= step).then_some(())
    });
}

/// Process ids of the ranks of the last start of a run, by rank, as its ledger has them.
pub(crate) fn ranks(bench: &Bench, out: &str) -> Vec<u32> {
    let ledger = fs::read_to_string(bench.path(out).join("ledger.jsonl")).unwrap();
    let lines = json_lines(&ledger);
    let last = lines.iter().filter_map(|line| line["attempt"].as_u64()).max();
    let mut ranks: Vec<(u64, u32)> = lines
        .iter()
        .filter(|line| line["event"] == "worker_started" && line["attempt"].as_u64() == last)
        .map(|line| (line["rank"].as_u64().unwrap(), line["pid"].as_u64().unwrap() as u32))
        .collect();
    ranks.sort_unstable();
    ranks.into_iter().map(|(_, pid)| pid).collect()
}

/// All processes of the run in `out`: they carry its id in their environment. None if it has not begun.
pub(crate) fn processes_of(bench: &Bench, out: &str) -> Vec<u32> {
    let ledger = fs::read_to_string(bench.path(out).join("ledger.jsonl")).unwrap_or_default();
    let Some(start) = ledger.lines().next() else { return Vec::new() };
    let Ok(start) = serde_json::from_str::<Value>(start) else { return Vec::new() };
    processes_with(&format!("TITAN_RUN_ID={}", start["run"].as_str().unwrap()))
}

/// All processes with a variable in their environment.
pub(crate) fn processes_with(mark: &str) -> Vec<u32> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
        if environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes()) {
            found.push(pid);
        }
    }
    found
}

/// Waits until no process of a run is left. A compiler whose parent was killed may finish its file.
#[track_caller]
pub(crate) fn none_left(bench: &Bench, out: &str) {
    let start = Instant::now();
    loop {
        let left = processes_of(bench, out);
        if left.is_empty() {
            return;
        }
        assert!(start.elapsed() < Duration::from_secs(20), "processes {left:?} are left");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Says what a test leaves out, past the harness, which shows what passing tests print to nobody.
pub(crate) fn not_tested(what: &str) {
    let _ = std::io::stderr().write_all(format!("NOT TESTED: {what}\n").as_bytes());
}
