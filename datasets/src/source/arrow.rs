//! Rows of an Arrow file, as Hugging Face datasets saves them.

use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, RecordBatch};
use arrow_ipc::reader::{FileReader, StreamReader};
use arrow_schema::{ArrowError, DataType, Schema};

use super::batch::{Body, RawBatch};
use super::names::{did_you_mean, list};
use super::open::{Stored, open};
use super::reader::{Batches, Limits};
use super::table::{Column, Table};
use super::{Error, Fields, Input, Position, ReadError, Result, json_text};

/// What the IPC file format begins with; the stream format has no magic.
const MAGIC: &[u8] = b"ARROW1";

/// Reads record batch by record batch. A batch ends with its record batch at the latest.
pub(super) struct ArrowRows {
    name: String,
    limits: Limits,
    fields: Arc<Fields>,
    batches: Box<dyn Iterator<Item = Result<RecordBatch, ArrowError>> + Send>,
    current: Option<Current>,
    /// The row that comes next, from 0.
    row: u64,
}

/// A record batch, its wanted columns, and the row of it that comes next.
struct Current {
    batch: RecordBatch,
    columns: Vec<Column>,
    next: usize,
}

impl ArrowRows {
    pub(super) fn open(
        input: &Input,
        fields: &Fields,
        from: Position,
        limits: Limits,
    ) -> Result<Self> {
        let stored = open(input)?;
        let corrupt = |error| read_error(&input.name, error);
        let schema = Source::open(&stored, input.bytes).and_then(|source| source.schema());
        let schema = schema.map_err(corrupt)?;
        let mut wanted = fields
            .names()
            .iter()
            .map(|name| find_column(&input.name, &schema, name))
            .collect::<Result<Vec<_>>>()?;
        wanted.sort_unstable();
        // The other columns are not even checked, unless a prompt comes with them.
        let wanted = (!matches!(fields, Fields::Prompt { .. })).then_some(wanted);
        let batches = Source::open(&stored, input.bytes).and_then(|source| source.batches(wanted));
        let mut rows = Self {
            name: input.name.clone(),
            limits,
            fields: Arc::new(fields.clone()),
            batches: batches.map_err(corrupt)?,
            current: None,
            row: 0,
        };
        rows.skip(from.offset)?;
        Ok(rows)
    }

    fn skip(&mut self, rows: u64) -> Result<(), ReadError> {
        while self.row < rows {
            let Some(mut current) = self.next_record_batch()? else {
                let detail = format!("it has {} rows, reading was to go on at {rows}", self.row);
                return Err(ReadError::changed(&self.name, detail));
            };
            let step = (rows - self.row).min(current.batch.num_rows() as u64);
            current.next = step as usize;
            self.row += step;
            self.current = Some(current);
        }
        Ok(())
    }

    fn next_record_batch(&mut self) -> Result<Option<Current>, ReadError> {
        let Some(batch) = self.batches.next() else { return Ok(None) };
        let batch = batch.map_err(|e| read_error(&self.name, e))?;
        let columns = self.fields.names().iter().filter_map(|name| column(&batch, name)).collect();
        Ok(Some(Current { batch, columns, next: 0 }))
    }

    fn take(&mut self, current: &mut Current) -> RawBatch {
        let first = current.next;
        let mut text_bytes = 0;
        while text_bytes < self.limits.batch.max(1) && current.next < current.batch.num_rows() {
            let row = |column: &Column| 1 + column.text_bytes(current.next);
            text_bytes += current.columns.iter().map(row).sum::<usize>();
            current.next += 1;
        }
        let rows = current.next - first;
        let rest = if matches!(*self.fields, Fields::Prompt { .. }) {
            json_text::of_arrow_rows(&current.batch, first..current.next, &self.fields.names())
        } else {
            Vec::new()
        };
        let columns = current.columns.iter().map(|column| column.slice(first, rows)).collect();
        let start = Position { offset: self.row, record: self.row };
        self.row += rows as u64;
        let end = Position { offset: self.row, record: self.row };
        let table = Table { fields: Arc::clone(&self.fields), rows, columns, rest, text_bytes };
        RawBatch { start, end, body: Body::Table(table), bad: None }
    }
}

