//! Where the file of a rank goes, piece by piece.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use bytes::Bytes;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use titan_objects::{Store, Upload};

use crate::header::PAGE;
use crate::image::{CHUNK, Chunk};
use crate::{Error, Place, Result};

/// A file or an object that is being written.
pub(crate) enum Sink {
    File(PathBuf, File),
    /// An object of one piece.
    Object(Arc<Store>, String),
    /// An object of several.
    Parts(Upload),
}

impl Sink {
    /// For a file of so many bytes.
    pub(crate) fn new(place: &Place, name: &str, bytes: u64) -> Result<Self> {
        let prefix = match place {
            Place::Folder(folder) => {
                let path = folder.join(name);
                let file = create(&path).map_err(|error| Error::file(&path, "make", error))?;
                return Ok(Self::File(path, file));
            }
            Place::Objects(prefix) => prefix,
        };
        let (store, key) = (prefix.store()?, prefix.key(name));
        if bytes <= CHUNK {
            return Ok(Self::Object(store, key));
        }
        if bytes.div_ceil(CHUNK) > Upload::MOST_PARTS {
            let most = (Upload::MOST_PARTS * CHUNK) >> 30;
            let what = format!(
                "{}: one rank would write {} GiB, and an object here has at most {most}; use more devices",
                place.join(name),
                bytes >> 30
            );
            return Err(Error::Misuse { what });
        }
        Ok(Self::Parts(Upload::begin(&store, &key)?))
    }

    /// Pieces that are best written at a time.
    pub(crate) fn at_a_time(&self) -> usize {
        match self {
            // One keeps a disk busy; while it is between two writes, the other is not.
            Self::File(..) => 2,
            Self::Object(..) => 1,
            // A connection to a store gives 50 to 100 MB/s.
            Self::Parts(_) => 8,
        }
    }

    /// Writes piece `number`, of which the first `bytes` belong to the file.
    pub(crate) fn put(
        &self,
        number: usize,
        chunk: &Arc<Chunk>,
        bytes: usize,
        stop: &AtomicBool,
    ) -> Result<()> {
        match self {
            Self::File(path, file) => {
                let content = &chunk.bytes()[..bytes.next_multiple_of(PAGE as usize)];
                write_all(file, content, number as u64 * CHUNK)
                    .map_err(|error| Error::file(path, "write", error))
            }
            Self::Object(store, key) => Ok(store.put(key, shared(chunk, bytes))?),
            Self::Parts(upload) => Ok(upload.part(number as u64, &shared(chunk, bytes), stop)?),
        }
    }

    /// Makes sure that all of it is where it should be.
    pub(crate) fn finish(self, bytes: u64) -> Result<()> {
        match self {
            Self::File(path, file) => {
                let finish = || {
                    // Only what is behind the last page may be cut off by it.
                    file.set_len(bytes)?;
                    file.sync_all()
                };
                finish().map_err(|error| Error::file(&path, "write", error))
            }
            Self::Object(..) => Ok(()),
            Self::Parts(upload) => Ok(upload.complete()?),
        }
    }

    /// Gives up. What was written is removed: it may be what has filled a disk.
    pub(crate) fn abort(self) {
        match self {
            // What cannot be removed is none of a checkpoint.
            Self::File(path, _) => drop(std::fs::remove_file(path)),
            Self::Object(..) => {}
            Self::Parts(upload) => upload.abort(),
        }
    }
}

/// The bytes of a piece, without a copy of them.
fn shared(chunk: &Arc<Chunk>, bytes: usize) -> Bytes {
    struct Shared(Arc<Chunk>);
    impl AsRef<[u8]> for Shared {
        fn as_ref(&self) -> &[u8] {
            self.0.bytes()
        }
    }
    Bytes::from_owner(Shared(Arc::clone(chunk))).slice(..bytes)
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

fn write_all(file: &File, content: &[u8], offset: u64) -> io::Result<()> {
    match file.write_all_at(content, offset) {
        // Some file systems take the flag and refuse the writes.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
            let flags = fcntl_getfl(file.as_fd())?;
            if !flags.contains(OFlags::DIRECT) {
                return Err(error);
            }
            fcntl_setfl(file.as_fd(), flags - OFlags::DIRECT)?;
            file.write_all_at(content, offset)
        }
        result => result,
    }
}
