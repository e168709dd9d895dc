//! From a path in a recipe to the files to read.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use glob::{MatchOptions, Pattern, PatternError};

use super::local::Local;
use super::names::{EXTENSIONS, did_you_mean, list};
use super::reader::check_fields;
use super::remote::{Address, RemoteTree, Store};
use super::tree::{Kind, Tree};
use super::{Error, Input, Result, SourceSpec, folder};

/// As in a shell: no wildcard stands for `/` or for the dot of a hidden file.
pub(super) const GLOB: MatchOptions = MatchOptions {
    case_sensitive: true,
    require_literal_separator: true,
    require_literal_leading_dot: true,
};

/// Expands a file, folder, glob or Hugging Face folder to the files to read, here or in an object store.
///
/// A path that exists is taken as it is, even if it has the characters of a glob. The order is that
/// of the names, or the one that a dataset saved with `save_to_disk` lists. Of folders and globs,
/// hidden files, `README*`, `LICENSE*` and the descriptions of datasets are left out; token shards in
/// them are refused. There is at least one file.
pub fn find(spec: &SourceSpec) -> Result<Vec<Input>> {
    check_path(&spec.path)?;
    match Address::parse(&spec.path)? {
        Some(address) => {
            let store = Store::of_process(address.bucket())?;
            find_in(&RemoteTree::new(store, &address), address.key(), spec)
        }
        None => find_in(&Local, &spec.path, spec),
    }
}

/// As [`find`], for a path in a tree.
pub(super) fn find_in(tree: &dyn Tree, path: &str, spec: &SourceSpec) -> Result<Vec<Input>> {
    let kind = tree.kind(Path::new(path))?;
    let files = match kind {
        Some(Kind::Folder) => folder::files(tree, Path::new(path), &spec.split)?,
        Some(Kind::File) => vec![Path::new(path).to_owned()],
        None if is_glob(path) => expand(tree, path, &spec.split)?,
        None => return Err(not_found(tree, path)?),
    };
    if kind != Some(Kind::File) {
        refuse_shards(tree, &files)?;
    }
    let inputs = files.iter().map(|file| tree.input(file)).collect::<Result<Vec<_>>>()?;
    inputs.iter().try_for_each(|input| check_fields(input, &spec.fields))?;
    Ok(inputs)
}

fn check_path(path: &str) -> Result<()> {
    let bad = |problem: &str| {
        Err(Error::BadPath {
            path: path.to_owned(),
            problem: problem.to_owned(),
            hint: "name a file, a folder or a glob".to_owned(),
        })
    };
    if path.is_empty() {
        return bad("the path is empty");
    }
    if path.contains('\0') {
        return bad("the path has a NUL");
    }
    Ok(())
}

pub(super) fn is_glob(path: &str) -> bool {
    path.contains(['*', '?', '['])
}

/// `part` is the part of the path `name` that is taken for a glob.
pub(super) fn bad_glob(name: &str, part: &str, error: &PatternError) -> Error {
    Error::BadPath {
        path: name.to_owned(),
        problem: format!("this is not a glob: {} at character {}", error.msg, error.pos + 1),
        hint: format!("for a file of this very name, write {}", Pattern::escape(part)),
    }
}

/// The files that a glob matches, and those in the folders that it matches.
fn expand(tree: &dyn Tree, pattern: &str, split: &str) -> Result<Vec<PathBuf>> {
    let matches = if pattern.split('/').any(|part| part == "**") {
        // Not left to the crate, which would follow loops of links.
        let name = tree.name(Path::new(pattern));
        let glob = Pattern::new(pattern).map_err(|e| bad_glob(&name, pattern, &e))?;
        let folder = literal_folder(pattern);
        let mut files = match tree.kind(folder)? {
            Some(Kind::Folder) => tree.files_below(folder)?,
            _ => Vec::new(),
        };
        files.retain(|file| glob.matches_path_with(file, GLOB));
        files
    } else {
        tree.glob(pattern)?
    };

    // A name that is written out is meant.
    let last = pattern.rsplit('/').next().unwrap_or(pattern);
    let (mut files, mut seen) = (Vec::new(), HashSet::new());
    for path in matches {
        let found = if tree.kind(&path)? == Some(Kind::Folder) {
            folder::files_if_any(tree, &path, split)?
        } else if is_glob(last) && folder::is_left_out(&path) {
            Vec::new()
        } else {
            vec![path]
        };
        files.extend(found.into_iter().filter(|file| seen.insert(file.clone())));
    }
    if files.is_empty() {
        return Err(Error::NothingFound {
            path: tree.name(Path::new(pattern)),
            problem: "no data file matches this glob".to_owned(),
            hint: what_is_there(tree, Path::new(pattern))?,
        });
    }
    Ok(files)
}

/// Refuses files of token shards that nobody has named: they are no text.
fn refuse_shards(tree: &dyn Tree, files: &[PathBuf]) -> Result<()> {
    let mut looked_at = HashSet::new();
    for file in files.iter().filter(|file| folder::is_named_as_of_shards(file)) {
        let folder = file.parent().unwrap_or(Path::new(""));
        if looked_at.insert(folder) && tree.holds_shards(folder)? {
            return Err(Error::BadPath {
                path: match tree.name(folder) {
                    name if name.is_empty() => ".".to_owned(),
                    name => name,
                },
                problem: "these are token shards, whose files are not read as text".to_owned(),
                hint: "name the files that are to be read, or move the shards elsewhere".to_owned(),
            });
        }
    }
    Ok(())
}

/// The folder that is written out before the first part with a wildcard.
pub(super) fn literal_folder(pattern: &str) -> &Path {
    let wild = pattern.find(['*', '?', '[']).unwrap_or(pattern.len());
    Path::new(pattern[..wild].rfind('/').map_or("", |slash| &pattern[..=slash]))
}

fn not_found(tree: &dyn Tree, path: &str) -> Result<Error> {
    let hint = if path.starts_with('~') {
        "write the path from / on: ~ is not expanded".to_owned()
    } else {
        what_is_there(tree, Path::new(path))?
    };
    let problem = "there is no such file or folder".to_owned();
    Ok(Error::NothingFound { path: tree.name(Path::new(path)), problem, hint })
}

/// The names in the nearest folder that does exist, and the one that may have been meant.
fn what_is_there(tree: &dyn Tree, path: &Path) -> Result<String> {
    let mut wrong = path;
    let (there, names) = loop {
        let parent = wrong.parent().unwrap_or(Path::new(""));
        if let Some(names) = tree.names_in(parent)? {
            break (parent, names);
        }
        if parent.as_os_str().is_empty() {
            break (parent, Vec::new());
        }
        wrong = parent;
    };
    let shown = match tree.name(there) {
        name if name.is_empty() => ".".to_owned(),
        name => name,
    };
    if names.is_empty() {
        return Ok(format!("the folder {shown} is empty; data files end in {EXTENSIONS}"));
    }
    let wrong = wrong.file_name().map(|name| name.to_string_lossy().into_owned());
    let suggestion = did_you_mean(&wrong.unwrap_or_default(), names.iter().map(String::as_str));
    Ok(format!("the folder {shown} has {}{suggestion}", list(&names)))
}

#[cfg(test)]
#[path = "find_tests.rs"]
mod tests;
