//! How text becomes token ids, and ids become text.

use std::path::{Path, PathBuf};

pub(crate) use tokenizers::pipeline::PipelineToken;
use tokenizers::pipeline::PipelineTokenizer;
use tokenizers::pipeline::encode_options::Override;
use tokenizers::tokenizer::pipeline::encode_options::EncodeOptions;

use crate::files::io_error;
use crate::shards::TokenizerFacts;
use crate::{Error, Fingerprint, Result};

/// A way to turn text into token ids.
pub enum Tokenizer {
    /// One token per byte of UTF-8; the id is the byte.
    Bytes,
    /// A `tokenizer.json` of Hugging Face's tokenizers.
    File(FileTokenizer),
}

/// A `tokenizer.json`.
pub struct FileTokenizer {
    path: PathBuf,
    fingerprint: Fingerprint,
    largest_id: u32,
    pipeline: PipelineTokenizer,
    options: EncodeOptions,
}

impl Tokenizer {
    /// Reads a `tokenizer.json`, whose largest id is known already.
    ///
    /// # Errors
    /// The file cannot be read, or the library cannot do what it asks for.
    pub fn read(path: &Path, largest_id: u32) -> Result<Self> {
        let bad = |why: String| Error::Tokenizer { path: path.to_owned(), why };
        let content = std::fs::read(path).map_err(|error| io_error(path, "read", error))?;
        // The library takes the form of its own version only, and brings older ones into it.
        let canonical =
            tokenizers::canonicalize_file(path).map_err(|error| bad(error.to_string()))?;
        let pipeline = tokenizers::from_json(&canonical).map_err(|error| bad(error.to_string()))?;
        // Files saved after training on short texts ask for truncation: here no token may be lost.
        let options = EncodeOptions {
            padding: Override::Off,
            truncation: Override::Off,
            ..EncodeOptions::no_specials()
        };
        let fingerprint = Fingerprint::of(&content);
        Ok(Self::File(FileTokenizer {
            path: path.to_owned(),
            fingerprint,
            largest_id,
            pipeline,
            options,
        }))
    }

    /// The largest id that it can give.
    pub fn largest_id(&self) -> u32 {
        match self {
            Self::Bytes => 255,
            Self::File(file) => file.largest_id,
        }
    }

    /// What shards remember of it.
    pub fn facts(&self) -> TokenizerFacts {
        match self {
            Self::Bytes => {
                TokenizerFacts { name: "bytes".to_owned(), fingerprint: None, largest_id: 255 }
            }
            Self::File(file) => TokenizerFacts {
                name: file.path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
                fingerprint: Some(file.fingerprint.to_string()),
                largest_id: file.largest_id,
            },
        }
    }

    /// Appends the ids of `text` to `out`. Special tokens that are written in the text become their ids; none is added.
    pub(crate) fn encode(&self, text: &str, out: &mut Vec<PipelineToken>) -> Result<()> {
        match self {
            Self::Bytes => {
                out.extend(text.bytes().map(|byte| PipelineToken::from(u32::from(byte))));
                Ok(())
            }
            Self::File(file) => {
                file.pipeline.encode_into(text, &file.options, out).map_err(|error| {
                    Error::Tokenizer { path: file.path.clone(), why: error.to_string() }
                })
            }
        }
    }

    /// The text of ids; what is not whole UTF-8 is shown as the replacement character.
    pub fn decode(&self, ids: &[u32]) -> String {
        match self {
            Self::Bytes => {
                let bytes: Vec<u8> = ids.iter().map(|id| *id as u8).collect();
                String::from_utf8_lossy(&bytes).into_owned()
            }
            Self::File(file) => file.pipeline.decode(ids, false).unwrap_or_default(),
        }
    }
}
