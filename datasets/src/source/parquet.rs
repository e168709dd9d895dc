//! Rows of a Parquet file: the wanted columns by their pages, without building records.

use std::collections::VecDeque;
use std::io::{BufReader, Read};
use std::sync::Arc;

use bytes::Bytes;
use parquet::basic::{Compression, Type};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{ByteArray, ByteArrayType};
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, FileReader, Length, SerializedFileReader};
use parquet::record::reader::RowIter;
use parquet::schema::types::SchemaDescriptor;

use super::batch::{Body, RawBatch};
use super::names::{did_you_mean, list};
use super::open::{ReaderAt, Stored, open};
use super::reader::{Batches, Limits};
use super::table::{Column, Table};
use super::{Error, Fields, Input, Position, ReadError, Result, json_text};

/// Rows that are read at first, before the size of a row is known.
const FIRST_ROWS: usize = 16;
/// The most rows that are read at once.
const MOST_ROWS: usize = 1024;

/// Reads row group by row group. A batch ends with its row group at the latest.
pub(super) struct ParquetRows {
    name: String,
    limits: Limits,
    fields: Arc<Fields>,
    file: SerializedFileReader<Chunks>,
    /// The wanted columns, by number.
    columns: Vec<usize>,
    group: Option<Group>,
    next_group: usize,
    /// The row that comes next, from 0.
    row: u64,
    /// All columns, where the others are wanted too.
    records: Option<RowIter<'static>>,
}

impl ParquetRows {
    pub(super) fn open(
        input: &Input,
        fields: &Fields,
        from: Position,
        limits: Limits,
    ) -> Result<Self> {
        let chunks = Chunks { stored: open(input)?, bytes: input.bytes };
        let corrupt = |error| read_error(&input.name, error);
        let file = SerializedFileReader::new(chunks.clone()).map_err(corrupt)?;
        let schema = file.metadata().file_metadata().schema_descr();
        let columns = fields
            .names()
            .iter()
            .map(|name| find_column(&input.name, schema, name))
            .collect::<Result<Vec<_>>>()?;
        check_codecs(&input.name, &file, &columns)?;
        let records = if matches!(fields, Fields::Prompt { .. }) {
            let file = SerializedFileReader::new(chunks).map_err(corrupt)?;
            Some(RowIter::from_file_into(Box::new(file)))
        } else {
            None
        };
        let mut rows = Self {
            name: input.name.clone(),
            limits,
            fields: Arc::new(fields.clone()),
            file,
            columns,
            group: None,
            next_group: 0,
            row: 0,
            records,
        };
        rows.skip(from.offset)?;
        Ok(rows)
    }

    fn skip(&mut self, rows: u64) -> Result<(), ReadError> {
        while self.row < rows {
            let Some(mut group) = self.open_group()? else {
                let detail = format!("it has {} rows, reading was to go on at {rows}", self.row);
                return Err(ReadError::changed(&self.name, detail));
            };
            let step = (rows - self.row).min(group.unread as u64);
            if step < group.unread as u64 {
                group.skip(step as usize).map_err(|e| read_error(&self.name, e))?;
                self.group = Some(group);
            }
            self.row += step;
        }
        for _ in 0..rows {
            self.next_record()?;
        }
        Ok(())
    }

    /// The next row group.
    fn open_group(&mut self) -> Result<Option<Group>, ReadError> {
        if self.next_group >= self.file.num_row_groups() {
            return Ok(None);
        }
        let group = Group::open(&self.file, self.next_group, &self.columns)
            .map_err(|e| read_error(&self.name, e))?;
        self.next_group += 1;
        Ok(Some(group))
    }

    /// The other columns of the next row, if they are wanted.
    fn next_record(&mut self) -> Result<Option<String>, ReadError> {
        let Some(records) = &mut self.records else { return Ok(None) };
        let corrupt = |error| read_error(&self.name, error);
        let row = records.next().ok_or_else(|| corrupt(few_rows()))?.map_err(corrupt)?;
        Ok(Some(json_text::of_parquet_row(&row, &self.fields.names())))
    }

