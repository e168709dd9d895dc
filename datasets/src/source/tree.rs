//! Folders and files, wherever they are: the rules for choosing data files are written once, over this.

use std::path::{Path, PathBuf};

use super::{Input, Result};

/// What a path leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    Folder,
}

/// A place that holds files in folders.
pub(super) trait Tree {
    /// The path or address of a path in it, for messages.
    fn name(&self, path: &Path) -> String;

    /// What is there, if anything is.
    fn kind(&self, path: &Path) -> Result<Option<Kind>>;

    /// The names in a folder but hidden ones, sorted; nothing if there is no such folder.
    fn names_in(&self, folder: &Path) -> Result<Option<Vec<String>>>;

    /// All files in all folders below but hidden ones and those that are not data, sorted.
    fn files_below(&self, folder: &Path) -> Result<Vec<PathBuf>>;

    /// What a glob without `**` matches, sorted: files and folders.
    fn glob(&self, pattern: &str) -> Result<Vec<PathBuf>>;

    /// Whether token shards are in a folder: their files are no text.
    fn holds_shards(&self, folder: &Path) -> Result<bool>;

    /// Whether a file that describes the data of a folder is there.
    fn has_description(&self, path: &Path) -> Result<bool>;

    /// The content of such a file.
    fn description(&self, path: &Path) -> Result<Vec<u8>>;

    /// What is known of a file without opening it.
    fn input(&self, file: &Path) -> Result<Input>;
}
