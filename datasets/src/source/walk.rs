//! What a pattern without `**` matches on this machine.
//!
//! Our own walk: that of the crate `glob` panics at names that are not UTF-8, and takes `.` and `..` for entries.

use std::fs;
use std::path::{Path, PathBuf};

use glob::{Pattern, PatternError};

use super::find::{GLOB, bad_glob, is_glob};
use super::local::{here_if_empty, is_missing};
use super::{ReadError, Result};

/// The files and folders that match, sorted. A pattern that ends in `/` matches folders alone.
pub(super) fn matches(pattern: &str) -> Result<Vec<PathBuf>> {
    let bad = |error: PatternError| bad_glob(pattern, pattern, &error);
    Pattern::new(pattern).map_err(bad)?;
    let root = if pattern.starts_with('/') { "/" } else { "" };
    let mut found = vec![PathBuf::from(root)];
    let mut parts = pattern.split('/').filter(|part| !part.is_empty()).peekable();
    while let Some(part) = parts.next() {
        let needs_folder = parts.peek().is_some() || pattern.ends_with('/');
        let mut next = Vec::new();
        if is_glob(part) {
            let glob = Pattern::new(part).map_err(bad)?;
            for folder in &found {
                next.extend(entries(folder, &glob)?);
            }
        } else {
            next.extend(found.iter().map(|folder| folder.join(part)));
            // A link that leads nowhere is there: whoever reads it says so.
            next.retain(|path| fs::symlink_metadata(path).is_ok());
        }
        if needs_folder {
            next.retain(|path| path.is_dir());
        }
        found = next;
    }
    found.sort();
    found.dedup();
    Ok(found)
}

/// What is in a folder with a matching name. No pattern stands for a name that is not UTF-8.
fn entries(folder: &Path, glob: &Pattern) -> Result<Vec<PathBuf>> {
    let here = here_if_empty(folder);
    let name = here.to_string_lossy();
    let list_error = |error| ReadError::io(&name, "look into", error);
    let listed = match fs::read_dir(here) {
        Err(error) if is_missing(&error) => return Ok(Vec::new()),
        listed => listed.map_err(list_error)?,
    };
    let mut found = Vec::new();
    for entry in listed {
        let entry = entry.map_err(list_error)?.file_name();
        if entry.to_str().is_some_and(|entry| glob.matches_with(entry, GLOB)) {
            found.push(folder.join(entry));
        }
    }
    Ok(found)
}
