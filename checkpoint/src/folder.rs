//! The folder that checkpoints are in: what is there, what is being written, and how it becomes a checkpoint.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::{
    Checkpoint, Error, FileFacts, Hash, Header, MANIFEST, Manifest, Region, Result, StepName,
    TensorFacts,
};

/// A folder with the name of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its step.
    pub step: u64,
    /// Where it is.
    pub path: PathBuf,
}

/// The checkpoints in a folder, by step; whether they are sound is not looked at. What has any other name is none of
/// ours. A folder that does not exist has none.
///
/// # Errors
/// The folder cannot be read.
pub fn list(folder: &Path) -> Result<Vec<Found>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Error::folder(folder, "read", error)),
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| Error::folder(folder, "read", error))?;
        if let Some(StepName(step)) = StepName::parse(&entry.file_name())
            && entry.path().is_dir()
        {
            found.push(Found { step, path: entry.path() });
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
pub fn open(folder: &Path) -> Result<Checkpoint> {
    let path = folder.join(MANIFEST);
    let content = fs::read(&path).map_err(|error| Error::file(&path, "read", error))?;
    let manifest = Manifest::parse(&path, &content)?;
    let step = StepName::parse(folder.file_name().unwrap_or_default());
    if step.is_some_and(|step| step.0 != manifest.step) {
        let what = format!("it is the manifest of step {}, in a folder of another", manifest.step);
        return Err(Error::corrupt(&path, what));
    }
    let headers = manifest.files.iter().map(|file| read_header(folder, file));
    let headers: Vec<Header> = headers.collect::<Result<_>>()?;
    Ok(Checkpoint::new(folder, manifest, headers))
}

/// Reads the header of a file, which must have the size and the hash that were noted.
fn read_header(folder: &Path, facts: &FileFacts) -> Result<Header> {
    let path = folder.join(&facts.name);
    let error = |error| Error::file(&path, "read", error);
    let mut file = File::open(&path).map_err(error)?;
    let bytes = file.metadata().map_err(error)?.len();
    if bytes != facts.bytes {
        let what = format!("it has {bytes} bytes, and {} were written", facts.bytes);
        return Err(Error::corrupt(&path, what));
    }
    let mut content = vec![0; 8];
    file.read_exact(&mut content).map_err(error)?;
    let first = std::array::from_fn(|i| content[i]);
    let length = Header::length(&path, first, bytes)?;
    content.resize(length as usize, 0);
    file.read_exact(&mut content[8..]).map_err(error)?;
    if length != facts.header_bytes || Hash::of(&content) != facts.header {
        return Err(Error::corrupt(&path, "its header is not what was written"));
    }
    let header = Header::parse(&path, &content)?;
    if header.file_bytes() != bytes {
        return Err(Error::corrupt(&path, "its header describes a file of another size"));
    }
    Ok(header)
}

/// A checkpoint that is being written, in a folder beside where it will be.
#[derive(Debug)]
pub struct Staged {
    step: u64,
    folder: PathBuf,
    path: PathBuf,
}

impl Staged {
    /// Makes the folder for the files of a step. `writer` tells it from those of other writers; an earlier attempt of
    /// the same writer is removed.
    ///
    /// # Errors
    /// There is a checkpoint of this step, or no folder can be made.
    pub fn begin(folder: &Path, step: u64, writer: &str) -> Result<Self> {
        fs::create_dir_all(folder).map_err(|error| Error::folder(folder, "make", error))?;
        let staged = Self::adopt(folder, step, writer)?;
        if staged.path.exists() {
            let removed = fs::remove_dir_all(&staged.path);
            removed.map_err(|error| Error::folder(&staged.path, "remove", error))?;
        }
        make_staging(&staged.path)?;
        Ok(staged)
    }

    /// Takes over the folder that ranks have written the files of a step to.
    ///
    /// # Errors
    /// There is a checkpoint of this step.
    pub fn adopt(folder: &Path, step: u64, writer: &str) -> Result<Self> {
        let final_path = folder.join(StepName(step).to_string());
        if final_path.exists() {
            return Err(Error::Exists { path: final_path });
        }
        let path = staging_path(folder, step, writer);
        Ok(Self { step, folder: folder.to_owned(), path })
    }

    /// Where ranks write their files.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes a checkpoint of the files that were written, by giving the folder its name; `run` is what the run needs to
    /// go on.
    ///
    /// # Errors
    /// A file is not there or not what was written, together they are not whole tensors, or the disk refuses. Then there
    /// is no checkpoint.
    pub fn commit(self, run: Value, files: Vec<FileFacts>) -> Result<PathBuf> {
        let headers = files.iter().map(|file| read_header(&self.path, file));
        let headers: Vec<Header> = headers.collect::<Result<_>>()?;
        let tensors = whole_tensors(&self.path, &headers)?;
        let manifest = Manifest::new(self.step, run, tensors, files);
        write_file(&self.path.join(MANIFEST), manifest.to_text().as_bytes())?;
        sync_folder(&self.path)?;
        let path = self.folder.join(StepName(self.step).to_string());
        // Renaming a folder onto one that is not empty fails, so nothing is ever written over.
        fs::rename(&self.path, &path).map_err(|error| match error.kind() {
            io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::AlreadyExists => {
                Error::Exists { path: path.clone() }
            }
            _ => Error::folder(&path, "rename", error),
        })?;
        sync_folder(&self.folder)?;
        Ok(path)
    }

    /// Removes what was written.
    ///
    /// # Errors
    /// The disk refuses.
    pub fn abandon(self) -> Result<()> {
        fs::remove_dir_all(&self.path).map_err(|error| Error::folder(&self.path, "remove", error))
    }
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
pub fn staging_path(folder: &Path, step: u64, writer: &str) -> PathBuf {
    folder.join(format!(".{}.{writer}{STAGING}", StepName(step)))
}

/// Makes that folder, unless another rank has. Not the folder that checkpoints are in: where that has vanished,
/// something else has been unmounted or removed.
///
/// # Errors
/// It cannot be made.
pub fn make_staging(path: &Path) -> Result<()> {
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
/// steps. `mark` is put behind its name. Returns where it is now.
///
/// # Errors
/// The disk refuses, or there is something of that name.
pub fn set_aside(path: &Path, mark: &str) -> Result<PathBuf> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let aside = path.with_file_name(format!("{name}.{mark}"));
    fs::rename(path, &aside).map_err(|error| Error::folder(path, "rename", error))?;
    if let Some(folder) = path.parent() {
        sync_folder(folder)?;
    }
    Ok(aside)
}

/// Removes a checkpoint. It loses its name first, so a kill in the middle leaves no part of it behind under that name.
///
/// # Errors
/// The disk refuses.
pub fn remove_checkpoint(path: &Path) -> Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let doomed = path.with_file_name(format!(".{name}{REMOVING}"));
    if doomed.exists() {
        fs::remove_dir_all(&doomed).map_err(|error| Error::folder(&doomed, "remove", error))?;
    }
    fs::rename(path, &doomed).map_err(|error| Error::folder(path, "rename", error))?;
    fs::remove_dir_all(&doomed).map_err(|error| Error::folder(&doomed, "remove", error))
}

/// Removes what `writer` has left of attempts that were not finished, and what was being removed.
///
/// # Errors
/// The folder cannot be read, or the disk refuses.
pub fn remove_abandoned(folder: &Path, writer: &str) -> Result<u64> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(Error::folder(folder, "read", error)),
    };
    let mut removed = 0;
    for entry in entries.flatten() {
        let name = entry.file_name();
        let step = name.to_str().and_then(|name| {
            let (step, rest) = name.strip_prefix('.')?.split_once('.')?;
            let is_left_over =
                format!(".{rest}") == REMOVING || rest.strip_suffix(STAGING) == Some(writer);
            is_left_over.then(|| StepName::parse(step.as_ref()))?
        });
        if step.is_some() {
            let path = entry.path();
            fs::remove_dir_all(&path).map_err(|error| Error::folder(&path, "remove", error))?;
            removed += 1;
        }
    }
    Ok(removed)
}

/// Makes sure that checkpoints can be written to a folder: makes it, and writes, syncs, renames and removes a file.
///
/// # Errors
/// What failed.
pub fn probe(folder: &Path) -> Result<()> {
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

fn write_file(path: &Path, content: &[u8]) -> Result<()> {
    let write = || {
        let mut file = File::options().write(true).create_new(true).open(path)?;
        file.write_all(content)?;
        file.sync_all()
    };
    write().map_err(|error| Error::file(path, "write", error))
}

fn sync_folder(path: &Path) -> Result<()> {
    let sync = || File::open(path)?.sync_all();
    sync().map_err(|error| Error::folder(path, "sync", error))
}
