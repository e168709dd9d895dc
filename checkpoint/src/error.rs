//! What can go wrong with a checkpoint, in words for the person who has to put it right.

use std::io;
use std::path::{Path, PathBuf};

/// The result of this crate's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// One problem with a checkpoint. Each text is complete.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file system refused.
    #[error("{}: cannot {action} this {what} of a checkpoint: {error}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// "file" or "folder".
        what: &'static str,
        /// What the system said.
        error: io::Error,
    },

    /// A file that is not what was written.
    #[error("{}: {what}", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },

    /// A file that could not be opened.
    #[error("{what}")]
    Unreadable {
        /// What is wrong, with its path.
        what: String,
    },

    /// A checkpoint of a format that this version does not know.
    #[error(
        "{}: this checkpoint has version {found} of the format, and this titan-tpu reads version {known}",
        path.display()
    )]
    Version {
        /// The manifest.
        path: PathBuf,
        /// The version that it has.
        found: u64,
        /// The version that is known.
        known: u64,
    },

    /// A checkpoint is there already.
    #[error("{}: there is a checkpoint of this step already, and it is never written over", path.display())]
    Exists {
        /// The folder.
        path: PathBuf,
    },

    /// A place that is taken.
    #[error("{}: {what}", path.display())]
    Occupied {
        /// The folder.
        path: PathBuf,
        /// By whom.
        what: &'static str,
    },

    /// A checkpoint without something that is needed of it.
    #[error("{}: {what}", path.display())]
    Lacks {
        /// The folder.
        path: PathBuf,
        /// What it lacks, or has in another shape.
        what: String,
    },

    /// An object store that does not give or take what is asked of it.
    #[error(transparent)]
    Store(#[from] titan_objects::Error),

    /// There is not so much memory.
    #[error("no memory for a copy of the state, {bytes} bytes: {error}")]
    Memory {
        /// What was asked for.
        bytes: u64,
        /// What the system said.
        error: io::Error,
    },

    /// What was asked for was stopped.
    #[error("stopped")]
    Stopped,

    /// A part or a buffer that does not fit the plan: a bug of the caller.
    #[error("{what}")]
    Misuse {
        /// What does not fit.
        what: String,
    },
}

impl Error {
    pub(crate) fn file(path: &Path, action: &'static str, error: io::Error) -> Self {
        Self::Io { path: path.to_owned(), action, what: "file", error }
    }

    pub(crate) fn folder(path: &Path, action: &'static str, error: io::Error) -> Self {
        Self::Io { path: path.to_owned(), action, what: "folder", error }
    }

    pub(crate) fn corrupt(path: &Path, what: impl Into<String>) -> Self {
        Self::Corrupt { path: path.to_owned(), what: what.into() }
    }

    /// Whether it is about something that is not there.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Io { error, .. } if error.kind() == io::ErrorKind::NotFound)
    }

    /// Whether a disk is full, or over a quota or the limit of a file's size.
    pub fn is_no_space(&self) -> bool {
        use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        matches!(self, Self::Io { error, .. } if matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge))
    }
}
