//! What a tokenization has done: for whoever watches it, and for whoever goes on with it.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::encode::Destination;
use crate::Result;
use crate::files::io_error;
use crate::shards::{Account, SplitState};
use crate::source::Position;

/// For whoever watches.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Progress {
    /// Files that are done.
    pub files_done: usize,
    /// Files of the job.
    pub files: usize,
    /// Bytes of text.
    pub text_bytes: u64,
    /// Tokens.
    pub tokens: u64,
    /// The part of the input that is done, from 0 to 1; a compressed file counts when it is done.
    pub fraction: f64,
}

/// Everything that is needed to go on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Saved {
    /// The file to read on in.
    pub(super) input: usize,
    /// The place in it.
    pub(super) position: Position,
    /// The split of the document that the place is in the middle of.
    pub(super) in_document: Option<Destination>,
    pub(super) account: Account,
    /// Bytes of the list of skipped records.
    pub(super) skipped_bytes: u64,
    pub(super) train: SplitState,
    pub(super) validation: SplitState,
}

/// Reads a JSON file; `None` if there is none.
pub(crate) fn read_json<T: for<'a> Deserialize<'a>>(path: &Path) -> Result<Option<T>> {
    use std::io::ErrorKind::{NotADirectory, NotFound};
    match std::fs::read(path) {
        Ok(text) => serde_json::from_slice(&text).map(Some).map_err(|error| {
            crate::Error::BadIndex { path: path.to_owned(), why: error.to_string() }
        }),
        // Below a file there is none either.
        Err(error) if matches!(error.kind(), NotFound | NotADirectory) => Ok(None),
        Err(error) => Err(io_error(path, "read", error)),
    }
}

/// Writes a JSON file, see [`write_whole`].
pub(super) fn write_json(path: &Path, value: &impl Serialize) -> Result<()> {
    // Cannot fail: there are no maps with keys that are not text.
    write_whole(path, &(serde_json::to_string_pretty(value).unwrap_or_default() + "\n"))
}

/// Writes a file so that there is the old one or the new one, whole, whatever happens.
pub(super) fn write_whole(path: &Path, text: &str) -> Result<()> {
    let staged = path.with_extension("json.new");
    let write = || -> std::io::Result<()> {
        let mut file = File::create(&staged)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&staged, path)?;
        if let Some(folder) = path.parent() {
            File::open(folder)?.sync_all()?;
        }
        Ok(())
    };
    write().map_err(|error| io_error(path, "write", error))
}
