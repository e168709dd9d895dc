//! Rows of the wanted columns of a Parquet or Arrow file.

use std::borrow::Cow;
use std::sync::Arc;

use arrow_array::{Array, LargeStringArray, StringArray, StringViewArray};
use memchr::memchr;
use parquet::data_type::ByteArray;

use super::Fields;
use super::document::{BadRecord, Content, Document, Place, Reason};

/// Rows that follow each other.
pub(super) struct Table {
    pub(super) fields: Arc<Fields>,
    pub(super) rows: usize,
    /// One for each name of the fields, with as many values as there are rows.
    pub(super) columns: Vec<Column>,
    /// The other columns of each row as JSON, for prompts.
    pub(super) rest: Vec<String>,
    pub(super) text_bytes: usize,
}

/// The values of a column.
#[derive(Clone)]
pub(super) enum Column {
    Bytes(Vec<Option<ByteArray>>),
    Utf8(StringArray),
    LargeUtf8(LargeStringArray),
    Utf8View(StringViewArray),
}

impl Column {
    pub(super) fn get(&self, row: usize) -> Option<&[u8]> {
        match self {
            Self::Bytes(values) => values.get(row)?.as_ref().map(ByteArray::data),
            Self::Utf8(array) => (!array.is_null(row)).then(|| array.value(row).as_bytes()),
            Self::LargeUtf8(array) => (!array.is_null(row)).then(|| array.value(row).as_bytes()),
            Self::Utf8View(array) => (!array.is_null(row)).then(|| array.value(row).as_bytes()),
        }
    }

    pub(super) fn text_bytes(&self, row: usize) -> usize {
        self.get(row).map_or(0, <[u8]>::len)
    }

    /// Rows of an array, without a copy.
    pub(super) fn slice(&self, first: usize, rows: usize) -> Self {
        match self {
            Self::Bytes(values) => {
                Self::Bytes(values.iter().skip(first).take(rows).cloned().collect())
            }
            Self::Utf8(array) => Self::Utf8(array.slice(first, rows)),
            Self::LargeUtf8(array) => Self::LargeUtf8(array.slice(first, rows)),
            Self::Utf8View(array) => Self::Utf8View(array.slice(first, rows)),
        }
    }
}

impl Table {
    /// `first` is the number of the first row, from 1.
    pub(super) fn documents(
        &self,
        first: u64,
        each: &mut impl FnMut(Result<Document<'_>, BadRecord>),
    ) {
        for row in 0..self.rows {
            let place = Place { record: first + row as u64, offset: 0 };
            each(self.content(row, place).map(|content| Document { content, place }));
        }
    }

    fn content(&self, row: usize, place: Place) -> Result<Content<'_>, BadRecord> {
        let text = |index: usize, name: &str| {
            let value = self.columns.get(index).and_then(|column| column.get(row));
            text(value, name, place).map(Cow::Borrowed)
        };
        Ok(match self.fields.as_ref() {
            Fields::Text { text: name } => Content::Text(text(0, name)?),
            Fields::Exchange { prompt, response } => {
                Content::Exchange { prompt: text(0, prompt)?, response: text(1, response)? }
            }
            Fields::Prompt { prompt } => Content::Prompt {
                prompt: text(0, prompt)?,
                rest: self.rest.get(row).cloned().unwrap_or_else(|| "{}".to_owned()),
            },
        })
    }
}

fn text<'a>(value: Option<&'a [u8]>, name: &str, place: Place) -> Result<&'a str, BadRecord> {
    let bad = |reason, detail| Err(BadRecord::new(place, reason, detail));
    let Some(bytes) = value else {
        return bad(Reason::Null, format!("column {name:?} is null; it must be a string"));
    };
    match std::str::from_utf8(bytes) {
        Ok(_) if memchr(0, bytes).is_some() => {
            bad(Reason::NulCharacter, format!("column {name:?} has a U+0000"))
        }
        Ok(text) => Ok(text),
        Err(error) => {
            let at = error.valid_up_to();
            let what = format!("byte {:#04x}, byte {at} of the value", bytes[at]);
            bad(Reason::InvalidUtf8, format!("column {name:?}: {what}, is not valid UTF-8"))
        }
    }
}
