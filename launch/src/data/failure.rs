//! Faults of data as failures of a command.

use std::io;

use titan_datasets::Error;

use crate::exit::Exit;
use crate::failure::Failure;

/// What to say and which code to end with.
pub(crate) fn failure(error: &Error) -> Failure {
    let text = error.to_string();
    match error {
        Error::Stopped => Failure::new(Exit::Stopped, "stopped while the data was being tokenized")
            .help("the same command goes on where it ended"),
        Error::Io { error, .. } if is_no_space(error) => Failure::new(Exit::NoSpace, text)
            .help("the tokens of the data are kept in the cache: set TITAN_DATA_CACHE to a folder on a larger disk"),
        Error::BadRecord { .. } => Failure::new(Exit::BadData, text)
            .help("correct it, or write on_bad_record = \"skip\" in [data] to pass over such records"),
        Error::Tokenizer { .. } | Error::OtherShards { .. } => Failure::new(Exit::Usage, text),
        Error::TokenizerPanicked { .. } | Error::Misuse { .. } => Failure::new(Exit::Bug, text),
        _ => Failure::new(Exit::BadData, text),
    }
}

fn is_no_space(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}
