//! Folders of token shards in a store, brought to this machine.

use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use serde::Deserialize;

use super::object::{Download, Step};
use super::{Address, Object, Store};
use crate::files::io_error;
use crate::shards::{DOCUMENTS, FORMAT, INDEX, ShardIndex, shard_path, verify_files};
use crate::source::{self, ReadError};
use crate::{Error, Fingerprint, Result};

/// Files that are fetched at a time.
const AT_A_TIME: usize = 4;

/// How often to look whether to stop, and to tell the progress.
const TICK: Duration = Duration::from_millis(100);

/// The index while files are missing. It also says whose files the others are.
const UNFINISHED: &str = "index.json.part";
const LOCK: &str = "lock";

/// The fingerprint of the index at an address, if that is a folder of finished token shards.
///
/// # Errors
/// It is no address of an object store, or the store does not answer.
pub fn find_shards(address: &str) -> Result<Option<Fingerprint>> {
    let (store, address) = at(address)?;
    find_shards_in(&store, &address)
}

pub(super) fn find_shards_in(store: &Arc<Store>, address: &Address) -> Result<Option<Fingerprint>> {
    #[derive(Deserialize)]
    struct Head {
        format: String,
    }
    let Some(index) = find_index(store, address)? else { return Ok(None) };
    let text = read(&index)?;
    let head = serde_json::from_slice::<Head>(&text);
    let is_of_shards = head.is_ok_and(|head| head.format == FORMAT);
    Ok(is_of_shards.then(|| Fingerprint::of(&text)))
}

