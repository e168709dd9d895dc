//! Saves and loads a large state as a rank does, and says how long that took: for `tests/bench/checkpoint.py`.
//!
//! `save_and_load FOLDER BYTES THREADS RANK WORLD` makes an engine whose state has that many bytes over all ranks, in 32
//! tensors that are cut among them, and prints one JSON object. With a world of 1 it makes a checkpoint of the file too, and
//! loads it, from the page cache and from the disk.

use std::error::Error;
use std::fs::File;
use std::hint::black_box;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use memmap2::MmapMut;
use rustix::fs::{Advice, OFlags, fadvise};
use serde_json::{Value, json};
use titan_checkpoint::{
    BLOCK, Dtype, Hash, Part, Region, Staged, TensorFacts, Wanted, open, restore,
};
use titan_trainer::engine::{Engine, Evaluation, StatePart, StateWork, StepInput, StepOutput};
use titan_trainer::failure::{Failure, FailureClass};
use titan_trainer::saver::{RankSaved, SaveOutcome, SaveSpec, Saver, Tier};

const TENSORS: u64 = 32;
const WIDTH: u64 = 4096;
const WRITER: &str = "bench";

/// An engine that only has a state.
struct Large {
    parts: Vec<(Part, Vec<u8>)>,
}

impl Large {
    fn new(bytes: u64, rank: u64, world: u64) -> Self {
        let rows = bytes / TENSORS / 4 / WIDTH;
        let tensor = TensorFacts { dtype: Dtype::F32, shape: vec![rows, WIDTH] };
        let share = rows / world;
        let region = Region { rows: [rank * share, (rank + 1) * share], columns: [0, WIDTH] };
        let part = |number: u64| {
            let part = Part { name: format!("tensor.{number}"), tensor: tensor.clone(), region };
            let mut state = number | 1;
            let mut next = || {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state.to_le_bytes()
            };
            let content = (0..part.bytes() / 8).flat_map(|_| next()).collect();
            (part, content)
        };
        Self { parts: (0..TENSORS).map(part).collect() }
    }

    fn bytes(&self) -> u64 {
        self.parts.iter().map(|(part, _)| part.bytes()).sum()
    }
}

impl Engine for Large {
    type Pending = ();

    fn asynchronous(&self) -> bool {
        false
    }

    fn step(&mut self, _input: StepInput) -> Result<(), Failure> {
        Ok(())
    }

    fn read(&mut self, _pending: ()) -> Result<StepOutput, Failure> {
        Err(Failure::new(FailureClass::Internal, "this engine has no steps"))
    }

    fn evaluate(&mut self, _tokens: Vec<i32>, _stop: bool) -> Result<Evaluation, Failure> {
        Err(Failure::new(FailureClass::Internal, "this engine has no model"))
    }

    fn state(&mut self, work: &mut StateWork<'_>) -> Result<(), Failure> {
        let parts = self.parts.iter_mut().map(|(part, memory)| StatePart {
            part: part.clone(),
            is_saved_here: true,
            memory,
        });
        work(parts.collect())
    }

    fn resume(&mut self, _step: u64, work: &mut StateWork<'_>) -> Result<(), Failure> {
        self.state(work)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, bytes, threads, rank, world] = arguments.as_slice() else {
        return Err("save_and_load FOLDER BYTES THREADS RANK WORLD".into());
    };
    let folder = Path::new(folder);
    let (threads, rank, world) = (threads.parse()?, rank.parse()?, world.parse()?);
    let mut engine = Large::new(bytes.parse()?, rank, world);
    std::fs::create_dir_all(folder)?;
    let (persistent, writer) = (folder.into(), WRITER.to_owned());
    let spec = SaveSpec { persistent, local: None, writer, attempt: 1, timeout_seconds: 600 };
    let mut saver = Saver::new(spec, rank, threads, None);
    saver.prepare(&mut engine)?;
    // What a run does until its first save.
    thread::sleep(Duration::from_secs(10));
    let mut saves = Vec::new();
    let mut last = None;
    for step in 1..=3 {
        let began = Instant::now();
        saver.save(&mut engine, step, &[Tier::Persistent])?;
        let Some(SaveOutcome::Saved(saved)) = saver.finish()?.pop() else {
            return Err("no save".into());
        };
        saves.push(json!({
            "blocked_seconds": saved.blocked_seconds,
            "seconds": began.elapsed().as_secs_f64(),
        }));
        if world == 1 {
            let began = Instant::now();
            let staged = Staged::adopt(&folder.into(), step, WRITER)?;
            let path = staged.commit(json!({}), vec![saved.file.clone()])?;
            let path = path.folder().ok_or("no folder")?.to_owned();
            saves[step as usize - 1]["commit_seconds"] = began.elapsed().as_secs_f64().into();
            last = Some((path, saved));
        }
    }
    let mut result = json!({
        "bytes": engine.bytes(),
        "saves": saves,
        "copy_seconds": copy(&engine, threads)?,
        "hash_seconds": hash(&engine, threads),
        "direct_write_seconds": direct_write(folder, engine.bytes(), rank)?,
    });
    if let Some((path, saved)) = last {
        result["warm_load_seconds"] = load(&mut engine, &path, &saved, threads, false)?;
        result["cold_load_seconds"] = load(&mut engine, &path, &saved, threads, true)?;
    }
    write_line(&result)
}

