//! A folder that is there as a whole, or not at all.

use std::ffi::OsString;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use crate::folder::sync_folder;
use crate::{Error, Result};

/// A folder that is being written, under a hidden name beside the one that it will have.
#[derive(Debug)]
pub struct NewFolder {
    path: PathBuf,
    hidden: PathBuf,
    /// Tells others that it is being written; the lock ends with this process.
    _lock: File,
    is_finished: bool,
}

impl NewFolder {
    /// Begins one; what an earlier process has left of it is removed.
    ///
    /// # Errors
    /// There is something at `path`, another process is writing it, or the disk refuses.
    pub fn begin(path: &Path) -> Result<Self> {
        let path = resolved(path)?;
        let mut name = OsString::from(".");
        name.push(path.file_name().unwrap_or_default());
        name.push(".exporting");
        let hidden = path.with_file_name(name);
        if let Some(parent) = hidden.parent() {
            fs::create_dir_all(parent).map_err(|error| Error::folder(parent, "make", error))?;
        }
        match fs::create_dir(&hidden) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(Error::folder(&hidden, "make", error));
            }
            _ => {}
        }
        let lock = File::open(&hidden).map_err(|error| Error::folder(&hidden, "open", error))?;
        if matches!(lock.try_lock(), Err(TryLockError::WouldBlock)) {
            return Err(Error::Occupied { path, what: "another process is writing this folder" });
        }
        empty(&hidden)?;
        Ok(Self { path, hidden, _lock: lock, is_finished: false })
    }

    /// Where it will be, without links.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where files are written to.
    pub fn hidden(&self) -> &Path {
        &self.hidden
    }

    /// Gives the folder its name, and returns it.
    ///
    /// # Errors
    /// There is something of its name by now, or the disk refuses.
    pub fn finish(mut self) -> Result<PathBuf> {
        sync_folder(&self.hidden)?;
        // Renaming a folder onto one that is not empty fails, so nothing is ever written over.
        fs::rename(&self.hidden, &self.path).map_err(|error| match error.kind() {
            io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::AlreadyExists => {
                Error::Occupied { path: self.path.clone(), what: NOT_EMPTY }
            }
            _ => Error::folder(&self.path, "rename", error),
        })?;
        self.is_finished = true;
        if let Some(parent) = self.path.parent() {
            sync_folder(parent)?;
        }
        Ok(self.path.clone())
    }
}

impl Drop for NewFolder {
    fn drop(&mut self) {
        if !self.is_finished {
            // What stays is hidden, and removed by the next attempt.
            let _ = fs::remove_dir_all(&self.hidden);
        }
    }
}

const NOT_EMPTY: &str = "there is something already, and it is never written over";

/// The path without links, at which there is nothing or an empty folder.
fn resolved(path: &Path) -> Result<PathBuf> {
    let refused = |error| Error::folder(path, "use", error);
    let path = match fs::canonicalize(path) {
        Ok(path) => path,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return std::path::absolute(path).map_err(refused);
        }
        Err(error) => return Err(refused(error)),
    };
    let is_empty = path.is_dir() && fs::read_dir(&path).map_err(refused)?.next().is_none();
    if is_empty { Ok(path) } else { Err(Error::Occupied { path, what: NOT_EMPTY }) }
}

fn empty(folder: &Path) -> Result<()> {
    let entries = fs::read_dir(folder).map_err(|error| Error::folder(folder, "read", error))?;
    for path in entries.flatten().map(|entry| entry.path()) {
        let removed =
            if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        removed.map_err(|error| Error::file(&path, "remove", error))?;
    }
    Ok(())
}