/// Brings the token shards at an address to the folder `destination`, which is made if it is not there.
///
/// `progress` is told the bytes that are there and those of all files. What an earlier call that was stopped or killed
/// has brought is used. Every file is checked against its hashes. A folder with an `index.json` is complete.
///
/// # Errors
/// There are no shards at the address; the store does not answer; a file is not what its index says; the destination
/// has something else in it; or [`Error::Stopped`] once `stop` is set.
pub fn fetch_shards(
    address: &str,
    destination: &Path,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<()> {
    let (store, address) = at(address)?;
    fetch_from(&store, &address, destination, stop, progress)
}

pub(super) fn fetch_from(
    store: &Arc<Store>,
    address: &Address,
    destination: &Path,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<()> {
    let index = match find_index(store, address)? {
        Some(index) => read(&index)?,
        None => return Err(no_index(address)),
    };
    let shards = Shards::new(store, address, destination, index)?;
    let Some(_lock) = shards.prepare()? else { return Ok(()) };
    let files = shards.files()?;
    shards.fetch(&files, stop, progress)?;
    if shards.verify(stop)?.is_none() {
        return shards.finish();
    }
    // What stopped an earlier call may have damaged what that had brought. It is fetched once more.
    shards.fetch(&files, stop, progress)?;
    match shards.verify(stop)? {
        None => shards.finish(),
        Some(error) => Err(error),
    }
}

fn at(address: &str) -> Result<(Arc<Store>, Address)> {
    let parsed = Address::parse(address)?.ok_or_else(|| source::Error::BadPath {
        path: address.to_owned(),
        problem: "this is no address of an object store".to_owned(),
        hint: "write gs://BUCKET/PATH or s3://BUCKET/PATH".to_owned(),
    })?;
    Ok((Store::of_process(parsed.bucket())?, parsed))
}

/// The key of something in the folder of an address.
fn key(address: &Address, name: &str) -> String {
    if address.key().is_empty() { name.to_owned() } else { format!("{}/{name}", address.key()) }
}

fn find_index(store: &Arc<Store>, address: &Address) -> Result<Option<Object>> {
    let found = store.head(&key(address, INDEX))?;
    Ok(found.map(|meta| Object::new(store, &meta)))
}

fn no_index(address: &Address) -> Error {
    let error = source::Error::NothingFound {
        path: address.to_string(),
        problem: format!("there is no {INDEX}, so these are no finished token shards"),
        hint: "upload all files that titan-tpu data tokenize has made, or name a folder of text"
            .to_owned(),
    };
    error.into()
}

fn read(object: &Object) -> Result<Vec<u8>> {
    object.read().map_err(|error| ReadError::io(&object.name(), "read", error).into())
}

/// What is fetched, and where to.
struct Shards<'a> {
    store: &'a Arc<Store>,
    address: &'a Address,
    folder: &'a Path,
    text: Vec<u8>,
    index: ShardIndex,
}

/// A file of a shard.
struct Wanted {
    object: Object,
    path: PathBuf,
}

impl<'a> Shards<'a> {
    fn new(
        store: &'a Arc<Store>,
        address: &'a Address,
        folder: &'a Path,
        text: Vec<u8>,
    ) -> Result<Self> {
        let name = store.bucket().address(&key(address, INDEX));
        let index = ShardIndex::parse(&text, Path::new(&name))?;
        Ok(Self { store, address, folder, text, index })
    }

    /// Makes the folder ready, and locks it. Nothing if it is complete.
    fn prepare(&self) -> Result<Option<File>> {
        fs::create_dir_all(self.folder).map_err(|e| io_error(self.folder, "make", e))?;
        let lock_path = self.folder.join(LOCK);
        let lock = File::options().create(true).append(true).open(&lock_path);
        let lock = lock.map_err(|error| io_error(&lock_path, "write", error))?;
        if lock.try_lock().is_err() {
            return Err(self.other("another process is fetching shards to this folder now"));
        }
        if let Some(there) = read_if_any(&self.folder.join(INDEX))? {
            if there == self.text {
                return Ok(None);
            }
            return Err(self.other(&format!(
                "this folder has other shards than {} has now; name a new folder, or remove this one",
                self.address
            )));
        }
        let unfinished = self.folder.join(UNFINISHED);
        match read_if_any(&unfinished)? {
            Some(there) if there == self.text => {}
            Some(there) => {
                // The shards at the address were made anew.
                if let Ok(index) = ShardIndex::parse(&there, &unfinished) {
                    for (name, _) in names(&index) {
                        remove(&self.folder.join(part(&name)))?;
                        remove(&self.folder.join(name))?;
                    }
                }
                write_whole(&unfinished, &self.text)?;
            }
            None => {
                self.require_empty()?;
                write_whole(&unfinished, &self.text)?;
            }
        }
        Ok(Some(lock))
    }

    fn require_empty(&self) -> Result<()> {
        let entries = fs::read_dir(self.folder).map_err(|e| io_error(self.folder, "read", e))?;
        let is_other = |entry: fs::DirEntry| {
            entry.file_name() != LOCK && entry.file_name() != staged(UNFINISHED).as_str()
        };
        if entries.flatten().any(is_other) {
            return Err(self.other("the folder is not empty, and has no shards in it that were fetched; name a new folder"));
        }
        Ok(())
    }

    fn other(&self, why: &str) -> Error {
        Error::OtherShards { path: self.folder.to_owned(), why: why.to_owned() }
    }

    /// All files but the index, if they are there in the right size.
    fn files(&self) -> Result<Vec<Wanted>> {
        let found = self.store.list(self.address.key())?;
        let found: BTreeMap<&str, _> =
            found.iter().map(|meta| (meta.location.as_ref(), meta)).collect();
        let mut files = Vec::new();
        for (name, bytes) in names(&self.index) {
            let key = key(self.address, &name);
            let Some(meta) = found.get(key.as_str()) else {
                return Err(self.broken(&name, "the index names it, but it is not there"));
            };
            if meta.size != bytes {
                let what = format!("it has {} bytes, the index says {bytes}", meta.size);
                return Err(self.broken(&name, &what));
            }
            let object = Object::new(self.store, meta);
            files.push(Wanted { object, path: self.folder.join(name) });
        }
        Ok(files)
    }

    fn broken(&self, name: &str, what: &str) -> Error {
        let error = source::Error::Store {
            name: self.store.bucket().address(&key(self.address, name)),
            problem: format!("this file of token shards cannot be used: {what}"),
            hint: "upload it again from where the shards were made".to_owned(),
        };
        error.into()
    }

    /// Brings all files that are not there.
    fn fetch(
        &self,
        files: &[Wanted],
        stop: &AtomicBool,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<()> {
        let total = files.iter().map(|file| file.object.bytes()).sum();
        let done = AtomicU64::new(0);
        let todo = Mutex::new(files.iter().collect::<VecDeque<_>>());
        // Set when one has failed too.
        let halt = AtomicBool::new(false);
        let work = || -> Result<()> {
            loop {
                let next = todo.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
                let Some(file) = next else { return Ok(()) };
                if let Err(error) = file.fetch(&done, &halt) {
                    halt.store(true, Ordering::Relaxed);
                    return Err(error);
                }
            }
        };
        let mut results = Vec::new();
        thread::scope(|scope| {
            let workers: Vec<_> =
                (0..AT_A_TIME.min(files.len())).map(|_| scope.spawn(work)).collect();
            while workers.iter().any(|worker| !worker.is_finished()) {
                if stop.load(Ordering::Relaxed) {
                    halt.store(true, Ordering::Relaxed);
                }
                progress(done.load(Ordering::Relaxed), total);
                thread::sleep(TICK);
            }
            results.extend(workers.into_iter().map(|worker| {
                // A panic of a library is an error like others.
                worker.join().unwrap_or_else(|_| Err(self.other("a thread that fetched it failed")))
            }));
        });
        progress(done.load(Ordering::Relaxed), total);
        // The others only stopped because of it.
        let is_stop = |result: &Result<()>| matches!(result, Err(Error::Stopped));
        results.sort_by_key(is_stop);
        results.into_iter().collect()
    }

    /// Checks all files, and removes those that are wrong. The first of them is the error.
    fn verify(&self, stop: &AtomicBool) -> Result<Option<Error>> {
        let found = verify_files(self.folder, &self.index, stop, &mut |_| {})?;
        for bad in &found.bad {
            remove(&bad.path)?;
        }
        Ok(found.bad.first().map(|bad| {
            let name = bad.path.file_name().unwrap_or_default().to_string_lossy();
            let place = bad.offset.map_or(String::new(), |at| format!(" (from byte {at} on)"));
            self.broken(&name, &format!("{}{place}", bad.what))
        }))
    }

    fn finish(&self) -> Result<()> {
        let to = self.folder.join(INDEX);
        fs::rename(self.folder.join(UNFINISHED), &to)
            .and_then(|()| File::open(self.folder)?.sync_all())
            .map_err(|error| io_error(&to, "write", error))
    }
}

impl Wanted {
    /// Brings the file, or what of it is missing. It gets its name when it is whole.
    fn fetch(&self, done: &AtomicU64, halt: &AtomicBool) -> Result<()> {
        let bytes = self.object.bytes();
        if fs::metadata(&self.path).is_ok_and(|found| found.len() == bytes) {
            done.fetch_add(bytes, Ordering::Relaxed);
            return Ok(());
        }
        let part = PathBuf::from(part(&self.path.to_string_lossy()));
        let written = |error| io_error(&part, "write", error);
        let (mut file, start) = open_part(&part, bytes).map_err(written)?;
        done.fetch_add(start, Ordering::Relaxed);
        let failed = |error| Error::from(ReadError::io(&self.object.name(), "read", error));
        let mut download = Download::start(&self.object, start..bytes).map_err(failed)?;
        loop {
            if halt.load(Ordering::Relaxed) {
                return Err(Error::Stopped);
            }
            match download.step(TICK).map_err(failed)? {
                Step::Bytes(chunk) => {
                    file.write_all(&chunk).map_err(written)?;
                    done.fetch_add(chunk.len() as u64, Ordering::Relaxed);
                }
                Step::Waiting => {}
                Step::End => break,
            }
        }
        file.sync_all().and_then(|()| fs::rename(&part, &self.path)).map_err(written)
    }
}

/// Opens a file that was partly brought at its end, and says where that is.
fn open_part(path: &Path, most: u64) -> io::Result<(File, u64)> {
    let mut file = File::options().create(true).truncate(false).write(true).open(path)?;
    let there = file.metadata()?.len();
    let start = if there > most { 0 } else { there };
    file.set_len(start)?;
    file.seek(SeekFrom::Start(start))?;
    Ok((file, start))
}

/// The names and sizes of all files of an index.
fn names(index: &ShardIndex) -> Vec<(String, u64)> {
    let mut names = Vec::new();
    for shard in index.splits.values().flat_map(|split| &split.shards) {
        let mut add = |ending: &str, bytes| {
            let name = shard_path(Path::new(""), &shard.name, ending);
            names.push((name.to_string_lossy().into_owned(), bytes));
        };
        add(DOCUMENTS, index.documents_bytes(shard));
        for (ending, bytes) in index.columns(shard) {
            add(ending, bytes);
        }
    }
    names
}

fn part(name: &str) -> String {
    format!("{name}.part")
}

fn staged(name: &str) -> String {
    format!("{name}.new")
}

fn read_if_any(path: &Path) -> Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(io_error(path, "read", error)),
    }
}

fn write_whole(path: &Path, text: &[u8]) -> Result<()> {
    let new = PathBuf::from(staged(&path.to_string_lossy()));
    let write = || -> io::Result<()> {
        let mut file = File::create(&new)?;
        file.write_all(text)?;
        file.sync_all()?;
        fs::rename(&new, path)
    };
    write().map_err(|error| io_error(path, "write", error))
}

fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(io_error(path, "remove", error))
        }
        _ => Ok(()),
    }
}
