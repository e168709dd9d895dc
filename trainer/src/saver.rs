//! Saving the state of one rank while training goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use titan_checkpoint::{
    Error, FileFacts, Image, Part, Place, ShardPlan, ShardWriter, Written, shard_name,
    staging_place,
};

use crate::engine::{Engine, StatePart};
use crate::failure::{Failure, FailureClass};

/// A kind of place that checkpoints are kept in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tier {
    /// On each host: fast, and gone with it.
    Local,
    /// What outlives all hosts.
    Persistent,
}

/// Where checkpoints go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SaveSpec {
    /// The place of the persistent tier.
    pub persistent: Place,
    /// That of the local tier, if there is one.
    pub local: Option<Place>,
    /// What tells the files of this run, while they are written, from those of others.
    pub writer: String,
    /// The start of the run, counted from 1.
    pub attempt: u64,
    /// How long a save may take.
    pub timeout_seconds: u64,
}

impl SaveSpec {
    /// The place of a tier.
    pub fn place(&self, tier: Tier) -> Option<&Place> {
        match tier {
            Tier::Local => self.local.as_ref(),
            Tier::Persistent => Some(&self.persistent),
        }
    }

    /// Where the file of a rank is before its step is a checkpoint.
    fn target(&self, tier: Tier, step: u64, rank: u64) -> Option<(Place, String)> {
        let place = staging_place(self.place(tier)?, step, &self.writer);
        let name = shard_name(&place, rank, &format!("{}-{}", self.writer, self.attempt));
        Some((place, name))
    }
}

/// The file of one rank is on the disk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RankSaved {
    /// Where.
    pub tier: Tier,
    /// Optimizer steps that were done.
    pub step: u64,
    /// The file.
    pub file: FileFacts,
    /// Seconds that training waited: for the save before to end, and for the copy.
    pub blocked_seconds: f64,
    /// Seconds from the copy's beginning until the file was on the disk, or from the end of the tier before.
    pub write_seconds: f64,
}

/// What became of one save of one rank.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SaveOutcome {
    /// Its file is there.
    Saved(RankSaved),
    /// The local tier did not take it, which is no reason to end a run.
    Lost {
        /// Optimizer steps that were done.
        step: u64,
        /// Why.
        why: String,
    },
}

/// Saves the state of one rank: training waits for a copy of it, and threads write that.
///
/// There is one copy, which is used again for each save; who comes with the next while it is being written waits.
#[derive(Debug)]
pub struct Saver {
    spec: SaveSpec,
    rank: u64,
    threads: usize,
    image: Option<Image>,
    /// The image that is being made for the first save.
    preparing: Option<JoinHandle<Result<Image, Error>>>,
    writing: Option<Writing>,
    /// The last step that was saved to the persistent tier, or is being saved.
    last: Option<u64>,
}

#[derive(Debug)]
struct Writing {
    step: u64,
    began: Instant,
    blocked_seconds: f64,
    /// Those that nothing is known of yet.
    tiers: Vec<Tier>,
    writer: ShardWriter,
    stop: Arc<AtomicBool>,
}

impl Saver {
    /// A saver of rank `rank`, which copies and computes hashes on `threads`. `resumed` is the step whose checkpoint the
    /// run goes on from, if the persistent tier has it: it needs no other.
    pub fn new(spec: SaveSpec, rank: u64, threads: usize, resumed: Option<u64>) -> Self {
        let (image, preparing, writing) = (None, None, None);
        Self { spec, rank, threads, image, preparing, writing, last: resumed }
    }

    /// Begins to make the memory for a copy of the state, which takes many times as long as the copy: while the first
    /// steps are done, the first save need not wait for it.
    ///
    /// # Errors
    /// The engine does not give its state.
    pub fn prepare<E: Engine>(&mut self, engine: &mut E) -> Result<(), Failure> {
        let mut plan = None;
        engine.state(&mut |parts| {
            plan = Some(plan_of(&parts)?);
            Ok(())
        })?;
        let Some(plan) = plan else { return Err(internal("the engine gave no state")) };
        // One thread, which leaves the others to the steps.
        let make = move || Image::new(plan, 1);
        let thread = thread::Builder::new().name("titan-prepare".to_owned()).spawn(make);
        // Without it the first save makes the memory itself.
        self.preparing = thread.ok();
        Ok(())
    }

