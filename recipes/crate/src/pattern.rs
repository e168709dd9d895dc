//! Patterns that stand for several files: `*`, `?`, `[..]`, and `**` for folders at any depth.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use glob::{MatchOptions, Pattern, glob_with};

use crate::shown::ShownPath;

const CHARACTERS: [char; 3] = ['*', '?', '['];

/// No wildcard stands for `/`, or for the dot of a hidden file.
const AS_IN_A_SHELL: MatchOptions = MatchOptions {
    case_sensitive: true,
    require_literal_separator: true,
    require_literal_leading_dot: true,
};

/// Why a pattern is of no use.
pub(crate) const MATCHES_NOTHING: &str = "it matches no file";

/// Whether a path that does not exist as it is written may be a pattern.
pub(crate) fn is_pattern(path: &Path) -> bool {
    path.to_str().is_some_and(|path| path.contains(CHARACTERS))
}

/// A path that stands for itself alone, even as a pattern.
pub(crate) fn literal(path: &Path) -> PathBuf {
    path.to_str().map_or_else(|| path.to_owned(), |path| Pattern::escape(path).into())
}

/// The folder that a pattern is searched from.
pub(crate) fn searched(pattern: &Path) -> PathBuf {
    let is_fixed = |part: &Component<'_>| !is_pattern(Path::new(part));
    pattern.components().take_while(is_fixed).collect()
}

/// Looks for one file that a pattern matches, or for a folder with something in it.
///
/// # Errors
/// Why there is none.
pub(crate) fn find_a_file(pattern: &Path) -> Result<(), String> {
    let text = pattern.to_str().unwrap_or_default();
    let compiled = Pattern::new(text).map_err(|error| match error.msg {
        "invalid range pattern" => {
            "a `[` has no `]`; the character itself is written `[[]`".to_owned()
        }
        _ => "`**` must stand between slashes, as in `texts/**/*.txt`".to_owned(),
    })?;
    let folder = searched(pattern);
    if !folder.is_dir() {
        return Err(format!("there is no folder {}", ShownPath(folder)));
    }
    let is_found = match pattern.components().any(|part| part.as_os_str() == "**") {
        true => below(&folder, &compiled),
        false => glob_with(text, AS_IN_A_SHELL)
            .is_ok_and(|mut all| all.any(|found| found.is_ok_and(|path| has_something(&path)))),
    };
    is_found.then_some(()).ok_or_else(|| MATCHES_NOTHING.to_owned())
}

fn has_something(path: &Path) -> bool {
    path.is_file() || fs::read_dir(path).is_ok_and(|mut all| all.next().is_some())
}

/// Looks at any depth, at each folder once: the crate would go round in circles of links.
fn below(folder: &Path, pattern: &Pattern) -> bool {
    let (mut folders, mut seen) = (vec![folder.to_owned()], HashSet::new());
    while let Some(folder) = folders.pop() {
        let Ok(found) = fs::metadata(&folder) else { continue };
        if !seen.insert((found.dev(), found.ino())) {
            continue;
        }
        for path in fs::read_dir(&folder).into_iter().flatten().flatten().map(|entry| entry.path())
        {
            if pattern.matches_path_with(&path, AS_IN_A_SHELL) && has_something(&path) {
                return true;
            }
            if path.is_dir() {
                folders.push(path);
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_searched_from_its_last_fixed_folder() {
        let of = |pattern: &str| searched(Path::new(pattern)).display().to_string();
        assert_eq!(of("/data/texts/*.txt"), "/data/texts");
        assert_eq!(of("/data/**/a/*.txt"), "/data");
        assert_eq!(of("/*"), "/");
    }

    #[test]
    fn a_literal_path_matches_itself_alone() {
        let path = Path::new("/data/[old] what?");
        let pattern = Pattern::new(literal(path).to_str().unwrap()).unwrap();
        assert!(pattern.matches_path(path));
        assert!(!pattern.matches("/data/o whats"));
    }
}
