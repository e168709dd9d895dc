//! The ledger: everything that happens to a run, one JSON object a line, only ever appended.
//!
//! Reports are folds over it. Every line has `v` (version of the format), `run`, `attempt`, `seq`, `mono`
//! (seconds since the launcher started, from a monotonic clock: durations come from it alone), `wall` (seconds
//! since 1970, information only) and `event`; the rest depends on the event.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use serde::Serialize;

use crate::saver::Tier;

/// Version of the format of a line.
pub const VERSION: u32 = 1;

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The launcher began.
    RunStarted {
        /// Version of titan-tpu.
        titan: &'static str,
        /// Name of the run.
        name: String,
        /// Number of devices.
        world: u64,
        /// Steps asked for.
        steps: u64,
        /// Tokens of one step.
        global_tokens: u64,
        /// Content of the data, as a hash.
        data: String,
        /// Host name.
        host: String,
        /// Process id of the launcher.
        pid: u32,
    },
    /// A part of the run before or after its steps is over.
    Phase {
        /// `set_up` (before `run_started`), `import`, `engine`.
        phase: &'static str,
        /// How long it took.
        seconds: f64,
    },
    /// A worker process was started.
    WorkerStarted {
        /// Its rank.
        rank: u64,
        /// Its process id.
        pid: u32,
    },
    /// All ranks have done a step.
    Step {
        /// The step.
        step: u64,
        /// Wall time of the slowest rank.
        step_seconds: f64,
        /// Time that the slowest rank waited for data.
        data_seconds: f64,
    },
    /// All ranks have done a validation.
    Validation {
        /// The step after which it was.
        step: u64,
        /// Wall time of the slowest rank.
        seconds: f64,
    },
    /// This start of the run goes on from a checkpoint.
    Resumed {
        /// The step after which it was saved.
        step: u64,
        /// Its folder.
        path: String,
        /// Newer ones that could not be used, and why.
        skipped: Vec<(u64, String)>,
    },
    /// There is a new checkpoint.
    CheckpointSaved {
        /// Where.
        tier: Tier,
        /// The step after which it was saved.
        step: u64,
        /// Bytes of its files.
        bytes: u64,
        /// Seconds that training waited: the slowest rank.
        blocked_seconds: f64,
        /// Seconds from the copy of the state until all files were on the disk: the slowest rank.
        write_seconds: f64,
        /// Seconds that the launcher took to make a checkpoint of the files.
        commit_seconds: f64,
        /// Steps whose checkpoints were removed because they are old.
        removed: Vec<u64>,
    },
    /// The local tier did not take a checkpoint.
    LocalCheckpointLost {
        /// The step after which it was to be saved.
        step: u64,
        /// Why.
        why: String,
    },
    /// The launcher was asked to stop.
    StopRequested {
        /// `SIGINT`, `SIGTERM` or `SIGHUP`, and to which rank if it was one.
        signal: String,
    },
    /// The control plane has decided something.
    Decision {
        /// What kind of decision.
        decision: String,
        /// Why.
        reason: String,
    },
    /// All ranks are started again, in the same process of the launcher.
    Restarted {
        /// The step that they go on after.
        after_step: u64,
        /// Why.
        reason: String,
    },
    /// The first step after a failure is done.
    Recovered {
        /// Seconds since the failure was noticed.
        seconds: f64,
        /// Steps that are done again.
        steps_lost: u64,
    },
    /// A worker failed, or a checkpoint could not be made.
    WorkerFailed {
        /// Its rank, if it was one.
        rank: Option<u64>,
        /// What happened.
        reason: String,
        /// Whether this failure is the cause of the others.
        cause: bool,
    },
    /// The launcher is done.
    RunEnded {
        /// Exit code of the launcher.
        exit_code: u8,
        /// Last step that is done, 0 if none.
        final_step: u64,
        /// Why it ended.
        reason: String,
    },
}

#[derive(Serialize)]
struct Line<'a> {
    v: u32,
    run: &'a str,
    attempt: u64,
    seq: u64,
    mono: f64,
    wall: f64,
    #[serde(flatten)]
    event: &'a Event,
}

/// The ledger of a run, open for appending.
#[derive(Debug)]
pub struct Ledger {
    file: File,
    run: String,
    attempt: u64,
    seq: u64,
    start: Instant,
}

impl Ledger {
    /// Opens `path` for appending, as attempt `attempt` of run `run` that began at `start`.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn open(path: &Path, run: &str, attempt: u64, start: Instant) -> io::Result<Self> {
        let mut file = File::options().create(true).append(true).read(true).open(path)?;
        end_line(&mut file)?;
        Ok(Self { file, run: run.to_owned(), attempt, seq: 0, start })
    }

    /// Appends one event. The line goes to the kernel in one write, so it survives a kill of this process.
    ///
    /// # Errors
    /// The line cannot be written.
    pub fn append(&mut self, event: &Event) -> io::Result<()> {
        let wall =
            SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64());
        let line = Line {
            v: VERSION,
            run: &self.run,
            attempt: self.attempt,
            seq: self.seq,
            mono: self.start.elapsed().as_secs_f64(),
            wall,
            event,
        };
        append_line(&mut self.file, &line)?;
        self.seq += 1;
        Ok(())
    }
}

/// Ends the last line of a file, where a kill has cut it off.
fn end_line(file: &mut File) -> io::Result<()> {
    let mut last = [b'\n'];
    if file.metadata()?.len() > 0 {
        file.seek(SeekFrom::End(-1))?;
        file.read_exact(&mut last)?;
    }
    if last == [b'\n'] { Ok(()) } else { file.write_all(b"\n") }
}

/// Appends `value` to a file of JSON lines, in one write.
///
/// # Errors
/// The line cannot be written.
pub fn append_line(file: &mut File, value: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    let before = file.metadata()?.len();
    file.write_all(&line).inspect_err(|_| {
        // A disk that is full takes a part of a line: the file must still end with a whole one.
        let _ = file.set_len(before);
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_numbered_and_a_second_attempt_appends() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger.jsonl");
        for attempt in [1, 2] {
            let mut ledger = Ledger::open(&path, "r", attempt, Instant::now()).unwrap();
            ledger.append(&Event::StopRequested { signal: "SIGINT".to_owned() }).unwrap();
            ledger.append(&Event::Step { step: 3, step_seconds: 0.5, data_seconds: 0.0 }).unwrap();
        }
        let lines: Vec<serde_json::Value> = std::fs::read_to_string(&path)
            .unwrap()
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let keys: Vec<(u64, u64)> = lines
            .iter()
            .map(|l| (l["attempt"].as_u64().unwrap(), l["seq"].as_u64().unwrap()))
            .collect();
        assert_eq!(keys, [(1, 0), (1, 1), (2, 0), (2, 1)]);
        assert_eq!(lines[1]["event"], "step");
        assert_eq!(lines[0]["signal"], "SIGINT");
        assert!(lines[1]["mono"].as_f64().unwrap() >= lines[0]["mono"].as_f64().unwrap());
    }
}
