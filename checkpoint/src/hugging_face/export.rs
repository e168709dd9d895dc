//! From a checkpoint to a folder, tensor by tensor.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use serde_json::{Value, json};

use super::plan::{Form, Output, OutputFile, plan};
use super::{CONFIG, INDEX, number, parallel};
use crate::folder::write_file;
use crate::{Checkpoint, Dtype, Error, NewFolder, Region, Wanted, restore};

/// Bytes of the checkpoint that are read at once; as many are written meanwhile, and as many wait.
const BATCH: u64 = 64 << 20;

/// Bytes of the checkpoint that one thread converts at once.
const SPAN: u64 = 4 << 20;

/// What was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exported {
    /// The folder.
    pub path: PathBuf,
    /// Files with weights.
    pub files: u64,
    /// Tensors in them.
    pub tensors: u64,
    /// Numbers in these.
    pub parameters: u64,
    /// Bytes of these.
    pub bytes: u64,
}

/// Why nothing was written.
#[derive(Debug, thiserror::Error)]
pub enum Failed {
    /// The checkpoint cannot be read.
    #[error("{0}")]
    Source(Error),
    /// The folder cannot be written.
    #[error("{0}")]
    Target(Error),
    /// A number does not fit.
    #[error("{name} has the number {value}, which {dtype:?} cannot hold")]
    TooLarge {
        /// The tensor.
        name: String,
        /// The number.
        value: f32,
        /// The number format.
        dtype: Dtype,
    },
    /// It was stopped.
    #[error("stopped")]
    Stopped,
}

impl Failed {
    fn source(error: Error) -> Self {
        if matches!(error, Error::Stopped) { Self::Stopped } else { Self::Source(error) }
    }
}

/// Writes the weights of a checkpoint, each block of which is compared with its hash, and `config` to a new folder, which is
/// there under its name once all is in it; `progress` is told the bytes that are written, and those that will be.
///
/// # Errors
/// Then nothing is there.
pub fn export(
    checkpoint: &Checkpoint,
    folder: &Path,
    form: &Form,
    config: &Value,
    threads: usize,
    stop: &AtomicBool,
    progress: &dyn Fn(u64, u64),
) -> Result<Exported, Failed> {
    let files = plan(&checkpoint.manifest().tensors, form);
    let new = NewFolder::begin(folder).map_err(Failed::Target)?;
    let batches = batches(&files);
    let (sender, receiver) = sync_channel(1);
    let mut writer = Writer { folder: new.hidden(), files: &files, dtype: form.dtype, open: None };
    let total = files.iter().flat_map(|file| &file.outputs).map(Output::elements).sum::<u64>();
    let bytes = total * form.dtype.bytes();
    thread::scope(|scope| {
        scope.spawn(|| read_all(checkpoint, &batches, form.dtype, threads, stop, sender));
        let mut written = 0;
        writer.write_all(receiver, &mut |more| {
            written += more;
            progress(written, bytes);
        })
    })?;
    let tensors = files.iter().map(|file| file.outputs.len() as u64).sum();
    let write = |name: &str, value: &Value| {
        let text = serde_json::to_string_pretty(value).unwrap_or_default() + "\n";
        write_file(&new.hidden().join(name), text.as_bytes()).map_err(Failed::Target)
    };
    if files.len() > 1 {
        write(INDEX, &index(&files, total, bytes))?;
    }
    write(CONFIG, config)?;
    if stop.load(Ordering::Relaxed) {
        return Err(Failed::Stopped);
    }
    let path = new.finish().map_err(Failed::Target)?;
    Ok(Exported { path, files: files.len() as u64, tensors, parameters: total, bytes })
}

fn index(files: &[OutputFile<'_>], parameters: u64, bytes: u64) -> Value {
    let outputs = files.iter().flat_map(|file| file.outputs.iter().map(move |o| (file, o)));
    let map: BTreeMap<&str, &str> =
        outputs.map(|(file, output)| (output.name.as_str(), file.name.as_str())).collect();
    json!({ "metadata": { "total_parameters": parameters, "total_size": bytes }, "weight_map": map })
}

/// Some rows of a tensor of a file.
struct Chunk<'a> {
    file: usize,
    output: &'a Output<'a>,
    region: Region,
}

