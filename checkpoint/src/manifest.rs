//! The manifest: what a checkpoint consists of.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Error, Hash, Result, TensorFacts};

/// Version of the format.
pub const VERSION: u64 = 1;

/// Name of the file.
pub const MANIFEST: &str = "manifest.json";

const FORMAT: &str = "titan-checkpoint";

/// The last key, whose value is the hash of everything before it.
const SEAL: &str = ",\n  \"xxh3_128\": \"";
const END: &str = "\"\n}\n";

/// A file of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileFacts {
    /// Its name in the folder.
    pub name: String,
    /// Its size.
    pub bytes: u64,
    /// Bytes before those of its first tensor.
    pub header_bytes: u64,
    /// The hash of these. They have the hashes of all others.
    pub header: Hash,
}

/// What a checkpoint consists of, and what a run needs to go on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// `titan-checkpoint`.
    format: String,
    /// Version of the format.
    version: u64,
    /// Optimizer steps that are done.
    pub step: u64,
    /// What the run says about itself: nothing here looks into it.
    pub run: Value,
    /// All tensors, by name.
    pub tensors: BTreeMap<String, TensorFacts>,
    /// All files but this one, by rank.
    pub files: Vec<FileFacts>,
}

impl Manifest {
    /// A manifest of this version.
    pub fn new(
        step: u64,
        run: Value,
        tensors: BTreeMap<String, TensorFacts>,
        files: Vec<FileFacts>,
    ) -> Self {
        Self { format: FORMAT.to_owned(), version: VERSION, step, run, tensors, files }
    }

    /// Bytes of all files but this one.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).fold(0, u64::saturating_add)
    }

    /// The text of the file: JSON whose last key is the hash of what is before it.
    pub fn to_text(&self) -> String {
        // Cannot fail: there are no maps with keys that are not text.
        let mut text = serde_json::to_string_pretty(self).unwrap_or_default();
        text.truncate(text.trim_end_matches(['\n', '}']).len());
        let hash = Hash::of(text.as_bytes());
        text + SEAL + &hash.to_string() + END
    }

    /// Reads the content of the file at `path`.
    ///
    /// # Errors
    /// A byte of it is not what was written, or the version is another.
    pub fn parse(path: &Path, content: &[u8]) -> Result<Self> {
        let is_whole = || {
            let rest = content.strip_suffix(END.as_bytes())?;
            let (rest, hash) = rest.split_at_checked(rest.len().checked_sub(Hash::DIGITS)?)?;
            let body = rest.strip_suffix(SEAL.as_bytes())?;
            let hash: Hash = std::str::from_utf8(hash).ok()?.parse().ok()?;
            (Hash::of(body) == hash).then_some(())
        };
        if is_whole().is_none() {
            let what =
                "it is not what was written: its content does not have the hash that it says";
            return Err(Error::corrupt(path, what));
        }
        let wrong = |error: serde_json::Error| Error::corrupt(path, error.to_string());
        let value: Value = serde_json::from_slice(content).map_err(wrong)?;
        let found = value["version"].as_u64().unwrap_or_default();
        if value["format"] == FORMAT && found != VERSION {
            return Err(Error::Version { path: path.to_owned(), found, known: VERSION });
        }
        let manifest: Self = serde_json::from_value(value).map_err(wrong)?;
        if manifest.format != FORMAT {
            return Err(Error::corrupt(path, "this is not the manifest of a checkpoint"));
        }
        Ok(manifest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dtype;

    fn manifest() -> Manifest {
        let tensor = TensorFacts { dtype: Dtype::F32, shape: vec![2, 3] };
        let file = FileFacts {
            name: "rank-00000.safetensors".to_owned(),
            bytes: 4120,
            header_bytes: 4096,
            header: Hash::of(b"x"),
        };
        let run = serde_json::json!({"name": "a \"quoted\" }\n}\n"});
        Manifest::new(7, run, BTreeMap::from([("w".to_owned(), tensor)]), vec![file])
    }

    #[test]
    fn any_changed_byte_is_found() {
        let path = Path::new("manifest.json");
        let text = manifest().to_text().into_bytes();
        assert_eq!(Manifest::parse(path, &text).unwrap(), manifest());
        assert!(serde_json::from_slice::<Value>(&text).is_ok());
        for place in 0..text.len() {
            for bit in 0..8 {
                let mut changed = text.clone();
                changed[place] ^= 1 << bit;
                assert!(Manifest::parse(path, &changed).is_err(), "byte {place}, bit {bit}");
            }
            assert!(Manifest::parse(path, &text[..place]).is_err(), "cut off at {place}");
        }
    }

    #[test]
    fn a_later_version_is_called_damage() {
        let later = Manifest { version: 2, ..manifest() }.to_text();
        let error = Manifest::parse(Path::new("m"), later.as_bytes()).unwrap_err();
        assert!(matches!(error, Error::Version { found: 2, known: 1, .. }), "{error}");
    }
}
