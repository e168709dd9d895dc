//! A Python process that reads or writes files of torch: it gets orders and gives answers, a line of JSON each, and
//! tensors behind some of them.
//!
//! It is in a process group of its own, is killed by the kernel if this process dies, and killed here once `stop` is
//! set or this value is dropped.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use serde::{Deserialize, Serialize};
use titan_trainer::protocol::LAUNCHER_PID;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::setup_command::Environment;

/// Lines of its stderr that are shown if it fails.
const LAST_LINES: usize = 12;

/// How often it is looked whether to stop.
const GLANCE: Duration = Duration::from_millis(20);

/// What it says; `titan_tpu/dcp.py` has the other side.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Answer {
    /// Bytes that were written so far.
    Progress(u64),
    /// What a folder has.
    Listing(Listing),
    /// The bytes of a tensor follow.
    Tensor { name: String, bytes: u64 },
    /// All is done.
    Done {},
    /// Files are not what they should be, or the system refused.
    Failed(Refusal),
}

/// What a folder has, and what the model of a recipe needs.
#[derive(Debug, Deserialize)]
pub(super) struct Listing {
    pub(super) tensors: BTreeMap<String, Described>,
    /// Entries that are no tensors.
    pub(super) others: Vec<String>,
    /// What an export of ours says about itself.
    pub(super) step: Option<u64>,
    pub(super) run: Option<String>,
    /// The shapes of the model's weights.
    pub(super) model: BTreeMap<String, Vec<u64>>,
}

/// A tensor of others.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Described {
    /// Its number format: a name of safetensors, or of torch where that has none.
    pub(super) dtype: String,
    pub(super) shape: Vec<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub(super) enum Refusal {
    Damaged { text: String },
    Io { errno: Option<i32>, path: Option<PathBuf>, text: String },
}

impl Refusal {
    fn into_failure(self) -> Failure {
        match self {
            Self::Damaged { text } => Failure::new(Exit::NoCheckpoint, text),
            Self::Io { errno, path, text } => {
                let error =
                    errno.map_or_else(|| io::Error::other(text), io::Error::from_raw_os_error);
                let path =
                    path.map_or_else(|| "a file".to_owned(), |path| path.display().to_string());
                Failure::io(Exit::WorkersFailed, format!("cannot read or write {path}"), &error)
            }
        }
    }
}

/// The process.
pub(super) struct Helper {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
    complaints: Option<JoinHandle<Vec<String>>>,
    watch: Option<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
    over: Arc<AtomicBool>,
}

impl Helper {
    /// Starts it. Must be called on a thread that lives as long as it: the kernel's parent-death signal follows the
    /// thread that started a process.
    pub(super) fn start(
        environment: &Environment,
        stop: &Arc<AtomicBool>,
    ) -> Result<Self, Failure> {
        let failed = |error: io::Error| {
            Failure::io(Exit::WorkersFailed, "the engine cannot be started", &error)
        };
        let mut child = command(environment).spawn().map_err(failed)?;
        let (Some(orders), Some(answers), Some(complaints)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(Failure::new(Exit::Bug, "a pipe to the engine is missing"));
        };
        let over = Arc::new(AtomicBool::new(false));
        let mut helper = Self {
            orders,
            answers: BufReader::with_capacity(1 << 20, answers),
            complaints: None,
            watch: None,
            stop: Arc::clone(stop),
            over: Arc::clone(&over),
            child,
        };
        let thread = || thread::Builder::new().name("titan-helper".to_owned());
        helper.complaints = Some(thread().spawn(|| last_lines(complaints)).map_err(failed)?);
        let (pid, stop) = (Pid::from_child(&helper.child), Arc::clone(stop));
        let watch = move || {
            while !over.load(Ordering::Relaxed) {
                if stop.load(Ordering::Relaxed) {
                    let _ = kill_process_group(pid, Signal::KILL);
                    return;
                }
                thread::sleep(GLANCE);
            }
        };
        helper.watch = Some(thread().spawn(watch).map_err(failed)?);
        Ok(helper)
    }

    /// Gives an order.
    pub(super) fn order(&mut self, order: &impl Serialize) -> Result<(), Failure> {
        let mut line = serde_json::to_vec(order)
            .map_err(|error| Failure::new(Exit::Bug, error.to_string()))?;
        line.push(b'\n');
        let sent = self.orders.write_all(&line).and_then(|()| self.orders.flush());
        sent.map_err(|_| self.ended())
    }

    /// Takes the next answer; a refusal is a failure.
    pub(super) fn answer(&mut self) -> Result<Answer, Failure> {
        let mut line = String::new();
        match self.answers.read_line(&mut line) {
            Ok(1..) => {}
            Ok(0) | Err(_) => return Err(self.ended()),
        }
        match serde_json::from_str(&line) {
            Ok(Answer::Failed(refusal)) => Err(refusal.into_failure()),
            Ok(answer) => Ok(answer),
            // Cut off by its end, or a bug.
            Err(error) if line.ends_with('\n') => Err(unexpected(&error.to_string())),
            Err(_) => Err(self.ended()),
        }
    }

    /// Takes bytes of a tensor.
    pub(super) fn read(&mut self, into: &mut [u8]) -> Result<(), Failure> {
        self.answers.read_exact(into).map_err(|_| self.ended())
    }

    /// Why there is nothing more.
    fn ended(&mut self) -> Failure {
        if self.stop.load(Ordering::Relaxed) {
            return stopped();
        }
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        let complaints = self.complaints.take().and_then(|thread| thread.join().ok());
        Failure::new(Exit::WorkersFailed, "the engine ended before it was done")
            .quoting(complaints.unwrap_or_default())
    }
}

/// A signal came.
pub(super) fn stopped() -> Failure {
    Failure::new(Exit::Stopped, "stopped before all was done; nothing is left of it")
}

/// An answer that has no meaning here.
pub(super) fn unexpected(what: &str) -> Failure {
    Failure::new(Exit::Bug, format!("the engine answered something unexpected: {what}"))
}

impl Drop for Helper {
    /// What it was to do is done, or no longer wanted.
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(watch) = self.watch.take() {
            let _ = watch.join();
        }
        // Not reaped yet, so its id is still its own.
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        let _ = self.child.wait();
    }
}

fn command(environment: &Environment) -> Command {
    const BOOT: &str = "import sys; sys.path.insert(0, sys.argv.pop(1)); \
                        from titan_tpu import _native; _native.bind_to_parent(); \
                        from titan_tpu import dcp; sys.exit(dcp.main())";
    let mut command = Command::new(environment.python());
    // As for workers: see train/shell.rs.
    command.arg(if environment.isolated() { "-I" } else { "-P" });
    command.args(["-u", "-X", "faulthandler", "-c", BOOT]).arg(environment.engine());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.process_group(0);
    command.env(LAUNCHER_PID, std::process::id().to_string());
    command.env("TORCH_DEVICE_BACKEND_AUTOLOAD", "0");
    for name in
        ["RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"]
    {
        command.env_remove(name);
    }
    command
}

fn last_lines(stream: ChildStderr) -> Vec<String> {
    let mut last = VecDeque::new();
    let mut stream = BufReader::new(stream);
    let mut line = Vec::new();
    while matches!(stream.read_until(b'\n', &mut line), Ok(1..)) {
        if last.len() == LAST_LINES {
            last.pop_front();
        }
        last.push_back(String::from_utf8_lossy(&line).trim_end().to_owned());
        line.clear();
    }
    last.into()
}
