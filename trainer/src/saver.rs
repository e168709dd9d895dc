//! Saving the state of one rank while training goes on.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::thread::{self, JoinHandle};
use std::time::Instant;

use serde::{Deserialize, Serialize};
use titan_checkpoint::{
    Error, FileFacts, Part, ShardPlan, Staging, shard_name, staging_path, write_shard,
};

use crate::engine::{Engine, StatePart};
use crate::failure::{Failure, FailureClass};

/// Where checkpoints go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SaveSpec {
    /// The folder that they are in.
    pub folder: PathBuf,
    /// What tells the files of this run, while they are written, from those of others.
    pub writer: String,
}

/// The file of one rank is on the disk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RankSaved {
    /// Optimizer steps that were done.
    pub step: u64,
    /// The file.
    pub file: FileFacts,
    /// Seconds that training waited: for the save before to end, and for the copy.
    pub blocked_seconds: f64,
    /// Seconds from the copy's end until the file was on the disk.
    pub write_seconds: f64,
}

/// Saves the state of one rank: training waits for a copy of it, and threads write that.
///
/// There is one copy, which is used again for each save; who comes with the next while it is being written waits.
#[derive(Debug)]
pub struct Saver {
    spec: SaveSpec,
    rank: u64,
    threads: usize,
    staged: Option<Staged>,
    writing: Option<Writing>,
    /// The last step that was saved, or is being saved.
    last: Option<u64>,
}

/// The image of a file, and what it is of.
#[derive(Debug)]
struct Staged {
    plan: ShardPlan,
    staging: Staging,
}

/// A file that is on the disk, and how long that took.
type Written = Result<(FileFacts, f64), Error>;

#[derive(Debug)]
struct Writing {
    step: u64,
    blocked_seconds: f64,
    thread: JoinHandle<(Staged, Written)>,
}

impl Saver {
    /// A saver of rank `rank`, which copies and computes hashes on `threads`. `resumed` is the step whose checkpoint the
    /// run goes on from: it needs no other.
    pub fn new(spec: SaveSpec, rank: u64, threads: usize, resumed: Option<u64>) -> Self {
        Self { spec, rank, threads, staged: None, writing: None, last: resumed }
    }

    /// Copies the state as it is after `step`, and begins to write it. Says what became of the save before, if that was
    /// not known yet. Saving the same step twice is saving it once.
    ///
    /// # Errors
    /// The save before has failed, or the state cannot be copied.
    pub fn save<E: Engine>(
        &mut self,
        engine: &mut E,
        step: u64,
    ) -> Result<Option<RankSaved>, Failure> {
        if self.last == Some(step) {
            return Ok(None);
        }
        let began = Instant::now();
        let before = self.finish()?;
        let mut staged = self.staged.take();
        engine.state(&mut |parts| {
            staged = Some(copy(staged.take(), parts, self.threads)?);
            Ok(())
        })?;
        let Some(staged) = staged else {
            return Err(internal("the engine gave no state"));
        };
        self.last = Some(step);
        let blocked_seconds = began.elapsed().as_secs_f64();
        let folder = staging_path(&self.spec.folder, step, &self.spec.writer);
        let (name, threads) = (shard_name(self.rank), self.threads);
        let write = move || {
            let Staged { plan, mut staging } = staged;
            let written = write(&folder, &name, &plan, &mut staging, threads);
            (Staged { plan, staging }, written)
        };
        let thread = thread::Builder::new().name("titan-save".to_owned()).spawn(write);
        let thread = thread.map_err(|error| internal(&format!("cannot start to save: {error}")))?;
        self.writing = Some(Writing { step, blocked_seconds, thread });
        Ok(before)
    }

    /// What became of the save under way, if it has ended.
    ///
    /// # Errors
    /// It has failed.
    pub fn poll(&mut self) -> Result<Option<RankSaved>, Failure> {
        match &self.writing {
            Some(writing) if writing.thread.is_finished() => self.finish(),
            _ => Ok(None),
        }
    }

    /// Waits for the save under way, if there is one.
    ///
    /// # Errors
    /// It has failed.
    pub fn finish(&mut self) -> Result<Option<RankSaved>, Failure> {
        let Some(Writing { step, blocked_seconds, thread }) = self.writing.take() else {
            return Ok(None);
        };
        let (staged, written) =
            thread.join().map_err(|_| internal("the thread that saves panicked"))?;
        self.staged = Some(staged);
        let (file, write_seconds) = written.map_err(|error| failed(step, &error))?;
        Ok(Some(RankSaved { step, file, blocked_seconds, write_seconds }))
    }
}

fn internal(message: &str) -> Failure {
    Failure::new(FailureClass::Internal, message)
}

fn failed(step: u64, error: &Error) -> Failure {
    let class = if error.is_no_space() { FailureClass::NoSpace } else { FailureClass::Storage };
    Failure::new(class, format!("the checkpoint of step {step} cannot be saved: {error}"))
}

/// Copies the parts that this rank saves, into the memory of the save before if there was one.
fn copy(
    staged: Option<Staged>,
    parts: Vec<StatePart<'_>>,
    threads: usize,
) -> Result<Staged, Failure> {
    let own: Vec<StatePart<'_>> = parts.into_iter().filter(|part| part.is_saved_here).collect();
    let mut staged = match staged {
        Some(staged) => staged,
        None => {
            let parts: Vec<Part> = own.iter().map(|part| part.part.clone()).collect();
            let plan = ShardPlan::new(parts).map_err(|error| internal(&error.to_string()))?;
            let staging = Staging::new(plan.bytes(), threads).map_err(|error| {
                let message = format!("no memory for a copy of the state: {error}");
                Failure::new(FailureClass::Storage, message)
            })?;
            Staged { plan, staging }
        }
    };
    let places =
        staged.plan.places(&mut staged.staging).map_err(|error| internal(&error.to_string()))?;
    if places.len() != own.len()
        || places.iter().zip(&own).any(|(place, part)| place.len() != part.memory.len())
    {
        return Err(internal("the state has changed its shape"));
    }
    copy_all(places.into_iter().zip(own.iter().map(|part| &*part.memory)).collect(), threads);
    Ok(staged)
}

/// Copies pieces on some threads, of which each gets as many bytes as the others.
fn copy_all(pieces: Vec<(&mut [u8], &[u8])>, threads: usize) {
    /// Small enough to share evenly, large enough to be worth it.
    const PIECE: usize = 1 << 20;
    let mut small = Vec::new();
    for (to, from) in pieces {
        small.extend(to.chunks_mut(PIECE).zip(from.chunks(PIECE)));
    }
    let share = small.len().div_ceil(threads.max(1)).max(1);
    let copy = |pieces: &mut [(&mut [u8], &[u8])]| {
        pieces.iter_mut().for_each(|(to, from)| to.copy_from_slice(from));
    };
    match small.as_mut_slice() {
        few if few.len() <= share => copy(few),
        many => thread::scope(|scope| {
            many.chunks_mut(share).for_each(|pieces| drop(scope.spawn(|| copy(pieces))));
        }),
    }
}

/// Writes the file; returns how long that took.
fn write(
    folder: &Path,
    name: &str,
    plan: &ShardPlan,
    staging: &mut Staging,
    threads: usize,
) -> Written {
    let began = Instant::now();
    titan_checkpoint::make_staging(folder)?;
    // A rank that has to end at once is killed.
    let facts = write_shard(folder, name, plan, staging, threads, &AtomicBool::new(false))?;
    Ok((facts, began.elapsed().as_secs_f64()))
}
