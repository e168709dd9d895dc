//! The threads of a tokenization, and the order between them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::encode::{Encoded, encode};
use super::folder::{Folder, PROGRESS, finished};
use super::job::Job;
use super::progress::{Progress, Saved, read_json};
use super::writer::Writer;
use crate::contained::contain;
use crate::shards::ShardIndex;
use crate::source::{self, Position, RawBatch, Reader};
use crate::{Error, Result};

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