    fn take(&mut self, group: &mut Group) -> Result<RawBatch, ReadError> {
        let start = Position { offset: self.row, record: self.row };
        let mut columns = vec![Vec::new(); self.columns.len()];
        let (mut text_bytes, mut rest) = (0, Vec::new());
        while text_bytes < self.limits.batch.max(1) {
            let Some(row) = group.next_row().map_err(|e| read_error(&self.name, e))? else { break };
            for (column, value) in columns.iter_mut().zip(row) {
                // So that rows without text fill a batch too.
                text_bytes += 1 + value.as_ref().map_or(0, ByteArray::len);
                column.push(value);
            }
            rest.extend(self.next_record()?);
            self.row += 1;
        }
        let end = Position { offset: self.row, record: self.row };
        let table = Table {
            fields: Arc::clone(&self.fields),
            rows: (end.record - start.record) as usize,
            columns: columns.into_iter().map(Column::Bytes).collect(),
            rest,
            text_bytes,
        };
        Ok(RawBatch { start, end, body: Body::Table(table), bad: None })
    }
}

impl Batches for ParquetRows {
    fn next_batch(&mut self) -> Result<Option<RawBatch>, ReadError> {
        loop {
            let mut group = match self.group.take() {
                Some(group) => group,
                None => match self.open_group()? {
                    Some(group) => group,
                    None => return Ok(None),
                },
            };
            if group.is_empty() {
                continue;
            }
            let batch = self.take(&mut group)?;
            self.group = Some(group);
            return Ok(Some(batch));
        }
    }
}

/// A row group that is being read.
struct Group {
    readers: Vec<ColumnReaderImpl<ByteArrayType>>,
    /// What was read of each column and not taken yet.
    ready: Vec<VecDeque<Option<ByteArray>>>,
    /// Rows that were not read yet.
    unread: usize,
    /// Rows to read next.
    step: usize,
}

impl Group {
    fn open(
        file: &SerializedFileReader<Chunks>,
        number: usize,
        columns: &[usize],
    ) -> Result<Self, ParquetError> {
        let group = file.get_row_group(number)?;
        let rows = group.metadata().num_rows();
        let unread = usize::try_from(rows)
            .map_err(|_| ParquetError::General(format!("row group {number} has {rows} rows")))?;
        let mut readers = Vec::with_capacity(columns.len());
        for column in columns {
            let ColumnReader::ByteArrayColumnReader(reader) = group.get_column_reader(*column)?
            else {
                return Err(ParquetError::General("a column changed its type".to_owned()));
            };
            readers.push(reader);
        }
        let ready = readers.iter().map(|_| VecDeque::new()).collect();
        Ok(Self { readers, ready, unread, step: FIRST_ROWS })
    }

    fn is_empty(&self) -> bool {
        self.unread == 0 && self.ready.iter().all(VecDeque::is_empty)
    }

    fn skip(&mut self, rows: usize) -> Result<(), ParquetError> {
        for reader in &mut self.readers {
            if reader.skip_records(rows)? != rows {
                return Err(few_rows());
            }
        }
        self.unread -= rows;
        Ok(())
    }

    /// The values of the next row, one for each column.
    fn next_row(&mut self) -> Result<Option<Vec<Option<ByteArray>>>, ParquetError> {
        if self.ready.iter().any(VecDeque::is_empty) {
            if self.unread == 0 {
                return Ok(None);
            }
            self.read_on()?;
        }
        Ok(self.ready.iter_mut().map(VecDeque::pop_front).collect())
    }

    /// Reads about as many rows as make a batch.
    fn read_on(&mut self) -> Result<(), ParquetError> {
        let rows = self.step.min(self.unread);
        let mut bytes = 0;
        for (reader, ready) in self.readers.iter_mut().zip(&mut self.ready) {
            let values = read_values(reader, rows)?;
            bytes += values.iter().flatten().map(ByteArray::len).sum::<usize>();
            ready.extend(values);
        }
        self.unread -= rows;
        let row_bytes = (bytes / rows.max(1)).max(1);
        self.step = (Limits::STANDARD.batch / row_bytes).clamp(1, MOST_ROWS);
        Ok(())
    }
}

