//! Where a run keeps its checkpoints, what it writes into them about itself, and what it says about them.

use std::io;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};
use titan_checkpoint::{
    Found, Place, Retention, list, open, probe, remove_abandoned, remove_checkpoint, set_aside,
};
use titan_datasets::{Cursor, OrderIdentity};
use titan_recipes::tables::checkpoint::{Checkpoint, Interval};
use titan_recipes::{Location, Setting};
use titan_trainer::ledger;
use titan_trainer::save_plan::{SaveInterval, SavePlan};
use titan_trainer::saver::{SaveSpec, Tier};
use titan_trainer::spec::{RunSpec, Saving};

use super::keeper::{Committed, Keeper, Kept};
use super::resume::Decision;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::words;

/// Seconds between two failures of a run on one chip: 1.5 million chips are said to fail every 5 minutes
/// (arXiv 2604.21428).
pub(crate) const CHIP_MTBF_SECONDS: f64 = 1.5e6 * 300.0;

/// Settings that say what the tensors of a checkpoint are: by name, or by the beginning of one.
const IDENTITY: [&str; 2] = ["model.", "optimizer.name"];

/// Whether a setting is one of those that a checkpoint must have in common with a run that goes on from it.
pub(super) fn is_identity(name: &str) -> bool {
    // Where the first weights come from and how wide they scatter is over.
    IDENTITY.iter().any(|identity| name.starts_with(identity))
        && !matches!(name, "model.init" | "model.init_std")
}

/// These settings, in words.
pub(crate) fn identity(settings: &[Setting]) -> Value {
    let own = settings.iter().filter(|setting| is_identity(&setting.name));
    own.map(|setting| (setting.name.clone(), titan_recipes::value_text(&setting.value).into()))
        .collect::<serde_json::Map<String, Value>>()
        .into()
}

/// How a run keeps its checkpoints.
#[derive(Debug)]
pub(super) struct Keeping {
    pub(super) to: SaveSpec,
    retention: Retention,
    plan: SavePlan,
    name: String,
    pub(super) settings: Value,
    pub(super) order: OrderIdentity,
    /// Bytes of one checkpoint, about.
    bytes: u64,
}

/// The place of a run's checkpoints, if that is known before the run has a directory.
///
/// # Errors
/// The address is none of an object store.
pub(crate) fn place(
    checkpoint: &Checkpoint,
    run_dir: Option<&Path>,
) -> Result<Option<Place>, Failure> {
    let directory = match &checkpoint.directory.value {
        Location::Local(directory) => directory,
        Location::Remote(address) => {
            let place = Place::parse(address.expose());
            let failed = |error: titan_checkpoint::Error| {
                Failure::new(Exit::Usage, format!("checkpoint.directory: {error}"))
            };
            return place.map(Some).map_err(failed);
        }
    };
    if directory.is_absolute() {
        return Ok(Some(directory.into()));
    }
    let absolute = run_dir.and_then(|run| std::path::absolute(run.join(directory)).ok());
    Ok(absolute.map(Place::from))
}

/// Refuses a place that has sound checkpoints of other runs for steps that this one would save: `own` is the id of a run
/// that goes on after `steps_done`.
pub(super) fn refuse_foreign(
    place: &Place,
    own: Option<&str>,
    decision: &Decision,
    steps_done: u64,
) -> Result<(), Failure> {
    let unreadable = |error: titan_checkpoint::Error| Failure::new(Exit::Usage, error.to_string());
    let is_damaged = |step| decision.skipped.iter().any(|(skipped, _)| *skipped == step);
    let later = list(place).map_err(unreadable)?.into_iter();
    for found in later.filter(|found| found.step > steps_done && !is_damaged(found.step)) {
        let Ok(checkpoint) = open(&found.place) else { continue };
        let id = &checkpoint.manifest().run["id"];
        if own.is_none_or(|own| *id != *own) {
            let text = format!(
                "{} is of the run {}, and this run would come to that step too",
                found.place,
                id.as_str().unwrap_or("of another program")
            );
            return Err(Failure::new(Exit::Usage, text).help(
                "choose another checkpoint.directory, or go on from that run with --resume auto",
            ));
        }
    }
    Ok(())
}

/// The place of a run's checkpoints in the local tier, if it has one. Runs share the folder, which is in the run directory
/// if it is a relative path.
pub(crate) fn local_place(checkpoint: &Checkpoint, run_dir: &Path, id: &str) -> Option<Place> {
    match &checkpoint.local_directory.as_ref()?.value {
        Location::Local(folder) => {
            std::path::absolute(run_dir.join(folder).join(id)).ok().map(Place::from)
        }
        Location::Remote(_) => None,
    }
}

