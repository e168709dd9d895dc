//! A file of a shard, every block of which is checked when it is first touched.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::BLOCK;
use crate::files::{io_error, open_regular};
use crate::{Error, Fingerprint, Result};

/// A file of known size, and where the hashes of its blocks are.
///
/// Reads are positioned reads, not a memory map: pages of a map count as memory of the process, and a file that
/// shrinks under a map kills it (SIGBUS) where a read fails with a message.
#[derive(Debug)]
pub(crate) struct HashedFile {
    path: PathBuf,
    bytes: u64,
    /// The file of hashes and the position of the first.
    hashes: (PathBuf, u64),
    /// Opened when first needed: a data set may have thousands of files.
    open: OnceLock<(File, File)>,
    /// One bit for each block that was found good.
    good: Vec<AtomicU64>,
}

impl HashedFile {
    /// A file of `bytes` bytes whose hashes are at `at` in `hashes`. Its size is looked at, its content is not.
    pub(crate) fn new(path: PathBuf, bytes: u64, hashes: PathBuf, at: u64) -> Result<Self> {
        let metadata = std::fs::metadata(&path).map_err(|error| io_error(&path, "find", error))?;
        let file = Self {
            path,
            bytes,
            hashes: (hashes, at),
            open: OnceLock::new(),
            good: Vec::from_iter(
                (0..bytes.div_ceil(BLOCK).div_ceil(64)).map(|_| AtomicU64::new(0)),
            ),
        };
        file.require_size(metadata.len())?;
        Ok(file)
    }

    /// Its blocks.
    pub(super) fn blocks(&self) -> u64 {
        self.bytes.div_ceil(BLOCK)
    }

    fn require_size(&self, found: u64) -> Result<()> {
        if found == self.bytes {
            return Ok(());
        }
        Err(Error::Changed { path: self.path.clone(), expected: self.bytes, found })
    }

    fn files(&self) -> Result<&(File, File)> {
        if let Some(files) = self.open.get() {
            return Ok(files);
        }
        let (file, bytes) = open_regular(&self.path)?;
        self.require_size(bytes)?;
        let hashes =
            File::open(&self.hashes.0).map_err(|error| io_error(&self.hashes.0, "open", error))?;
        Ok(self.open.get_or_init(|| (file, hashes)))
    }

    /// Fills `out` with the bytes from `start` on, which must be in the file.
    pub(crate) fn read(&self, start: u64, out: &mut [u8]) -> Result<()> {
        let end = start.checked_add(out.len() as u64).filter(|end| *end <= self.bytes);
        let Some(end) = end else {
            return Err(Error::Misuse {
                what: "a position in a shard",
                value: start.saturating_add(out.len() as u64),
                expected: format!("at most {}", self.bytes),
            });
        };
        if out.is_empty() {
            return Ok(());
        }
        let (file, _) = self.files()?;
        let blocks = start / BLOCK..end.div_ceil(BLOCK);
        if blocks.clone().all(|block| self.is_good(block)) {
            return file.read_exact_at(out, start).map_err(|error| self.failed(error));
        }
        let mut buffer = vec![0; BLOCK as usize];
        for block in blocks {
            let (first, last) = (block * BLOCK, ((block + 1) * BLOCK).min(self.bytes));
            let content = &mut buffer[..(last - first) as usize];
            file.read_exact_at(content, first).map_err(|error| self.failed(error))?;
            self.check(block, content)?;
            let (from, to) = (start.max(first), end.min(last));
            out[(from - start) as usize..(to - start) as usize]
                .copy_from_slice(&content[(from - first) as usize..(to - first) as usize]);
        }
        Ok(())
    }

    fn is_good(&self, block: u64) -> bool {
        let word = self.good[(block / 64) as usize].load(Ordering::Relaxed);
        word >> (block % 64) & 1 == 1
    }

    fn check(&self, block: u64, content: &[u8]) -> Result<()> {
        let mut hash = [0; 8];
        let at = self.hashes.1 + 8 * block;
        self.files()?
            .1
            .read_exact_at(&mut hash, at)
            .map_err(|error| io_error(&self.hashes.0, "read", error))?;
        if u64::from_le_bytes(hash) != xxh3_64(content) {
            return Err(Error::Corrupt {
                path: self.path.clone(),
                offset: block * BLOCK,
                bytes: content.len() as u64,
            });
        }
        self.good[(block / 64) as usize].fetch_or(1 << (block % 64), Ordering::Relaxed);
        Ok(())
    }

    fn failed(&self, error: io::Error) -> Error {
        if error.kind() == io::ErrorKind::UnexpectedEof
            && let Ok(metadata) = std::fs::metadata(&self.path)
            && let Err(changed) = self.require_size(metadata.len())
        {
            return changed;
        }
        io_error(&self.path, "read", error)
    }
}

/// The XXH3-128 hash of a file's content.
pub(super) fn fingerprint_of_file(path: &Path) -> io::Result<Fingerprint> {
    let mut file = File::open(path)?;
    let mut hasher = Xxh3::new();
    let mut buffer = vec![0; BLOCK as usize];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(Fingerprint::from_hash(hasher.digest128())),
            Ok(count) => hasher.update(&buffer[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
