//! The place that checkpoints are in: what is there, what is being written, and how it becomes a checkpoint.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::thread;

use serde_json::Value;

use crate::{
    Checkpoint, Error, FileFacts, Hash, Header, MANIFEST, Manifest, Place, Region, Result,
    StepName, TensorFacts, objects,
};

/// What has the name of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its step.
    pub step: u64,
    /// Where it is.
    pub place: Place,
}

/// The checkpoints in a place, by step; whether they are sound is not looked at. What has any other name is none of
/// ours. A place that does not exist has none.
///
/// # Errors
/// The place cannot be read.
pub fn list(place: &Place) -> Result<Vec<Found>> {
    let mut found = Vec::new();
    for name in place.names()? {
        let Some(StepName(step)) = StepName::parse(name.as_ref()) else { continue };
        let place = place.join(&name);
        let is_one = match &place {
            Place::Folder(path) => path.is_dir(),
            // What is being written is there under its name, without a manifest.
            Place::Objects(_) => place.has(MANIFEST)?,
        };
        if is_one {
            found.push(Found { step, place });
        }
    }
    found.sort_by_key(|found| found.step);
    Ok(found)
}

/// Opens a checkpoint: reads its manifest and the headers of its files. The content of tensors is checked when it is
/// read.
///
/// # Errors
/// A file is missing, has another size, or is not what was written.
pub fn open(place: impl Into<Place>) -> Result<Checkpoint> {
    let place = place.into();
    let content = place.read(MANIFEST)?;
    let path = place.join(MANIFEST).path();
    let manifest = Manifest::parse(&path, &content)?;
    let step = StepName::parse(place.name().as_ref());
    if step.is_some_and(|step| step.0 != manifest.step) {
        let what = format!("it is the manifest of step {}, in a folder of another", manifest.step);
        return Err(Error::corrupt(&path, what));
    }
    let headers = read_headers(&place, &manifest.files)?;
    Ok(Checkpoint::new(place, manifest, headers))
}

/// Reads the headers of files, several at a time where that takes no processor.
fn read_headers(place: &Place, files: &[FileFacts]) -> Result<Vec<Header>> {
    let read = |files: &[FileFacts]| -> Result<Vec<Header>> {
        files.iter().map(|file| read_header(place, file)).collect()
    };
    let share = files.len().div_ceil(place.reading_threads(1)).max(1);
    if place.folder().is_some() || files.len() == 1 {
        return read(files);
    }
    let parts: Vec<Result<Vec<Header>>> = thread::scope(|scope| {
        let threads: Vec<_> =
            files.chunks(share).map(|files| scope.spawn(|| read(files))).collect();
        let failed = || Err(Error::Misuse { what: "a thread that reads failed".to_owned() });
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| failed())).collect()
    });
    let headers: Result<Vec<Vec<Header>>> = parts.into_iter().collect();
    Ok(headers?.into_iter().flatten().collect())
}

/// Reads the header of a file, which must have the size and the hash that were noted.
fn read_header(place: &Place, facts: &FileFacts) -> Result<Header> {
    let blob = place.open(&facts.name)?;
    let path = &blob.path;
    let bytes = blob.bytes;
    if bytes != facts.bytes {
        let what = format!("it has {bytes} bytes, and {} were written", facts.bytes);
        return Err(Error::corrupt(path, what));
    }
    // What is longer than its file is not read, and so is not what was written.
    let content = blob.head(facts.header_bytes)?;
    let first = content.first_chunk().copied().unwrap_or([0xff; 8]);
    let length = Header::length(path, first, bytes)?;
    if length != facts.header_bytes || Hash::of(&content) != facts.header {
        return Err(Error::corrupt(path, "its header is not what was written"));
    }
    let header = Header::parse(path, &content)?;
    if header.file_bytes() != bytes {
        return Err(Error::corrupt(path, "its header describes a file of another size"));
    }
    Ok(header)
}

/// A checkpoint that is being written: in a folder beside where it will be, or under its name in an object store, where
/// it is none as long as it has no manifest.
#[derive(Debug)]
pub struct Staged {
    step: u64,
    /// Where checkpoints are.
    root: Place,
    /// Where the files of this one are.
    place: Place,
    writer: String,
    /// The folder that checkpoints are in, if it was made for this one.
    made: Option<PathBuf>,
}

impl Staged {
    /// Makes the folder for the files of a step. `writer` tells it from those of other writers; an earlier attempt of
    /// the same writer is removed.
    ///
    /// # Errors
    /// There is a checkpoint of this step, or no folder can be made.
    pub fn begin(root: &Place, step: u64, writer: &str) -> Result<Self> {
        let made = root.folder().filter(|path| !path.exists()).map(Path::to_owned);
        if let Place::Folder(path) = root {
            fs::create_dir_all(path).map_err(|error| Error::folder(path, "make", error))?;
        }
        let staged = Self { made, ..Self::adopt(root, step, writer)? };
        if let Place::Folder(path) = &staged.place
            && path.exists()
        {
            let removed = fs::remove_dir_all(path);
            removed.map_err(|error| Error::folder(path, "remove", error))?;
        }
        make_staging(&staged.place)?;
        Ok(staged)
    }

