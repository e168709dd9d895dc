//! `index.json`: what is in a folder of shards.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

#[cfg(feature = "prepare")]
use super::{EXTRA, TARGETS, TOKENS};
use crate::{Error, Fingerprint, Result};

/// The name of the index of a folder of shards.
pub const INDEX: &str = "index.json";

/// The version of the format.
pub const VERSION: u32 = 2;

/// What `format` of every index says.
pub(crate) const FORMAT: &str = "titan-tokens";

/// The last key, whose value is the hash of everything before it.
const SEAL: &str = ",\n  \"xxh3_128\": \"";
const END: &str = "\"\n}\n";
const HASH_DIGITS: usize = 32;

/// What the documents of a folder are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DataKind {
    /// Text: every token is learned.
    #[default]
    Text,
    /// Prompts and responses: the response is learned.
    Instruction,
    /// Prompts, with the other fields of their records.
    Prompts,
}

/// The index of a folder of shards.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ShardIndex {
    /// Always `titan-tokens`.
    pub format: String,
    /// [`VERSION`].
    pub version: u32,
    /// What made the tokens.
    pub tokenizer: TokenizerFacts,
    /// What the documents are.
    pub kind: DataKind,
    /// Bytes of a token: 1, 2 or 4.
    pub token_bytes: u8,
    /// The id before each document.
    pub document_start: Option<u32>,
    /// The id after each document.
    pub document_end: Option<u32>,
    /// Share of the documents in the split `validation`, chosen by the hash of their text.
    pub validation_fraction: f64,
    /// What was read, and what became of it.
    pub account: Account,
    /// The files that were read, in their order.
    pub inputs: Vec<InputFacts>,
    /// `train`, and `validation` if there is one.
    pub splits: BTreeMap<String, Split>,
}

/// What made the tokens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenizerFacts {
    /// `bytes`, or the name of the file.
    pub name: String,
    /// Of the file's content; absent for bytes.
    pub fingerprint: Option<String>,
    /// The largest id it can give.
    pub largest_id: u32,
}

/// Records that were read, by what became of them: `records = documents of all splits + empty + the sum of bad`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// Records of all inputs.
    pub records: u64,
    /// Documents without text, which give no tokens.
    pub empty_documents: u64,
    /// Inputs of no bytes.
    pub empty_files: u64,
    /// Records that were passed over, by reason.
    pub bad: BTreeMap<String, u64>,
    /// Bytes of text that were tokenized.
    pub text_bytes: u64,
}

/// A file that was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputFacts {
    /// Its path or address.
    pub name: String,
    /// Its size as it is stored.
    pub bytes: u64,
}

/// The documents of one purpose.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Split {
    /// Tokens of all shards.
    pub tokens: u64,
    /// Tokens that are learned: all, but of instruction data those of responses.
    pub targets: u64,
    /// Documents of all shards.
    pub documents: u64,
    /// The largest id among the tokens; absent if there are none.
    pub largest_id: Option<u32>,
    /// Of the whole content: the fingerprints of the shards, hashed.
    pub fingerprint: String,
    /// In their order.
    pub shards: Vec<Shard>,
}

