//! Checking every byte of a folder of shards.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;
use xxhash_rust::xxh3::xxh3_64;

use super::index::shard_path;
use super::{BLOCK, DOCUMENTS, DataKind, Shard, ShardIndex, Split, TOKENS};
use crate::tokenize::{JOB, read_json};
use crate::{Error, Fingerprint, JobFacts, Result};

/// A part of a file that is not what was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BadBlock {
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
    /// Files that were read.
    pub files: u64,
    /// Bytes that were read.
    pub bytes: u64,
    /// All that is wrong.
    pub bad: Vec<BadBlock>,
}

/// Reads all files of `folder` and compares them with their hashes; `progress` is told the bytes of each read.
///
/// # Errors
/// The index cannot be read, or [`Error::Stopped`] once `stop` is set. Everything else is a finding.
pub fn verify_shards(
    folder: &Path,
    stop: &AtomicBool,
    mut progress: impl FnMut(u64),
) -> Result<(ShardIndex, Findings)> {
    let index = ShardIndex::read(folder)?;
    let mut found = verify_files(folder, &index, stop, &mut progress)?;
    if let Err(Error::BadIndex { path, why }) = read_json::<JobFacts>(&folder.join(JOB)) {
        let what = format!("says no more what the shards were made from: {why}");
        found.bad.push(BadBlock { path, offset: None, what });
    }
    Ok((index, found))
}

/// As [`verify_shards`], with an index that may be elsewhere.
pub(crate) fn verify_files(
    folder: &Path,
    index: &ShardIndex,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(u64),
) -> Result<Findings> {
    let mut check = Check { folder, index, found: Findings::default(), stop, progress };
    for (name, split) in &index.splits {
        for shard in &split.shards {
            check.shard(shard, split);
            if check.is_stopped() {
                return Err(Error::Stopped);
            }
        }
        if Split::fingerprint_of(&split.shards) != split.fingerprint {
            let what = format!(
                "the fingerprints of the shards of `{name}` are not those that were written"
            );
            check.bad(folder.join(super::INDEX), None, what);
        }
    }
    Ok(check.found)
}

struct Check<'a> {
    folder: &'a Path,
    index: &'a ShardIndex,
    found: Findings,
    stop: &'a AtomicBool,
    progress: &'a mut dyn FnMut(u64),
}

impl Check<'_> {
    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn bad(&mut self, path: PathBuf, offset: Option<u64>, what: impl Into<String>) {
        self.found.bad.push(BadBlock { path, offset, what: what.into() });
    }

    fn shard(&mut self, shard: &Shard, split: &Split) {
        let path = |ending| shard_path(self.folder, &shard.name, ending);
        let Some(hashes) = self.documents(shard, &path(DOCUMENTS)) else { return };
        let mut hashes = hashes.as_slice();
        for (ending, bytes) in self.index.columns(shard) {
            let (of_column, others) = hashes.split_at(bytes.div_ceil(BLOCK) as usize);
            let largest = if ending == TOKENS { split.largest_id } else { None };
            self.column(&path(ending), bytes, of_column, largest);
            hashes = others;
        }
    }

    /// Checks a `.index` file and returns the hashes in it.
    fn documents(&mut self, shard: &Shard, path: &Path) -> Option<Vec<u64>> {
        let words = if self.index.kind == DataKind::Prompts { 2 } else { 1 };
        let bytes = self.index.documents_bytes(shard);
        let content = match std::fs::read(path) {
            Ok(content) => content,
            Err(error) => {
                self.bad(path.to_owned(), None, format!("cannot be read: {error}"));
                return None;
            }
        };
        self.read(content.len() as u64);
        self.found.files += 1;
        if content.len() as u64 != bytes {
            let what = format!("has {} bytes, not {bytes}", content.len());
            self.bad(path.to_owned(), None, what);
            return None;
        }
        if Fingerprint::of(&content).to_string() != shard.fingerprint {
            // Its hashes are worth nothing, so no other file can be accused by them.
            self.bad(
                path.to_owned(),
                None,
                "is not what was written; what it describes was not checked",
            );
            return None;
        }
        let mut numbers = content.chunks_exact(8).map(|bytes| {
            let bytes: [u8; 8] = std::array::from_fn(|i| bytes[i]);
            u64::from_le_bytes(bytes)
        });
        let limits = [shard.tokens, shard.extra_bytes];
        let mut last = [0; 2];
        let mut in_order = true;
        for _ in 0..shard.documents {
            for word in 0..words as usize {
                let start = numbers.next().unwrap_or(u64::MAX);
                in_order &= last[word] <= start && start < limits[word].max(1);
                last[word] = start;
            }
        }
        if !in_order {
            self.bad(path.to_owned(), None, "the positions of its documents are not in order");
        }
        Some(numbers.collect())
    }

    /// Checks a file against the hashes of its blocks, and its tokens against the largest.
    fn column(&mut self, path: &Path, bytes: u64, hashes: &[u64], largest: Option<u32>) {
        let mut file = match File::open(path) {
            Ok(file) => file,
            Err(error) => {
                return self.bad(path.to_owned(), None, format!("cannot be read: {error}"));
            }
        };
        self.found.files += 1;
        match file.metadata() {
            Ok(metadata) if metadata.len() != bytes => {
                let what = format!("has {} bytes, not {bytes}", metadata.len());
                return self.bad(path.to_owned(), None, what);
            }
            _ => {}
        }
        let mut block = vec![0; BLOCK as usize];
        for (number, hash) in hashes.iter().enumerate() {
            if self.is_stopped() {
                return;
            }
            let offset = number as u64 * BLOCK;
            let content = &mut block[..(bytes - offset).min(BLOCK) as usize];
            if let Err(error) = file.read_exact(content) {
                return self.bad(path.to_owned(), Some(offset), format!("cannot be read: {error}"));
            }
            self.read(content.len() as u64);
            if xxh3_64(content) != *hash {
                self.bad(path.to_owned(), Some(offset), "is not what was written");
            } else if largest.is_some_and(|largest| self.largest(content) > largest) {
                self.bad(
                    path.to_owned(),
                    Some(offset),
                    "has a token beyond the largest of the index",
                );
            }
        }
    }

    fn largest(&self, content: &[u8]) -> u32 {
        let tokens = content.chunks_exact(usize::from(self.index.token_bytes));
        let ids =
            tokens.map(|bytes| bytes.iter().rev().fold(0, |id, byte| id << 8 | u32::from(*byte)));
        ids.max().unwrap_or(0)
    }

    fn read(&mut self, bytes: u64) {
        self.found.bytes += bytes;
        (self.progress)(bytes);
    }
}
