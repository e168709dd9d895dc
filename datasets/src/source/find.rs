//! From a path in a recipe to the files to read.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use glob::{MatchOptions, Pattern, PatternError};

use super::names::{EXTENSIONS, did_you_mean, format_of, list};
use super::open::{identity, metadata, require_regular};
use super::reader::check_fields;
use super::{Compression, Error, Format, Input, Origin, ReadError, Result, SourceSpec, folder};

/// As in a shell: no wildcard stands for `/` or for the dot of a hidden file.
const GLOB: MatchOptions = MatchOptions {
    case_sensitive: true,
    require_literal_separator: true,
    require_literal_leading_dot: true,
};

/// Expands a file, folder, glob or Hugging Face folder to the files to read.
///
/// A path that exists is taken as it is, even if it has the characters of a glob. The order is that
/// of the names, or the one that a dataset saved with `save_to_disk` lists. Of folders and globs,
/// hidden files, `README*`, `LICENSE*` and the descriptions of datasets are left out. There is at
/// least one file.
pub fn find(spec: &SourceSpec) -> Result<Vec<Input>> {
    check_path(&spec.path)?;
    let path = Path::new(&spec.path);
    let files = match fs::metadata(path) {
        Ok(found) if found.is_dir() => folder::files(path, &spec.split)?,
        Ok(_) => vec![path.to_owned()],
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if fs::symlink_metadata(path).is_ok() {
                return Err(
                    ReadError::io(&spec.path, "find what this link leads to as", error).into()
                );
            }
            if !is_glob(&spec.path) {
                return Err(not_found(&spec.path));
            }
            expand(&spec.path, &spec.split)?
        }
        Err(error) => return Err(ReadError::io(&spec.path, "find", error).into()),
    };
    let inputs = files.iter().map(|file| local(file)).collect::<Result<Vec<_>>>()?;
    inputs.iter().try_for_each(|input| check_fields(input, &spec.fields))?;
    Ok(inputs)
}

fn check_path(path: &str) -> Result<()> {
    let bad = |problem: String, hint: &str| {
        Err(Error::BadPath { path: path.to_owned(), problem, hint: hint.to_owned() })
    };
    if path.is_empty() {
        return bad("the path is empty".to_owned(), "name a file, a folder or a glob");
    }
    if let Some((scheme, rest)) = path.split_once("://") {
        let hint = match scheme {
            "file" => format!("write the path alone: {rest}"),
            _ => "download it and name the local path".to_owned(),
        };
        return bad(format!("data cannot be read from {scheme}://"), &hint);
    }
    if path.contains('\0') {
        return bad("the path has a NUL".to_owned(), "name a file, a folder or a glob");
    }
    Ok(())
}

/// What is known of a file without opening it.
fn local(path: &Path) -> Result<Input> {
    let name = path.to_string_lossy().into_owned();
    let found = metadata(path, &name)?;
    require_regular(&name, &found)?;
    let (format, compression) = format_of(&name);
    let format = format.unwrap_or(Format::Text);
    if matches!(format, Format::Parquet | Format::Arrow) && compression != Compression::None {
        return Err(Error::BadPath {
            path: name,
            problem: "Parquet and Arrow files cannot be read from inside another compression"
                .to_owned(),
            hint: "decompress it first".to_owned(),
        });
    }
    Ok(Input {
        name,
        origin: Origin::Local(path.to_owned()),
        format,
        compression,
        bytes: found.len(),
        identity: identity(&found),
    })
}

fn is_glob(path: &str) -> bool {
    path.contains(['*', '?', '['])
}

/// The files that a glob matches, and those in the folders that it matches.
fn expand(pattern: &str, split: &str) -> Result<Vec<PathBuf>> {
    let bad = |error: PatternError| Error::BadPath {
        path: pattern.to_owned(),
        problem: format!("this is not a glob: {} at character {}", error.msg, error.pos + 1),
        hint: format!("for a file of this very name, write {}", Pattern::escape(pattern)),
    };
    let matches = if pattern.split('/').any(|part| part == "**") {
        // The crate would follow loops of links.
        let glob = Pattern::new(pattern).map_err(bad)?;
        let mut files = match fs::metadata(Path::new(".").join(literal_folder(pattern))) {
            Ok(found) if found.is_dir() => folder::files_below(literal_folder(pattern))?,
            _ => Vec::new(),
        };
        files.retain(|file| glob.matches_path_with(file, GLOB));
        files
    } else {
        let matches = glob::glob_with(pattern, GLOB).map_err(bad)?;
        let matches = matches.collect::<Result<Vec<_>, _>>();
        let mut matches = matches.map_err(|error| {
            let name = error.path().to_string_lossy().into_owned();
            ReadError::io(&name, "look into", error.into())
        })?;
        matches.sort();
        matches
    };

    // A name that is written out is meant.
    let last = pattern.rsplit('/').next().unwrap_or(pattern);
    let (mut files, mut seen) = (Vec::new(), HashSet::new());
    for path in matches {
        let found = if path.is_dir() {
            folder::files_if_any(&path, split)?
        } else if is_glob(last) && folder::is_left_out(&path) {
            Vec::new()
        } else {
            vec![path]
        };
        files.extend(found.into_iter().filter(|file| seen.insert(file.clone())));
    }
    if files.is_empty() {
        return Err(Error::NothingFound {
            path: pattern.to_owned(),
            problem: "no data file matches this glob".to_owned(),
            hint: what_is_there(Path::new(pattern)),
        });
    }
    Ok(files)
}

/// The folder that is written out before the first part with a wildcard.
fn literal_folder(pattern: &str) -> &Path {
    let wild = pattern.find(['*', '?', '[']).unwrap_or(pattern.len());
    Path::new(pattern[..wild].rfind('/').map_or("", |slash| &pattern[..=slash]))
}

fn not_found(path: &str) -> Error {
    let hint = if path.starts_with('~') {
        "write the path from / on: ~ is not expanded".to_owned()
    } else {
        what_is_there(Path::new(path))
    };
    let problem = "there is no such file or folder".to_owned();
    Error::NothingFound { path: path.to_owned(), problem, hint }
}

/// The names in the nearest folder that does exist, and the one that may have been meant.
fn what_is_there(path: &Path) -> String {
    let mut wrong = path;
    let there = loop {
        let parent = match wrong.parent() {
            Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
            Some(parent) => parent,
            None => break Path::new("."),
        };
        if parent.is_dir() {
            break parent;
        }
        wrong = parent;
    };
    let mut names: Vec<String> = fs::read_dir(there)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| !name.starts_with('.'))
        .collect();
    names.sort();
    let shown = there.display();
    if names.is_empty() {
        return format!("the folder {shown} is empty; data files end in {EXTENSIONS}");
    }
    let wrong = wrong.file_name().map(|name| name.to_string_lossy().into_owned());
    let suggestion = did_you_mean(&wrong.unwrap_or_default(), names.iter().map(String::as_str));
    format!("the folder {shown} has {}{suggestion}", list(&names))
}

#[cfg(test)]
#[path = "find_tests.rs"]
mod tests;
