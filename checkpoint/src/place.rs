//! Where checkpoints are: a folder of a file system, or a prefix in an object store.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::io::{ReadWriteFlags, preadv2};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use titan_objects::{Address, Store};

use crate::hash::Hasher;
use crate::{Error, Hash, Result};

/// A folder, or what stands for one in an object store. Also a checkpoint, which is a folder with files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A folder of a file system.
    Folder(PathBuf),
    /// All objects with a common beginning of their names.
    Objects(Prefix),
}

/// All objects of a bucket with a common beginning of their names.
#[derive(Clone, Debug)]
pub struct Prefix {
    pub(crate) address: Address,
    /// Another than that which the environment describes.
    store: Option<Arc<Store>>,
}

impl Prefix {
    /// Those at an address, of this store.
    pub fn of(store: &Arc<Store>, address: &Address) -> Self {
        Self { address: address.clone(), store: Some(Arc::clone(store)) }
    }

    pub(crate) fn store(&self) -> Result<Arc<Store>> {
        match &self.store {
            Some(store) => Ok(Arc::clone(store)),
            None => Ok(Store::of_process(self.address.bucket())?),
        }
    }

    pub(crate) fn key(&self, name: &str) -> String {
        self.address.join(name).key().to_owned()
    }
}

impl PartialEq for Prefix {
    fn eq(&self, other: &Self) -> bool {
        self.address == other.address
    }
}

impl Eq for Prefix {}

impl Place {
    /// The place of a path, or of an address `gs://BUCKET/PATH` or `s3://BUCKET/PATH`.
    ///
    /// # Errors
    /// It is an address of neither kind.
    pub fn parse(text: &str) -> Result<Self> {
        Ok(match Address::parse(text)? {
            Some(address) => Self::Objects(Prefix { address, store: None }),
            None => Self::Folder(text.into()),
        })
    }

    /// Something in it.
    #[must_use]
    pub fn join(&self, name: &str) -> Self {
        match self {
            Self::Folder(path) => Self::Folder(path.join(name)),
            Self::Objects(prefix) => Self::Objects(Prefix {
                address: prefix.address.join(name),
                store: prefix.store.clone(),
            }),
        }
    }

    /// The last part of its name.
    pub fn name(&self) -> &str {
        match self {
            Self::Folder(path) => path.file_name().and_then(|name| name.to_str()).unwrap_or(""),
            Self::Objects(prefix) => prefix.address.key().rsplit('/').next().unwrap_or(""),
        }
    }

    /// The folder, if it is one.
    pub fn folder(&self) -> Option<&Path> {
        match self {
            Self::Folder(path) => Some(path),
            Self::Objects(_) => None,
        }
    }

    /// How many threads read best, on so many cores. A disk is idle while all of them compute hashes; a connection to a
    /// store gives 50 to 100 MB/s and needs hardly any of a processor.
    pub fn reading_threads(&self, cores: usize) -> usize {
        const OF_STORES: usize = 16;
        if self.folder().is_some() { cores + 1 } else { cores.max(OF_STORES) }
    }

    /// For errors, which name files and objects alike.
    pub(crate) fn path(&self) -> PathBuf {
        match self {
            Self::Folder(path) => path.clone(),
            Self::Objects(prefix) => prefix.address.to_string().into(),
        }
    }

    /// All of a file in it.
    ///
    /// # Errors
    /// There is none, or it cannot be read.
    pub fn read(&self, name: &str) -> Result<Vec<u8>> {
        match self {
            Self::Folder(path) => {
                let path = path.join(name);
                fs::read(&path).map_err(|error| Error::file(&path, "read", error))
            }
            Self::Objects(prefix) => {
                let read = prefix.store()?.get(&prefix.key(name));
                Ok(read.map_err(|error| self.join(name).store_error("read", error))?.to_vec())
            }
        }
    }

    /// Writes a small file in it, in place of one that is there.
    pub(crate) fn write(&self, name: &str, content: Vec<u8>) -> Result<()> {
        match self {
            Self::Folder(path) => {
                let path = path.join(name);
                fs::write(&path, content).map_err(|error| Error::file(&path, "write", error))
            }
            Self::Objects(prefix) => Ok(prefix.store()?.put(&prefix.key(name), content.into())?),
        }
    }

