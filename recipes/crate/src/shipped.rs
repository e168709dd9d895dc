//! The recipes that come with titan-tpu. The binary carries them, so that they are at hand wherever it is.

use std::path::Path;

use crate::source::Source;
use crate::words::nearest;

/// A shipped recipe.
#[derive(Clone, Copy, Debug)]
pub struct Shipped {
    /// Its name, such as `qwen3_8b`; the file is `recipes/qwen3_8b.toml`.
    pub name: &'static str,
    /// Its text.
    pub text: &'static str,
}

impl Shipped {
    /// The first line of its header: what it trains.
    pub fn title(&self) -> &'static str {
        let line = self.text.lines().next().unwrap_or_default();
        line.trim_start_matches('#').trim()
    }
}

macro_rules! shipped {
    ($($name:literal),+ $(,)?) => {
        &[$(Shipped { name: $name, text: include_str!(concat!("../../", $name, ".toml")) }),+]
    };
}

/// All of them, by family and size.
pub const ALL: &[Shipped] = shipped![
    "llama3_tiny",
    "llama3_8b",
    "llama3_70b",
    "llama3_405b",
    "qwen3_tiny",
    "qwen3_0_6b",
    "qwen3_1_7b",
    "qwen3_4b",
    "qwen3_8b",
    "qwen3_14b",
    "qwen3_32b",
    "qwen3_moe_tiny",
    "qwen3_30b_a3b",
    "qwen3_235b",
    "qwen3_235b_8192",
];

/// The shipped recipe that is called by its name alone, where no file has that name. Its paths are those of a
/// checkout whose folder is the current one.
pub(crate) fn find(path: &Path) -> Option<Source> {
    let name = path.to_str()?;
    let shipped = ALL.iter().find(|shipped| shipped.name == name)?;
    let base = std::path::absolute("recipes").unwrap_or_default();
    let source = Source { name: format!("{name} (shipped)"), text: shipped.text.to_owned(), base };
    (!path.exists()).then_some(source)
}

/// The shipped recipe whose name is like that of `path`.
pub(crate) fn near(path: &Path) -> Option<&'static str> {
    let name = path.to_str().filter(|name| !name.contains(['/', '.']))?;
    nearest(name, ALL.iter().map(|shipped| shipped.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_recipe_of_the_folder_is_carried() {
        let folder = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).unwrap();
        let mut found: Vec<String> = folder
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|ext| ext == "toml"))
            .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
            .collect();
        found.sort();
        let mut names: Vec<&str> = ALL.iter().map(|shipped| shipped.name).collect();
        names.sort_unstable();
        assert_eq!(found, names);
    }
}
