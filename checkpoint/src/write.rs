//! Writing the file of one rank: pieces of it are written while others are still being copied.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::setpriority_process;

use crate::image::{CHUNK, Chunk, Image, Ready, take_back};
use crate::sink::Sink;
use crate::{BLOCK, Error, FileFacts, Hash, Header, Part, Place, Result};

/// The file of a rank, as it will be.
#[derive(Clone, Debug)]
pub struct ShardPlan {
    header: Header,
}

impl ShardPlan {
    /// A file with these parts of tensors, of which no two have the same name.
    ///
    /// # Errors
    /// A part is not one of its tensor.
    pub fn new(parts: Vec<Part>) -> Result<Self> {
        Self::with_blocks(parts, BLOCK)
    }

    /// As [`new`](Self::new), with a hash for each so many bytes.
    pub(crate) fn with_blocks(parts: Vec<Part>, block_bytes: u64) -> Result<Self> {
        let mut names: Vec<&str> = parts.iter().map(|part| part.name.as_str()).collect();
        names.sort_unstable();
        if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(Error::Misuse { what: format!("two parts of {} in one file", pair[0]) });
        }
        Ok(Self { header: Header::plan(parts, block_bytes)? })
    }

    /// Bytes of the file.
    pub fn bytes(&self) -> u64 {
        self.header.file_bytes()
    }

    /// The parts, in their order.
    pub fn parts(&self) -> impl Iterator<Item = &Part> {
        self.header.parts()
    }

    /// Where each part begins in the file.
    pub(crate) fn offsets(&self) -> Vec<u64> {
        self.header.entries.iter().map(|entry| entry.offset).collect()
    }
}

/// How far those who write and compute hashes stand back.
const NICENESS: i32 = 5;

/// Writes a file of parts that are all in memory already, and waits until it is there.
///
/// # Errors
/// As [`ShardWriter`].
pub fn write_whole(
    target: Target,
    plan: ShardPlan,
    parts: &[&[u8]],
    threads: usize,
    stop: &AtomicBool,
) -> Result<FileFacts> {
    // How often to look whether to stop.
    const TICK: Duration = Duration::from_millis(50);
    if stop.load(Ordering::Relaxed) {
        return Err(Error::Stopped);
    }
    let halt = Arc::new(AtomicBool::new(false));
    let image = Image::new(plan, threads)?;
    let writer = ShardWriter::start(vec![target], image, parts, threads, &halt)?;
    loop {
        match writer.next(TICK) {
            Some((written, _)) => return written,
            None if writer.thread.is_finished() => return Err(failed_thread("writes")),
            None => halt.store(stop.load(Ordering::Relaxed), Ordering::Relaxed),
        }
    }
}

/// Where a file goes: a place and its name there.
pub type Target = (Place, String);

/// What became of the file at one target, and the seconds that it took.
pub type Written = (Result<FileFacts>, f64);

/// The file of a rank that is being written by threads of its own, to one target after the other.
#[derive(Debug)]
pub struct ShardWriter {
    results: Receiver<Written>,
    thread: JoinHandle<Option<Image>>,
}

impl ShardWriter {
    /// Copies `parts`, which are those of the image's plan, and begins to write the file from the copy; returns when all
    /// is copied. `threads` of them copy, and compute hashes afterwards. Once `stop` is set, no more is written.
    ///
    /// # Errors
    /// The parts are others, or no thread can be started. Whether the file can be written is told by [`next`](Self::next).
    pub fn start(
        targets: Vec<Target>,
        image: Image,
        parts: &[&[u8]],
        threads: usize,
        stop: &Arc<AtomicBool>,
    ) -> Result<Self> {
        let (ready, pieces) = channel();
        let (sender, results) = channel();
        let (plan, stop) = (image.plan().clone(), Arc::clone(stop));
        let write = move || {
            // Whoever copies goes first, and then whoever trains: the threads of this one have its priority. Without it a
            // save is only less polite.
            let _ = setpriority_process(None, NICENESS);
            let mut source = Pieces::Coming(pieces);
            for target in &targets {
                let began = Instant::now();
                let written = write(target, &plan, &mut source, threads, &stop);
                // An error says that nobody waits for it.
                let _ = sender.send((written, began.elapsed().as_secs_f64()));
            }
            let chunks = source.take(&plan, None);
            if is_whole(&plan, &chunks) { take_back(plan, chunks).ok() } else { None }
        };
        let thread = thread::Builder::new().name("titan-save".to_owned()).spawn(write);
        let thread = thread.map_err(|error| Error::Memory { bytes: 0, error })?;
        image.fill(parts, threads, &ready)?;
        Ok(Self { results, thread })
    }