impl Batches for ArrowRows {
    fn next_batch(&mut self) -> Result<Option<RawBatch>, ReadError> {
        loop {
            let mut current = match self.current.take() {
                Some(current) => current,
                None => match self.next_record_batch()? {
                    Some(current) => current,
                    None => return Ok(None),
                },
            };
            if current.next == current.batch.num_rows() {
                continue;
            }
            let batch = self.take(&mut current);
            self.current = Some(current);
            return Ok(Some(batch));
        }
    }
}

/// The column of a record batch, if it holds text.
fn column(batch: &RecordBatch, name: &str) -> Option<Column> {
    let array = batch.column_by_name(name)?;
    match array.data_type() {
        DataType::Utf8 => array.as_string_opt().cloned().map(Column::Utf8),
        DataType::LargeUtf8 => array.as_string_opt().cloned().map(Column::LargeUtf8),
        DataType::Utf8View => array.as_string_view_opt().cloned().map(Column::Utf8View),
        _ => None,
    }
}

/// The number of the column with this name, if it holds text.
fn find_column(file: &str, schema: &Schema, name: &str) -> Result<usize> {
    let bad = |problem, hint: String| Error::BadColumn { name: file.to_owned(), problem, hint };
    let Some((number, field)) = schema.column_with_name(name) else {
        let names: Vec<_> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        let hint = format!("the columns are {}", list(&names));
        let suggestion = did_you_mean(name, names.into_iter());
        return Err(bad(format!("there is no column {name:?}{suggestion}"), hint));
    };
    let is_text = |data_type: &DataType| {
        matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
    };
    if is_text(field.data_type()) {
        return Ok(number);
    }
    let strings: Vec<_> =
        schema.fields().iter().filter(|f| is_text(f.data_type())).map(|f| f.name()).collect();
    Err(bad(
        format!("column {name:?} is {}, it must be a column of strings", field.data_type()),
        format!(
            "columns of strings are {}",
            if strings.is_empty() { "none".to_owned() } else { list(&strings) }
        ),
    ))
}

fn read_error(name: &str, error: ArrowError) -> ReadError {
    match error {
        ArrowError::IoError(_, error) if error.kind() != io::ErrorKind::UnexpectedEof => {
            ReadError::io(name, "read", error)
        }
        error => {
            let detail = error.to_string();
            ReadError::Corrupt { name: name.to_owned(), format: "Arrow", detail }
        }
    }
}

/// An Arrow file that was opened, of either kind.
enum Source {
    File(BufReader<Seeking>),
    Stream(BufReader<Seeking>),
}

impl Source {
    fn open(stored: &Arc<dyn Stored>, bytes: u64) -> Result<Self, ArrowError> {
        let mut source = Seeking { stored: Arc::clone(stored), bytes, offset: 0 };
        let mut head = Vec::new();
        source.by_ref().take(MAGIC.len() as u64).read_to_end(&mut head)?;
        source.rewind()?;
        let source = BufReader::with_capacity(64 << 10, source);
        Ok(if head == MAGIC { Self::File(source) } else { Self::Stream(source) })
    }

    fn schema(self) -> Result<Arc<Schema>, ArrowError> {
        Ok(match self {
            Self::File(source) => FileReader::try_new(source, None)?.schema(),
            Self::Stream(source) => StreamReader::try_new(source, None)?.schema(),
        })
    }

    fn batches(
        self,
        columns: Option<Vec<usize>>,
    ) -> Result<Box<dyn Iterator<Item = Result<RecordBatch, ArrowError>> + Send>, ArrowError> {
        Ok(match self {
            Self::File(source) => Box::new(FileReader::try_new(source, columns)?),
            Self::Stream(source) => Box::new(StreamReader::try_new(source, columns)?),
        })
    }
}

/// Stored bytes with a place to read from.
struct Seeking {
    stored: Arc<dyn Stored>,
    bytes: u64,
    offset: u64,
}

impl Read for Seeking {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.stored.read_at(buffer, self.offset)?;
        self.offset += read as u64;
        Ok(read)
    }
}

impl Seek for Seeking {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let offset = match to {
            SeekFrom::Start(offset) => Some(offset),
            SeekFrom::End(distance) => self.bytes.checked_add_signed(distance),
            SeekFrom::Current(distance) => self.offset.checked_add_signed(distance),
        };
        self.offset = offset.ok_or_else(|| {
            io::Error::new(io::ErrorKind::UnexpectedEof, "it names a place outside the file")
        })?;
        Ok(self.offset)
    }
}

#[cfg(test)]
#[path = "arrow_tests.rs"]
pub(in crate::source) mod tests;
