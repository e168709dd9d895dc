//! Files of this machine.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::folder::{are_of_shards, is_left_out};
use super::names::described;
use super::open::{identity, metadata, require_regular};
use super::tree::{Kind, Tree};
use super::{Input, Origin, ReadError, Result, walk};
use crate::shards::{FORMAT, INDEX};

/// The file system.
pub(super) struct Local;

/// Also below a file there is nothing.
pub(super) fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

impl Tree for Local {
    fn name(&self, path: &Path) -> String {
        path.to_string_lossy().into_owned()
    }

    fn kind(&self, path: &Path) -> Result<Option<Kind>> {
        let name = self.name(path);
        match fs::metadata(here_if_empty(path)) {
            Ok(found) if found.is_dir() => Ok(Some(Kind::Folder)),
            Ok(_) => Ok(Some(Kind::File)),
            Err(error) if is_missing(&error) => {
                if fs::symlink_metadata(path).is_ok() {
                    let action = "find what this link leads to as";
                    return Err(ReadError::io(&name, action, error).into());
                }
                Ok(None)
            }
            Err(error) => Err(ReadError::io(&name, "find", error).into()),
        }
    }

    fn names_in(&self, folder: &Path) -> Result<Option<Vec<String>>> {
        let folder = here_if_empty(folder);
        if !folder.is_dir() {
            return Ok(None);
        }
        let mut names: Vec<String> = fs::read_dir(folder)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .filter(|name| !name.starts_with('.'))
            .collect();
        names.sort();
        Ok(Some(names))
    }

    /// Links to folders are followed, but no folder is looked into twice.
    fn files_below(&self, folder: &Path) -> Result<Vec<PathBuf>> {
        let (mut files, mut seen, mut todo) = (Vec::new(), HashSet::new(), vec![folder.to_owned()]);
        while let Some(folder) = todo.pop() {
            let here = here_if_empty(&folder);
            let name = self.name(here);
            let found = metadata(here, &name)?;
            if !seen.insert((found.dev(), found.ino())) {
                continue;
            }
            let list_error = |error| ReadError::io(&name, "look into", error);
            let entries = fs::read_dir(here).map_err(list_error)?;
            let mut folders = Vec::new();
            for entry in entries {
                let path = folder.join(entry.map_err(list_error)?.file_name());
                if is_left_out(&path) {
                    continue;
                }
                if path.is_dir() {
                    folders.push(path);
                } else {
                    files.push(path);
                }
            }
            // Of two links to a folder, the same one is followed each time.
            folders.sort_by(|a, b| b.cmp(a));
            todo.append(&mut folders);
        }
        files.sort();
        Ok(files)
    }

    fn glob(&self, pattern: &str) -> Result<Vec<PathBuf>> {
        walk::matches(pattern)
    }

    fn holds_shards(&self, folder: &Path) -> Result<bool> {
        let names = self.names_in(folder)?.unwrap_or_default();
        Ok(are_of_shards(&names) || begins_like_an_index(&folder.join(INDEX)))
    }

    fn has_description(&self, path: &Path) -> Result<bool> {
        Ok(path.exists())
    }

    fn description(&self, path: &Path) -> Result<Vec<u8>> {
        let name = self.name(path);
        require_regular(&name, &metadata(path, &name)?)?;
        fs::read(path).map_err(|e| ReadError::io(&name, "read", e).into())
    }

    fn input(&self, file: &Path) -> Result<Input> {
        let name = self.name(file);
        let found = metadata(file, &name)?;
        require_regular(&name, &found)?;
        described(name, Origin::Local(file.to_owned()), found.len(), identity(&found))
    }
}

pub(super) fn here_if_empty(path: &Path) -> &Path {
    if path.as_os_str().is_empty() { Path::new(".") } else { path }
}

/// Whether a file is the index of token shards: of a data file of that name no more than the beginning is read.
fn begins_like_an_index(path: &Path) -> bool {
    let mut beginning = String::new();
    let is_read = path.is_file()
        && File::open(path).is_ok_and(|file| file.take(32).read_to_string(&mut beginning).is_ok());
    beginning.retain(|c| !c.is_whitespace());
    is_read && beginning.starts_with(&format!("{{\"format\":\"{FORMAT}\""))
}
