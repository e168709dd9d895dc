//! A folder with a model.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

use super::header::{self, Stored};
use super::{CONFIG, INDEX, MODEL};
use crate::{Error, Result};

/// No such file is larger than this by far.
const LARGEST_JSON: u64 = 100_000_000;

/// A folder whose files have sound headers.
#[derive(Debug)]
pub struct Folder {
    pub(super) path: PathBuf,
    pub(super) files: Vec<(PathBuf, File)>,
    /// Each tensor, with the place of its file among `files`.
    pub(super) tensors: BTreeMap<String, (usize, Stored)>,
}

/// What the index says.
#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

impl Folder {
    /// Reads the headers of all files with weights.
    ///
    /// # Errors
    /// There are none, one is missing, or one is not whole.
    pub fn open(path: &Path) -> Result<Self> {
        let mut folder =
            Self { path: path.to_owned(), files: Vec::new(), tensors: BTreeMap::new() };
        let single = path.join(MODEL);
        if single.exists() {
            let (file, tensors) = header::open(&single)?;
            folder.files.push((single, file));
            folder.tensors =
                tensors.into_iter().map(|(name, stored)| (name, (0, stored))).collect();
        } else if path.join(INDEX).exists() {
            folder.open_indexed()?;
        } else {
            return Err(no_weights(path));
        }
        Ok(folder)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn open_indexed(&mut self) -> Result<()> {
        let path = self.path.join(INDEX);
        let index: Index = read_json(&path)?;
        let names: BTreeSet<&String> = index.weight_map.values().collect();
        if names.is_empty() {
            return Err(Error::corrupt(&path, "it names no tensors"));
        }
        // A name, and not a way out of the folder.
        let is_name = |name: &str| {
            let name = Path::new(name);
            name.file_name().is_some_and(|last| last == name.as_os_str())
        };
        if let Some(name) = names.iter().find(|name| !is_name(name)) {
            let what = format!("{name:?} is not the name of a file in this folder");
            return Err(Error::corrupt(&path, what));
        }
        let missing: Vec<&str> = names
            .iter()
            .map(|name| name.as_str())
            .filter(|name| !self.path.join(name).exists())
            .collect();
        if !missing.is_empty() {
            let what = format!("these files of {INDEX} are not there: {}", missing.join(", "));
            return Err(Error::Lacks { path: self.path.clone(), what });
        }
        let mut all = BTreeMap::new();
        for (place, name) in names.into_iter().enumerate() {
            let path = self.path.join(name);
            let (file, tensors) = header::open(&path)?;
            self.files.push((path, file));
            all.insert(name.as_str(), (place, tensors));
        }
        for (tensor, name) in &index.weight_map {
            let (place, tensors) = &all[name.as_str()];
            let Some(stored) = tensors.get(tensor) else {
                let what = format!("{INDEX} says that it has {tensor}, and it has not");
                return Err(Error::corrupt(&self.files[*place].0, what));
            };
            self.tensors.insert(tensor.clone(), (*place, stored.clone()));
        }
        Ok(())
    }

    /// What `config.json` says.
    ///
    /// # Errors
    /// It is not there, or no JSON.
    pub fn config(path: &Path) -> Result<Value> {
        let config: serde_json::Map<String, Value> = read_json(&path.join(CONFIG))?;
        Ok(config.into())
    }
}

fn read_json<T: for<'a> Deserialize<'a>>(path: &Path) -> Result<T> {
    let failed = |error| Error::file(path, "read", error);
    let facts = fs::metadata(path).map_err(failed)?;
    if !facts.is_file() || facts.len() > LARGEST_JSON {
        return Err(Error::corrupt(path, "it is no file, or far too large for what it should be"));
    }
    let text = fs::read(path).map_err(failed)?;
    serde_json::from_slice(&text).map_err(|error| Error::corrupt(path, error.to_string()))
}

/// What a folder without a file of ours is instead.
fn no_weights(path: &Path) -> Error {
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) => return Error::folder(path, "read", error),
    };
    let has_pickles = entries.flatten().any(|entry| {
        let name = entry.file_name();
        [".bin", ".pt", ".pth"].iter().any(|end| name.to_string_lossy().ends_with(end))
    });
    let mut what = format!("there is neither {MODEL} nor {INDEX} in this folder");
    if has_pickles {
        what += "; its weights are pickle files, which can run any program when they are read: \
                 convert them to safetensors, as save_pretrained of transformers does";
    }
    Error::Lacks { path: path.to_owned(), what }
}
