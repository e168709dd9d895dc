//! Reading a checkpoint back, onto whatever mesh.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use crate::header::Entry;
use crate::{Error, Hash, Header, Manifest, Region, Result, TensorFacts};

/// A checkpoint whose manifest and headers are sound.
#[derive(Debug)]
pub struct Checkpoint {
    folder: PathBuf,
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
    pub(crate) fn new(folder: &Path, manifest: Manifest, headers: Vec<Header>) -> Self {
        Self { folder: folder.to_owned(), manifest, headers }
    }

    /// Where it is.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// What it consists of.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Each file with its header.
    pub(crate) fn files(&self) -> impl Iterator<Item = (PathBuf, &Header)> {
        let paths = self.manifest.files.iter().map(|file| self.folder.join(&file.name));
        paths.zip(&self.headers)
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
        Error::Lacks { path: self.folder.clone(), what }
    }
}

/// Reads parts of tensors, on some threads, each block once; every block that is used is compared with its hash.
/// Returns the number of bytes that were read.
///
/// # Errors
/// A tensor is missing or another, a block is not what was written, or a file cannot be read: then nothing may be done
/// with what was read. [`Error::Stopped`] once `stop` is set.
pub fn restore(
    checkpoint: &Checkpoint,
    wanted: Vec<Wanted<'_>>,
    threads: usize,
    stop: &AtomicBool,
) -> Result<u64> {
    let files = checkpoint.files().map(|(path, _)| {
        let file = File::open(&path).map_err(|error| Error::file(&path, "open", error))?;
        Ok((path, file))
    });
    let source = Source { files: files.collect::<Result<_>>()?, read: AtomicU64::new(0) };
    let mut by_name: BTreeMap<&str, Vec<(usize, &Entry)>> = BTreeMap::new();
    for (file, header) in checkpoint.headers.iter().enumerate() {
        for entry in &header.entries {
            by_name.entry(&entry.part.name).or_default().push((file, entry));
        }
    }
    let mut tasks = Vec::new();
    for wanted in wanted {
        checkpoint.check_tensor(&wanted.name, &wanted.tensor)?;
        let parts = by_name.get(wanted.name.as_str()).map_or(&[][..], Vec::as_slice);
        add_tasks(&mut tasks, wanted, parts)?;
    }
    run(tasks, &source, threads, stop)?;
    Ok(source.read.into_inner())
}

/// Something that one thread does by itself.
enum Task<'a, 'b> {
    /// A stretch of a block goes to memory in one piece.
    Stretch { file: usize, entry: &'a Entry, block: u64, from: usize, into: &'b mut [u8] },
    /// Rows of a part are cut, and go to rows of another width.
    Rows { sources: Vec<(usize, &'a Entry)>, region: Region, into: &'b mut [u8] },
}

fn add_tasks<'a, 'b>(
    tasks: &mut Vec<Task<'a, 'b>>,
    wanted: Wanted<'b>,
    parts: &[(usize, &'a Entry)],
) -> Result<()> {
    let Wanted { name, tensor, region, into } = wanted;
    let element = tensor.dtype.bytes();
    if into.len() as u64 != region.elements() * element {
        let what = format!("the memory for a part of {name} has another size than the part");
        return Err(Error::Misuse { what });
    }
    let mut sources: Vec<(usize, &Entry)> = parts
        .iter()
        .filter(|(_, entry)| entry.part.region.meet(&region).is_some())
        .copied()
        .collect();
    sources.sort_by_key(|(_, entry)| entry.part.region.rows);
    if sources.iter().any(|(_, entry)| entry.part.region.columns != region.columns) {
        tasks.push(Task::Rows { sources, region, into });
        return Ok(());
    }
    let mut rest = into;
    for (file, entry) in sources {
        let Some(both) = entry.part.region.meet(&region) else { continue };
        let row = both.width() * element;
        let [mut from, to] = both.rows.map(|at| (at - entry.part.region.rows[0]) * row);
        while from < to {
            let block = from / entry.block_bytes;
            let [start, end] = entry.block(block);
            let length = (end.min(to) - from) as usize;
            let Some(into) = rest.split_off_mut(..length) else {
                return Err(Error::Misuse { what: format!("parts of {name} overlap") });
            };
            tasks.push(Task::Stretch { file, entry, block, from: (from - start) as usize, into });
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
    files: Vec<(PathBuf, File)>,
    read: AtomicU64,
}

impl Source {
    fn carry_out(&self, task: Task<'_, '_>, scratch: &mut Vec<u8>) -> Result<()> {
        match task {
            Task::Stretch { file, entry, block, from, into } => {
                let [start, end] = entry.block(block);
                if into.len() as u64 == end - start {
                    return self.read_block(file, entry, block, into);
                }
                scratch.resize((end - start) as usize, 0);
                self.read_block(file, entry, block, scratch)?;
                into.copy_from_slice(&scratch[from..from + into.len()]);
                Ok(())
            }
            Task::Rows { sources, region, into } => {
                for (file, entry) in sources {
                    self.read_rows(file, entry, &region, into, scratch)?;
                }
                Ok(())
            }
        }
    }

    /// Reads what a part and `region` have in common into the memory of `region`.
    fn read_rows(
        &self,
        file: usize,
        entry: &Entry,
        region: &Region,
        into: &mut [u8],
        scratch: &mut Vec<u8>,
    ) -> Result<()> {
        for block in 0..entry.blocks() {
            let copies = copies(entry, block, region);
            if copies.is_empty() {
                continue;
            }
            let [start, end] = entry.block(block);
            scratch.resize((end - start) as usize, 0);
            self.read_block(file, entry, block, scratch)?;
            for Copy { from, to, length } in copies {
                into[to..to + length].copy_from_slice(&scratch[from..from + length]);
            }
        }
        Ok(())
    }

    /// Reads a whole block and compares it with its hash.
    fn read_block(&self, file: usize, entry: &Entry, block: u64, into: &mut [u8]) -> Result<()> {
        let (path, file) = &self.files[file];
        let offset = entry.offset + entry.block(block)[0];
        file.read_exact_at(into, offset).map_err(|error| Error::file(path, "read", error))?;
        self.read.fetch_add(into.len() as u64, Ordering::Relaxed);
        if Hash::of(into) == entry.hashes[block as usize] {
            return Ok(());
        }
        let what = format!(
            "the {} bytes from offset {offset} on, of {}, are not what was written there",
            into.len(),
            entry.part.name
        );
        Err(Error::corrupt(path, what))
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
