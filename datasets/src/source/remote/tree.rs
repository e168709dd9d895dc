//! A bucket as folders and files: a folder is what object names have before a `/`.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use glob::Pattern;
use object_store::ObjectMeta;

use super::{Address, Object, Store};
use crate::source::find::{GLOB, bad_glob, is_glob};
use crate::source::folder::{are_of_shards, is_left_out};
use crate::source::names::described;
use crate::source::tree::{Kind, Tree};
use crate::source::{Error, Input, Origin, ReadError, Result};

/// What is in a bucket, asked for when it is needed and then kept.
pub(in crate::source) struct RemoteTree {
    store: Arc<Store>,
    /// A path that is a folder because it was written with a `/` at its end.
    named_folder: Option<PathBuf>,
    known: RefCell<Known>,
}

#[derive(Default)]
struct Known {
    /// Sorted by the parts of their names, as local files are.
    objects: BTreeMap<PathBuf, ObjectMeta>,
    folders: BTreeSet<PathBuf>,
    /// Folders of which all objects are known.
    listed: Vec<PathBuf>,
}

impl Known {
    fn is_listed(&self, path: &Path) -> bool {
        self.listed.iter().any(|folder| path.starts_with(folder))
    }

    fn below<'a>(&'a self, folder: &'a Path) -> impl Iterator<Item = &'a PathBuf> {
        let from = self.objects.range(folder.to_owned()..).map(|(path, _)| path);
        from.take_while(move |path| path.starts_with(folder)).filter(move |path| *path != folder)
    }

    fn kind(&self, path: &Path) -> Option<Kind> {
        if self.objects.contains_key(path) {
            Some(Kind::File)
        } else if self.folders.contains(path) || self.below(path).next().is_some() {
            Some(Kind::Folder)
        } else {
            None
        }
    }

    fn add_listed(&mut self, folder: &Path, objects: Vec<ObjectMeta>) {
        for object in objects {
            let path = PathBuf::from(object.location.as_ref());
            if path == folder {
                // An empty object `folder/` that some tools make.
                self.folders.insert(path);
            } else {
                self.objects.insert(path, object);
            }
        }
        let empty = self.objects.iter().filter(|(_, object)| object.size == 0);
        let folders: Vec<_> = empty
            .filter(|(path, _)| self.below(path).next().is_some())
            .map(|(path, _)| path.clone())
            .collect();
        for path in folders {
            self.objects.remove(&path);
            self.folders.insert(path);
        }
        self.listed.push(folder.to_owned());
    }
}

impl RemoteTree {
    pub(in crate::source) fn new(store: Arc<Store>, address: &Address) -> Self {
        let named_folder = address.is_folder().then(|| PathBuf::from(address.key()));
        Self { store, named_folder, known: RefCell::default() }
    }

    /// Makes all objects below a folder known.
    fn list(&self, folder: &Path) -> Result<()> {
        if !self.known.borrow().is_listed(folder) {
            let objects = self.store.list(&key(folder))?;
            self.known.borrow_mut().add_listed(folder, objects);
        }
        Ok(())
    }

    /// The objects and folders in a folder whose names match.
    fn matches_in(&self, folder: &Path, pattern: &Pattern) -> Result<Vec<PathBuf>> {
        let found = self.store.list_one(&key(folder))?;
        let mut known = self.known.borrow_mut();
        let mut matches = Vec::new();
        let mut is_match = |path: &Path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let is_in = path.parent() == Some(folder) && path != folder;
            let is_match = is_in && pattern.matches_with(&name, GLOB);
            if is_match {
                matches.push(path.to_owned());
            }
            is_match
        };
        for prefix in found.common_prefixes {
            let path = PathBuf::from(prefix.as_ref());
            if is_match(&path) {
                known.folders.insert(path);
            }
        }
        for object in found.objects {
            let path = PathBuf::from(object.location.as_ref());
            if is_match(&path) {
                known.objects.insert(path, object);
            }
        }
        Ok(matches)
    }

    fn missing(&self, path: &Path) -> Error {
        let error = io::Error::new(io::ErrorKind::NotFound, "there is no such object");
        ReadError::io(&self.name(path), "find", error).into()
    }

    fn object(&self, path: &Path) -> Result<Object> {
        let known = self.known.borrow();
        let meta = known.objects.get(path).ok_or_else(|| self.missing(path))?;
        Ok(Object::new(&self.store, meta))
    }
}

