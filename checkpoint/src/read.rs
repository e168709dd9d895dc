//! Reading a checkpoint back, onto whatever mesh.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use crate::header::Entry;
use crate::place::Blob;
use crate::{Error, Header, Manifest, Place, Region, Result, TensorFacts};

/// A checkpoint whose manifest and headers are sound.
#[derive(Debug)]
pub struct Checkpoint {
    place: Place,
    manifest: Manifest,
    headers: Vec<Header>,
}

/// A part of a tensor that is to be read.
#[derive(Debug)]
pub struct Wanted<'a> {
    /// Name of the tensor.
    pub name: String,
    /// The tensor as the reader has it.
    pub tensor: TensorFacts,
    /// Which part of it.
    pub region: Region,
    /// Where its elements go, row by row.
    pub into: &'a mut [u8],
}

impl Checkpoint {
    pub(crate) fn new(place: Place, manifest: Manifest, headers: Vec<Header>) -> Self {
        Self { place, manifest, headers }
    }

    /// Where it is.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// What it consists of.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Each file with its header.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&str, &Header)> {
        self.manifest.files.iter().map(|file| file.name.as_str()).zip(&self.headers)
    }

    /// Whether the tensors of a checkpoint are those of a reader; says the first that is not.
    ///
    /// # Errors
    /// A tensor is missing, has another shape, or is not known to the reader.
    pub fn check_tensors(&self, tensors: &BTreeMap<String, TensorFacts>) -> Result<()> {
        for (name, facts) in tensors {
            self.check_tensor(name, facts)?;
        }
        match self.manifest.tensors.keys().find(|name| !tensors.contains_key(*name)) {
            None => Ok(()),
            Some(name) => Err(self.lacks(format!("it has a tensor {name}, and this run has none"))),
        }
    }

    fn check_tensor(&self, name: &str, facts: &TensorFacts) -> Result<()> {
        let text = |facts: &TensorFacts| format!("{:?} of {:?}", facts.shape, facts.dtype);
        match self.manifest.tensors.get(name) {
            None => Err(self.lacks(format!("it has no tensor {name}"))),
            Some(there) if there != facts => Err(self.lacks(format!(
                "its tensor {name} is {}, and that of this run {}",
                text(there),
                text(facts)
            ))),
            Some(_) => Ok(()),
        }
    }

    fn lacks(&self, what: String) -> Error {
        Error::Lacks { path: self.place.path(), what }
    }
}

/// Reads parts of tensors, on some threads, each block once; every block that is used is compared with its hash.
/// What cannot be read of the first copy is taken of the next, and so on. Returns the number of bytes that were read.
///
/// # Errors
/// A tensor is missing or another, a block is in no copy what was written, or a file cannot be read: then nothing may be
/// done with what was read. [`Error::Stopped`] once `stop` is set.
pub fn restore(
    copies: &[Checkpoint],
    wanted: Vec<Wanted<'_>>,
    threads: usize,
    stop: &AtomicBool,
) -> Result<u64> {
    let Some((first, others)) = copies.split_first() else {
        return Err(Error::Misuse { what: "there is no checkpoint to read".to_owned() });
    };
    let mut wanted = wanted;
    let (read, mut gaps) = read_from(first, &mut wanted, threads, stop, others.is_empty())?;
    // The first in the order of the files, whichever thread was first.
    gaps.sort_by_key(|gap| (gap.wanted, gap.rows));
    if others.is_empty() && !gaps.is_empty() {
        return Err(gaps.swap_remove(0).error);
    }
    let again = fill(&gaps, wanted);
    if again.is_empty() { Ok(read) } else { Ok(read + restore(others, again, threads, stop)?) }
}

