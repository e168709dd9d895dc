//! Everything between a path in a recipe and the documents it leads to.
//!
//! [`find`] turns an entry of `data.sources` into the files to read, [`Reader`] cuts one file into
//! batches of whole records, and [`RawBatch::documents`] turns a batch into documents. Reading is
//! cheap and is done by one thread per file; a batch can be sent to another thread, where the
//! expensive part is done: checking UTF-8 and parsing JSON.
//!
//! A batch depends on nothing but the place where it begins. So reading that starts from the
//! [`Position`] at the end of any batch gives the batches that would have followed.
//!
//! ```no_run
//! use titan_datasets::source::{Fields, Position, Reader, SourceSpec, TextDocuments, find};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let fields = Fields::Text { text: "text".to_owned() };
//! let spec = SourceSpec {
//!     path: "corpus/*.jsonl.gz".to_owned(),
//!     fields: fields.clone(),
//!     documents: TextDocuments::File,
//!     split: "train".to_owned(),
//! };
//! for input in find(&spec)? {
//!     for batch in Reader::open(&input, &fields, spec.documents, Position::default())? {
//!         batch?.documents(|document| match document {
//!             Ok(document) => drop(document.content),
//!             Err(bad) => drop(bad.to_string()),
//!         });
//!     }
//! }
//! # Ok(())
//! # }
//! ```

mod arrow;
mod batch;
mod decode;
mod document;
mod error;
mod find;
mod folder;
mod json;
mod json_text;
mod lines;
mod local;
mod names;
mod open;
mod parquet;
mod reach;
mod reader;
pub mod remote;
mod table;
#[cfg(test)]
mod testing;
mod text;
mod tree;
mod walk;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use batch::RawBatch;
pub use document::{BadRecord, Content, Document, Place, Reason};
pub use error::{Error, ReadError, Result};
pub use find::find;
pub use reach::reads_shards_in;
pub use reader::{Notes, Reader};

/// One entry of `data.sources`, as the user wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceSpec {
    /// A local path or glob, or the address of an object (`gs://`, `s3://`).
    pub path: String,
    /// Where the text is in a record.
    pub fields: Fields,
    /// How plain text files are cut.
    pub documents: TextDocuments,
    /// The split to take of a Hugging Face folder that has several.
    pub split: String,
}

/// The names of the fields or columns that hold the text of a record.
///
/// Plain text files have no fields: they can only be [`Fields::Text`], whose name is then not used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fields {
    /// Each record is a document.
    Text {
        /// The field of the document.
        text: String,
    },
    /// Each record is a prompt and the response to learn.
    Exchange {
        /// The field of the prompt.
        prompt: String,
        /// The field of the response.
        response: String,
    },
    /// Each record is a prompt, and other fields to judge the response by.
    Prompt {
        /// The field of the prompt.
        prompt: String,
    },
}

impl Fields {
    /// The names, in the order of their parts in [`Content`].
    pub(crate) fn names(&self) -> Vec<&str> {
        match self {
            Self::Text { text } => vec![text],
            Self::Exchange { prompt, response } => vec![prompt, response],
            Self::Prompt { prompt } => vec![prompt],
        }
    }
}

/// How a plain text file is cut into documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TextDocuments {
    /// The file is one document.
    File,
    /// Each line is a document.
    Line,
}

/// How a file holds its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    /// Plain text.
    Text,
    /// One JSON object per line.
    JsonLines,
    /// Apache Parquet.
    Parquet,
    /// Apache Arrow IPC, as a stream or as a file.
    Arrow,
}

/// How a whole file is compressed. (Parquet and Arrow files compress their parts themselves.)
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Compression {
    /// It is not.
    None,
    /// gzip, of one or more members.
    Gzip,
    /// Zstandard, of one or more frames.
    Zstd,
}

/// One file to be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input {
    /// The path or address, for messages.
    pub name: String,
    /// Where its bytes are.
    pub origin: Origin,
    /// How it holds its records.
    pub format: Format,
    /// How it is compressed.
    pub compression: Compression,
    /// Its size as it is stored.
    pub bytes: u64,
    /// A text that changes when the file changes.
    pub identity: String,
}

/// Where the bytes of an input are.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Origin {
    /// In a file of this machine.
    Local(PathBuf),
    /// In an object store.
    Remote(remote::Object),
}

/// A place in an input from which reading can start: the batches after the `end` of a batch are
/// the same whether reading started there or at the beginning.
///
/// The default is the beginning.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Position {
    /// The byte in the (decompressed) text, with a byte order mark counted; the row of Parquet and
    /// Arrow. [`Position::FINISHED`] if nothing after it can be read.
    pub offset: u64,
    /// Lines or rows before it.
    pub record: u64,
}

impl Position {
    /// The offset after a bad record that is the last that can be read of an input, for example
    /// where a compressed file is cut off: a reader that is opened there gives nothing.
    pub const FINISHED: u64 = u64::MAX;
}