/// The files of one shard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shard {
    /// Their name without its ending.
    pub name: String,
    /// Tokens in it.
    pub tokens: u64,
    /// Documents in it.
    pub documents: u64,
    /// Bytes of its `.extra` file, of prompts.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub extra_bytes: u64,
    /// XXH3-128 of its `.index` file, which has the hashes of all other bytes.
    pub fingerprint: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl ShardIndex {
    /// An index of this version with no splits yet.
    pub fn new(tokenizer: TokenizerFacts, kind: DataKind) -> Self {
        let token_bytes = token_bytes(tokenizer.largest_id);
        Self {
            format: FORMAT.to_owned(),
            version: VERSION,
            tokenizer,
            kind,
            token_bytes,
            document_start: None,
            document_end: None,
            validation_fraction: 0.0,
            account: Account::default(),
            inputs: Vec::new(),
            splits: BTreeMap::new(),
        }
    }

    /// Whether `folder` is one of shards, finished or not: reading an index that is not there says so.
    pub fn is_for(folder: &Path) -> bool {
        Self::is_in(folder) || folder.join("job.json").is_file() && folder.join("lock").is_file()
    }

    /// Whether `folder` is a finished folder of shards.
    pub fn is_in(folder: &Path) -> bool {
        folder.join(INDEX).is_file()
    }

    /// Reads the index of `folder`.
    ///
    /// # Errors
    /// There is none, it cannot be read, or it is of another version.
    pub fn read(folder: &Path) -> Result<Self> {
        let path = folder.join(INDEX);
        let text = std::fs::read(&path).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => Error::Unfinished { path: path.clone() },
            _ => Error::Io { path: path.clone(), action: "read", error },
        })?;
        Self::parse(&text, &path)
    }

    /// The text of the file: JSON whose last key is the hash of what is before it.
    pub fn to_text(&self) -> String {
        // Cannot fail: there are no maps with keys that are not text.
        let text = serde_json::to_string_pretty(self).unwrap_or_default();
        let body = text.strip_suffix("\n}").unwrap_or(&text);
        format!("{body}{SEAL}{}{END}", Fingerprint::of(body.as_bytes()))
    }

    /// Reads the text of an index; `path` is where it is from, for messages.
    pub(crate) fn parse(text: &[u8], path: &Path) -> Result<Self> {
        let broken = |why: String| Error::BadIndex { path: path.to_owned(), why };
        #[derive(Deserialize)]
        struct Head {
            format: String,
            version: u32,
        }
        let head: Head = serde_json::from_slice(text).map_err(|error| broken(error.to_string()))?;
        if head.format != FORMAT {
            return Err(broken(format!("its format is `{}`, not `{FORMAT}`", head.format)));
        }
        if head.version != VERSION {
            let why = format!("it is of version {}; this titan-tpu reads {VERSION}", head.version);
            return Err(broken(why));
        }
        if !is_whole(text) {
            let why = "it is not what was written: its content does not have the hash that it says";
            return Err(broken(why.to_owned()));
        }
        let index: Self =
            serde_json::from_slice(text).map_err(|error| broken(error.to_string()))?;
        index.check().map_err(broken)?;
        Ok(index)
    }

    /// What readers rely on, so that no later arithmetic can fail.
    fn check(&self) -> Result<(), String> {
        if ![1, 2, 4].contains(&self.token_bytes) {
            return Err(format!("token_bytes is {}, not 1, 2 or 4", self.token_bytes));
        }
        for (name, split) in &self.splits {
            let total = |part: fn(&Shard) -> u64| {
                split.shards.iter().try_fold(0u64, |sum, shard| sum.checked_add(part(shard)))
            };
            if total(|shard| shard.tokens) != Some(split.tokens)
                || total(|shard| shard.documents) != Some(split.documents)
                || split.tokens.checked_mul(4).is_none()
            {
                return Err(format!("the shards of `{name}` do not add up to what it says"));
            }
            if let Some(shard) = split.shards.iter().find(|shard| !is_file_name(&shard.name)) {
                return Err(format!("`{}` is no name of a shard", shard.name));
            }
        }
        Ok(())
    }

    /// The files of a shard besides `.index`: the ending and the size of each.
    #[cfg(feature = "prepare")]
    pub(crate) fn columns(&self, shard: &Shard) -> Vec<(&'static str, u64)> {
        let mut columns = vec![(TOKENS, shard.tokens * u64::from(self.token_bytes))];
        match self.kind {
            DataKind::Text => {}
            DataKind::Instruction => columns.push((TARGETS, shard.tokens.div_ceil(8))),
            DataKind::Prompts => columns.push((EXTRA, shard.extra_bytes)),
        }
        columns
    }

    /// The size of the `.index` file of a shard.
    #[cfg(feature = "prepare")]
    pub(crate) fn documents_bytes(&self, shard: &Shard) -> u64 {
        let words = if self.kind == DataKind::Prompts { 2 } else { 1 };
        let blocks: u64 =
            self.columns(shard).iter().map(|(_, bytes)| bytes.div_ceil(super::BLOCK)).sum();
        shard.documents.saturating_mul(words).saturating_add(blocks).saturating_mul(8)
    }

    /// Compares the size of each file with what it must be.
    ///
    /// # Errors
    /// A file is not there or has another size.
    #[cfg(feature = "prepare")]
    pub(crate) fn check_sizes(&self, folder: &Path) -> Result<()> {
        for shard in self.splits.values().flat_map(|split| &split.shards) {
            let of_documents = (super::DOCUMENTS, self.documents_bytes(shard));
            for (ending, bytes) in self.columns(shard).into_iter().chain([of_documents]) {
                let path = shard_path(folder, &shard.name, ending);
                let why = match std::fs::metadata(&path) {
                    Ok(found) if found.len() == bytes => continue,
                    Ok(found) => format!("has {} bytes, not {bytes}", found.len()),
                    Err(error) => format!("cannot be found: {error}"),
                };
                return Err(Error::Incomplete { path, why });
            }
        }
        Ok(())
    }

    /// One of its splits.
    ///
    /// # Errors
    /// There is no split of that name.
    pub fn split(&self, folder: &Path, name: &str) -> Result<&Split> {
        self.splits.get(name).ok_or_else(|| Error::NoSplit {
            path: folder.to_owned(),
            split: name.to_owned(),
            there: self.splits.keys().cloned().collect::<Vec<_>>().join(", "),
        })
    }
}

