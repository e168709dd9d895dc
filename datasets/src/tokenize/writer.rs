//! From tokens to shards, with the account of what became of every record.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;

use serde::Serialize;

use super::encode::{Destination, Encoded, Item};
use super::folder::{self, PROGRESS, SKIPPED};
use super::job::{Job, OnBadRecord};
use super::progress::{Progress, Saved, write_json, write_whole};
use crate::files::io_error;
use crate::shards::{INDEX, InputFacts, ShardIndex, SplitWriter, TRAIN, VALIDATION};
use crate::source::{BadRecord, Compression, Format, Position};
use crate::{Error, Result};

/// Puts tokens into shards and keeps account.
pub(super) struct Writer<'a> {
    job: &'a Job,
    pub(super) saved: Saved,
    train: SplitWriter,
    validation: SplitWriter,
    skipped: Option<File>,
    bytes_before: u64,
    /// Bytes of all inputs.
    bytes: u64,
}

#[derive(Serialize)]
struct SkippedRecord<'a> {
    file: &'a str,
    record: u64,
    offset: u64,
    reason: &'a str,
    detail: &'a str,
}

impl<'a> Writer<'a> {
    pub(super) fn new(job: &'a Job, saved: Saved) -> Result<Self> {
        let index = ShardIndex::new(job.tokenizer.facts(), job.kind());
        let split = |name, state| {
            let (kind, bytes) = (index.kind, index.token_bytes);
            SplitWriter::resume(&job.output, name, kind, bytes, job.shard_tokens, state)
        };
        let skipped = match job.on_bad_record {
            OnBadRecord::Fail => None,
            OnBadRecord::Skip => Some(open_list(&job.output.join(SKIPPED), saved.skipped_bytes)?),
        };
        let bytes_before = job.inputs[..saved.input].iter().map(|input| input.bytes).sum();
        Ok(Self {
            job,
            train: split(TRAIN, saved.train.clone())?,
            validation: split(VALIDATION, saved.validation.clone())?,
            saved,
            skipped,
            bytes_before,
            bytes: job.inputs.iter().map(|input| input.bytes).sum(),
        })
    }

    pub(super) fn add(&mut self, input: usize, end: Position, encoded: &Encoded) -> Result<()> {
        for item in &encoded.items {
            let piece = match item {
                Item::Piece(piece) => piece,
                Item::Bad(bad) => {
                    self.bad_record(input, bad)?;
                    continue;
                }
            };
            let destination = piece.begins.or(self.saved.in_document).unwrap_or(Destination::Train);
            let writer = match destination {
                Destination::Train => &mut self.train,
                Destination::Validation => &mut self.validation,
            };
            if piece.begins.is_some() {
                writer.begin(piece.extra.as_deref())?;
            }
            writer.append(encoded.tokens(&piece.prompt), false)?;
            writer.append(encoded.tokens(&piece.text), true)?;
            if piece.ends {
                writer.end()?;
            }
            self.saved.in_document = (!piece.ends).then_some(destination);
        }
        let account = &mut self.saved.account;
        account.records += encoded.records;
        account.empty_documents += encoded.empty_documents;
        account.text_bytes += encoded.text_bytes;
        (self.saved.input, self.saved.position) = (input, end);
        Ok(())
    }

    fn bad_record(&mut self, input: usize, bad: &BadRecord) -> Result<()> {
        let file = &self.job.inputs[input];
        let Some(list) = &mut self.skipped else {
            let is_text = matches!(file.format, Format::Text | Format::JsonLines);
            return Err(Error::BadRecord {
                name: file.name.clone(),
                record: bad.place.record,
                offset: is_text.then_some(bad.place.offset),
                is_compressed: file.compression != Compression::None,
                reason: bad.reason.word(),
                what: bad.detail.clone(),
            });
        };
        let reason = bad.reason.word();
        *self.saved.account.bad.entry(reason.to_owned()).or_default() += 1;
        let record = SkippedRecord {
            file: &file.name,
            record: bad.place.record,
            offset: bad.place.offset,
            reason,
            detail: &bad.detail,
        };
        let path = self.job.output.join(SKIPPED);
        let mut line = serde_json::to_vec(&record).unwrap_or_default();
        line.push(b'\n');
        list.write_all(&line).map_err(|error| io_error(&path, "write", error))?;
        self.saved.skipped_bytes += line.len() as u64;
        Ok(())
    }

    pub(super) fn end_of_input(&mut self, input: usize) {
        let bytes = self.job.inputs[input].bytes;
        self.bytes_before += bytes;
        self.saved.account.empty_files += u64::from(bytes == 0);
        // What was cut off in the middle of a document ends here.
        self.saved.in_document = None;
        (self.saved.input, self.saved.position) = (input + 1, Position::default());
    }

    pub(super) fn save(&mut self) -> Result<()> {
        self.saved.train = self.train.save()?;
        self.saved.validation = self.validation.save()?;
        if let Some(list) = &self.skipped {
            let path = self.job.output.join(SKIPPED);
            list.sync_data().map_err(|error| io_error(&path, "write", error))?;
        }
        write_json(&self.job.output.join(PROGRESS), &self.saved)
    }

    pub(super) fn progress(&self) -> Progress {
        let (files, files_done) = (self.job.inputs.len(), self.saved.input);
        let within = self.job.inputs.get(files_done).map_or(0, |input| match input.compression {
            Compression::None
                if input.format != Format::Parquet && input.format != Format::Arrow =>
            {
                self.saved.position.offset.min(input.bytes)
            }
            _ => 0,
        });
        Progress {
            files_done,
            files,
            text_bytes: self.saved.account.text_bytes,
            tokens: self.train.tokens() + self.validation.tokens(),
            // Never 0 / 0.
            fraction: (self.bytes_before + within) as f64 / self.bytes.max(1) as f64,
        }
    }

    /// Writes the index, which makes the folder a finished one.
    pub(super) fn finish(self) -> Result<ShardIndex> {
        let job = self.job;
        let mut index = ShardIndex::new(job.tokenizer.facts(), job.kind());
        index.document_start = job.document_start;
        index.document_end = job.document_end;
        index.validation_fraction = job.validation_fraction;
        index.account = self.saved.account;
        let inputs = job.inputs.iter();
        index.inputs =
            inputs.map(|i| InputFacts { name: i.name.clone(), bytes: i.bytes }).collect();
        index.splits.insert(TRAIN.to_owned(), self.train.finish()?);
        if job.validation_fraction > 0.0 {
            index.splits.insert(VALIDATION.to_owned(), self.validation.finish()?);
        }
        write_whole(&job.output.join(INDEX), &index.to_text())?;
        folder::remove_what_was_under_way(&job.output);
        Ok(index)
    }
}

/// Opens a list of which the first `bytes` bytes count.
fn open_list(path: &Path, bytes: u64) -> Result<File> {
    let open = || -> std::io::Result<File> {
        let mut file = File::options().create(true).truncate(false).write(true).open(path)?;
        file.set_len(bytes)?;
        file.seek(SeekFrom::Start(bytes))?;
        Ok(file)
    };
    open().map_err(|error| io_error(path, "open", error))
}
