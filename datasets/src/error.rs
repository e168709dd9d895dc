//! Everything that can go wrong with data, in words for the person who has to put it right.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// The result of this crate's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// One problem with the data or with what was asked of it.
///
/// Each text is complete: an error of the system is part of it and not a `source`, so that a
/// report that prints the chain of sources does not say it twice.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No file was given.
    #[error("no data file is named; name at least one text file in data.sources")]
    NoFiles,

    /// The file system refused.
    #[error("{}: cannot {action} this data file: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What was tried: "find", "open", "read".
        action: &'static str,
        /// What the system said.
        error: io::Error,
    },

    /// A folder, pipe, socket or device.
    #[error("{}: this is a {kind}, data must be a regular file; {hint}", path.display())]
    NotRegular {
        /// The file.
        path: PathBuf,
        /// What it is instead.
        kind: &'static str,
        /// What to do.
        hint: &'static str,
    },

    /// A file of zero bytes.
    #[error("{}: this data file is empty; fill it or remove it from data.sources", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },

    /// Bytes that are not text.
    #[error("{}:{line}: byte {byte:#04x} at offset {offset} {rule}; {hint}", path.display())]
    InvalidUtf8 {
        /// The file.
        path: PathBuf,
        /// The line of the first bad byte, from 1.
        line: u64,
        /// The offset of the first bad byte in the file, from 0.
        offset: u64,
        /// That byte.
        byte: u8,
        /// The rule it breaks.
        rule: &'static str,
        /// What to do.
        hint: &'static str,
    },

    /// A file that is no longer what it was when it was verified or opened.
    #[error(
        "{}: this data file changed while in use: it had {expected} bytes and now has {found}; \
         put the old file back, or start a new run with the new one",
        path.display()
    )]
    Changed {
        /// The file.
        path: PathBuf,
        /// Its size when it was verified or opened.
        expected: u64,
        /// Its size now.
        found: u64,
    },

    /// One step would use a sample twice.
    #[error(
        "the data is too small: {tokens} tokens make {samples} samples of sequence_length \
         {sequence_length}, but one step takes global_batch {global_batch} different samples; {}",
        too_small_hint(*tokens, *samples, *sequence_length, *global_batch)
    )]
    TooSmall {
        /// Tokens in the stream.
        tokens: u64,
        /// Inputs of one sample.
        sequence_length: u64,
        /// Samples in the stream.
        samples: u64,
        /// Samples of one step.
        global_batch: u64,
    },

    /// A size that must be at least 1.
    #[error("{what} is 0; it must be at least 1")]
    Zero {
        /// The name of the size.
        what: &'static str,
    },

    /// A batch that no memory can hold.
    #[error(
        "a batch of {tokens} tokens per rank and step is more than the {limit} that memory can hold"
    )]
    HugeBatch {
        /// Tokens per rank and step.
        tokens: u64,
        /// The most that can be.
        limit: u64,
    },

    /// The parts of a batch do not make the whole.
    #[error(
        "global_batch is {global_batch}, but accumulation {accumulation} x data-parallel degree \
         {data_parallel_degree} x local_batch {local_batch} = {}",
        accumulation.saturating_mul(*data_parallel_degree).saturating_mul(*local_batch)
    )]
    UnevenBatch {
        /// Samples of one step.
        global_batch: u64,
        /// Micro-steps of one step.
        accumulation: u64,
        /// Ranks that read different data.
        data_parallel_degree: u64,
        /// Rows per rank and micro-step.
        local_batch: u64,
    },

    /// A step, rank or buffer that does not fit the plan: a bug of the caller.
    #[error("{what} is {value}, expected {expected}")]
    Misuse {
        /// The argument.
        what: &'static str,
        /// What it was.
        value: u64,
        /// What it may be.
        expected: String,
    },

    /// The system refused a thread.
    #[error("cannot start the thread that reads data ahead: {0}")]
    PrefetchStart(io::Error),

    /// The reading thread ended before it had delivered its last step: a bug.
    #[error("the thread that reads data ahead stopped before step {step}")]
    PrefetchStopped {
        /// The step that was due.
        step: u64,
    },
}

/// All problems of a set of files, at most one per file, in the order the files were given. Never
/// empty.
#[derive(Debug)]
pub struct BadFiles(pub Vec<Error>);

impl fmt::Display for BadFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, error) in self.0.iter().enumerate() {
            if number > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for BadFiles {}

/// What to change, with numbers that work.
fn too_small_hint(tokens: u64, samples: u64, sequence_length: u64, global_batch: u64) -> String {
    let mut ways = Vec::new();
    if samples > 0 {
        ways.push(format!("lower training.global_batch to {samples} or less"));
    }
    let longest = tokens.saturating_sub(1) / global_batch.max(1);
    if longest > 0 {
        ways.push(format!("lower training.sequence_length to {longest} or less"));
    }
    let needed = global_batch.saturating_mul(sequence_length).saturating_add(1);
    ways.push(format!("give at least {needed} tokens of data"));
    ways.join(", or ")
}