/// Whether copies, none of which has to be whole, have every block of every tensor between them: reads all of them.
///
/// # Errors
/// As [`restore`].
pub fn are_enough(copies: &[Checkpoint], threads: usize, stop: &AtomicBool) -> Result<()> {
    let tensors = copies.first().map(|copy| copy.manifest.tensors.clone()).unwrap_or_default();
    for (name, tensor) in tensors {
        let Some(region) = tensor.whole() else { continue };
        let mut into = vec![0; (region.elements() * tensor.dtype.bytes()) as usize];
        restore(copies, vec![Wanted { name, tensor, region, into: &mut into }], threads, stop)?;
    }
    Ok(())
}

/// Rows of a wanted region that could not be read.
struct Gap {
    /// Which of those that are wanted.
    wanted: usize,
    rows: [u64; 2],
    error: Error,
}

/// What is to be read for some gaps, sorted: each row once.
fn fill<'a>(gaps: &[Gap], wanted: Vec<Wanted<'a>>) -> Vec<Wanted<'a>> {
    let mut again = Vec::new();
    for (number, whole) in wanted.into_iter().enumerate() {
        let Wanted { name, tensor, region, into } = whole;
        let row = (region.width() * tensor.dtype.bytes()) as usize;
        let (mut rest, mut at) = (into, region.rows[0]);
        let own = gaps.iter().filter(|gap| gap.wanted == number).map(|gap| gap.rows);
        for [first, last] in merged(own) {
            let _ = rest.split_off_mut(..(first - at) as usize * row);
            let Some(into) = rest.split_off_mut(..(last - first) as usize * row) else { continue };
            let region = Region { rows: [first, last], columns: region.columns };
            again.push(Wanted { name: name.clone(), tensor: tensor.clone(), region, into });
            at = last;
        }
    }
    again
}

/// Ranges, sorted by where they begin, with those that overlap put together.
fn merged(ranges: impl Iterator<Item = [u64; 2]>) -> Vec<[u64; 2]> {
    let mut all: Vec<[u64; 2]> = Vec::new();
    for [first, last] in ranges {
        match all.last_mut() {
            Some(before) if first <= before[1] => before[1] = before[1].max(last),
            _ => all.push([first, last]),
        }
    }
    all
}

/// Reads of one copy what can be read.
fn read_from(
    checkpoint: &Checkpoint,
    wanted: &mut [Wanted<'_>],
    threads: usize,
    stop: &AtomicBool,
    is_last: bool,
) -> Result<(u64, Vec<Gap>)> {
    let open =
        |(name, _): (&str, &Header)| checkpoint.place.open(name).map_err(|error| error.to_string());
    let source = Source {
        files: checkpoint.files().map(open).collect(),
        read: AtomicU64::new(0),
        gaps: Mutex::default(),
        is_last,
    };
    let mut by_name: BTreeMap<&str, Vec<(usize, &Entry)>> = BTreeMap::new();
    for (file, header) in checkpoint.headers.iter().enumerate() {
        for entry in &header.entries {
            by_name.entry(&entry.part.name).or_default().push((file, entry));
        }
    }
    let mut tasks = Vec::new();
    for (number, wanted) in wanted.iter_mut().enumerate() {
        checkpoint.check_tensor(&wanted.name, &wanted.tensor)?;
        let parts = by_name.get(wanted.name.as_str()).map_or(&[][..], Vec::as_slice);
        add_tasks(&mut tasks, (number, wanted), parts)?;
    }
    match run(tasks, &source, threads, stop) {
        // The first gap of the last copy is told by the caller.
        Err(Error::Stopped) if is_last && !stop.load(Ordering::Relaxed) => {}
        result => result?,
    }
    let gaps = source.gaps.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok((source.read.into_inner(), gaps))
}

/// Something that one thread does by itself.
enum Task<'a, 'b> {
    /// A stretch of a block goes to memory in one piece.
    Stretch { from: usize, block: Block<'a>, into: &'b mut [u8] },
    /// Rows of a part are cut, and go to rows of another width.
    Rows { sources: Vec<(usize, &'a Entry)>, wanted: (usize, Region), into: &'b mut [u8] },
}

/// A block of a part, and what it is read for.
#[derive(Clone, Copy)]
struct Block<'a> {
    file: usize,
    entry: &'a Entry,
    number: u64,
    /// Which of those that are wanted, and its region.
    wanted: (usize, Region),
}

impl Block<'_> {
    fn bytes(&self) -> usize {
        let [start, end] = self.entry.block(self.number);
        (end - start) as usize
    }

    /// The rows of the wanted region that have something of it.
    fn rows(&self) -> [u64; 2] {
        let Region { rows: [first, _], .. } = self.entry.part.region;
        let row = (self.entry.part.region.width() * self.entry.part.tensor.dtype.bytes()).max(1);
        let [start, end] = self.entry.block(self.number);
        let own = [first + start / row, first + end.div_ceil(row)];
        let all = self.wanted.1.rows;
        [own[0].max(all[0]), own[1].min(all[1])]
    }
}

