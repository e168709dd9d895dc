//! Checking every byte of a checkpoint.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use serde::Serialize;

use crate::header::Entry;
use crate::place::Blob;
use crate::{Checkpoint, Error, MANIFEST, PINNED, Place, Result};

/// A part of a checkpoint that is not what was written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct BadPart {
    /// The file.
    pub path: PathBuf,
    /// Where the part begins, in bytes; absent if the file as a whole is wrong.
    pub offset: Option<u64>,
    /// What is wrong.
    pub what: String,
}

/// What checking found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Findings {
    /// Files that were checked.
    pub files: u64,
    /// Bytes that were read.
    pub bytes: u64,
    /// All that is wrong.
    pub bad: Vec<BadPart>,
    /// What else is in the folder.
    pub extra: Vec<PathBuf>,
}

/// Reads all of a checkpoint on some threads, and compares it with its hashes; `progress` is told the bytes so far.
///
/// # Errors
/// [`Error::Stopped`] once `stop` is set, and [`Error::Store`] if a store does not answer: that says nothing about what it
/// has. Everything else is a finding.
pub fn verify(
    place: &Place,
    threads: usize,
    stop: &AtomicBool,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Findings> {
    let mut findings = Findings::default();
    let checkpoint = match crate::open(place) {
        Ok(checkpoint) => checkpoint,
        Err(error @ Error::Store(_)) => return Err(error),
        Err(error) => {
            // Its text names the file.
            let what = error.to_string();
            findings.bad.push(BadPart { path: place.path(), offset: None, what });
            return Ok(findings);
        }
    };
    let check = Check {
        stop,
        progress,
        bytes: AtomicU64::new(0),
        bad: Mutex::default(),
        unanswered: Mutex::default(),
    };
    for (name, header) in checkpoint.files() {
        findings.files += 1;
        match place.open(name) {
            Ok(blob) => check.file(&blob, &header.entries, threads),
            Err(error) => check.note(&place.join(name).path(), None, error),
        }
        let unanswered = check.unanswered.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(error) = unanswered {
            return Err(error);
        }
        if stop.load(Ordering::Relaxed) {
            return Err(Error::Stopped);
        }
    }
    let heads: u64 = checkpoint.manifest().files.iter().map(|file| file.header_bytes).sum();
    findings.files += 1;
    findings.bytes = check.bytes.into_inner() + heads;
    findings.bad = check.bad.into_inner().unwrap_or_else(PoisonError::into_inner);
    findings.bad.sort();
    findings.extra = extra(&checkpoint);
    Ok(findings)
}

struct Check<'a> {
    stop: &'a AtomicBool,
    progress: &'a (dyn Fn(u64) + Sync),
    bytes: AtomicU64,
    bad: Mutex<Vec<BadPart>>,
    /// That a store does not answer.
    unanswered: Mutex<Option<Error>>,
}

impl Check<'_> {
    fn add(&self, path: &Path, offset: Option<u64>, what: String) {
        let mut bad = self.bad.lock().unwrap_or_else(PoisonError::into_inner);
        bad.push(BadPart { path: path.to_owned(), offset, what });
    }

    /// Takes note of what could not be read.
    fn note(&self, path: &Path, offset: Option<u64>, error: Error) {
        match error {
            Error::Store(_) => {
                let mut unanswered = self.unanswered.lock().unwrap_or_else(PoisonError::into_inner);
                *unanswered = Some(error);
            }
            error => self.add(path, offset, error.to_string()),
        }
    }

    /// Whether nothing more is to be read.
    fn is_over(&self) -> bool {
        let unanswered =
            || self.unanswered.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        self.stop.load(Ordering::Relaxed) || unanswered()
    }

    fn file(&self, blob: &Blob, entries: &[Entry], threads: usize) {
        let blocks =
            entries.iter().flat_map(|entry| (0..entry.blocks()).map(move |block| (entry, block)));
        let todo = Mutex::new(blocks);
        let work = || {
            let mut content = Vec::new();
            loop {
                let next = todo.lock().unwrap_or_else(PoisonError::into_inner).next();
                let Some((entry, block)) = next else { return };
                if self.is_over() {
                    return;
                }
                self.block(blob, entry, block, &mut content);
            }
        };
        thread::scope(|scope| {
            for _ in 0..threads.max(1) {
                scope.spawn(work);
            }
        });
    }

    fn block(&self, blob: &Blob, entry: &Entry, block: u64, content: &mut Vec<u8>) {
        let [start, end] = entry.block(block);
        let offset = entry.offset + start;
        content.resize((end - start) as usize, 0);
        let path = &blob.path;
        match blob.read_and_hash(content, offset) {
            Err(error) => self.note(path, Some(offset), error),
            Ok(hash) if hash != entry.hashes[block as usize] => {
                let what = format!(
                    "the {} bytes from here on, of {}, are not what was written",
                    end - start,
                    entry.part.name
                );
                self.add(path, Some(offset), what);
            }
            Ok(_) => {}
        }
        let before = self.bytes.fetch_add(end - start, Ordering::Relaxed);
        (self.progress)(before + end - start);
    }
}

/// Files of the folder that are not of the checkpoint.
fn extra(checkpoint: &Checkpoint) -> Vec<PathBuf> {
    let own = checkpoint.manifest().files.iter().map(|file| file.name.as_str());
    let own: BTreeSet<&str> = own.chain([MANIFEST, PINNED]).collect();
    let place = checkpoint.place();
    let names = place.names().unwrap_or_default();
    let others = names.iter().filter(|name| !own.contains(name.as_str()));
    others.map(|name| place.join(name).path()).collect()
}
