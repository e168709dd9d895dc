//! The head of a file of tensors: what safetensors says of them, and beside it which part of a tensor each is and the
//! hashes of its blocks.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::{Error, Hash, Part, Region, Result, TensorFacts};

/// Where the bytes of tensors may begin. Direct writes go to whole pages.
pub(crate) const PAGE: u64 = 4096;

/// The longest head that safetensors reads.
const LONGEST: u64 = 100_000_000;

/// The key of the metadata that has our part of it.
const PARTS: &str = "titan_parts";

/// The part of a tensor in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) part: Part,
    /// Where its bytes begin in the file.
    pub(crate) offset: u64,
    /// Bytes that one hash is of.
    pub(crate) block_bytes: u64,
    /// Of each block of it.
    pub(crate) hashes: Vec<Hash>,
}

impl Entry {
    /// Blocks of it.
    pub(crate) fn blocks(&self) -> u64 {
        self.part.bytes().div_ceil(self.block_bytes)
    }

    /// First and last byte of a block, the latter not included, counted from the beginning of the part.
    pub(crate) fn block(&self, number: u64) -> [u64; 2] {
        let start = number * self.block_bytes;
        [start, (start + self.block_bytes).min(self.part.bytes())]
    }
}

/// All that a file has, in the order of its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    pub(crate) entries: Vec<Entry>,
    block_bytes: u64,
    /// Bytes before those of the first tensor.
    pub(crate) bytes: u64,
}

/// What safetensors says of a tensor.
#[derive(Serialize, Deserialize)]
struct Described {
    dtype: crate::Dtype,
    shape: Vec<u64>,
    data_offsets: [u64; 2],
}

/// What we say of all of them.
#[derive(Serialize, Deserialize)]
struct PartsText<'a> {
    block_bytes: u64,
    #[serde(borrow)]
    parts: BTreeMap<Cow<'a, str>, PartText>,
}

/// What we say of one.
#[derive(Serialize, Deserialize)]
struct PartText {
    shape: Vec<u64>,
    #[serde(flatten)]
    region: Region,
    hashes: Vec<Hash>,
}

#[derive(Deserialize)]
struct Text {
    #[serde(rename = "__metadata__")]
    metadata: BTreeMap<String, String>,
    #[serde(flatten)]
    tensors: BTreeMap<String, Described>,
}

impl Header {
    /// The header of a file with these parts, whose hashes are not known yet: it has the same size when they are.
    pub(crate) fn plan(parts: Vec<Part>, block_bytes: u64) -> Result<Self> {
        let mut header = Self { entries: Vec::new(), block_bytes, bytes: 0 };
        for part in parts {
            check(&part).map_err(|what| Error::Misuse { what })?;
            let mut entry = Entry { part, offset: 0, block_bytes, hashes: Vec::new() };
            entry.hashes = vec![Hash::of(&[]); entry.blocks() as usize];
            header.entries.push(entry);
        }
        header.bytes = (8 + header.json().len() as u64).next_multiple_of(PAGE);
        let mut offset = header.bytes;
        for entry in &mut header.entries {
            entry.offset = offset;
            offset += entry.part.bytes();
        }
        Ok(header)
    }

    /// Bytes of the whole file.
    pub fn file_bytes(&self) -> u64 {
        self.entries.last().map_or(self.bytes, |last| last.offset + last.part.bytes())
    }

    /// The parts of tensors that are in the file.
    pub fn parts(&self) -> impl Iterator<Item = &Part> {
        self.entries.iter().map(|entry| &entry.part)
    }

