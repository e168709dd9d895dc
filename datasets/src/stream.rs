//! One or more splits as one stream of tokens, read at any position.

use std::path::PathBuf;

use crate::shards::{DataKind, SplitReader};
use crate::{Error, Result};

/// A split of a folder of shards.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct SplitPath {
    /// The folder.
    pub folder: PathBuf,
    /// `train` or `validation`.
    pub split: String,
}

/// The splits of a source, read as one stream in the order given. It holds no tokens and can be shared by threads.
#[derive(Debug)]
pub struct TokenStream {
    /// In stream order, each with the position of its first token.
    parts: Vec<(u64, SplitReader)>,
    tokens: u64,
}

impl TokenStream {
    /// Opens all splits. Their sizes are looked at, their content is not.
    ///
    /// # Errors
    /// See [`SplitReader::open`].
    pub fn open(splits: &[SplitPath]) -> Result<Self> {
        let mut tokens = 0;
        let mut parts = Vec::with_capacity(splits.len());
        for SplitPath { folder, split } in splits {
            let reader = SplitReader::open(folder, split)?;
            let start = tokens;
            tokens += reader.tokens();
            parts.push((start, reader));
        }
        Ok(Self { parts, tokens })
    }

    /// The number of tokens.
    pub fn tokens(&self) -> u64 {
        self.tokens
    }

    /// The number of documents.
    pub fn documents(&self) -> u64 {
        self.parts.iter().map(|(_, part)| part.documents()).sum()
    }

    /// Whether some tokens are not learned.
    pub fn is_masked(&self) -> bool {
        self.parts.iter().any(|(_, part)| part.kind() == DataKind::Instruction)
    }

    /// Fills `out` with the tokens from position `start` on, in the form of [`SplitReader::read`].
    ///
    /// # Errors
    /// See [`SplitReader::read`].
    pub fn read(&self, start: u64, out: &mut [i32]) -> Result<()> {
        if start.checked_add(out.len() as u64).is_none_or(|end| end > self.tokens) {
            return Err(Error::Misuse {
                what: "a position in the token stream",
                value: start.saturating_add(out.len() as u64),
                expected: format!("at most {}", self.tokens),
            });
        }
        let (mut position, mut rest) = (start, out);
        let first = self.parts.partition_point(|(begin, part)| begin + part.tokens() <= start);
        for (begin, part) in &self.parts[first..] {
            if rest.is_empty() {
                break;
            }
            let offset = position - begin;
            let count = (part.tokens() - offset).min(rest.len() as u64);
            let (now, later) = rest.split_at_mut(count as usize);
            part.read(offset, now)?;
            position += count;
            rest = later;
        }
        Ok(())
    }
}
