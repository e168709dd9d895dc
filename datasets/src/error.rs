//! Everything that can go wrong with data, in words for the person who has to put it right.

use std::io;
use std::path::{Path, PathBuf};

use crate::SourceConfig;

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
    #[error("no data is named; name at least one file in data.sources")]
    NoFiles,

    /// The file system refused.
    #[error("{}: cannot {action} this {}: {error}", path.display(), object(action))]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What was tried: "find", "open", "read", "make", "write", "remove"; of an output "look
        /// into" its folder, "look at" a file in it.
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

    /// A source that cannot be found, opened or read.
    #[cfg(feature = "prepare")]
    #[error(transparent)]
    Source(#[from] crate::source::Error),

    /// A tokenizer that cannot be used.
    #[error("{}: cannot use this tokenizer: {why}", path.display())]
    Tokenizer {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },

    /// A record that cannot be used.
    #[error("{name}:{record}: {what}{}", offset_text(*offset, *is_compressed))]
    BadRecord {
        /// The file or address.
        name: String,
        /// The line or row, from 1.
        record: u64,
        /// The byte of the file where it is, from 0, where bytes can be counted.
        offset: Option<u64>,
        /// Whether `offset` counts bytes of the decompressed file.
        is_compressed: bool,
        /// A word for the reason.
        reason: &'static str,
        /// What is wrong with it.
        what: String,
    },

    /// A folder of shards that another tokenization has begun.
    #[error("{}: {why}", path.display())]
    OtherShards {
        /// The folder.
        path: PathBuf,
        /// What is in it.
        why: String,
    },

    /// An index of shards that cannot be read.
    #[error(
        "{}: this is no index of token shards: {why}; make the shards again with titan-tpu data tokenize",
        path.display()
    )]
    BadIndex {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },

    /// A folder of shards without an index.
    #[error(
        "{}: there is no such file, so these shards are not finished; the command that makes them goes on with them",
        path.display()
    )]
    Unfinished {
        /// The index.
        path: PathBuf,
    },

    /// A file that an index of shards names, and that is not as it says.
    #[error(
        "{}: this file of token shards {why}; put it back as it was, or remove the folder {} and start the same command again",
        path.display(),
        path.parent().unwrap_or(path).display()
    )]
    Incomplete {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },

    /// A folder of shards without the split that is asked for.
    #[error(
        "{}: these shards have no split `{split}`; they have {there}", path.display()
    )]
    NoSplit {
        /// The folder.
        path: PathBuf,
        /// The split.
        split: String,
        /// The splits that are there.
        there: String,
    },

    /// A part of a shard that is not what was written.
    #[error(
        "{}: the {bytes} bytes from offset {offset} on are not what was written there; copy the file again, or make the \
         shards again (of those in the cache remove the folder: the next command makes them anew); \
         titan-tpu data verify lists all such places",
        path.display()
    )]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// Where the part begins.
        offset: u64,
        /// Its size.
        bytes: u64,
    },

    /// A source that would have no samples.
    #[error(
        "the weight {weight} of source {source_number}, of {total} in all, gives it less than one sample in four billion; raise it or \
         leave the source out"
    )]
    SmallWeight {
        /// The source, from 1.
        source_number: usize,
        /// Its weight.
        weight: f64,
        /// The sum of all weights.
        total: f64,
    },

    /// A validation of nothing.
    #[error(
        "the validation data has no token to predict; name more data in validation.sources, or raise validation.fraction"
    )]
    NothingToValidate,

    /// The tokenizer died of a text: a bug of the library.
    #[error("{name}: the tokenizer failed at a record from line or row {record} on")]
    TokenizerPanicked {
        /// The file or address.
        name: String,
        /// The first record of those it was working on, from 1.
        record: u64,
    },

    /// What was asked for was stopped.
    #[error("stopped")]
    Stopped,

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
        "{}: {tokens} tokens make {samples} samples of sequence_length \
         {sequence_length}, but one step takes {} {global_batch} different samples; {}",
        name.as_ref().map_or_else(
            || "the data is too small".to_owned(),
            |name| format!("{name}: this source is too small")
        ),
        if name.is_some() { "from it" } else { "global_batch" },
        too_small_hint(*tokens, *samples, *sequence_length, *global_batch)
    )]
    TooSmall {
        /// The source, if there are several.
        name: Option<String>,
        /// Tokens in the stream.
        tokens: u64,
        /// Inputs of one sample.
        sequence_length: u64,
        /// Samples in the stream.
        samples: u64,
        /// Samples of one step.
        global_batch: u64,
    },

    /// One step would use a prompt twice.
    #[error(
        "{name}: this source has {prompts} prompts, but one step takes {needed} different ones; lower rl.prompts_per_step or \
         give more prompts"
    )]
    TooFewPrompts {
        /// The source.
        name: String,
        /// Prompts in it.
        prompts: u64,
        /// Those that a step takes from it.
        needed: u64,
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

#[cfg(feature = "prepare")]
impl From<crate::source::ReadError> for Error {
    fn from(error: crate::source::ReadError) -> Self {
        Self::Source(error.into())
    }
}

impl Error {
    /// The file or folder of shards, or of the system, that it is about.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Io { path, .. }
            | Self::NotRegular { path, .. }
            | Self::OtherShards { path, .. }
            | Self::BadIndex { path, .. }
            | Self::Unfinished { path }
            | Self::Incomplete { path, .. }
            | Self::NoSplit { path, .. }
            | Self::Corrupt { path, .. }
            | Self::Changed { path, .. } => Some(path),
            _ => None,
        }
    }

    /// Names the source of an error about its size, if it is one of several.
    pub(crate) fn of_source(mut self, sources: &[SourceConfig], number: usize) -> Self {
        if let (Self::TooSmall { name, .. }, true) = (&mut self, sources.len() > 1) {
            *name = Some(sources[number].name.clone());
        }
        self
    }
}

/// What an action is done to: folders are made, files of shards are written.
fn object(action: &str) -> &'static str {
    match action {
        "make" | "look into" => "folder",
        "write" | "remove" | "look at" => "file",
        _ => "data file",
    }
}

fn offset_text(offset: Option<u64>, is_compressed: bool) -> String {
    match offset {
        None => String::new(),
        Some(offset) if is_compressed => format!(" (byte {offset} of the decompressed file)"),
        Some(offset) => format!(" (byte {offset})"),
    }
}

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