    /// Takes over the folder that ranks have written the files of a step to.
    ///
    /// # Errors
    /// There is a checkpoint of this step.
    pub fn adopt(root: &Place, step: u64, writer: &str) -> Result<Self> {
        let committed = root.join(&StepName(step).to_string());
        let is_there = match &committed {
            Place::Folder(path) => path.exists(),
            Place::Objects(_) => committed.has(MANIFEST)?,
        };
        if is_there {
            return Err(Error::Exists { path: committed.path() });
        }
        let (place, writer) = (staging_place(root, step, writer), writer.to_owned());
        Ok(Self { step, root: root.clone(), place, writer, made: None })
    }

    /// Where ranks write their files.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Makes a checkpoint of the files that were written: gives the folder its name, or writes the manifest where there
    /// was none. `run` is what the run needs to go on.
    ///
    /// # Errors
    /// A file is not there or not what was written, together they are not whole tensors, or the disk or the store
    /// refuses. Then there is no checkpoint.
    pub fn commit(&self, run: Value, files: Vec<FileFacts>) -> Result<Place> {
        let headers = read_headers(&self.place, &files)?;
        let tensors = whole_tensors(&self.place.path(), &headers)?;
        let manifest = Manifest::new(self.step, run, tensors, files).to_text();
        let committed = self.root.join(&StepName(self.step).to_string());
        match (&self.root, &self.place, &committed) {
            (Place::Folder(root), Place::Folder(from), Place::Folder(to)) => {
                publish(&manifest, from, to, root)?;
            }
            _ => objects::publish(&manifest, &committed)?,
        }
        Ok(committed)
    }

    /// Removes what was written, and the folder that checkpoints are in if that was made for it.
    ///
    /// # Errors
    /// The disk or the store refuses.
    pub fn abandon(self) -> Result<()> {
        remove_abandoned_step(&self.root, self.step, &self.writer)?;
        if let Some(made) = self.made {
            // Others may have put something there meanwhile.
            let _ = fs::remove_dir(made);
        }
        Ok(())
    }
}

/// Writes the manifest into the folder `from`, and gives that its name.
fn publish(manifest: &str, from: &Path, to: &Path, root: &Path) -> Result<()> {
    write_file(&from.join(MANIFEST), manifest.as_bytes())?;
    sync_folder(from)?;
    // Renaming a folder onto one that is not empty fails, so nothing is ever written over.
    fs::rename(from, to).map_err(|error| match error.kind() {
        io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::AlreadyExists => {
            Error::Exists { path: to.to_owned() }
        }
        _ => Error::folder(to, "rename", error),
    })?;
    sync_folder(root)
}

/// The tensors that the parts in all files make up; each must be whole.
fn whole_tensors(folder: &Path, headers: &[Header]) -> Result<BTreeMap<String, TensorFacts>> {
    let mut parts: BTreeMap<&str, (&TensorFacts, Vec<Region>)> = BTreeMap::new();
    let lacks = |what: String| Error::Lacks { path: folder.to_owned(), what };
    for part in headers.iter().flat_map(Header::parts) {
        let (tensor, regions) = parts.entry(&part.name).or_insert((&part.tensor, Vec::new()));
        if **tensor != part.tensor {
            return Err(lacks(format!("its files do not agree about the tensor {}", part.name)));
        }
        regions.push(part.region);
    }
    for (name, (tensor, regions)) in &parts {
        if !tensor.whole().is_some_and(|whole| whole.is_made_of(regions)) {
            return Err(lacks(format!("its files do not have each part of {name} once")));
        }
    }
    Ok(parts.into_iter().map(|(name, (tensor, _))| (name.to_owned(), tensor.clone())).collect())
}

/// Where the files of a step are before they are a checkpoint.
pub fn staging_place(root: &Place, step: u64, writer: &str) -> Place {
    match root {
        Place::Folder(_) => root.join(&format!(".{}.{writer}{STAGING}", StepName(step))),
        Place::Objects(_) => root.join(&StepName(step).to_string()),
    }
}

/// The name of the file that a rank writes there. In an object store, where what is being written has the place of a
/// checkpoint, it says whose it is: whoever is late can spoil nothing. `mark` is a name of the run and its start.
pub fn shard_name(place: &Place, rank: u64, mark: &str) -> String {
    match place {
        Place::Folder(_) => format!("rank-{rank:05}.safetensors"),
        Place::Objects(_) => format!("rank-{rank:05}.{mark}.safetensors"),
    }
}

