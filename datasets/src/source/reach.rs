//! Whether a source would read what a command writes.

use std::path::{Component, Path, PathBuf};

use glob::Pattern;

use super::find::{GLOB, is_glob, literal_folder};
use super::remote;

/// Names of files in a folder of token shards, one of each kind.
const OF_SHARDS: [&str; 12] = [
    "index.json",
    "job.json",
    "skipped.jsonl",
    "progress.json",
    "lock",
    "train-00000.tokens",
    "train-00000.index",
    "train-00000.targets",
    "train-00000.extra",
    "validation-00000.tokens",
    "validation-00000.index",
    "validation-00000.extra",
];

/// Whether the source at `path` has in it, or could match, a file of the shards in the local folder `output`, which
/// need not be there.
pub fn reads_shards_in(path: &str, output: &Path) -> bool {
    if remote::is_address(path) {
        return false;
    }
    let Some(output) = resolved(output) else { return false };
    let source = Path::new(path);
    if source.exists() || !is_glob(path) {
        return source.is_dir()
            && resolved(source).is_some_and(|folder| output.starts_with(folder));
    }
    let Some(pattern) = absolute_pattern(path) else { return false };
    // With `**` a pattern matches files alone; without, all files in the folders that it matches too.
    let is_of_files = path.split('/').any(|part| part == "**");
    let mut folders = output.ancestors();
    OF_SHARDS.iter().any(|name| pattern.matches_path_with(&output.join(name), GLOB))
        || !is_of_files && folders.any(|folder| pattern.matches_path_with(folder, GLOB))
}

/// The pattern with the folder that it begins with written as [`resolved`] writes it.
fn absolute_pattern(pattern: &str) -> Option<Pattern> {
    let folder = literal_folder(pattern);
    let rest = pattern.strip_prefix(folder.to_str()?)?.trim_start_matches('/');
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let folder = resolved(folder)?;
    let literal = Pattern::escape(folder.to_str()?.trim_end_matches('/'));
    Pattern::new(&format!("{literal}/{}", rest.trim_end_matches('/'))).ok()
}

/// A path, of which only the beginning has to exist, from `/` on and without links.
fn resolved(path: &Path) -> Option<PathBuf> {
    let path = std::path::absolute(path).ok()?;
    let (mut resolved, rest) = path.ancestors().find_map(|ancestor| {
        let rest = path.strip_prefix(ancestor).ok()?;
        Some((ancestor.canonicalize().ok()?, rest))
    })?;
    for part in rest.components() {
        match part {
            Component::ParentDir => drop(resolved.pop()),
            part => resolved.push(part),
        }
    }
    Some(resolved)
}