/// Makes sure that a place can be written to: not when the first checkpoint is due, but now.
pub(super) fn check_place(place: &Place, key: &str) -> Result<(), Failure> {
    probe(place).map_err(|error| {
        let exit = if error.is_no_space() { Exit::NoSpace } else { Exit::Usage };
        let failure = Failure::new(exit, error.to_string());
        match place {
            Place::Folder(_) => {
                failure.help(format!("{key} must be a folder that can be written to, or be made"))
            }
            Place::Objects(_) => failure,
        }
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
        let retention = Retention {
            keep_last: *checkpoint.keep_last,
            keep_every_steps: checkpoint.keep_every_steps.as_ref().map(|steps| **steps),
        };
        let local_steps = to.local.as_ref().map(|_| checkpoint.local_steps());
        let plan = SavePlan { interval, local_steps };
        Self { to, retention, plan, name: name.to_owned(), settings, order, bytes }
    }

    /// What ranks are told.
    pub(super) fn saving(&self) -> Saving {
        Saving { to: self.to.clone(), plan: self.plan }
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
        Keeper::start(self.to.clone(), self.retention, world, Box::new(describe), report)
    }

    /// How long a checkpoint may take.
    pub(super) fn timeout(&self) -> Duration {
        Duration::from_secs(self.to.timeout_seconds)
    }

    /// Another start has begun.
    pub(super) fn begin_attempt(&mut self, attempt: u64) {
        self.to.attempt = attempt;
    }

    /// The places of all tiers, the nearest first.
    pub(super) fn places(&self) -> impl Iterator<Item = &Place> {
        self.to.local.iter().chain([&self.to.persistent])
    }

    /// Removes what an attempt to save has left. Only while this process holds the lock of the run.
    pub(super) fn tidy_up(&self) {
        for place in self.places() {
            // What stays is in nobody's way, and tried again by the next start.
            let _ = remove_abandoned(place, &self.to.writer);
        }
    }

    /// Gives the memory or disk of the local tier back, if the persistent tier has all that is there.
    pub(super) fn leave_local(&self) {
        let newest = |place| list(place).ok()?.pop().map(|found: Found| found.step);
        let Some(local) = &self.to.local else { return };
        if newest(local) > newest(&self.to.persistent) {
            return;
        }
        // What stays is replaced by the next start, or removed with the host.
        for found in list(local).unwrap_or_default() {
            let _ = remove_checkpoint(&found.place);
        }
        if let Some(folder) = local.folder() {
            let _ = std::fs::remove_dir(folder);
        }
    }

    /// Takes their names from later checkpoints than the one that the run goes on from: those that are damaged, and those
    /// of this run, which does the same steps again. Says which.
    pub(super) fn set_later_aside(
        &self,
        decision: &Decision,
        steps_done: u64,
        attempt: u64,
    ) -> Result<Vec<Place>, Failure> {
        let failed =
            |error: titan_checkpoint::Error| Failure::new(Exit::WorkersFailed, error.to_string());
        let is_damaged = |step| decision.skipped.iter().any(|(skipped, _)| *skipped == step);
        let is_ours = |found: &Found| {
            open(&found.place)
                .is_ok_and(|checkpoint| checkpoint.manifest().run["id"] == *self.to.writer)
        };
        let mark = format!("superseded-{attempt}");
        let mut aside = Vec::new();
        for place in self.places() {
            let found = list(place).map_err(failed)?.into_iter();
            for later in found.filter(|found| {
                found.step > steps_done && (is_damaged(found.step) || is_ours(found))
            }) {
                if self.to.local.as_ref() == Some(place) {
                    // It is there for speed, and takes memory.
                    remove_checkpoint(&later.place).map_err(failed)?;
                } else {
                    aside.push(set_aside(&later.place, &mark).map_err(failed)?);
                }
            }
        }
        Ok(aside)
    }

    /// What to do about a disk that does not take a checkpoint.
    pub(super) fn advise(&self, failure: Failure) -> Failure {
        let failure = failure.help("the checkpoints before it are as they were");
        let Some(folder) = self.to.persistent.folder() else { return failure };
        match rustix::fs::statvfs(folder) {
            Ok(disk) => failure.help(format!(
                "a checkpoint of this run has about {}; {} has {} free",
                words::bytes(self.bytes),
                folder.display(),
                words::bytes(disk.f_bavail.saturating_mul(disk.f_frsize))
            )),
            Err(_) => failure,
        }
    }
}

/// A line of `train --json`.
#[derive(Serialize)]
pub(super) struct CheckpointEvent<'a> {
    event: &'static str,
    tier: Tier,
    step: u64,
    path: String,
    bytes: u64,
    blocked_seconds: f64,
    write_seconds: f64,
    commit_seconds: f64,
    removed: &'a [u64],
}

impl Committed {
    pub(super) fn ledger_event(&self, tier: Tier, step: u64) -> ledger::Event {
        ledger::Event::CheckpointSaved {
            tier,
            step,
            bytes: self.bytes,
            blocked_seconds: self.blocked_seconds,
            write_seconds: self.write_seconds,
            commit_seconds: self.commit_seconds,
            removed: self.removed.clone(),
        }
    }

    pub(super) fn json_event(&self, tier: Tier, step: u64) -> CheckpointEvent<'_> {
        CheckpointEvent {
            event: "checkpoint",
            tier,
            step,
            path: self.place.to_string(),
            bytes: self.bytes,
            blocked_seconds: self.blocked_seconds,
            write_seconds: self.write_seconds,
            commit_seconds: self.commit_seconds,
            removed: &self.removed,
        }
    }

    pub(super) fn in_words(&self, tier: Tier, step: u64) -> String {
        let what = match tier {
            Tier::Local => "local checkpoint",
            Tier::Persistent => "checkpoint",
        };
        format!(
            "{what} of step {step}: {:.1} MB in {}, training waited {}",
            self.bytes as f64 / 1e6,
            words::seconds(self.write_seconds + self.commit_seconds),
            words::seconds(self.blocked_seconds)
        )
    }
}
