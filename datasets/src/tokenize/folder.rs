//! The folder that shards are made in: whose it is, who writes in it now, and what is in it.

use std::fs::{File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::job::{Job, JobFacts};
use super::progress::{read_json, write_json};
use crate::files::io_error;
use crate::shards::{ShardIndex, TRAIN, VALIDATION};
use crate::{Error, Result};

/// What the shards were made from.
pub(crate) const JOB: &str = "job.json";
pub(super) const PROGRESS: &str = "progress.json";
pub(super) const SKIPPED: &str = "skipped.jsonl";
const LOCK: &str = "lock";
/// What a folder can have besides shards and their index.
const BESIDE: [&str; 7] =
    [JOB, SKIPPED, LOCK, PROGRESS, "job.json.new", "progress.json.new", "index.json.new"];

/// The index, if the shards of this job are there already. What is in them is looked at by whoever reads them.
pub(super) fn finished(job: &Job) -> Result<Option<ShardIndex>> {
    if !is_of(job)? || !ShardIndex::is_in(&job.output) {
        return Ok(None);
    }
    let index = ShardIndex::read(&job.output)?;
    index.check_sizes(&job.output)?;
    Ok(Some(index))
}

/// Whether the folder of the output belongs to this job; it is an error if it belongs to another.
fn is_of(job: &Job) -> Result<bool> {
    let theirs = read_json::<JobFacts>(&job.output.join(JOB)).map_err(|error| match error {
        // A folder that was chosen badly, and no bad data.
        Error::Io { path, error, .. } => io_error(&path, "look at", error),
        error => error,
    })?;
    let Some(theirs) = theirs else { return Ok(false) };
    let differences = theirs.differences(&job.facts());
    if differences.is_empty() {
        return Ok(true);
    }
    let why = format!(
        "the folder has shards of another job, which differs in {}; name a new folder, or remove this one",
        differences.join(" and ")
    );
    Err(other(&job.output, why))
}

fn other(path: &Path, why: impl Into<String>) -> Error {
    Error::OtherShards { path: path.to_owned(), why: why.into() }
}

/// Refuses a folder that has something in it which is not ours to write beside.
fn refuse_foreign(path: &Path) -> Result<()> {
    let entries = std::fs::read_dir(path).map_err(|error| io_error(path, "look into", error))?;
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
        let file = File::create(&path).map_err(|error| io_error(&path, "write", error))?;
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
pub(super) struct Folder<'a> {
    pub(super) path: &'a Path,
    /// Folders that were not there before, the innermost first.
    made: Vec<&'a Path>,
    _lock: File,
}

impl<'a> Folder<'a> {
    pub(super) fn open(job: &'a Job, stop: &AtomicBool) -> Result<Self> {
        let path = job.output.as_path();
        let made = path.ancestors().take_while(|folder| is_missing(folder)).collect();
        std::fs::create_dir_all(path).map_err(|error| io_error(path, "make", error))?;
        refuse_foreign(path)?;
        let lock = lock(job, stop)?;
        // From here on nobody else writes in it.
        if !is_of(job)? {
            write_json(&path.join(JOB), &job.facts())?;
        }
        Ok(Self { path, made, _lock: lock })
    }

    /// Removes what tokenizing makes, and nothing else. A file that stays is in nobody's way.
    pub(super) fn clear(&self) {
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
        // Those that somebody else has put something in stay.
        for folder in &self.made {
            let _ = std::fs::remove_dir(folder);
        }
    }
}

/// The last ancestor of a relative path is an empty one, which is the working directory.
fn is_missing(folder: &Path) -> bool {
    !folder.as_os_str().is_empty() && !folder.exists()
}

/// Removes what says how far an attempt has come, and files that a kill has left before they had their name.
pub(super) fn remove_what_was_under_way(path: &Path) {
    for name in BESIDE.iter().filter(|name| ![JOB, SKIPPED, LOCK].contains(name)) {
        let _ = std::fs::remove_file(path.join(name));
    }
}