    /// Copies the state as it is after `step`, and begins to write it to the tiers. Says what became of the save before,
    /// as far as that was not known yet. Saving a step twice to the persistent tier is saving it once; a save to the
    /// local tier alone is left out while another is on its way.
    ///
    /// # Errors
    /// The save before has failed, or the state cannot be copied.
    pub fn save<E: Engine>(
        &mut self,
        engine: &mut E,
        step: u64,
        tiers: &[Tier],
    ) -> Result<Vec<SaveOutcome>, Failure> {
        let is_known = |tier: Tier| tier == Tier::Persistent && self.last == Some(step);
        let mut tiers: Vec<Tier> = tiers.iter().copied().filter(|tier| !is_known(*tier)).collect();
        tiers.sort_unstable();
        let target = |tier: &Tier| self.spec.target(*tier, step, self.rank);
        let targets: Vec<_> = tiers.iter().filter_map(target).collect();
        if tiers == [Tier::Local] {
            // Nobody waits for a slow store because of a fast disk: what is on its way is as good.
            let news = self.poll()?;
            if self.writing.is_some() {
                return Ok(news);
            }
        }
        if targets.is_empty() {
            return Ok(Vec::new());
        }
        let began = Instant::now();
        let before = self.finish()?;
        let prepared = self.preparing.take().and_then(|thread| thread.join().ok()?.ok());
        let mut image = self.image.take().or(prepared);
        let stop = Arc::new(AtomicBool::new(false));
        let mut writer = None;
        engine.state(&mut |parts| {
            let targets = targets.clone();
            writer = Some(start(image.take(), targets, &parts, self.threads, &stop)?);
            Ok(())
        })?;
        let Some(writer) = writer else {
            return Err(internal("the engine gave no state"));
        };
        if tiers.contains(&Tier::Persistent) {
            self.last = Some(step);
        }
        let blocked_seconds = began.elapsed().as_secs_f64();
        self.writing = Some(Writing { step, began, blocked_seconds, tiers, writer, stop });
        Ok(before)
    }

    /// Whether a save is under way.
    pub fn is_writing(&self) -> bool {
        self.writing.is_some()
    }

    /// What became of the save under way, as far as it has come.
    ///
    /// # Errors
    /// It has failed, or takes too long.
    pub fn poll(&mut self) -> Result<Vec<SaveOutcome>, Failure> {
        self.take_news(false)
    }

    /// Waits for the save under way, if there is one.
    ///
    /// # Errors
    /// It has failed, or takes too long.
    pub fn finish(&mut self) -> Result<Vec<SaveOutcome>, Failure> {
        self.take_news(true)
    }

    fn take_news(&mut self, waits: bool) -> Result<Vec<SaveOutcome>, Failure> {
        let mut news = Vec::new();
        let Some(writing) = &mut self.writing else { return Ok(news) };
        let timeout = Duration::from_secs(self.spec.timeout_seconds);
        while let Some(tier) = writing.tiers.first().copied() {
            let left = timeout.saturating_sub(writing.began.elapsed());
            let written = match writing.writer.next(if waits { left } else { Duration::ZERO }) {
                Some(written) => written,
                None if writing.began.elapsed() >= timeout => {
                    writing.stop.store(true, Ordering::Relaxed);
                    return Err(too_slow(writing.step, &self.spec));
                }
                None if waits => return Err(internal("the thread that saves ended")),
                None => return Ok(news),
            };
            writing.tiers.remove(0);
            news.push(outcome(writing, tier, written)?);
        }
        if let Some(writing) = self.writing.take() {
            self.image = writing.writer.finish();
        }
        Ok(news)
    }
}

fn outcome(writing: &Writing, tier: Tier, written: Written) -> Result<SaveOutcome, Failure> {
    let Writing { step, blocked_seconds, .. } = *writing;
    match written {
        (Ok(file), write_seconds) => {
            Ok(SaveOutcome::Saved(RankSaved { tier, step, file, blocked_seconds, write_seconds }))
        }
        (Err(error), _) if tier == Tier::Local => {
            Ok(SaveOutcome::Lost { step, why: error.to_string() })
        }
        (Err(error), _) => Err(failed(step, &error)),
    }
}

fn too_slow(step: u64, spec: &SaveSpec) -> Failure {
    let message = format!(
        "the checkpoint of step {step} was not written to {} within {} seconds (checkpoint.timeout_seconds)",
        spec.persistent, spec.timeout_seconds
    );
    Failure::new(FailureClass::Storage, message)
}

fn internal(message: &str) -> Failure {
    Failure::new(FailureClass::Internal, message)
}

fn failed(step: u64, error: &Error) -> Failure {
    let class = if error.is_no_space() { FailureClass::NoSpace } else { FailureClass::Storage };
    Failure::new(class, format!("the checkpoint of step {step} cannot be saved: {error}"))
}

/// The parts that this rank saves.
fn own<'a, 'b>(parts: &'a [StatePart<'b>]) -> impl Iterator<Item = &'a StatePart<'b>> {
    parts.iter().filter(|part| part.is_saved_here)
}

fn plan_of(parts: &[StatePart<'_>]) -> Result<ShardPlan, Failure> {
    let parts: Vec<Part> = own(parts).map(|part| part.part.clone()).collect();
    ShardPlan::new(parts).map_err(|error| internal(&error.to_string()))
}

/// Copies the parts that this rank saves, into the memory of the save before if there was one, and begins to write.
fn start(
    image: Option<Image>,
    targets: Vec<(Place, String)>,
    parts: &[StatePart<'_>],
    threads: usize,
    stop: &Arc<AtomicBool>,
) -> Result<ShardWriter, Failure> {
    let failed = |error: Error| match error {
        Error::Memory { .. } => Failure::new(FailureClass::Storage, error.to_string()),
        other => internal(&other.to_string()),
    };
    let image = match image {
        Some(image) => image,
        None => Image::new(plan_of(parts)?, threads).map_err(failed)?,
    };
    let contents: Vec<&[u8]> = own(parts).map(|part| &*part.memory).collect();
    ShardWriter::start(targets, image, &contents, threads, stop).map_err(failed)
}
