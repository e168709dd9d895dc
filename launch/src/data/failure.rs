//! Faults of data as failures of a command.

use std::io;
use std::path::PathBuf;

use titan_datasets::Error;
use titan_datasets::source::Error as SourceError;

use crate::exit::Exit;
use crate::failure::Failure;

/// What to say and which code to end with.
pub(crate) fn failure(error: &Error) -> Failure {
    let failure = by_kind(error);
    match folder_in_cache(error) {
        Some(_) if is_not_permitted(error) => {
            Failure { exit: Exit::Environment, ..failure }.help(OTHER_CACHE)
        }
        Some(folder)
            if failure.exit == Exit::BadData || matches!(error, Error::OtherShards { .. }) =>
        {
            failure.help(format!("remove {}: the next command makes it anew", folder.display()))
        }
        _ => failure,
    }
}

/// For a cache that this user may not use.
const OTHER_CACHE: &str = "set TITAN_DATA_CACHE to a folder that can be written: it is where the tokens of the data are kept";

/// The folder of shards in the cache that an error is about. Whoever meets it has made no shards, so advice about making
/// them again does not help.
fn folder_in_cache(error: &Error) -> Option<PathBuf> {
    let cache = super::cache().ok()?;
    let below = error.path()?.strip_prefix(&cache).ok()?;
    Some(cache.join(below.components().next()?))
}

fn is_not_permitted(error: &Error) -> bool {
    matches!(error, Error::Io { error, .. } if error.kind() == io::ErrorKind::PermissionDenied)
}

fn by_kind(error: &Error) -> Failure {
    let text = error.to_string();
    match error {
        Error::Stopped => Failure::new(Exit::Stopped, "stopped while the data was being tokenized")
            .help("the same command goes on where it ended"),
        Error::Io { error, .. } if is_no_space(error) => {
            Failure::new(Exit::NoSpace, text).help(if error.kind() == io::ErrorKind::StorageFull {
                "free some space; the same command goes on where it ended"
            } else {
                "raise the limit of the system (ulimit -f, quota); the same command goes on where it ended"
            })
        }
        Error::BadRecord { .. } => Failure::new(Exit::BadData, text)
            .help("correct it, or write on_bad_record = \"skip\" in [data] to pass over such records"),
        Error::Io { action: "make" | "write" | "remove" | "look at" | "look into", .. }
        | Error::Source(
            SourceError::NothingFound { .. }
            | SourceError::BadPath { .. }
            | SourceError::SameField { .. },
        )
        | Error::NoSplit { .. }
        | Error::Tokenizer { .. }
        | Error::OtherShards { .. } => Failure::new(Exit::Usage, text),
        Error::TokenizerPanicked { .. } | Error::Misuse { .. } => Failure::new(Exit::Bug, text),
        _ => Failure::new(Exit::BadData, text),
    }
}

/// As [`failure`], of writing to the cache, which nobody has named on the command line.
pub(crate) fn cache_failure(error: &Error) -> Failure {
    let failure = failure(error);
    let help = match error {
        Error::Io { error, .. } if error.kind() == io::ErrorKind::StorageFull => {
            "set TITAN_DATA_CACHE to a folder on a larger disk: it is where the tokens of the data are kept"
        }
        Error::Io {
            action: "make" | "write" | "remove" | "look at" | "look into", error, ..
        } if !is_no_space(error) => OTHER_CACHE,
        _ => return failure,
    };
    let exit = if failure.exit == Exit::Usage { Exit::Environment } else { failure.exit };
    Failure { exit, help: vec![help.to_owned()], ..failure }
}

fn is_no_space(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}
