//! The threads of a tokenization, and the order between them.

use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::encode::{Destination, Encoded, Item, encode};
use super::job::{Job, JobFacts, OnBadRecord};
use super::progress::{Progress, Saved, read_json, write_json};
use crate::contained::contain;
use crate::files::io_error;
use crate::shards::{INDEX, InputFacts, ShardIndex, SplitWriter};
use crate::source::{self, BadRecord, Compression, Format, Position, RawBatch, Reader};
use crate::{Error, Result};

const JOB: &str = "job.json";
const PROGRESS: &str = "progress.json";
const SKIPPED: &str = "skipped.jsonl";
const LOCK: &str = "lock";
/// What a folder can have besides shards and their index; a kill leaves those that are being written.
const BESIDE: [&str; 7] =
    [JOB, "job.json.new", PROGRESS, "progress.json.new", "index.json.new", SKIPPED, LOCK];
pub(super) const TRAIN: &str = "train";
pub(super) const VALIDATION: &str = "validation";

/// How long work may be lost by a kill.
const SAVE_EVERY: Duration = Duration::from_secs(5);

/// What a tokenization gave.
#[derive(Debug)]
pub struct Outcome {
    /// The index of the folder.
    pub index: ShardIndex,
    /// Whether everything was there already.
    pub was_done: bool,
    /// Whether an earlier attempt was continued.
    pub was_resumed: bool,
}

/// Runs `job`, from where an earlier attempt at it ended.
///
/// # Errors
/// A file cannot be read or written; a record is bad and none may be skipped (then nothing is left behind); the folder
/// has something else in it; or [`Error::Stopped`] once `stop` is set (then the next attempt goes on from here).
pub fn tokenize(
    job: &Job,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(Progress),
) -> Result<Outcome> {
    let done = |index| Outcome { index, was_done: true, was_resumed: false };
    if let Some(index) = finished(job)? {
        return Ok(done(index));
    }
    let folder = Folder::open(job, stop)?;
    // It may have been finished while this process waited for it.
    if let Some(index) = finished(job)? {
        return Ok(done(index));
    }
    let saved: Option<Saved> = read_json(&job.output.join(PROGRESS))?;
    let was_resumed = saved.is_some();
    let result = run(job, saved.unwrap_or_default(), stop, progress);
    if result.as_ref().is_err_and(|error| !can_go_on(error, &folder)) {
        folder.clear();
    }
    Ok(Outcome { index: result?, was_done: false, was_resumed })
}

/// Whether another attempt at the same job could go on: not if a file has to change first, nor if nothing was saved.
fn can_go_on(error: &Error, folder: &Folder<'_>) -> bool {
    match error {
        Error::Stopped => true,
        Error::Io { .. } | Error::Source(source::Error::Store { .. }) => {
            folder.path.join(PROGRESS).exists()
        }
        _ => false,
    }
}

/// The index, if the shards of this job are there already.
fn finished(job: &Job) -> Result<Option<ShardIndex>> {
    if is_of(job)? && ShardIndex::is_in(&job.output) {
        return ShardIndex::read(&job.output).map(Some);
    }
    Ok(None)
}

/// Whether the folder of the output belongs to this job; it is an error if it belongs to another.
fn is_of(job: &Job) -> Result<bool> {
    let Some(theirs) = read_json::<JobFacts>(&job.output.join(JOB))? else { return Ok(false) };
    let differences = theirs.differences(&job.facts());
    if differences.is_empty() {
        return Ok(true);
    }
    let why = format!(
        "the folder has shards of another job: {} differ; name a new folder, or remove this one",
        differences.join(", ")
    );
    Err(other(&job.output, why))
}

fn other(path: &Path, why: impl Into<String>) -> Error {
    Error::OtherShards { path: path.to_owned(), why: why.into() }
}

/// Refuses a folder that has something in it which is not ours to write beside.
fn refuse_foreign(path: &Path) -> Result<()> {
    let entries = std::fs::read_dir(path).map_err(|error| io_error(path, "read", error))?;
    // A kill may have left any of these before there was a job.
    let is_foreign = |entry: std::fs::DirEntry| {
        entry.file_name().to_str().is_none_or(|name| !BESIDE.contains(&name))
    };
    let has_foreign = entries.flatten().any(is_foreign);
    // Looked for afterwards: whoever makes shards here at this moment has written it before them.
    if has_foreign && !path.join(JOB).exists() {
        return Err(other(
            path,
            "the folder is not empty, and has no shards in it; name a new folder",
        ));
    }
    Ok(())
}

