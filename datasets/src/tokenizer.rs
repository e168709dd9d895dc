//! How text becomes token ids, and ids become text.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

pub(crate) use tokenizers::pipeline::PipelineToken;
use tokenizers::pipeline::PipelineTokenizer;
use tokenizers::pipeline::encode_options::Override;
use tokenizers::tokenizer::pipeline::encode_options::EncodeOptions;
use tokenizers::{canonicalize_str, from_json};

use crate::shards::TokenizerFacts;
use crate::{Error, Fingerprint, Result};

/// A way to turn text into token ids.
pub enum Tokenizer {
    /// One token per byte of UTF-8; the id is the byte.
    Bytes,
    /// A `tokenizer.json` of Hugging Face's tokenizers.
    File(Box<FileTokenizer>),
}

/// A `tokenizer.json`.
pub struct FileTokenizer {
    path: PathBuf,
    content: Vec<u8>,
    fingerprint: Fingerprint,
    largest_id: u32,
    options: EncodeOptions,
    /// Made when it is first needed, for that takes a second; or why it cannot be made.
    pipeline: OnceLock<Result<PipelineTokenizer, String>>,
}

impl Tokenizer {
    /// Reads a `tokenizer.json`, whose largest id is known already.
    ///
    /// # Errors
    /// The file cannot be read. What the library cannot do with it is said by its first use.
    pub fn read(path: &Path, largest_id: u32) -> Result<Self> {
        let content = std::fs::read(path)
            .map_err(|error| Error::Tokenizer { path: path.to_owned(), why: error.to_string() })?;
        // Files saved after training on short texts ask for truncation: here no token may be lost.
        let options = EncodeOptions {
            padding: Override::Off,
            truncation: Override::Off,
            ..EncodeOptions::no_specials()
        };
        Ok(Self::File(Box::new(FileTokenizer {
            path: path.to_owned(),
            fingerprint: Fingerprint::of(&content),
            content,
            largest_id,
            options,
            pipeline: OnceLock::new(),
        })))
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
                let encoded = file.pipeline()?.encode_into(text, &file.options, out);
                encoded.map_err(|error| file.unusable(error.to_string()))
            }
        }
    }

    /// The text of ids; what is not whole UTF-8 is shown as the replacement character.
    ///
    /// # Errors
    /// The library cannot do what the file asks for.
    pub fn decode(&self, ids: &[u32]) -> Result<String> {
        match self {
            Self::Bytes => {
                let bytes: Vec<u8> = ids.iter().map(|id| *id as u8).collect();
                Ok(String::from_utf8_lossy(&bytes).into_owned())
            }
            Self::File(file) => {
                let text = file.pipeline()?.decode(ids, false);
                text.map_err(|error| file.unusable(error.to_string()))
            }
        }
    }
}

impl FileTokenizer {
    fn pipeline(&self) -> Result<&PipelineTokenizer> {
        let made = self.pipeline.get_or_init(|| {
            let text = std::str::from_utf8(&self.content).map_err(|error| error.to_string())?;
            // The library takes the form of its own version only, and brings older ones into it.
            let canonical = canonicalize_str(text).map_err(|error| error.to_string())?;
            from_json(&canonical).map_err(|error| error.to_string())
        });
        made.as_ref().map_err(|why| self.unusable(why.clone()))
    }

    fn unusable(&self, why: String) -> Error {
        Error::Tokenizer { path: self.path.clone(), why }
    }
}