    /// Removes a file in it, if there is one.
    pub(crate) fn remove(&self, name: &str) -> Result<()> {
        match self {
            Self::Folder(path) => {
                let path = path.join(name);
                match fs::remove_file(&path) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => {
                        Err(Error::file(&path, "remove", error))
                    }
                    _ => Ok(()),
                }
            }
            Self::Objects(prefix) => Ok(prefix.store()?.delete(&prefix.key(name))?),
        }
    }

    /// What it is in.
    pub fn parent(&self) -> Option<Self> {
        match self {
            Self::Folder(path) => path.parent().map(Self::from),
            Self::Objects(prefix) => Some(Self::Objects(Prefix {
                address: prefix.address.parent()?,
                store: prefix.store.clone(),
            })),
        }
    }

    /// Whether there is a file of this name in it.
    ///
    /// # Errors
    /// A store does not answer.
    pub fn has(&self, name: &str) -> Result<bool> {
        match self {
            Self::Folder(path) => Ok(path.join(name).is_file()),
            Self::Objects(prefix) => Ok(prefix.store()?.head(&prefix.key(name))?.is_some()),
        }
    }

    /// Opens a file in it.
    pub(crate) fn open(&self, name: &str) -> Result<Blob> {
        match self {
            Self::Folder(path) => {
                let path = path.join(name);
                let error = |error| Error::file(&path, "open", error);
                let file = File::open(&path).map_err(error)?;
                let bytes = file.metadata().map_err(error)?.len();
                Ok(Blob { path, bytes, content: Content::File(file) })
            }
            Self::Objects(prefix) => {
                let (store, key) = (prefix.store()?, prefix.key(name));
                let path = self.join(name).path();
                let found = store.head(&key)?;
                let missing = || Error::file(&path, "open", io::ErrorKind::NotFound.into());
                let bytes = found.ok_or_else(missing)?.size;
                Ok(Blob { path, bytes, content: Content::Object(store, key) })
            }
        }
    }

    /// Names of what is in it, folders included. None if it is not there.
    pub(crate) fn names(&self) -> Result<Vec<String>> {
        let mut names = match self {
            Self::Folder(path) => names_in(path)?,
            Self::Objects(prefix) => {
                let found = prefix.store()?.list_one(prefix.address.key())?;
                let objects = found.objects.into_iter().map(|object| object.location);
                let all = found.common_prefixes.into_iter().chain(objects);
                all.filter_map(|path| path.filename().map(str::to_owned)).collect()
            }
        };
        names.sort();
        Ok(names)
    }

    /// What a store said about this place.
    pub(crate) fn store_error(&self, action: &'static str, error: titan_objects::Error) -> Error {
        match error {
            titan_objects::Error::NotFound { .. } => {
                Error::file(&self.path(), action, io::ErrorKind::NotFound.into())
            }
            other => other.into(),
        }
    }
}

fn names_in(path: &Path) -> Result<Vec<String>> {
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Error::folder(path, "read", error)),
    };
    let name = |entry: io::Result<fs::DirEntry>| {
        let entry = entry.map_err(|error| Error::folder(path, "read", error))?;
        Ok(entry.file_name().to_string_lossy().into_owned())
    };
    entries.map(name).collect()
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(path) => path.display().fmt(f),
            Self::Objects(prefix) => prefix.address.fmt(f),
        }
    }
}

impl<P: AsRef<Path>> From<P> for Place {
    fn from(path: P) -> Self {
        Self::Folder(path.as_ref().to_owned())
    }
}

impl From<&Self> for Place {
    fn from(place: &Self) -> Self {
        place.clone()
    }
}

impl Serialize for Place {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Folder(path) => path.serialize(serializer),
            Self::Objects(prefix) => serializer.collect_str(&prefix.address),
        }
    }
}

impl<'de> Deserialize<'de> for Place {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}

/// Fills `into` if the system has all of it in memory.
fn is_at_hand(file: &File, into: &mut [u8], offset: u64) -> bool {
    let length = into.len();
    let read = preadv2(file, &mut [io::IoSliceMut::new(into)], offset, ReadWriteFlags::NOWAIT);
    // Some file systems do not know the flag.
    read.is_ok_and(|read| read == length)
}

/// A file or an object that is read.
#[derive(Debug)]
pub(crate) struct Blob {
    pub(crate) path: PathBuf,
    pub(crate) bytes: u64,
    content: Content,
}

#[derive(Debug)]
enum Content {
    File(File),
    Object(Arc<Store>, String),
}

impl Blob {
    /// Fills `into` with the bytes from `offset` on.
    pub(crate) fn read_at(&self, into: &mut [u8], offset: u64) -> Result<()> {
        match &self.content {
            Content::File(file) => file
                .read_exact_at(into, offset)
                .map_err(|error| Error::file(&self.path, "read", error)),
            Content::Object(store, key) => {
                Ok(store.get_range(key, offset..offset + into.len() as u64, into)?)
            }
        }
    }

    /// The same, and their hash. What the system has in memory is read in pieces, and each hashed while the caches have
    /// it; the rest is asked for at once, which keeps a disk busy.
    pub(crate) fn read_and_hash(&self, into: &mut [u8], offset: u64) -> Result<Hash> {
        const PIECE: usize = 256 << 10;
        let mut hasher = Hasher::default();
        let mut read = 0;
        if let Content::File(file) = &self.content {
            for piece in into.chunks_mut(PIECE) {
                if !is_at_hand(file, piece, offset + read as u64) {
                    break;
                }
                hasher.update(piece);
                read += piece.len();
            }
        }
        let rest = &mut into[read..];
        self.read_at(rest, offset + read as u64)?;
        hasher.update(rest);
        Ok(hasher.finish())
    }

    /// The first bytes, as many as there are.
    pub(crate) fn head(&self, bytes: u64) -> Result<Vec<u8>> {
        let mut head = vec![0; bytes.min(self.bytes) as usize];
        match &self.content {
            Content::File(file) => {
                let mut file = file;
                file.read_exact(&mut head)
                    .map_err(|error| Error::file(&self.path, "read", error))?;
            }
            Content::Object(..) => self.read_at(&mut head, 0)?,
        }
        Ok(head)
    }
}