/// Waits for the lock of the folder, or refuses where somebody else has it.
fn lock(job: &Job, stop: &AtomicBool) -> Result<File> {
    let path = job.output.join(LOCK);
    loop {
        // Whoever has met a bad record clears the folder.
        std::fs::create_dir_all(&job.output)
            .map_err(|error| io_error(&job.output, "make", error))?;
        let file = File::create(&path).map_err(|error| io_error(&path, "make", error))?;
        if file.try_lock().is_ok() {
            // The file may have been removed, and made anew by another process, since it was opened.
            let is_same =
                |there: Metadata| file.metadata().is_ok_and(|here| here.ino() == there.ino());
            if std::fs::metadata(&path).is_ok_and(is_same) {
                return Ok(file);
            }
            continue;
        }
        if !job.waits {
            is_of(job)?;
            return Err(other(&job.output, "another process is making these shards now"));
        }
        if stop.load(Ordering::Relaxed) {
            return Err(Error::Stopped);
        }
        thread::sleep(Duration::from_millis(50));
    }
}

/// The folder of the output, locked.
struct Folder<'a> {
    path: &'a Path,
    was_made: bool,
    _lock: File,
}

impl<'a> Folder<'a> {
    fn open(job: &'a Job, stop: &AtomicBool) -> Result<Self> {
        let path = job.output.as_path();
        let was_made = !path.exists();
        std::fs::create_dir_all(path).map_err(|error| io_error(path, "make", error))?;
        refuse_foreign(path)?;
        let lock = lock(job, stop)?;
        // From here on nobody else writes in it.
        if !is_of(job)? {
            write_json(&path.join(JOB), &job.facts())?;
        }
        Ok(Self { path, was_made, _lock: lock })
    }

    /// Removes what tokenizing makes, and nothing else. A file that stays is in nobody's way.
    fn clear(&self) {
        let made = |name: &str| {
            let is_shard = [TRAIN, VALIDATION]
                .iter()
                .any(|split| name.strip_prefix(split).is_some_and(|rest| rest.starts_with('-')));
            is_shard || BESIDE.contains(&name)
        };
        for entry in std::fs::read_dir(self.path).into_iter().flatten().flatten() {
            if entry.file_name().to_str().is_some_and(made) {
                let _ = std::fs::remove_file(entry.path());
            }
        }
        if self.was_made {
            let _ = std::fs::remove_dir(self.path);
        }
    }
}

/// A batch on its way to the threads.
struct Work {
    number: u64,
    input: usize,
    batch: RawBatch,
}

/// What the writer is told, by number: batches are written in the order in which they were read.
enum Told {
    Encoded {
        input: usize,
        end: Position,
        encoded: Encoded,
    },
    /// An input has ended; in the order of the batches too.
    EndOfInput(usize),
    Failed(Error),
}

type Numbered = (u64, Told);

fn run(
    job: &Job,
    saved: Saved,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(Progress),
) -> Result<ShardIndex> {
    let threads = job.threads.max(1);
    let (work_in, work_out) = sync_channel::<Work>(threads);
    let (told_in, told_out) = channel::<Numbered>();
    // One for each batch between reading and writing: this bounds the memory.
    let (permits_in, permits_out) = sync_channel::<()>(3 * threads + 4);
    let work_out = Mutex::new(work_out);
    let mut writer = Writer::new(job, saved)?;
    let (input, position) = (writer.saved.input, writer.saved.position);
    thread::scope(|scope| {
        let told = told_in.clone();
        // Moved into threads, so that they close with them.
        scope.spawn(move || read(job, input, position, &work_in, &permits_in, &told));
        for _ in 0..threads {
            let (told, work) = (told_in.clone(), &work_out);
            scope.spawn(move || encode_all(job, work, &told));
        }
        drop(told_in);
        let result = write_all(job, &mut writer, &told_out, &permits_out, stop, progress);
        // Whoever still waits to send finds the other end closed. The queue of work is shared, so it is emptied.
        drop((told_out, permits_out));
        while work_out.lock().unwrap_or_else(PoisonError::into_inner).recv().is_ok() {}
        result
    })?;
    writer.finish()
}

fn read(
    job: &Job,
    first: usize,
    position: Position,
    work: &SyncSender<Work>,
    permits: &SyncSender<()>,
    told: &Sender<Numbered>,
) {
    let mut number = 0;
    let mut from = position;
    for (input, file) in job.inputs.iter().enumerate().skip(first) {
        let reader = Reader::open(file, &job.fields, job.documents, from);
        from = Position::default();
        let batches = match reader {
            Ok(batches) => batches,
            Err(error) => return drop(told.send((number, Told::Failed(error.into())))),
        };
        for batch in batches {
            if permits.send(()).is_err() {
                return;
            }
            match batch {
                Ok(batch) => {
                    if work.send(Work { number, input, batch }).is_err() {
                        return;
                    }
                }
                Err(error) => return drop(told.send((number, Told::Failed(error.into())))),
            }
            number += 1;
        }
        if permits.send(()).is_err() || told.send((number, Told::EndOfInput(input))).is_err() {
            return;
        }
        number += 1;
    }
}