fn add_tasks<'a, 'b>(
    tasks: &mut Vec<Task<'a, 'b>>,
    (number, wanted): (usize, &'b mut Wanted<'_>),
    parts: &[(usize, &'a Entry)],
) -> Result<()> {
    let Wanted { name, tensor, region, into } = wanted;
    let wanted = (number, *region);
    let element = tensor.dtype.bytes();
    if into.len() as u64 != region.elements() * element {
        let what = format!("the memory for a part of {name} has another size than the part");
        return Err(Error::Misuse { what });
    }
    let mut sources: Vec<(usize, &Entry)> = parts
        .iter()
        .filter(|(_, entry)| entry.part.region.meet(region).is_some())
        .copied()
        .collect();
    sources.sort_by_key(|(_, entry)| entry.part.region.rows);
    if sources.iter().any(|(_, entry)| entry.part.region.columns != region.columns) {
        tasks.push(Task::Rows { sources, wanted, into });
        return Ok(());
    }
    let mut rest: &mut [u8] = into;
    for (file, entry) in sources {
        let Some(both) = entry.part.region.meet(&wanted.1) else { continue };
        let row = both.width() * element;
        let [mut from, to] = both.rows.map(|at| (at - entry.part.region.rows[0]) * row);
        while from < to {
            let block = Block { file, entry, number: from / entry.block_bytes, wanted };
            let [start, end] = entry.block(block.number);
            let length = (end.min(to) - from) as usize;
            let Some(into) = rest.split_off_mut(..length) else {
                return Err(Error::Misuse { what: format!("parts of {name} overlap") });
            };
            tasks.push(Task::Stretch { from: (from - start) as usize, block, into });
            from += length as u64;
        }
    }
    if rest.is_empty() {
        Ok(())
    } else {
        Err(Error::Misuse { what: format!("parts of {name} leave a gap") })
    }
}

fn run(tasks: Vec<Task<'_, '_>>, source: &Source, threads: usize, stop: &AtomicBool) -> Result<()> {
    let threads = threads.clamp(1, tasks.len().max(1));
    let todo = Mutex::new(tasks.into_iter());
    // Set when one has failed too.
    let halt = AtomicBool::new(false);
    let work = || -> Result<()> {
        let mut scratch = Vec::new();
        loop {
            let next = todo.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some(task) = next else { return Ok(()) };
            if halt.load(Ordering::Relaxed) || stop.load(Ordering::Relaxed) {
                return Err(Error::Stopped);
            }
            if let Err(error) = source.carry_out(task, &mut scratch) {
                halt.store(true, Ordering::Relaxed);
                return Err(error);
            }
        }
    };
    let mut results: Vec<Result<()>> = thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let own = work();
        let failed = || Err(Error::Misuse { what: "a thread that reads failed".to_owned() });
        let others = others.into_iter().map(|thread| thread.join().unwrap_or_else(|_| failed()));
        others.chain([own]).collect()
    });
    // Others only stopped because of the one that failed.
    results.sort_by_key(|result| matches!(result, Err(Error::Stopped)));
    results.into_iter().collect()
}

struct Source {
    /// Or why they cannot be opened.
    files: Vec<Result<Blob, String>>,
    read: AtomicU64,
    gaps: Mutex<Vec<Gap>>,
    /// Whether there is no other copy, so that the first gap ends it all.
    is_last: bool,
}

