//! Opening data files without ever waiting for one.

use std::fs::{self, File, FileType};
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::{Error, Result};

/// Opens a regular file, and says its size.
///
/// What the path leads to is looked at before it is opened: opening a pipe waits for its writer,
/// and opening a device can do anything.
pub(crate) fn open_regular(path: &Path) -> Result<(File, u64)> {
    require_regular(path, fs::metadata(path).map_err(|e| io_error(path, "find", e))?.file_type())?;
    let file = File::open(path).map_err(|e| io_error(path, "open", e))?;
    let metadata = file.metadata().map_err(|e| io_error(path, "read the size of", e))?;
    // Once more, for the file that was really opened.
    require_regular(path, metadata.file_type())?;
    Ok((file, metadata.len()))
}

/// Raises the number of files that this process may have open by `more`, as far as the system lets it: where that is not
/// far enough, opening the files says so.
pub(crate) fn expect_open_files(more: u64) {
    let limits = getrlimit(Resource::Nofile);
    let Some(current) = limits.current else { return };
    let wanted = limits.maximum.map_or(u64::MAX, |most| most).min(current.saturating_add(more));
    if wanted > current {
        let _ =
            setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum: limits.maximum });
    }
}

pub(crate) fn io_error(path: &Path, action: &'static str, error: io::Error) -> Error {
    Error::Io { path: path.to_owned(), action, error }
}

fn require_regular(path: &Path, file_type: FileType) -> Result<()> {
    match irregular(file_type) {
        None => Ok(()),
        Some((kind, hint)) => Err(Error::NotRegular { path: path.to_owned(), kind, hint }),
    }
}

/// What a file is instead of a regular one, and what to do about that.
pub(crate) fn irregular(file_type: FileType) -> Option<(&'static str, &'static str)> {
    if file_type.is_file() {
        None
    } else if file_type.is_dir() {
        Some(("folder", "name the files in it"))
    } else if file_type.is_fifo() {
        Some(("pipe", "write its output to a file first"))
    } else if file_type.is_socket() {
        Some(("socket", "name a data file"))
    } else {
        Some(("device", "name a data file"))
    }
}