fn read_values(
    reader: &mut ColumnReaderImpl<ByteArrayType>,
    rows: usize,
) -> Result<Vec<Option<ByteArray>>, ParquetError> {
    let (mut levels, mut values) = (Vec::new(), Vec::<ByteArray>::new());
    let (read, _, _) = reader.read_records(rows, Some(&mut levels), None, &mut values)?;
    if read != rows {
        return Err(few_rows());
    }
    let mut values = values.into_iter();
    if levels.is_empty() {
        // A column that cannot be null has no levels.
        return Ok(values.map(Some).collect());
    }
    Ok(levels.into_iter().map(|level| if level > 0 { values.next() } else { None }).collect())
}

fn few_rows() -> ParquetError {
    ParquetError::EOF("a column has fewer rows than its row group".to_owned())
}

/// The number of the column with this name, if it can be text.
fn find_column(file: &str, schema: &SchemaDescriptor, name: &str) -> Result<usize> {
    let bad = |problem, hint: String| Error::BadColumn { name: file.to_owned(), problem, hint };
    let top = schema.root_schema().get_fields();
    let found = schema.columns().iter().position(|column| column.path().parts()[0] == name);
    let Some(number) = found else {
        let names: Vec<_> = top.iter().map(|field| field.name()).collect();
        let hint = format!("the columns are {}", list(&names));
        let suggestion = did_you_mean(name, names.into_iter());
        return Err(bad(format!("there is no column {name:?}{suggestion}"), hint));
    };
    let column = schema.column(number);
    let kind = if column.path().parts().len() > 1 || column.max_rep_level() > 0 {
        "nested".to_owned()
    } else if column.physical_type() != Type::BYTE_ARRAY {
        column.physical_type().to_string()
    } else {
        return Ok(number);
    };
    let strings: Vec<_> = schema
        .columns()
        .iter()
        .filter(|column| {
            column.physical_type() == Type::BYTE_ARRAY && column.path().parts().len() == 1
        })
        .map(|column| column.name().to_owned())
        .collect();
    Err(bad(
        format!("column {name:?} is {kind}, it must be a column of strings"),
        format!(
            "columns of strings are {}",
            if strings.is_empty() { "none".to_owned() } else { list(&strings) }
        ),
    ))
}

/// That the wanted columns can be decompressed.
fn check_codecs(name: &str, file: &SerializedFileReader<Chunks>, columns: &[usize]) -> Result<()> {
    for group in file.metadata().row_groups() {
        for column in columns {
            let codec = group.column(*column).compression();
            if matches!(codec, Compression::BROTLI(_) | Compression::LZO) {
                let column = group.column(*column).column_path();
                return Err(Error::BadColumn {
                    name: name.to_owned(),
                    problem: format!(
                        "column {column} is compressed as {codec}, which cannot be read"
                    ),
                    hint: "write the file with zstd, snappy, gzip or lz4".to_owned(),
                });
            }
        }
    }
    Ok(())
}

fn read_error(name: &str, error: ParquetError) -> ReadError {
    let error = match error {
        ParquetError::External(inner) => match inner.downcast::<std::io::Error>() {
            Ok(error) => return ReadError::io(name, "read", *error),
            Err(inner) => ParquetError::External(inner),
        },
        error => error,
    };
    ReadError::Corrupt { name: name.to_owned(), format: "Parquet", detail: error.to_string() }
}

/// The stored bytes, as the crate for Parquet wants to see them.
#[derive(Clone)]
struct Chunks {
    stored: Arc<dyn Stored>,
    bytes: u64,
}

impl Length for Chunks {
    fn len(&self) -> u64 {
        self.bytes
    }
}

impl ChunkReader for Chunks {
    type T = BufReader<ReaderAt>;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        Ok(BufReader::new(ReaderAt { stored: Arc::clone(&self.stored), offset: start }))
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        let mut bytes = Vec::new();
        self.get_read(start)?
            .take(length as u64)
            .read_to_end(&mut bytes)
            .map_err(|e| ParquetError::External(Box::new(e)))?;
        if bytes.len() < length {
            return Err(ParquetError::EOF(format!("the file ends before byte {length} of a part")));
        }
        Ok(bytes.into())
    }
}

#[cfg(test)]
#[path = "parquet_tests.rs"]
pub(in crate::source) mod tests;