/// Makes the folder for the files of a step, unless another rank has. Not the folder that checkpoints are in: where that
/// has vanished, something else has been unmounted or removed.
///
/// # Errors
/// It cannot be made.
pub(crate) fn make_staging(place: &Place) -> Result<()> {
    let Place::Folder(path) = place else { return Ok(()) };
    match fs::create_dir(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(Error::folder(path, "make", error))
        }
        _ => Ok(()),
    }
}

const STAGING: &str = ".writing";
const REMOVING: &str = ".removing";

/// Takes the name from a checkpoint, so that it is one no more: a start of the run before it makes others of the same
/// steps. `mark` is put behind its name, or that of its manifest. Returns where it is now.
///
/// # Errors
/// The disk or the store refuses, or there is something of that name.
pub fn set_aside(place: &Place, mark: &str) -> Result<Place> {
    let path = match place {
        Place::Folder(path) => path,
        Place::Objects(_) => return objects::set_aside(place, mark),
    };
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let aside = path.with_file_name(format!("{name}.{mark}"));
    fs::rename(path, &aside).map_err(|error| Error::folder(path, "rename", error))?;
    if let Some(folder) = path.parent() {
        sync_folder(folder)?;
    }
    Ok(aside.into())
}

/// Removes a checkpoint. It is none any more first, so a kill in the middle leaves no part of it behind under that name.
///
/// # Errors
/// The disk or the store refuses.
pub fn remove_checkpoint(place: &Place) -> Result<()> {
    let path = match place {
        Place::Folder(path) => path,
        Place::Objects(_) => return objects::remove_checkpoint(place),
    };
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let doomed = path.with_file_name(format!(".{name}{REMOVING}"));
    if doomed.exists() {
        fs::remove_dir_all(&doomed).map_err(|error| Error::folder(&doomed, "remove", error))?;
    }
    fs::rename(path, &doomed).map_err(|error| Error::folder(path, "rename", error))?;
    fs::remove_dir_all(&doomed).map_err(|error| Error::folder(&doomed, "remove", error))
}

/// Removes what `writer` has left of an attempt to save a step, which nobody is working at any more.
///
/// # Errors
/// The disk or the store refuses.
pub fn remove_abandoned_step(root: &Place, step: u64, writer: &str) -> Result<()> {
    match staging_place(root, step, writer) {
        Place::Folder(path) => match fs::remove_dir_all(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(Error::folder(&path, "remove", error))
            }
            _ => Ok(()),
        },
        place => objects::remove_files(&place, writer).map(drop),
    }
}

/// Removes what `writer` has left of attempts that were not finished, and what was being removed.
///
/// # Errors
/// The place cannot be read, or the disk or the store refuses.
pub fn remove_abandoned(root: &Place, writer: &str) -> Result<u64> {
    let mut removed = 0;
    let Place::Folder(folder) = root else { return objects::remove_abandoned(root, writer) };
    for name in root.names()? {
        let step = name.strip_prefix('.').and_then(|name| {
            let (step, rest) = name.split_once('.')?;
            let is_left_over =
                format!(".{rest}") == REMOVING || rest.strip_suffix(STAGING) == Some(writer);
            is_left_over.then(|| StepName::parse(step.as_ref()))?
        });
        if step.is_some() {
            let path = folder.join(name);
            fs::remove_dir_all(&path).map_err(|error| Error::folder(&path, "remove", error))?;
            removed += 1;
        }
    }
    Ok(removed)
}

/// Makes sure that checkpoints can be written to a place: makes it, and writes, syncs, renames and removes a file.
///
/// # Errors
/// What failed.
pub fn probe(place: &Place) -> Result<()> {
    let Place::Folder(folder) = place else { return objects::probe(place) };
    fs::create_dir_all(folder).map_err(|error| Error::folder(folder, "make", error))?;
    let path = folder.join(format!(".probe-{}", std::process::id()));
    let renamed = path.with_extension("renamed");
    let probed = write_file(&path, b"probe").and_then(|()| {
        fs::rename(&path, &renamed).map_err(|error| Error::file(&path, "rename", error))?;
        sync_folder(folder)
    });
    let _ = fs::remove_file(&path);
    let _ = fs::remove_file(&renamed);
    probed
}

pub(crate) fn write_file(path: &Path, content: &[u8]) -> Result<()> {
    let write = || {
        let mut file = File::options().write(true).create_new(true).open(path)?;
        file.write_all(content)?;
        file.sync_all()
    };
    write().map_err(|error| Error::file(path, "write", error))
}

pub(crate) fn sync_folder(path: &Path) -> Result<()> {
    let sync = || File::open(path)?.sync_all();
    sync().map_err(|error| Error::folder(path, "sync", error))
}
