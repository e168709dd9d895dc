//! Where a run keeps its checkpoints, what it writes into them about itself, and what it says about them.

use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::{Value, json};
use titan_checkpoint::{Found, list, probe, remove_abandoned, set_aside};
use titan_datasets::{Cursor, OrderIdentity};
use titan_recipes::tables::checkpoint::{Checkpoint, Interval};
use titan_recipes::{Location, Setting};
use titan_trainer::ledger;
use titan_trainer::save_plan::SaveInterval;
use titan_trainer::saver::SaveSpec;
use titan_trainer::spec::{RunSpec, Saving};

use super::keeper::{Committed, Keeper, Kept};
use super::resume::Decision;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::words;

/// Seconds between two failures of a run on one chip: 1.5 million chips are said to fail every 5 minutes
/// (arXiv 2604.21428).
const CHIP_MTBF_SECONDS: f64 = 1.5e6 * 300.0;

/// Settings that say what the tensors of a checkpoint are: by name, or by the beginning of one.
const IDENTITY: [&str; 2] = ["model.", "optimizer.name"];

/// Whether a setting is one of those that a checkpoint must have in common with a run that goes on from it.
pub(super) fn is_identity(name: &str) -> bool {
    // Where the first weights come from and how wide they scatter is over.
    IDENTITY.iter().any(|identity| name.starts_with(identity))
        && !matches!(name, "model.init" | "model.init_std")
}

/// These settings, in words.
pub(super) fn identity(settings: &[Setting]) -> Value {
    let own = settings.iter().filter(|setting| is_identity(&setting.name));
    own.map(|setting| (setting.name.clone(), titan_recipes::value_text(&setting.value).into()))
        .collect::<serde_json::Map<String, Value>>()
        .into()
}

/// How a run keeps its checkpoints.
#[derive(Debug)]
pub(super) struct Keeping {
    pub(super) to: SaveSpec,
    keep_last: u64,
    interval: SaveInterval,
    name: String,
    settings: Value,
    order: OrderIdentity,
    /// Bytes of one checkpoint, about.
    bytes: u64,
}

/// The folder of a run's checkpoints, if that is known before the run has a directory.
pub(super) fn folder(checkpoint: &Checkpoint, run_dir: Option<&Path>) -> Option<PathBuf> {
    let Location::Local(directory) = &checkpoint.directory.value else { return None };
    if directory.is_absolute() {
        return Some(directory.clone());
    }
    std::path::absolute(run_dir?.join(directory)).ok()
}

/// Makes sure that a folder can be written to: not when the first checkpoint is due, but now.
pub(super) fn check_folder(folder: &Path) -> Result<(), Failure> {
    probe(folder).map_err(|error| {
        let exit = if error.is_no_space() { Exit::NoSpace } else { Exit::Usage };
        Failure::new(exit, error.to_string())
            .help("checkpoint.directory must be a folder that can be written to, or be made")
    })
}

impl Keeping {
    pub(super) fn new(
        checkpoint: &Checkpoint,
        to: SaveSpec,
        spec: &RunSpec,
        name: &str,
        (settings, order): (Value, OrderIdentity),
        bytes: u64,
    ) -> Self {
        let interval = match *checkpoint.interval {
            Interval::Steps(steps) => SaveInterval::Steps(steps),
            Interval::Seconds(seconds) => SaveInterval::Seconds(seconds as f64),
            Interval::Auto => {
                SaveInterval::Auto { mtbf_seconds: CHIP_MTBF_SECONDS / spec.layout.world as f64 }
            }
        };
        let keep_last = *checkpoint.keep_last;
        Self { to, keep_last, interval, name: name.to_owned(), settings, order, bytes }
    }

    /// What ranks are told.
    pub(super) fn saving(&self) -> Saving {
        Saving { to: self.to.clone(), interval: self.interval }
    }

