//! What can go wrong with a whole input, in words for the person who has to put it right.

use std::fmt;
use std::io;

/// The result of this module's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A source that cannot be found or opened. Each text is complete.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The path leads to nothing.
    #[error("{path}: {problem}; {hint}")]
    NothingFound {
        /// The path as the user wrote it.
        path: String,
        /// What was looked for.
        problem: String,
        /// What is there instead.
        hint: String,
    },

    /// A path that no file can have, or that is not understood.
    #[error("{path}: {problem}; {hint}")]
    BadPath {
        /// The path as the user wrote it.
        path: String,
        /// What is wrong with it.
        problem: String,
        /// What to write instead.
        hint: String,
    },

    /// A pipe, socket or device, or a folder in the place of a file.
    #[error("{name}: this is a {kind}, data must be a regular file; {hint}")]
    NotRegular {
        /// The file.
        name: String,
        /// What it is instead.
        kind: &'static str,
        /// What to do.
        hint: &'static str,
    },

    /// A saved dataset whose description cannot be used.
    #[error("{name}: {problem}; {hint}")]
    BadDescription {
        /// The file that describes the dataset.
        name: String,
        /// What is wrong with it.
        problem: String,
        /// What to do.
        hint: &'static str,
    },

    /// Fields were asked of a file that has none, or a column that cannot be text.
    #[error("{name}: {problem}; {hint}")]
    BadColumn {
        /// The file.
        name: String,
        /// What is wrong.
        problem: String,
        /// What to do.
        hint: String,
    },

    /// Prompt and response are asked of one field.
    #[error("{name}: prompt and response are both the field {field:?}; name two fields")]
    SameField {
        /// The file.
        name: String,
        /// The field.
        field: String,
    },

    /// An object store that does not give what is asked of it.
    #[error("{name}: {problem}; {hint}")]
    Store {
        /// The address.
        name: String,
        /// What went wrong.
        problem: String,
        /// What to do.
        hint: String,
    },

    /// A file that cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
}

/// An input that cannot be read any further. No record is to blame, so none can be skipped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The system refused.
    #[error("{name}: cannot {action} this data file: {error}")]
    Io {
        /// The file.
        name: String,
        /// What was tried: "find", "open", "read".
        action: &'static str,
        /// What the system said.
        error: io::Error,
    },

    /// A file that is no longer what it was when it was found.
    #[error(
        "{name}: this data file changed after it was found: {detail}; start again with the new one"
    )]
    Changed {
        /// The file.
        name: String,
        /// What is different.
        detail: String,
    },

    /// A Parquet or Arrow file that breaks the rules of its format.
    #[error("{name}: this is not a whole {format} file: {detail}; write or download it again")]
    Corrupt {
        /// The file.
        name: String,
        /// "Parquet" or "Arrow".
        format: &'static str,
        /// What its reader said.
        detail: String,
    },
}

impl ReadError {
    /// An error of the system; [`Changed`](Self::Changed) if it is an [`ItChanged`].
    pub(crate) fn io(name: &str, action: &'static str, error: io::Error) -> Self {
        match ItChanged::in_error(&error) {
            Some(changed) => Self::changed(name, changed.0.as_str()),
            None => Self::Io { name: name.to_owned(), action, error },
        }
    }

    pub(crate) fn changed(name: &str, detail: impl Into<String>) -> Self {
        Self::Changed { name: name.to_owned(), detail: detail.into() }
    }
}

/// That a file changed while it was read, on its way through readers that know only [`io::Error`].
#[derive(Debug)]
pub(super) struct ItChanged(pub(super) String);

impl ItChanged {
    fn in_error<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a Self> {
        if let Some(changed) = error.downcast_ref() {
            return Some(changed);
        }
        // The source of an `io::Error` is not what it holds, but the source of that.
        if let Some(error) = error.downcast_ref::<io::Error>() {
            return error.get_ref().and_then(|inner| Self::in_error(inner));
        }
        error.source().and_then(Self::in_error)
    }
}

impl fmt::Display for ItChanged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ItChanged {}
