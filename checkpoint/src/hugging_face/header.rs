//! The header of a file of safetensors that anybody may have written.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use crate::{Dtype, Error, Header, Result};

/// What safetensors says of a tensor.
#[derive(Deserialize)]
struct Described {
    /// There are more formats than are of use here.
    dtype: String,
    shape: Vec<u64>,
    data_offsets: [u64; 2],
}

#[derive(Deserialize)]
struct Text {
    #[serde(rename = "__metadata__", default)]
    _metadata: IgnoredAny,
    #[serde(flatten)]
    tensors: BTreeMap<String, Described>,
}

/// A tensor in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stored {
    /// Its number format, by the name that safetensors has for it.
    pub(super) dtype: String,
    pub(super) shape: Vec<u64>,
    /// Where its bytes begin in the file.
    pub(super) offset: u64,
}

impl Stored {
    /// The number format, if it is one that weights are read from.
    pub(super) fn format(&self) -> Option<Dtype> {
        let format = serde_json::from_value(self.dtype.clone().into()).ok();
        format.filter(|format| matches!(format, Dtype::F32 | Dtype::BF16 | Dtype::F16))
    }
}

/// Opens a file and reads its header, which must describe all of it.
pub(super) fn open(path: &Path) -> Result<(File, BTreeMap<String, Stored>)> {
    let failed = |error| Error::file(path, "read", error);
    // Opening a pipe would wait for somebody to write to it.
    if !std::fs::metadata(path).map_err(failed)?.is_file() {
        return Err(Error::corrupt(path, "it is not a file"));
    }
    let mut file = File::open(path).map_err(failed)?;
    let bytes = file.metadata().map_err(failed)?.len();
    if bytes < 8 {
        return Err(Error::corrupt(path, "it is cut off: it has no header"));
    }
    let mut first = [0; 8];
    file.read_exact(&mut first).map_err(failed)?;
    let length = Header::length(path, first, bytes)?;
    let mut text = vec![0; length as usize - 8];
    file.read_exact(&mut text).map_err(failed)?;
    let tensors = parse(&text, length, bytes)
        .map_err(|what| Error::corrupt(path, format!("its header is wrong: {what}")))?;
    Ok((file, tensors))
}

/// The tensors of a file of `bytes` that begins with a header of `head`.
fn parse(text: &[u8], head: u64, bytes: u64) -> Result<BTreeMap<String, Stored>, String> {
    let text: Text = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    let mut places: Vec<([u64; 2], &str)> = Vec::new();
    for (name, described) in &text.tensors {
        let [start, end] = described.data_offsets;
        let size = end.checked_sub(start).ok_or_else(|| format!("{name} ends before it begins"))?;
        check_size(name, described, size)?;
        places.push(([start, end], name));
    }
    places.sort_unstable();
    let mut before = 0;
    for ([start, end], name) in places {
        if start != before {
            let what = if start < before { "overlaps" } else { "leaves a gap behind" };
            return Err(format!("{name} {what} the tensor before it"));
        }
        before = end;
    }
    let there = bytes - head;
    if before > there {
        return Err(format!(
            "its tensors have {before} bytes, and the file has {there} behind it: it is cut off"
        ));
    }
    if before < there {
        return Err(format!("the file has {} bytes behind its last tensor", there - before));
    }
    let stored = |(name, described): (String, Described)| {
        let Described { dtype, shape, data_offsets: [start, _] } = described;
        (name, Stored { dtype, shape, offset: head + start })
    };
    Ok(text.tensors.into_iter().map(stored).collect())
}

/// The size must be that of the shape, where the format is known.
fn check_size(name: &str, described: &Described, size: u64) -> Result<(), String> {
    let dtype: Option<Dtype> = serde_json::from_value(described.dtype.clone().into()).ok();
    let Some(dtype) = dtype else { return Ok(()) };
    let elements = described.shape.iter().try_fold(1_u64, |all, size| all.checked_mul(*size));
    if elements.and_then(|elements| elements.checked_mul(dtype.bytes())) == Some(size) {
        return Ok(());
    }
    let (shape, dtype) = (&described.shape, &described.dtype);
    Err(format!("{name} has {size} bytes, which is not the size of {shape:?} of {dtype}"))
}

/// A tensor that is to be written.
#[derive(Serialize)]
struct Written<'a> {
    dtype: Dtype,
    shape: &'a [u64],
    data_offsets: [u64; 2],
}

/// The header of a file with tensors one behind the other: names with shapes.
pub(super) fn to_bytes<'a>(
    dtype: Dtype,
    tensors: impl Iterator<Item = (&'a str, &'a [u64])>,
) -> Vec<u8> {
    let mut text = BTreeMap::new();
    let metadata = BTreeMap::from([("format", "pt")]);
    // Nothing here can fail: there are no maps with keys that are not text.
    text.insert("__metadata__", serde_json::to_value(metadata).unwrap_or_default());
    let mut offset = 0;
    for (name, shape) in tensors {
        let end = offset + shape.iter().product::<u64>() * dtype.bytes();
        let written = Written { dtype, shape, data_offsets: [offset, end] };
        text.insert(name, serde_json::to_value(written).unwrap_or_default());
        offset = end;
    }
    let mut text = serde_json::to_vec(&text).unwrap_or_default();
    // Tensors begin at a multiple of the size of any number.
    text.resize(text.len().next_multiple_of(8), b' ');
    let mut bytes = (text.len() as u64).to_le_bytes().to_vec();
    bytes.append(&mut text);
    bytes
}
