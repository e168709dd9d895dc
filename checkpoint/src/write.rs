//! Writing the file of one rank.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use crate::header::PAGE;
use crate::{BLOCK, Error, FileFacts, Hash, Header, Part, Result, Staging};

/// Bytes of one write.
const SPAN: usize = 16 << 20;

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

    /// The places of the parts in the staging memory, in their order.
    ///
    /// # Errors
    /// The memory is too small.
    pub fn places<'a>(&self, staging: &'a mut Staging) -> Result<Vec<&'a mut [u8]>> {
        let mut rest = fitting(self, staging.memory_mut())?;
        let _ = rest.split_off_mut(..self.header.bytes as usize);
        let place = |part: &Part| rest.split_off_mut(..part.bytes() as usize);
        let places: Option<Vec<_>> = self.header.parts().map(place).collect();
        places.ok_or_else(too_small)
    }
}

fn fitting<'a>(plan: &ShardPlan, memory: &'a mut [u8]) -> Result<&'a mut [u8]> {
    if (memory.len() as u64) < plan.bytes() { Err(too_small()) } else { Ok(memory) }
}

fn too_small() -> Error {
    Error::Misuse { what: "the staging memory is smaller than the file".to_owned() }
}

/// Writes the file `name` in `folder` from its image, with hashes, and makes sure that it is on the disk. `threads` of
/// them compute hashes while another writes.
///
/// # Errors
/// The file is there already or cannot be written; or [`Error::Stopped`] once `stop` is set. What was written of it
/// stays.
pub fn write_shard(
    folder: &Path,
    name: &str,
    plan: &ShardPlan,
    staging: &mut Staging,
    threads: usize,
    stop: &AtomicBool,
) -> Result<FileFacts> {
    let path = folder.join(name);
    let bytes = plan.bytes() as usize;
    let image = fitting(plan, staging.memory_mut())?;
    // Whole pages are written, and the file is cut off afterwards.
    image[bytes..bytes.next_multiple_of(PAGE as usize)].fill(0);
    let file = create(&path).map_err(|error| Error::file(&path, "make", error))?;
    let output = Output { path: &path, file: &file, stop };
    let mut header = plan.header.clone();
    let head = header.bytes as usize;
    let image: &[u8] = image;
    let hashes = thread::scope(|scope| {
        let hashing = scope.spawn(|| hash_all(&header, image, threads, stop));
        let written = output.write(image, head, bytes);
        let hashes = hashing.join().unwrap_or_else(|_| Err(failed_thread()));
        written.and(hashes)
    })?;
    for (entry, hashes) in header.entries.iter_mut().zip(hashes) {
        entry.hashes = hashes;
    }
    let text = header.to_bytes();
    let image = staging.memory_mut();
    image[..head].copy_from_slice(&text);
    output.write(image, 0, head)?;
    let finish = || {
        // Only what is behind the last page may be cut off by it.
        file.set_len(bytes as u64)?;
        file.sync_all()
    };
    finish().map_err(|error| Error::file(&path, "write", error))?;
    Ok(FileFacts {
        name: name.to_owned(),
        bytes: bytes as u64,
        header_bytes: header.bytes,
        header: Hash::of(&text),
    })
}

fn failed_thread() -> Error {
    Error::Misuse { what: "a thread that computes hashes failed".to_owned() }
}

/// Makes a file that is written past the page cache where that is possible: a state is larger than what caches are for.
fn create(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.write(true).create_new(true);
    match options.clone().custom_flags(OFlags::DIRECT.bits() as i32).open(path) {
        // Not on every file system; some say so after they have made the file.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
            let _ = std::fs::remove_file(path);
            options.open(path)
        }
        opened => opened,
    }
}

struct Output<'a> {
    path: &'a Path,
    file: &'a File,
    stop: &'a AtomicBool,
}

impl Output<'_> {
    /// Writes the pages of `image` from byte `start` to byte `end`.
    fn write(&self, image: &[u8], start: usize, end: usize) -> Result<()> {
        let end = end.next_multiple_of(PAGE as usize);
        for span in (start..end).step_by(SPAN) {
            if self.stop.load(Ordering::Relaxed) {
                return Err(Error::Stopped);
            }
            let content = &image[span..(span + SPAN).min(end)];
            self.write_all(content, span as u64)
                .map_err(|error| Error::file(self.path, "write", error))?;
        }
        Ok(())
    }

    fn write_all(&self, content: &[u8], offset: u64) -> io::Result<()> {
        match self.file.write_all_at(content, offset) {
            // Some file systems take the flag and refuse the writes.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                let flags = fcntl_getfl(self.file.as_fd())?;
                if !flags.contains(OFlags::DIRECT) {
                    return Err(error);
                }
                fcntl_setfl(self.file.as_fd(), flags - OFlags::DIRECT)?;
                self.file.write_all_at(content, offset)
            }
            result => result,
        }
    }
}

/// The hashes of all blocks of each part.
fn hash_all(
    header: &Header,
    image: &[u8],
    threads: usize,
    stop: &AtomicBool,
) -> Result<Vec<Vec<Hash>>> {
    let mut hashes: Vec<Vec<Hash>> =
        header.entries.iter().map(|entry| entry.hashes.clone()).collect();
    let mut work: Vec<(&[u8], &mut Hash)> = Vec::new();
    for (entry, hashes) in header.entries.iter().zip(&mut hashes) {
        for (number, hash) in hashes.iter_mut().enumerate() {
            let [start, end] =
                entry.block(number as u64).map(|byte| (entry.offset + byte) as usize);
            work.push((&image[start..end], hash));
        }
    }
    let share = work.len().div_ceil(threads.max(1)).max(1);
    thread::scope(|scope| {
        for work in work.chunks_mut(share) {
            scope.spawn(|| {
                for (content, hash) in work {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    **hash = Hash::of(content);
                }
            });
        }
    });
    if stop.load(Ordering::Relaxed) { Err(Error::Stopped) } else { Ok(hashes) }
}