fn encode_all(job: &Job, work: &Mutex<Receiver<Work>>, told: &Sender<Numbered>) {
    loop {
        let next = work.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(Work { number, input, batch }) = next else { return };
        // A panic of the tokenizer must not take the process down: the place is in the message.
        let encoded = contain(|| encode(job, &batch));
        let result = match encoded {
            Ok(Ok(encoded)) => Told::Encoded { input, end: batch.end, encoded },
            Ok(Err(error)) => Told::Failed(error),
            Err(_) => Told::Failed(Error::TokenizerPanicked {
                name: job.inputs[input].name.clone(),
                record: batch.start.record + 1,
            }),
        };
        if told.send((number, result)).is_err() {
            return;
        }
    }
}

fn write_all(
    job: &Job,
    writer: &mut Writer<'_>,
    told: &Receiver<Numbered>,
    permits: &Receiver<()>,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(Progress),
) -> Result<()> {
    let mut waiting = BTreeMap::new();
    let mut next = 0;
    let mut saved_at = Instant::now();
    for (number, result) in told {
        waiting.insert(number, result);
        while let Some(result) = waiting.remove(&next) {
            next += 1;
            // Given before the batch was sent, so it is there.
            let _ = permits.recv();
            match result {
                Told::Encoded { input, end, encoded } => writer.add(input, end, &encoded)?,
                Told::EndOfInput(input) => writer.end_of_input(input),
                Told::Failed(error) => return Err(error),
            }
            let is_stopped = stop.load(Ordering::Relaxed);
            if is_stopped || saved_at.elapsed() > SAVE_EVERY {
                writer.save()?;
                saved_at = Instant::now();
            }
            if is_stopped {
                return Err(Error::Stopped);
            }
            progress(writer.progress());
        }
    }
    if writer.saved.input == job.inputs.len() { Ok(()) } else { Err(Error::Stopped) }
}

/// Puts tokens into shards and keeps account.
struct Writer<'a> {
    job: &'a Job,
    saved: Saved,
    train: SplitWriter,
    validation: SplitWriter,
    skipped: Option<File>,
    in_document: Option<Destination>,
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
    fn new(job: &'a Job, saved: Saved) -> Result<Self> {
        let index = ShardIndex::new(job.tokenizer.facts(), job.kind());
        let split = |name, state| {
            let (kind, bytes) = (index.kind, index.token_bytes);
            SplitWriter::resume(&job.output, name, kind, bytes, job.shard_tokens, state)
        };
        let in_document = saved.in_document.as_deref().map(|split| {
            if split == VALIDATION { Destination::Validation } else { Destination::Train }
        });
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
            in_document,
            bytes_before,
            bytes: job.inputs.iter().map(|input| input.bytes).sum(),
        })
    }

    fn add(&mut self, input: usize, end: Position, encoded: &Encoded) -> Result<()> {
        for item in &encoded.items {
            let piece = match item {
                Item::Piece(piece) => piece,
                Item::Bad(bad) => {
                    self.bad_record(input, bad)?;
                    continue;
                }
            };
            let destination = piece.begins.or(self.in_document).unwrap_or(Destination::Train);
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
            self.in_document = (!piece.ends).then_some(destination);
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

    fn end_of_input(&mut self, input: usize) {
        let bytes = self.job.inputs[input].bytes;
        self.bytes_before += bytes;
        self.saved.account.empty_files += u64::from(bytes == 0);
        // What was cut off in the middle of a document ends here.
        self.in_document = None;
        (self.saved.input, self.saved.position) = (input + 1, Position::default());
    }

    fn save(&mut self) -> Result<()> {
        self.saved.train = self.train.save()?;
        self.saved.validation = self.validation.save()?;
        self.saved.in_document = self.in_document.map(|destination| match destination {
            Destination::Train => TRAIN.to_owned(),
            Destination::Validation => VALIDATION.to_owned(),
        });
        if let Some(list) = &self.skipped {
            let path = self.job.output.join(SKIPPED);
            list.sync_data().map_err(|error| io_error(&path, "write", error))?;
        }
        write_json(&self.job.output.join(PROGRESS), &self.saved)
    }

    fn progress(&self) -> Progress {
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
    fn finish(self) -> Result<ShardIndex> {
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
        write_json(&job.output.join(INDEX), &index)?;
        for name in BESIDE.iter().filter(|name| ![JOB, SKIPPED, LOCK].contains(name)) {
            let _ = std::fs::remove_file(job.output.join(name));
        }
        Ok(index)
    }
}

/// Opens a list of which the first `bytes` bytes count.
fn open_list(path: &PathBuf, bytes: u64) -> Result<File> {
    let open = || -> std::io::Result<File> {
        let mut file = File::options().create(true).truncate(false).write(true).open(path)?;
        file.set_len(bytes)?;
        file.seek(SeekFrom::Start(bytes))?;
        Ok(file)
    };
    open().map_err(|error| io_error(path, "open", error))
}
