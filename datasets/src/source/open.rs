//! The stored bytes of an input, wherever they are.

use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;

use crate::files::irregular;

use super::{Error, Input, Origin, ReadError, Result};

/// Bytes that can be read from any place.
pub(super) trait Stored: Send + Sync {
    /// All bytes from an offset on, as one stream. Ending early is an error of the reader.
    fn read_from(&self, offset: u64) -> io::Result<Box<dyn Read + Send>>;

    /// Some bytes from an offset on, none only at the end: for readers that go to and fro.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
}

/// Reads on from a place without keeping a stream open.
pub(super) struct ReaderAt {
    pub(super) stored: Arc<dyn Stored>,
    pub(super) offset: u64,
}

impl Read for ReaderAt {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.stored.read_at(buffer, self.offset)?;
        self.offset += read as u64;
        Ok(read)
    }
}

/// Opens an input, if it is still the file that was found.
pub(super) fn open(input: &Input) -> Result<Arc<dyn Stored>> {
    match &input.origin {
        Origin::Local(path) => open_local(path, input),
        Origin::Remote(object) => Ok(object.open()),
    }
}

fn open_local(path: &Path, input: &Input) -> Result<Arc<dyn Stored>> {
    let name = &input.name;
    // Before it is opened: opening a pipe waits for its writer, and opening a device can do
    // anything.
    require_regular(name, &metadata(path, name)?)?;
    let file = File::open(path).map_err(|e| ReadError::io(name, "open", e))?;
    let metadata = file.metadata().map_err(|e| ReadError::io(name, "read the size of", e))?;
    require_regular(name, &metadata)?;
    if identity(&metadata) != input.identity {
        let detail =
            format!("it had {} bytes, now {}, or was written to", input.bytes, metadata.len());
        return Err(ReadError::changed(name, detail).into());
    }
    Ok(Arc::new(LocalFile { file: Arc::new(file), bytes: input.bytes }))
}

/// What the path leads to, through symbolic links.
pub(super) fn metadata(path: &Path, name: &str) -> Result<Metadata> {
    fs::metadata(path).map_err(|e| ReadError::io(name, "find", e).into())
}

/// A text that changes when the file does.
pub(super) fn identity(metadata: &Metadata) -> String {
    format!(
        "{} bytes, modified {}.{:09}, changed {}.{:09}, inode {}",
        metadata.len(),
        metadata.mtime(),
        metadata.mtime_nsec(),
        metadata.ctime(),
        metadata.ctime_nsec(),
        metadata.ino(),
    )
}

pub(super) fn require_regular(name: &str, metadata: &Metadata) -> Result<()> {
    match irregular(metadata.file_type()) {
        None => Ok(()),
        Some((kind, hint)) => Err(Error::NotRegular { name: name.to_owned(), kind, hint }),
    }
}

/// A file up to the size that it had when it was opened.
#[derive(Clone)]
struct LocalFile {
    file: Arc<File>,
    bytes: u64,
}

impl Stored for LocalFile {
    fn read_from(&self, offset: u64) -> io::Result<Box<dyn Read + Send>> {
        Ok(Box::new(ReaderAt { stored: Arc::new(self.clone()), offset }))
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let left = usize::try_from(self.bytes.saturating_sub(offset)).unwrap_or(usize::MAX);
        let wanted = buffer.len().min(left);
        if wanted == 0 {
            return Ok(0);
        }
        let read = self.file.read_at(&mut buffer[..wanted], offset)?;
        if read == 0 {
            return Err(io::Error::other("it became shorter while it was read"));
        }
        Ok(read)
    }
}