    /// The bytes before those of the first tensor.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut text = self.json().into_bytes();
        // safetensors allows spaces behind its JSON.
        text.resize(self.bytes as usize - 8, b' ');
        let mut bytes = (self.bytes - 8).to_le_bytes().to_vec();
        bytes.append(&mut text);
        bytes
    }

    fn json(&self) -> String {
        let parts = self.entries.iter().map(part_text).collect();
        let parts = PartsText { block_bytes: self.block_bytes, parts };
        // Nothing here can fail: there are no maps with keys that are not text.
        let parts = serde_json::to_string(&parts).unwrap_or_default();
        let mut text = BTreeMap::new();
        let metadata = BTreeMap::from([("format", "pt"), (PARTS, parts.as_str())]);
        text.insert("__metadata__", serde_json::to_value(metadata).unwrap_or_default());
        let mut offset = 0;
        for Entry { part, .. } in &self.entries {
            let end = offset + part.bytes();
            let described = Described {
                dtype: part.tensor.dtype,
                shape: shape_of(part),
                data_offsets: [offset, end],
            };
            text.insert(&part.name, serde_json::to_value(described).unwrap_or_default());
            offset = end;
        }
        serde_json::to_string(&text).unwrap_or_default()
    }

    /// How long the header of a file is, from its first 8 bytes.
    pub(crate) fn length(path: &Path, first: [u8; 8], file_bytes: u64) -> Result<u64> {
        let length = u64::from_le_bytes(first);
        if length > LONGEST || length + 8 > file_bytes {
            return Err(Error::corrupt(path, "the length of its header is wrong"));
        }
        Ok(length + 8)
    }

    /// Reads the header of the file at `path`.
    ///
    /// # Errors
    /// It is none, or one that does not describe a file without gaps.
    pub(crate) fn parse(path: &Path, bytes: &[u8]) -> Result<Self> {
        let wrong = |what: String| Error::corrupt(path, format!("its header is wrong: {what}"));
        let text = bytes.get(8..).unwrap_or_default();
        let text: Text = serde_json::from_slice(text).map_err(|error| wrong(error.to_string()))?;
        let parts = text.metadata.get(PARTS).ok_or_else(|| wrong(format!("it has no {PARTS}")))?;
        let PartsText { block_bytes, mut parts } =
            serde_json::from_str(parts).map_err(|error| wrong(error.to_string()))?;
        if block_bytes == 0 {
            return Err(wrong("its blocks have no bytes".to_owned()));
        }
        let mut entries = Vec::new();
        for (name, described) in text.tensors {
            let entry = parts.remove(name.as_str()).ok_or_else(|| "no part".to_owned());
            let entry = entry.and_then(|part| {
                entry_of(&name, &described, part, bytes.len() as u64, block_bytes)
            });
            entries.push(entry.map_err(|what| wrong(format!("{name}: {what}")))?);
        }
        if let Some(name) = parts.keys().next() {
            return Err(wrong(format!("{name}: no tensor")));
        }
        entries.sort_by_key(|entry| (entry.offset, entry.part.bytes()));
        let mut offset = bytes.len() as u64;
        for entry in &entries {
            if entry.offset != offset {
                return Err(wrong(format!(
                    "{}: it does not follow the one before",
                    entry.part.name
                )));
            }
            offset = offset.saturating_add(entry.part.bytes());
        }
        Ok(Self { entries, block_bytes, bytes: bytes.len() as u64 })
    }
}

fn part_text(entry: &Entry) -> (Cow<'_, str>, PartText) {
    let Entry { part, hashes, .. } = entry;
    let text =
        PartText { shape: part.tensor.shape.clone(), region: part.region, hashes: hashes.clone() };
    (part.name.as_str().into(), text)
}

fn entry_of(
    name: &str,
    described: &Described,
    text: PartText,
    header_bytes: u64,
    block_bytes: u64,
) -> Result<Entry, String> {
    let tensor = TensorFacts { dtype: described.dtype, shape: text.shape };
    let part = Part { name: name.to_owned(), tensor, region: text.region };
    check(&part)?;
    let [start, end] = described.data_offsets;
    if end.checked_sub(start) != Some(part.bytes()) || described.shape != shape_of(&part) {
        return Err("its size is not that of its part".to_owned());
    }
    let offset = header_bytes.checked_add(start).ok_or("its place is too large")?;
    let entry = Entry { part, offset, block_bytes, hashes: text.hashes };
    if entry.hashes.len() as u64 != entry.blocks() {
        return Err("there is not one hash for each block".to_owned());
    }
    Ok(entry)
}

/// Whether there can be such a part.
fn check(part: &Part) -> Result<(), String> {
    let whole = part.tensor.whole().ok_or_else(|| format!("{} is too large", part.name))?;
    let is_forward = |[first, last]: [u64; 2]| first <= last;
    let Region { rows, columns } = part.region;
    if !is_forward(rows) || !is_forward(columns) || !whole.contains(&part.region) {
        return Err(format!("{} has no part {:?}", part.name, part.region));
    }
    Ok(())
}

/// The shape of a part as a tensor of its own.
fn shape_of(part: &Part) -> Vec<u64> {
    let Part { tensor, region, .. } = part;
    if tensor.whole().as_ref() == Some(region) {
        tensor.shape.clone()
    } else if tensor.shape.len() > 1 {
        vec![region.height(), region.width()]
    } else {
        vec![region.elements()]
    }
}