    /// Starts what makes checkpoints of the files of the ranks.
    pub(super) fn start(
        &self,
        spec: &RunSpec,
        attempt: u64,
        world: usize,
        report: impl Fn(Kept) + Send + 'static,
    ) -> io::Result<Keeper> {
        let plan = spec.loader_config().plan;
        let order = self.order.clone();
        let about = json!({
            "id": self.to.writer, "name": self.name, "attempt": attempt,
            "titan": env!("CARGO_PKG_VERSION"), "world": world, "mesh": spec.engine.mesh,
            "settings": self.settings,
        });
        let describe = move |step| {
            let samples = plan.samples_before(step);
            let mut about = about.clone();
            about["cursor"] = json!(Cursor { samples, order: order.clone() });
            about
        };
        Keeper::start(self.to.clone(), self.keep_last, world, Box::new(describe), report)
    }

    /// Removes what an attempt to save has left. Only while this process holds the lock of the run.
    pub(super) fn tidy_up(&self) {
        // What stays is in nobody's way, and tried again by the next start.
        let _ = remove_abandoned(&self.to.folder, &self.to.writer);
    }

    /// Takes their names from later checkpoints than the one that the run goes on from: those that are damaged, and those
    /// of this run, which does the same steps again. Says which.
    pub(super) fn set_later_aside(
        &self,
        decision: &Decision,
        steps_done: u64,
        attempt: u64,
    ) -> Result<Vec<PathBuf>, Failure> {
        let failed =
            |error: titan_checkpoint::Error| Failure::new(Exit::WorkersFailed, error.to_string());
        let is_damaged = |step| decision.skipped.iter().any(|(skipped, _)| *skipped == step);
        let is_ours = |found: &Found| {
            titan_checkpoint::open(&found.path)
                .is_ok_and(|checkpoint| checkpoint.manifest().run["id"] == *self.to.writer)
        };
        let found = list(&self.to.folder).map_err(failed)?.into_iter();
        let later = found
            .filter(|found| found.step > steps_done && (is_damaged(found.step) || is_ours(found)));
        let mark = format!("superseded-{attempt}");
        later.map(|found| set_aside(&found.path, &mark).map_err(failed)).collect()
    }

    /// What to do about a disk that does not take a checkpoint.
    pub(super) fn advise(&self, failure: Failure) -> Failure {
        let bytes = |bytes: u64| format!("{} MB", words::grouped(bytes.div_ceil(1_000_000)));
        let failure = failure.help("the checkpoints before it are as they were");
        match rustix::fs::statvfs(&self.to.folder) {
            Ok(disk) => failure.help(format!(
                "a checkpoint of this run has about {}; {} has {} free",
                bytes(self.bytes),
                self.to.folder.display(),
                bytes(disk.f_bavail.saturating_mul(disk.f_frsize))
            )),
            Err(_) => failure,
        }
    }
}

/// A line of `train --json`.
#[derive(Serialize)]
pub(super) struct CheckpointEvent<'a> {
    event: &'static str,
    step: u64,
    path: std::borrow::Cow<'a, str>,
    bytes: u64,
    blocked_seconds: f64,
    write_seconds: f64,
    commit_seconds: f64,
    removed: &'a [u64],
}

impl Committed {
    pub(super) fn ledger_event(&self, step: u64) -> ledger::Event {
        ledger::Event::CheckpointSaved {
            step,
            bytes: self.bytes,
            blocked_seconds: self.blocked_seconds,
            write_seconds: self.write_seconds,
            commit_seconds: self.commit_seconds,
            removed: self.removed.clone(),
        }
    }

    pub(super) fn json_event(&self, step: u64) -> CheckpointEvent<'_> {
        CheckpointEvent {
            event: "checkpoint",
            step,
            path: self.path.to_string_lossy(),
            bytes: self.bytes,
            blocked_seconds: self.blocked_seconds,
            write_seconds: self.write_seconds,
            commit_seconds: self.commit_seconds,
            removed: &self.removed,
        }
    }

    pub(super) fn in_words(&self, step: u64) -> String {
        format!(
            "checkpoint of step {step}: {:.1} MB in {}, training waited {}",
            self.bytes as f64 / 1e6,
            words::seconds(self.write_seconds + self.commit_seconds),
            words::seconds(self.blocked_seconds)
        )
    }
}
