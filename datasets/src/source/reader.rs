//! Opening an input, whatever its format.

use super::arrow::ArrowRows;
use super::batch::RawBatch;
use super::lines::Lines;
use super::parquet::ParquetRows;
use super::text::Text;
use super::{Error, Fields, Format, Input, Position, ReadError, Result, TextDocuments};

/// Reads one input in batches.
pub struct Reader {
    /// Nothing once the input has ended or failed.
    batches: Option<Box<dyn Batches>>,
    notes: Notes,
}

/// What is unusual in the text that a reader has read so far, but allowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Notes {
    /// It began with a byte order mark, which was dropped. Only known to a reader that was opened
    /// at the beginning.
    pub byte_order_mark: bool,
    /// Lines that end in CR LF. Not counted in a text file that is one document.
    pub crlf_lines: u64,
}

/// Where inputs are cut. The batches depend on it, so it is the same for all but tests.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// A batch ends with the record that has this many bytes of text.
    pub(super) batch: usize,
    /// The longest line; not less than `batch`.
    pub(super) line: usize,
    /// The largest text file that is given in one piece.
    pub(super) whole: usize,
    /// The bytes of a piece after which a place to cut is looked for.
    pub(super) piece: usize,
    /// The bytes of a piece after which any place will do; not more than `whole`.
    pub(super) uncut: usize,
}

impl Limits {
    pub(super) const STANDARD: Self =
        Self { batch: 1 << 20, line: 256 << 20, whole: 16 << 20, piece: 1 << 20, uncut: 16 << 20 };
}

/// A format that is being read.
pub(super) trait Batches: Send {
    fn next_batch(&mut self) -> Result<Option<RawBatch>, ReadError>;

    fn notes(&self) -> Notes {
        Notes::default()
    }
}

impl Reader {
    /// Opens an input at the beginning, or at the end of a batch that was read before.
    ///
    /// It is an error if the file is no longer the one that was found, or has no column with the
    /// name of a field. (JSON has no columns: there each record is checked by itself.)
    pub fn open(
        input: &Input,
        fields: &Fields,
        documents: TextDocuments,
        from: Position,
    ) -> Result<Self> {
        Self::open_with(input, fields, documents, from, Limits::STANDARD)
    }

    pub(super) fn open_with(
        input: &Input,
        fields: &Fields,
        documents: TextDocuments,
        from: Position,
        limits: Limits,
    ) -> Result<Self> {
        check_fields(input, fields)?;
        if input.bytes == 0 || from.offset == Position::FINISHED {
            return Ok(Self { batches: None, notes: Notes::default() });
        }
        let batches: Box<dyn Batches> = match (input.format, documents) {
            (Format::JsonLines, _) => {
                Box::new(Lines::open(input, Some(fields.clone()), from, limits)?)
            }
            (Format::Text, TextDocuments::Line) => {
                Box::new(Lines::open(input, None, from, limits)?)
            }
            (Format::Text, TextDocuments::File) => Box::new(Text::open(input, from, limits)?),
            (Format::Parquet, _) => Box::new(Guarded::open(input, "Parquet", || {
                ParquetRows::open(input, fields, from, limits)
            })?),
            (Format::Arrow, _) => Box::new(Guarded::open(input, "Arrow", || {
                ArrowRows::open(input, fields, from, limits)
            })?),
        };
        Ok(Self { notes: batches.notes(), batches: Some(batches) })
    }

    /// What was unusual in the text read so far.
    pub fn notes(&self) -> Notes {
        self.notes
    }
}

impl Iterator for Reader {
    type Item = Result<RawBatch, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        let batches = self.batches.as_mut()?;
        let next = batches.next_batch();
        self.notes = batches.notes();
        if !matches!(next, Ok(Some(_))) {
            self.batches = None;
        }
        next.transpose()
    }
}

/// A table that is read with a crate that panics on some corrupt files.
struct Guarded<B> {
    name: String,
    format: &'static str,
    batches: B,
}

impl<B: Batches> Guarded<B> {
    fn open(input: &Input, format: &'static str, open: impl FnOnce() -> Result<B>) -> Result<Self> {
        let batches = guarded(&input.name, format, open)?;
        Ok(Self { name: input.name.clone(), format, batches })
    }
}

impl<B: Batches> Batches for Guarded<B> {
    fn next_batch(&mut self) -> Result<Option<RawBatch>, ReadError> {
        // After a panic the batches are asked for nothing more.
        guarded(&self.name, self.format, || self.batches.next_batch())
    }
}

fn guarded<T, E: From<ReadError>>(
    name: &str,
    format: &'static str,
    read: impl FnOnce() -> Result<T, E>,
) -> Result<T, E> {
    crate::contained::contain(read).unwrap_or_else(|detail| {
        Err(ReadError::Corrupt { name: name.to_owned(), format, detail }.into())
    })
}

/// That a file of this format can have these fields.
pub(super) fn check_fields(input: &Input, fields: &Fields) -> Result<()> {
    if let Fields::Exchange { prompt, response } = fields
        && prompt == response
    {
        return Err(Error::SameField { name: input.name.clone(), field: prompt.clone() });
    }
    // Plain text can only be documents.
    if input.format != Format::Text || matches!(fields, Fields::Text { .. }) {
        return Ok(());
    }
    let names: Vec<_> = fields.names().iter().map(|name| format!("{name:?}")).collect();
    Err(Error::BadColumn {
        name: input.name.clone(),
        problem: format!("this is plain text, which has no field {}", names.join(" and ")),
        hint: "give files with fields: .jsonl, .parquet or .arrow".to_owned(),
    })
}

#[cfg(test)]
#[path = "reader_tests.rs"]
mod tests;
