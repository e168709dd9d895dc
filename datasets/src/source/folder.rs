//! The data files in a folder, in the layouts of Hugging Face datasets.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::names::{EXTENSIONS, did_you_mean, format_of, list};
use super::open::{metadata, require_regular};
use super::{Error, ReadError, Result};

/// The split that files belong to if no file is named for any.
const DEFAULT_SPLIT: &str = "train";

/// What describes a dataset saved with `save_to_disk`.
#[derive(Deserialize)]
struct State {
    #[serde(rename = "_data_files")]
    data_files: Vec<DataFile>,
}

#[derive(Deserialize)]
struct DataFile {
    filename: String,
}

/// What describes several such datasets.
#[derive(Deserialize)]
struct Splits {
    splits: Vec<String>,
}

/// The files to read of a folder, at least one.
pub(super) fn files(folder: &Path, split: &str) -> Result<Vec<PathBuf>> {
    let found = files_if_any(folder, split)?;
    if found.is_empty() {
        return Err(nothing(
            folder,
            "this folder has no data files".to_owned(),
            format!("data files end in {EXTENSIONS}"),
        ));
    }
    Ok(found)
}

/// The files to read of a folder.
pub(super) fn files_if_any(folder: &Path, split: &str) -> Result<Vec<PathBuf>> {
    let dictionary = folder.join("dataset_dict.json");
    if dictionary.exists() {
        let Splits { splits } = describe(&dictionary)?;
        if !splits.iter().any(|name| name == split) {
            let suggestion = did_you_mean(split, splits.iter().map(String::as_str));
            return Err(nothing(
                folder,
                format!("this dataset has no split {split:?}{suggestion}"),
                format!("its splits are {}", list(&splits)),
            ));
        }
        return saved_files(&folder.join(split));
    }
    if folder.join("state.json").exists() {
        return saved_files(folder);
    }
    files_of_split(folder, split)
}

/// Whether a file is about data and not data.
pub(super) fn is_left_out(path: &Path) -> bool {
    const DESCRIPTIONS: [&str; 4] =
        ["dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json"];
    let Some(name) = path.file_name() else { return true };
    let name = name.to_string_lossy();
    // The datasets library keeps what it computed beside what it loaded.
    let is_cache = name.starts_with("cache-") && name.ends_with(".arrow");
    name.starts_with('.')
        || name.starts_with("README")
        || name.starts_with("LICENSE")
        || DESCRIPTIONS.contains(&&*name)
        || is_cache
}

/// The files of a dataset saved with `save_to_disk`, in its order.
fn saved_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let State { data_files } = describe(&folder.join("state.json"))?;
    Ok(data_files.into_iter().map(|file| folder.join(file.filename)).collect())
}

fn describe<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let name = path.to_string_lossy().into_owned();
    require_regular(&name, &metadata(path, &name)?)?;
    let text = fs::read(path).map_err(|e| ReadError::io(&name, "read", e))?;
    serde_json::from_slice(&text).map_err(|error| Error::BadDescription {
        name,
        problem: format!("this does not describe a dataset saved with save_to_disk: {error}"),
        hint: "save it again, or name its data files",
    })
}

/// The files named for a split; all files if none is named for the default split.
fn files_of_split(folder: &Path, split: &str) -> Result<Vec<PathBuf>> {
    let all = data_files(folder)?;
    let of_split: Vec<_> = all
        .iter()
        .filter(|file| is_of_split(file.strip_prefix(folder).unwrap_or(file), split))
        .cloned()
        .collect();
    if !of_split.is_empty() {
        return Ok(of_split);
    }
    if split == DEFAULT_SPLIT || all.is_empty() {
        return Ok(all);
    }
    let names: Vec<_> = all
        .iter()
        .map(|file| file.strip_prefix(folder).unwrap_or(file).to_string_lossy())
        .collect();
    Err(nothing(
        folder,
        format!("no file or folder in it is named for the split {split:?}"),
        format!("the data files are {}", list(&names)),
    ))
}

/// Whether the file, or a folder that it is in, begins with the word for a split.
fn is_of_split(file: &Path, split: &str) -> bool {
    let words: &[&str] = match split {
        "train" => &["train", "training"],
        "validation" => &["validation", "valid", "val", "dev"],
        "test" => &["test", "testing", "eval", "evaluation"],
        other => &[other],
    };
    file.iter().any(|part| {
        let part = part.to_string_lossy().to_lowercase();
        words.iter().any(|word| {
            let rest = part.strip_prefix(&word.to_lowercase());
            rest.is_some_and(|rest| !rest.starts_with(char::is_alphabetic))
        })
    })
}

/// All files with a known extension, in all folders below, sorted.
fn data_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = files_below(folder)?;
    files.retain(|file| format_of(&file.to_string_lossy()).0.is_some());
    Ok(files)
}

/// All files in all folders below but hidden ones and those that are not data, sorted.
///
/// Links to folders are followed, but no folder is looked into twice.
pub(super) fn files_below(folder: &Path) -> Result<Vec<PathBuf>> {
    let (mut files, mut seen, mut todo) = (Vec::new(), HashSet::new(), vec![folder.to_owned()]);
    while let Some(folder) = todo.pop() {
        let here = if folder.as_os_str().is_empty() { Path::new(".") } else { &folder };
        let name = here.to_string_lossy().into_owned();
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

fn nothing(folder: &Path, problem: String, hint: String) -> Error {
    Error::NothingFound { path: folder.to_string_lossy().into_owned(), problem, hint }
}