impl Source {
    fn carry_out(&self, task: Task<'_, '_>, scratch: &mut Vec<u8>) -> Result<()> {
        match task {
            Task::Stretch { from, block, into } => {
                if into.len() == block.bytes() {
                    return self.read_or_note(block, into).map(drop);
                }
                scratch.resize(block.bytes(), 0);
                if self.read_or_note(block, scratch)? {
                    into.copy_from_slice(&scratch[from..from + into.len()]);
                }
                Ok(())
            }
            Task::Rows { sources, wanted, into } => {
                for (file, entry) in sources {
                    for number in 0..entry.blocks() {
                        self.read_rows(Block { file, entry, number, wanted }, into, scratch)?;
                    }
                }
                Ok(())
            }
        }
    }

    /// Reads what a block and the wanted region have in common into the memory of that.
    fn read_rows(&self, block: Block<'_>, into: &mut [u8], scratch: &mut Vec<u8>) -> Result<()> {
        let copies = copies(block.entry, block.number, &block.wanted.1);
        if copies.is_empty() {
            return Ok(());
        }
        scratch.resize(block.bytes(), 0);
        if self.read_or_note(block, scratch)? {
            for Copy { from, to, length } in copies {
                into[to..to + length].copy_from_slice(&scratch[from..from + length]);
            }
        }
        Ok(())
    }

    /// Reads a block, or notes that it cannot be read.
    fn read_or_note(&self, block: Block<'_>, into: &mut [u8]) -> Result<bool> {
        let Err(error) = self.read_block(block, into) else { return Ok(true) };
        let gap = Gap { wanted: block.wanted.0, rows: block.rows(), error };
        self.gaps.lock().unwrap_or_else(PoisonError::into_inner).push(gap);
        if self.is_last { Err(Error::Stopped) } else { Ok(false) }
    }

    /// Reads a whole block and compares it with its hash.
    fn read_block(&self, block: Block<'_>, into: &mut [u8]) -> Result<()> {
        let Block { file, entry, number, .. } = block;
        let unreadable = |what: &String| Error::Unreadable { what: what.clone() };
        let blob = self.files[file].as_ref().map_err(unreadable)?;
        let offset = entry.offset + entry.block(number)[0];
        let hash = blob.read_and_hash(into, offset)?;
        self.read.fetch_add(into.len() as u64, Ordering::Relaxed);
        if hash == entry.hashes[number as usize] {
            return Ok(());
        }
        let what = format!(
            "the {} bytes from offset {offset} on, of {}, are not what was written there",
            into.len(),
            entry.part.name
        );
        Err(Error::corrupt(&blob.path, what))
    }
}

/// A stretch of a block that goes to a stretch of memory, in bytes.
struct Copy {
    from: usize,
    to: usize,
    length: usize,
}

/// Where the bytes of a block go in the memory of `region`.
fn copies(entry: &Entry, block: u64, region: &Region) -> Vec<Copy> {
    let own = entry.part.region;
    let Some(both) = own.meet(region) else { return Vec::new() };
    let element = entry.part.tensor.dtype.bytes();
    let (own_row, row) = (own.width() * element, region.width() * element);
    let [start, end] = entry.block(block);
    let first = (own.rows[0] + start / own_row).max(both.rows[0]);
    let last = (own.rows[0] + end.div_ceil(own_row)).min(both.rows[1]);
    let mut copies = Vec::new();
    for at in first..last {
        let begin = (at - own.rows[0]) * own_row;
        let [left, right] = both.columns.map(|column| begin + (column - own.columns[0]) * element);
        let (from, until) = (left.max(start), right.min(end));
        if from < until {
            let to = (at - region.rows[0]) * row
                + (both.columns[0] - region.columns[0]) * element
                + (from - left);
            copies.push(Copy {
                from: (from - start) as usize,
                to: to as usize,
                length: (until - from) as usize,
            });
        }
    }
    copies
}
