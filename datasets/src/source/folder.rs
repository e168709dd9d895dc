//! The data files in a folder, in the layouts of Hugging Face datasets.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::names::{EXTENSIONS, did_you_mean, format_of, list};
use super::tree::Tree;
use super::{Error, Result};

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
pub(super) fn files(tree: &dyn Tree, folder: &Path, split: &str) -> Result<Vec<PathBuf>> {
    let found = files_if_any(tree, folder, split)?;
    if found.is_empty() {
        return Err(nothing(
            tree,
            folder,
            "this folder has no data files".to_owned(),
            format!("data files end in {EXTENSIONS}"),
        ));
    }
    Ok(found)
}

/// The files to read of a folder.
pub(super) fn files_if_any(tree: &dyn Tree, folder: &Path, split: &str) -> Result<Vec<PathBuf>> {
    let dictionary = folder.join("dataset_dict.json");
    if tree.has_description(&dictionary)? {
        let Splits { splits } = describe(tree, &dictionary)?;
        if !splits.iter().any(|name| name == split) {
            let suggestion = did_you_mean(split, splits.iter().map(String::as_str));
            return Err(nothing(
                tree,
                folder,
                format!("this dataset has no split {split:?}{suggestion}"),
                format!("its splits are {}", list(&splits)),
            ));
        }
        return saved_files(tree, &folder.join(split));
    }
    if tree.has_description(&folder.join("state.json"))? {
        return saved_files(tree, folder);
    }
    files_of_split(tree, folder, split)
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

/// Whether a file could be one of token shards, by its name.
pub(super) fn is_named_as_of_shards(file: &Path) -> bool {
    const NAMES: [&str; 5] = ["index.json", "job.json", "progress.json", "skipped.jsonl", "lock"];
    const ENDINGS: [&str; 4] = [".tokens", ".index", ".targets", ".extra"];
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    NAMES.contains(&&*name) || ENDINGS.iter().any(|ending| name.ends_with(ending))
}

/// Whether a folder with files of these names has token shards in it.
pub(super) fn are_of_shards<T: AsRef<str>>(names: &[T]) -> bool {
    let has = |name: &str| names.iter().any(|other| other.as_ref() == name);
    let has_tokens = || names.iter().any(|name| name.as_ref().ends_with(".tokens"));
    (has("index.json") || has("job.json")) && has_tokens()
}

/// The files of a dataset saved with `save_to_disk`, in its order.
fn saved_files(tree: &dyn Tree, folder: &Path) -> Result<Vec<PathBuf>> {
    let State { data_files } = describe(tree, &folder.join("state.json"))?;
    Ok(data_files.into_iter().map(|file| folder.join(file.filename)).collect())
}

fn describe<T: DeserializeOwned>(tree: &dyn Tree, path: &Path) -> Result<T> {
    serde_json::from_slice(&tree.description(path)?).map_err(|error| Error::BadDescription {
        name: tree.name(path),
        problem: format!("this does not describe a dataset saved with save_to_disk: {error}"),
        hint: "save it again, or name its data files",
    })
}

/// The files named for a split; all files if none is named for the default split.
fn files_of_split(tree: &dyn Tree, folder: &Path, split: &str) -> Result<Vec<PathBuf>> {
    let all = data_files(tree, folder)?;
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
        tree,
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
fn data_files(tree: &dyn Tree, folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = tree.files_below(folder)?;
    files.retain(|file| format_of(&file.to_string_lossy()).0.is_some());
    Ok(files)
}

fn nothing(tree: &dyn Tree, folder: &Path, problem: String, hint: String) -> Error {
    Error::NothingFound { path: tree.name(folder), problem, hint }
}
