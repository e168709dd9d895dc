//! A batch of records, and the documents in it.

use std::borrow::Cow;
use std::sync::Arc;

use memchr::{memchr, memchr_iter};

use super::document::{BadRecord, Content, Document, Place, Reason};
use super::table::Table;
use super::{Fields, Position, json};

/// Whole records as they were read, about 1 MiB of text; more where a single record is larger.
pub struct RawBatch {
    /// Where it begins.
    pub start: Position,
    /// Where it ends and the next one begins.
    pub end: Position,
    pub(super) body: Body,
    /// The record behind those of the body, found to be bad when it was read.
    pub(super) bad: Option<BadRecord>,
}

/// What a batch is made of. An `offset` is that of the first byte, in the decompressed file.
pub(super) enum Body {
    Empty,
    /// Whole lines of JSON.
    Json {
        bytes: Vec<u8>,
        offset: u64,
        fields: Arc<Fields>,
    },
    /// Whole lines of plain text.
    Lines {
        bytes: Vec<u8>,
        offset: u64,
    },
    /// All of a plain text file.
    File {
        bytes: Vec<u8>,
        offset: u64,
    },
    /// A piece of a plain text file, checked.
    Piece {
        text: String,
        first: bool,
        last: bool,
        offset: u64,
    },
    /// Rows of Parquet or Arrow.
    Table(Table),
}

impl RawBatch {
    /// Calls `each` for every record of the batch, in order.
    pub fn documents(&self, mut each: impl FnMut(Result<Document<'_>, BadRecord>)) {
        let line = self.start.record + 1;
        match &self.body {
            Body::Empty => {}
            Body::Json { bytes, offset, fields } => {
                each_line(bytes, line, *offset, |line, place| {
                    if let Some(result) = json::document(line, place, fields) {
                        each(result);
                    }
                });
            }
            Body::Lines { bytes, offset } => each_line(bytes, line, *offset, |line, place| {
                let line = line.strip_suffix(b"\r").unwrap_or(line);
                each(whole_text(line, place));
            }),
            Body::File { bytes, offset } => {
                each(whole_text(bytes, Place { record: line, offset: *offset }));
            }
            Body::Piece { text, first, last, offset } => each(Ok(Document {
                content: Content::Part { text, first: *first, last: *last },
                place: Place { record: line, offset: *offset },
            })),
            Body::Table(table) => table.documents(line, &mut each),
        }
        if let Some(bad) = &self.bad {
            each(Err(bad.clone()));
        }
    }

    /// The bytes of text that it holds.
    pub fn text_bytes(&self) -> usize {
        match &self.body {
            Body::Empty => 0,
            Body::Json { bytes, .. } | Body::Lines { bytes, .. } | Body::File { bytes, .. } => {
                bytes.len()
            }
            Body::Piece { text, .. } => text.len(),
            Body::Table(table) => table.text_bytes,
        }
    }
}

/// Cuts lines at LF, and says where each is. There is no empty line behind the last LF.
fn each_line(bytes: &[u8], line: u64, offset: u64, mut each: impl FnMut(&[u8], Place)) {
    let mut place = Place { record: line, offset };
    let mut start = 0;
    let end = bytes.len();
    let unended = (end > 0 && !bytes.ends_with(b"\n")).then_some(end);
    for newline in memchr_iter(b'\n', bytes).chain(unended) {
        each(&bytes[start..newline], place);
        start = newline + 1;
        place = Place { record: place.record + 1, offset: offset + start as u64 };
    }
}

fn whole_text(bytes: &[u8], place: Place) -> Result<Document<'_>, BadRecord> {
    let text = checked_text(bytes, place)?;
    Ok(Document { content: Content::Text(Cow::Borrowed(text)), place })
}

/// The bytes as text, if they are UTF-8 without NUL; else the line and offset of the first that is
/// not. The place is that of the first byte.
pub(super) fn checked_text(bytes: &[u8], place: Place) -> Result<&str, BadRecord> {
    let bad = |at: usize, reason, what: &str| {
        let newlines = memchr_iter(b'\n', &bytes[..at]).count() as u64;
        let place = Place { record: place.record + newlines, offset: place.offset + at as u64 };
        let detail = format!("byte {:#04x} at offset {} {what}", bytes[at], place.offset);
        BadRecord::new(place, reason, detail)
    };
    let (text, error) = match std::str::from_utf8(bytes) {
        Ok(text) => (bytes, Ok(text)),
        Err(error) => (&bytes[..error.valid_up_to()], Err(error)),
    };
    if let Some(at) = memchr(0, text) {
        return Err(bad(at, Reason::NulCharacter, "is a NUL; is the file really text in UTF-8?"));
    }
    error.map_err(|error| {
        let what = if error.error_len().is_some() {
            "is not valid UTF-8"
        } else {
            "begins a UTF-8 character that is cut off"
        };
        bad(error.valid_up_to(), Reason::InvalidUtf8, what)
    })
}