    /// What became of the file at the next target, waited for no longer than `limit`. Nothing is left of a file that could
    /// not be finished.
    pub fn next(&self, limit: Duration) -> Option<Written> {
        self.results.recv_timeout(limit).ok()
    }

    /// The image, to be used again, once all targets have been told of.
    pub fn finish(self) -> Option<Image> {
        self.thread.join().unwrap_or_default()
    }
}

fn failed_thread(what: &str) -> Error {
    Error::Misuse { what: format!("a thread that {what} failed") }
}

/// The pieces of an image.
enum Pieces {
    /// As they are copied.
    Coming(Receiver<Ready>),
    /// All of them, in their order.
    Here(Vec<Arc<Chunk>>),
}

impl Pieces {
    /// All of them, in their order; those that are not held back are given to writers as they come.
    fn take(&mut self, plan: &ShardPlan, order: Option<&Sender<Ready>>) -> Vec<Arc<Chunk>> {
        let held = held_back(plan);
        let hand_on = |number: usize, chunk: &Arc<Chunk>| {
            if let Some(order) = order.filter(|_| number >= held) {
                // An error says that the writers have failed, which they tell.
                let _ = order.send((number, Arc::clone(chunk)));
            }
        };
        match std::mem::replace(self, Self::Here(Vec::new())) {
            Self::Here(all) => {
                all.iter().enumerate().for_each(|(number, chunk)| hand_on(number, chunk));
                all
            }
            Self::Coming(coming) => {
                let mut all: Vec<Ready> =
                    coming.iter().inspect(|(number, chunk)| hand_on(*number, chunk)).collect();
                all.sort_by_key(|(number, _)| *number);
                all.into_iter().map(|(_, chunk)| chunk).collect()
            }
        }
    }
}

fn is_whole(plan: &ShardPlan, chunks: &[Arc<Chunk>]) -> bool {
    chunks.len() as u64 == plan.bytes().div_ceil(CHUNK).max(1)
}

/// Writes pieces as they come, then computes the hashes, and writes last the pieces that have these in them.
fn write(
    (place, name): &Target,
    plan: &ShardPlan,
    pieces: &mut Pieces,
    threads: usize,
    stop: &AtomicBool,
) -> Result<FileFacts> {
    let sink = crate::folder::make_staging(place)
        .and_then(|()| Sink::new(place, name, plan.bytes()))
        // They are needed for the next target.
        .inspect_err(|_| *pieces = Pieces::Here(pieces.take(plan, None)))?;
    let (mut chunks, hashes) = pump(&sink, plan, pieces, threads, stop);
    let written = hashes.and_then(|hashes| write_header(&sink, plan, hashes, &mut chunks, stop));
    *pieces = Pieces::Here(chunks);
    match written {
        Ok(text) => {
            sink.finish(plan.bytes())?;
            let (bytes, header_bytes) = (plan.bytes(), text.len() as u64);
            Ok(FileFacts { name: name.to_owned(), bytes, header_bytes, header: Hash::of(&text) })
        }
        Err(error) => {
            sink.abort();
            Err(error)
        }
    }
}

/// Pieces that have something of the header.
fn held_back(plan: &ShardPlan) -> usize {
    plan.header.bytes.div_ceil(CHUNK) as usize
}

/// Bytes of a piece.
fn length(plan: &ShardPlan, number: usize) -> usize {
    (plan.bytes() - number as u64 * CHUNK).min(CHUNK) as usize
}

/// The hashes of all blocks of each part.
type Hashes = Vec<Vec<Hash>>;

