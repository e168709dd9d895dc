//! What is read: documents, and records that are none.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

/// One document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document<'a> {
    /// Its text.
    pub content: Content<'a>,
    /// Where it begins.
    pub place: Place,
}

/// The text of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content<'a> {
    /// All of it.
    Text(Cow<'a, str>),
    /// A piece of a text file that is too large to hold at once. The pieces of a document follow
    /// each other, each alone in its batch. A document whose last piece does not come is bad: a
    /// [`BadRecord`] comes instead of that piece, and the pieces before it are to be dropped.
    Part {
        /// The text of the piece.
        text: &'a str,
        /// A document begins with it.
        first: bool,
        /// The document ends with it.
        last: bool,
    },
    /// A prompt and its response.
    Exchange {
        /// The prompt.
        prompt: Cow<'a, str>,
        /// The response.
        response: Cow<'a, str>,
    },
    /// A prompt.
    Prompt {
        /// The prompt.
        prompt: Cow<'a, str>,
        /// The record's other fields as one JSON object, in the order of the record.
        rest: String,
    },
}

/// A place in an input, for messages.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Place {
    /// The line or row, from 1.
    pub record: u64,
    /// The offset in the decompressed file of the record's first byte; 0 in Parquet and Arrow.
    pub offset: u64,
}

/// A record that is not a document.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct BadRecord {
    /// Where it is. The offset is that of the first bad byte where one byte is to blame (invalid
    /// UTF-8, broken JSON, the end of a truncated file, a NUL in plain text), else that of the
    /// record.
    pub place: Place,
    /// The kind of fault.
    pub reason: Reason,
    /// What exactly is wrong.
    pub detail: String,
}

impl BadRecord {
    pub(crate) fn new(place: Place, reason: Reason, detail: impl Into<String>) -> Self {
        Self { place, reason, detail: detail.into() }
    }
}

impl fmt::Display for BadRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "record {}: {}: {}", self.place.record, self.reason, self.detail)
    }
}

/// Why a record is not a document.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// Bytes that are not UTF-8.
    InvalidUtf8,
    /// A line that is not JSON.
    BrokenJson,
    /// A line that is JSON but not an object.
    NotAnObject,
    /// A record without a field that is needed.
    MissingField,
    /// A field that is not a string.
    WrongType,
    /// A field that is null.
    Null,
    /// A text with U+0000 in it.
    NulCharacter,
    /// A line that no memory should have to hold.
    TooLong,
    /// A compressed file that cannot be decompressed any further.
    Truncated,
}

impl Reason {
    /// All reasons.
    pub const ALL: [Self; 9] = [
        Self::InvalidUtf8,
        Self::BrokenJson,
        Self::NotAnObject,
        Self::MissingField,
        Self::WrongType,
        Self::Null,
        Self::NulCharacter,
        Self::TooLong,
        Self::Truncated,
    ];

    /// The word for it in files that programs read; the same as its serialised form.
    pub fn word(self) -> &'static str {
        match self {
            Self::InvalidUtf8 => "invalid-utf8",
            Self::BrokenJson => "broken-json",
            Self::NotAnObject => "not-an-object",
            Self::MissingField => "missing-field",
            Self::WrongType => "wrong-type",
            Self::Null => "null",
            Self::NulCharacter => "nul-character",
            Self::TooLong => "too-long",
            Self::Truncated => "truncated",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InvalidUtf8 => "the text is not valid UTF-8",
            Self::BrokenJson => "the line is not valid JSON",
            Self::NotAnObject => "the line is not a JSON object",
            Self::MissingField => "a field is missing",
            Self::WrongType => "a field is not a string",
            Self::Null => "a field is null",
            Self::NulCharacter => "the text has a NUL character",
            Self::TooLong => "the line is too long",
            Self::Truncated => "the compressed file is cut off or corrupt",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_of_a_reason_is_its_serialised_form() {
        for reason in Reason::ALL {
            assert_eq!(serde_json::to_string(&reason).unwrap(), format!("{:?}", reason.word()));
        }
    }
}