#[allow(clippy::print_stdout, reason = "this is what the program is for")]
fn write_line(result: &Value) -> Result<(), Box<dyn Error>> {
    println!("{result}");
    Ok(())
}

/// The best time of a copy of the whole state to memory that is there: what a save cannot do without.
fn copy(engine: &Large, threads: usize) -> Result<f64, Box<dyn Error>> {
    let mut copies: Vec<Vec<u8>> =
        engine.parts.iter().map(|(_, content)| vec![1; content.len()]).collect();
    let mut best = f64::INFINITY;
    for _ in 0..3 {
        let began = Instant::now();
        let mut pairs: Vec<(&mut Vec<u8>, &Vec<u8>)> =
            copies.iter_mut().zip(engine.parts.iter().map(|(_, content)| content)).collect();
        let share = pairs.len().div_ceil(threads);
        thread::scope(|scope| {
            for pairs in pairs.chunks_mut(share) {
                scope.spawn(|| pairs.iter_mut().for_each(|(to, from)| to.copy_from_slice(from)));
            }
        });
        best = best.min(began.elapsed().as_secs_f64());
    }
    Ok(best)
}

/// The best time to compute the hashes of the whole state: what a save does beside writing, and a load beside reading.
fn hash(engine: &Large, threads: usize) -> f64 {
    let blocks: Vec<&[u8]> =
        engine.parts.iter().flat_map(|(_, content)| content.chunks(BLOCK as usize)).collect();
    let share = blocks.len().div_ceil(threads);
    let once = || {
        let began = Instant::now();
        thread::scope(|scope| {
            for blocks in blocks.chunks(share) {
                scope.spawn(move || {
                    for block in blocks {
                        black_box(Hash::of(block));
                    }
                });
            }
        });
        began.elapsed().as_secs_f64()
    };
    (0..3).map(|_| once()).fold(f64::INFINITY, f64::min)
}

/// The best time to write so many bytes past the page cache and to have them on the disk: what a save is bound by.
fn direct_write(folder: &Path, bytes: u64, rank: u64) -> Result<f64, Box<dyn Error>> {
    const SPAN: u64 = 16 << 20;
    // Anonymous memory begins at a page; its content does not matter, but it must be there.
    let mut memory = MmapMut::map_anon(SPAN as usize)?;
    memory.fill(1);
    let path = folder.join(format!("direct-{rank}"));
    let mut best = f64::INFINITY;
    for _ in 0..3 {
        let _ = std::fs::remove_file(&path);
        let mut options = File::options();
        options.write(true).create_new(true).custom_flags(OFlags::DIRECT.bits() as i32);
        let file = options.open(&path)?;
        let began = Instant::now();
        for offset in (0..bytes).step_by(SPAN as usize) {
            let length = SPAN.min((bytes - offset).next_multiple_of(4096));
            file.write_all_at(&memory[..length as usize], offset)?;
        }
        file.sync_data()?;
        best = best.min(began.elapsed().as_secs_f64());
    }
    std::fs::remove_file(path)?;
    Ok(best)
}

fn load(
    engine: &mut Large,
    path: &Path,
    saved: &RankSaved,
    threads: usize,
    is_cold: bool,
) -> Result<Value, Box<dyn Error>> {
    let file = path.join(&saved.file.name);
    let mut times = Vec::new();
    for _ in 0..4 {
        if is_cold {
            fadvise(File::open(&file)?.as_fd(), 0, None, Advice::DontNeed)?;
        }
        let began = Instant::now();
        let checkpoint = open(path)?;
        let threads = checkpoint.place().reading_threads(threads);
        let wanted = engine.parts.iter_mut().map(|(part, memory)| Wanted {
            name: part.name.clone(),
            tensor: part.tensor.clone(),
            region: part.region,
            into: memory,
        });
        restore(&[checkpoint], wanted.collect(), threads, &AtomicBool::new(false))?;
        times.push(began.elapsed().as_secs_f64());
    }
    // The first one brings the file into the page cache.
    let counted = if is_cold { &times[..] } else { &times[1..] };
    Ok(counted.iter().copied().fold(f64::INFINITY, f64::min).into())
}