/// All chunks in the order in which they are written, as many together as are read at once.
fn batches<'a>(files: &'a [OutputFile<'a>]) -> Vec<Vec<Chunk<'a>>> {
    let (mut batches, mut room) = (Vec::new(), 0);
    for (file, output) in
        files.iter().enumerate().flat_map(|(n, file)| file.outputs.iter().map(move |o| (n, o)))
    {
        let (width, [first, end]) = (output.facts.width(), output.rows);
        let row = (width * 4).max(1);
        for from in (first..end).step_by((SPAN / row).max(1) as usize) {
            let to = (from + (SPAN / row).max(1)).min(end);
            let region = Region { rows: [from, to], columns: [0, width] };
            let chunk = Chunk { file, output, region };
            if room == 0 || batches.is_empty() {
                batches.push(Vec::new());
                room = BATCH;
            }
            room = room.saturating_sub(region.elements() * 4);
            if let Some(batch) = batches.last_mut() {
                batch.push(chunk);
            }
        }
    }
    batches
}

/// Bytes for a file.
type Ready = Vec<(usize, Vec<u8>)>;

/// Reads batch after batch, until the other side has enough.
fn read_all(
    checkpoint: &Checkpoint,
    batches: &[Vec<Chunk<'_>>],
    dtype: Dtype,
    threads: usize,
    stop: &AtomicBool,
    sender: SyncSender<Result<Ready, Failed>>,
) {
    for batch in batches {
        let ready = read_batch(checkpoint, batch, dtype, threads, stop);
        let is_over = ready.is_err();
        if sender.send(ready).is_err() || is_over {
            return;
        }
    }
}

fn read_batch(
    checkpoint: &Checkpoint,
    batch: &[Chunk<'_>],
    dtype: Dtype,
    threads: usize,
    stop: &AtomicBool,
) -> Result<Ready, Failed> {
    let memory = |chunk: &Chunk<'_>| vec![0; (chunk.region.elements() * 4) as usize];
    let mut read: Vec<Vec<u8>> = batch.iter().map(memory).collect();
    let mut wanted = Vec::new();
    for (chunk, into) in batch.iter().zip(&mut read) {
        let Output { source, facts, .. } = chunk.output;
        if facts.dtype != Dtype::F32 {
            let what = format!("its tensor {source} is of {:?}, and not of F32", facts.dtype);
            let path = checkpoint.place().path();
            return Err(Failed::Source(Error::Lacks { path, what }));
        }
        let (name, tensor) = ((*source).to_owned(), (*facts).clone());
        wanted.push(Wanted { name, tensor, region: chunk.region, into });
    }
    restore(std::slice::from_ref(checkpoint), wanted, threads, stop).map_err(Failed::source)?;
    if dtype == Dtype::F32 {
        return Ok(batch.iter().map(|chunk| chunk.file).zip(read).collect());
    }
    let lost = Mutex::new(None);
    let mut ready: Ready = batch.iter().map(|chunk| (chunk.file, Vec::new())).collect();
    let tasks: Vec<_> = batch.iter().zip(read).zip(&mut ready).collect();
    parallel::share(tasks, threads, stop, |((chunk, read), (_, into)), _| {
        into.resize(read.len() / 4 * dtype.bytes() as usize, 0);
        if let Some(value) = number::narrow(dtype, &read, into)
            && let Ok(mut lost) = lost.lock()
        {
            *lost = Some((chunk.output.name.clone(), value));
        }
        Ok(())
    })
    .map_err(Failed::source)?;
    match lost.into_inner().ok().flatten() {
        Some((name, value)) => Err(Failed::TooLarge { name, value, dtype }),
        None => Ok(ready),
    }
}

/// Writes file after file.
struct Writer<'a> {
    folder: &'a Path,
    files: &'a [OutputFile<'a>],
    dtype: Dtype,
    /// The file that is being written, and its place.
    open: Option<(usize, PathBuf, File)>,
}

impl Writer<'_> {
    fn write_all(
        &mut self,
        receiver: Receiver<Result<Ready, Failed>>,
        written: &mut dyn FnMut(u64),
    ) -> Result<(), Failed> {
        for ready in receiver {
            for (place, content) in ready? {
                self.write(place, &content).map_err(Failed::Target)?;
                written(content.len() as u64);
            }
        }
        self.close().map_err(Failed::Target)
    }

    fn write(&mut self, place: usize, content: &[u8]) -> crate::Result<()> {
        if self.open.as_ref().is_none_or(|(open, ..)| *open != place) {
            self.close()?;
            let file = &self.files[place];
            let path = self.folder.join(&file.name);
            let make = || {
                let mut opened = File::options().write(true).create_new(true).open(&path)?;
                opened.write_all(&file.header(self.dtype))?;
                Ok(opened)
            };
            let opened = make().map_err(|error| Error::file(&path, "write", error))?;
            self.open = Some((place, path, opened));
        }
        let Some((_, path, file)) = &mut self.open else { return Ok(()) };
        file.write_all(content).map_err(|error| Error::file(path, "write", error))
    }

    fn close(&mut self) -> crate::Result<()> {
        let Some((_, path, file)) = self.open.take() else { return Ok(()) };
        file.sync_all().map_err(|error| Error::file(&path, "write", error))
    }
}