impl Tree for RemoteTree {
    fn name(&self, path: &Path) -> String {
        self.store.bucket().address(key(path).trim_end_matches('/'))
    }

    fn kind(&self, path: &Path) -> Result<Option<Kind>> {
        if path.as_os_str().is_empty() {
            return Ok(Some(Kind::Folder));
        }
        let known = self.known.borrow().kind(path);
        if known.is_some() || self.known.borrow().is_listed(path) {
            return Ok(known);
        }
        if self.named_folder.as_deref() != Some(path)
            && let Some(object) = self.store.head(&key(path))?
        {
            self.known.borrow_mut().objects.insert(path.to_owned(), object);
            return Ok(Some(Kind::File));
        }
        self.list(path)?;
        Ok(self.known.borrow().kind(path))
    }

    fn names_in(&self, folder: &Path) -> Result<Option<Vec<String>>> {
        let found = self.store.list_one(&key(folder))?;
        let objects = found.objects.into_iter().map(|object| object.location);
        let mut names: Vec<String> = found
            .common_prefixes
            .into_iter()
            .chain(objects)
            .filter(|path| Path::new(path.as_ref()) != folder)
            .filter_map(|path| path.filename().map(str::to_owned))
            .filter(|name| !name.starts_with('.'))
            .collect();
        names.sort();
        names.dedup();
        let is_there = !names.is_empty() || folder.as_os_str().is_empty();
        Ok(is_there.then_some(names))
    }

    fn files_below(&self, folder: &Path) -> Result<Vec<PathBuf>> {
        self.list(folder)?;
        let known = self.known.borrow();
        let is_data = |path: &&PathBuf| {
            let within = path.ancestors().take_while(|ancestor| *ancestor != folder);
            !within.filter(|part| !part.as_os_str().is_empty()).any(is_left_out)
        };
        Ok(known.below(folder).filter(is_data).cloned().collect())
    }

    /// Part by part, so that no more is listed than can match.
    fn glob(&self, pattern: &str) -> Result<Vec<PathBuf>> {
        let mut found = vec![PathBuf::new()];
        let mut parts = pattern.split('/').peekable();
        while let Some(part) = parts.next() {
            let is_last = parts.peek().is_none();
            let glob = Pattern::new(part)
                .map_err(|e| bad_glob(&self.name(Path::new(pattern)), pattern, &e))?;
            let mut next = Vec::new();
            for folder in found {
                if is_glob(part) {
                    let matches = self.matches_in(&folder, &glob)?;
                    let is_folder = |path: &Path| self.known.borrow().folders.contains(path);
                    next.extend(matches.into_iter().filter(|path| is_last || is_folder(path)));
                } else {
                    next.push(folder.join(part));
                }
            }
            found = next;
        }
        found.sort();
        found.dedup();
        let mut there = Vec::new();
        for path in found {
            if self.kind(&path)?.is_some() {
                there.push(path);
            }
        }
        Ok(there)
    }

    fn holds_shards(&self, folder: &Path) -> Result<bool> {
        Ok(are_of_shards(&self.names_in(folder)?.unwrap_or_default()))
    }

    fn has_description(&self, path: &Path) -> Result<bool> {
        self.list(path.parent().unwrap_or(Path::new("")))?;
        Ok(self.known.borrow().objects.contains_key(path))
    }

    fn description(&self, path: &Path) -> Result<Vec<u8>> {
        self.list(path.parent().unwrap_or(Path::new("")))?;
        let read = self.object(path)?.read();
        read.map_err(|e| ReadError::io(&self.name(path), "read", e).into())
    }

    fn input(&self, file: &Path) -> Result<Input> {
        let object = self.object(file)?;
        let (bytes, identity) = (object.bytes(), object.identity());
        described(object.name(), Origin::Remote(object), bytes, identity)
    }
}

/// Names of objects are text.
fn key(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