/// Writes all pieces but those that are held back, on some threads. Returns all of them, and the hashes.
fn pump(
    sink: &Sink,
    plan: &ShardPlan,
    pieces: &mut Pieces,
    threads: usize,
    stop: &AtomicBool,
) -> (Vec<Arc<Chunk>>, Result<Hashes>) {
    let (order, orders) = channel::<Ready>();
    let orders = Mutex::new(orders);
    let halt = AtomicBool::new(false);
    let put_all = || -> Result<()> {
        loop {
            let next = orders.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok((number, chunk)) = next else { return Ok(()) };
            if halt.load(Ordering::Relaxed) || stop.load(Ordering::Relaxed) {
                return Err(Error::Stopped);
            }
            let put = sink.put(number, &chunk, length(plan, number), stop);
            put.inspect_err(|_| halt.store(true, Ordering::Relaxed))?;
        }
    };
    thread::scope(|scope| {
        let writers: Vec<_> = (0..sink.at_a_time()).map(|_| scope.spawn(put_all)).collect();
        let chunks = pieces.take(plan, Some(&order));
        drop(order);
        let hashes = match is_whole(plan, &chunks) {
            true => hash_all(plan, &chunks, threads, stop),
            false => Err(failed_thread("copies")),
        };
        let failed = || Err(failed_thread("writes"));
        let mut written: Vec<Result<()>> =
            writers.into_iter().map(|writer| writer.join().unwrap_or_else(|_| failed())).collect();
        // Others only stopped because of the one that failed.
        written.sort_by_key(|result| matches!(result, Err(Error::Stopped)));
        let written = written.into_iter().collect::<Result<()>>();
        (chunks, written.and(hashes))
    })
}

fn write_header(
    sink: &Sink,
    plan: &ShardPlan,
    hashes: Hashes,
    chunks: &mut [Arc<Chunk>],
    stop: &AtomicBool,
) -> Result<Vec<u8>> {
    let mut header = plan.header.clone();
    for (entry, hashes) in header.entries.iter_mut().zip(hashes) {
        entry.hashes = hashes;
    }
    let text = header.to_bytes();
    for (number, text) in text.chunks(CHUNK as usize).enumerate() {
        let chunk = Arc::get_mut(&mut chunks[number]).ok_or_else(|| failed_thread("writes"))?;
        chunk.bytes_mut()[..text.len()].copy_from_slice(text);
        sink.put(number, &chunks[number], length(plan, number), stop)?;
    }
    Ok(text)
}

fn hash_all(
    plan: &ShardPlan,
    chunks: &[Arc<Chunk>],
    threads: usize,
    stop: &AtomicBool,
) -> Result<Hashes> {
    let entries = &plan.header.entries;
    let mut hashes: Hashes = entries.iter().map(|entry| entry.hashes.clone()).collect();
    let mut work: Vec<([u64; 2], &mut Hash)> = Vec::new();
    for (entry, hashes) in entries.iter().zip(&mut hashes) {
        for (number, hash) in hashes.iter_mut().enumerate() {
            work.push((entry.block(number as u64).map(|byte| entry.offset + byte), hash));
        }
    }
    let share = work.len().div_ceil(threads.max(1)).max(1);
    thread::scope(|scope| {
        for work in work.chunks_mut(share) {
            scope.spawn(|| {
                for (range, hash) in work {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    **hash = hash_of(chunks, *range);
                }
            });
        }
    });
    if stop.load(Ordering::Relaxed) { Err(Error::Stopped) } else { Ok(hashes) }
}

/// The hash of a range of the file.
fn hash_of(chunks: &[Arc<Chunk>], [start, end]: [u64; 2]) -> Hash {
    let numbers = start / CHUNK..end.div_ceil(CHUNK).max(start / CHUNK + 1);
    let piece = |number: u64| {
        let first = number * CHUNK;
        let [from, to] = [start, end].map(|at| at.clamp(first, first + CHUNK) - first);
        &chunks[number as usize].bytes()[from as usize..to as usize]
    };
    let mut pieces = numbers.map(piece);
    match (pieces.next(), pieces.next()) {
        (Some(only), None) => Hash::of(only),
        (first, second) => Hash::of_all(first.into_iter().chain(second).chain(pieces)),
    }
}