#[cfg(feature = "prepare")]
impl Split {
    /// The fingerprint of shards with these fingerprints.
    pub(crate) fn fingerprint_of(shards: &[Shard]) -> String {
        let parts: Vec<&str> = shards.iter().map(|shard| shard.fingerprint.as_str()).collect();
        Fingerprint::of(parts.join("\n").as_bytes()).to_string()
    }
}

/// Whether an index has the hash that it says.
fn is_whole(text: &[u8]) -> bool {
    let parts = || {
        let rest = text.strip_suffix(END.as_bytes())?;
        let (rest, hash) = rest.split_at_checked(rest.len().checked_sub(HASH_DIGITS)?)?;
        Some((rest.strip_suffix(SEAL.as_bytes())?, hash))
    };
    parts().is_some_and(|(body, hash)| Fingerprint::of(body).to_string().as_bytes() == hash)
}

/// Bytes that hold every id up to `largest`.
pub(crate) fn token_bytes(largest: u32) -> u8 {
    match largest {
        0..=0xff => 1,
        0x100..=0xffff => 2,
        _ => 4,
    }
}

/// An index comes from anywhere: its names must not lead out of its folder.
fn is_file_name(name: &str) -> bool {
    !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\\', '\0'])
}

/// The path of a file of a shard.
pub(crate) fn shard_path(folder: &Path, name: &str, ending: &str) -> PathBuf {
    folder.join(format!("{name}.{ending}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index() -> ShardIndex {
        let tokenizer =
            TokenizerFacts { name: "a \"q\" }\n}".to_owned(), fingerprint: None, largest_id: 255 };
        let mut index = ShardIndex::new(tokenizer, DataKind::Text);
        index.account.bad.insert("null".to_owned(), 3);
        index.splits.insert("train".to_owned(), Split::default());
        index
    }

    #[test]
    fn any_changed_byte_is_found() {
        let path = Path::new("index.json");
        for index in [index(), ShardIndex { splits: BTreeMap::new(), ..index() }] {
            let text = index.to_text().into_bytes();
            assert_eq!(ShardIndex::parse(&text, path).unwrap(), index);
            for place in 0..text.len() {
                for bit in 0..8 {
                    let mut changed = text.clone();
                    changed[place] ^= 1 << bit;
                    let parsed = ShardIndex::parse(&changed, path);
                    assert!(parsed.is_err(), "byte {place}, bit {bit}");
                }
                assert!(ShardIndex::parse(&text[..place], path).is_err(), "cut off at {place}");
            }
        }
    }
}
