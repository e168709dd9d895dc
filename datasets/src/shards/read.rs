//! One split of a folder of shards as one stream of tokens, read at any position.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::file::{HashedFile, fingerprint_of_file};
use super::index::shard_path;
use super::{DOCUMENTS, DataKind, EXTRA, ShardIndex, TARGETS, TOKENS};
use crate::files::{expect_open_files, io_error};
use crate::{Error, Result};

/// Files that reading a shard opens: two of bytes, each with its hashes.
const FILES_OF_A_SHARD: u64 = 4;

/// A split, open for reading by any number of threads. It holds no tokens.
#[derive(Debug)]
pub struct SplitReader {
    token_bytes: u64,
    kind: DataKind,
    tokens: u64,
    documents: u64,
    /// In stream order; those without tokens are left out.
    shards: Vec<OpenShard>,
}

#[derive(Debug)]
struct OpenShard {
    first_token: u64,
    tokens: u64,
    first_document: u64,
    documents: u64,
    ids: HashedFile,
    /// Bits of instruction data, lines of prompts.
    second: Option<HashedFile>,
    extra_bytes: u64,
    index: PathBuf,
    fingerprint: String,
    /// Whether the index was found to be what was written.
    is_good: OnceLock<()>,
}

/// A document of a split.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// Its tokens in the form of [`SplitReader::read`].
    pub tokens: Vec<i32>,
    /// The other fields of its record, of prompts: a JSON object.
    pub extra: Option<String>,
}

impl SplitReader {
    /// Opens split `split` of `folder`: looks at the size of each file, reads none.
    ///
    /// # Errors
    /// The folder is no folder of shards, has no such split, or a file is missing or of another size.
    pub fn open(folder: &Path, split: &str) -> Result<Self> {
        let index = ShardIndex::read(folder)?;
        let split = index.split(folder, split)?;
        let token_bytes = u64::from(index.token_bytes);
        let words = if index.kind == DataKind::Prompts { 2 } else { 1 };
        expect_open_files(FILES_OF_A_SHARD * split.shards.len() as u64);
        let mut shards = Vec::with_capacity(split.shards.len());
        let (mut first_token, mut first_document) = (0, 0);
        for shard in split.shards.iter().filter(|shard| shard.documents > 0) {
            let path = |ending| shard_path(folder, &shard.name, ending);
            let bytes = shard.tokens * token_bytes;
            let hashes_at = 8 * words * shard.documents;
            let ids = HashedFile::new(path(TOKENS), bytes, path(DOCUMENTS), hashes_at)?;
            let after_ids = hashes_at + 8 * bytes.div_ceil(super::BLOCK);
            let second = |ending, bytes| {
                HashedFile::new(path(ending), bytes, path(DOCUMENTS), after_ids).map(Some)
            };
            let second = match index.kind {
                DataKind::Text => None,
                DataKind::Instruction => second(TARGETS, shard.tokens.div_ceil(8))?,
                DataKind::Prompts => second(EXTRA, shard.extra_bytes)?,
            };
            let index = path(DOCUMENTS);
            let hashed = second.as_ref().map_or(0, HashedFile::blocks);
            require_size(&index, after_ids + 8 * hashed)?;
            shards.push(OpenShard {
                first_token,
                tokens: shard.tokens,
                first_document,
                documents: shard.documents,
                ids,
                second,
                extra_bytes: shard.extra_bytes,
                index,
                fingerprint: shard.fingerprint.clone(),
                is_good: OnceLock::new(),
            });
            first_token += shard.tokens;
            first_document += shard.documents;
        }
        Ok(Self {
            token_bytes,
            kind: index.kind,
            tokens: split.tokens,
            documents: split.documents,
            shards,
        })
    }

    /// The number of tokens.
    pub fn tokens(&self) -> u64 {
        self.tokens
    }

    /// The number of documents.
    pub fn documents(&self) -> u64 {
        self.documents
    }

    /// What the documents are.
    pub fn kind(&self) -> DataKind {
        self.kind
    }

    /// Fills `out` with the tokens from position `start` on. A token that is not learned, of instruction data, is given
    /// as `!id`, which is negative.
    ///
    /// # Errors
    /// A file cannot be read or has changed, or a block of it is not what was written.
    pub fn read(&self, start: u64, out: &mut [i32]) -> Result<()> {
        let end = start.checked_add(out.len() as u64).filter(|end| *end <= self.tokens);
        if end.is_none() {
            return Err(Error::Misuse {
                what: "a position in the token stream",
                value: start.saturating_add(out.len() as u64),
                expected: format!("at most {}", self.tokens),
            });
        }
        let first = self.shards.partition_point(|shard| shard.first_token + shard.tokens <= start);
        let (mut position, mut rest) = (start, out);
        for shard in &self.shards[first..] {
            if rest.is_empty() {
                break;
            }
            let offset = position - shard.first_token;
            let count = (shard.tokens - offset).min(rest.len() as u64);
            let (now, later) = rest.split_at_mut(count as usize);
            self.read_shard(shard, offset, now)?;
            position += count;
            rest = later;
        }
        Ok(())
    }

    fn read_shard(&self, shard: &OpenShard, offset: u64, out: &mut [i32]) -> Result<()> {
        let mut bytes = vec![0; out.len() * self.token_bytes as usize];
        shard.ids.read(offset * self.token_bytes, &mut bytes)?;
        match self.token_bytes {
            1 => out.iter_mut().zip(&bytes).for_each(|(token, byte)| *token = i32::from(*byte)),
            2 => {
                for (token, pair) in out.iter_mut().zip(bytes.chunks_exact(2)) {
                    *token = i32::from(u16::from_le_bytes([pair[0], pair[1]]));
                }
            }
            _ => {
                for (token, four) in out.iter_mut().zip(bytes.chunks_exact(4)) {
                    *token = i32::from_le_bytes([four[0], four[1], four[2], four[3]]);
                }
            }
        }
        if let (DataKind::Instruction, Some(targets)) = (self.kind, &shard.second) {
            let first = offset / 8;
            let mut bits = vec![0; ((offset + out.len() as u64).div_ceil(8) - first) as usize];
            targets.read(first, &mut bits)?;
            for (place, token) in (offset - 8 * first..).zip(out) {
                if bits[(place / 8) as usize] >> (place % 8) & 1 == 0 {
                    *token = !*token;
                }
            }
        }
        Ok(())
    }

    /// Document `number`, from 0.
    ///
    /// # Errors
    /// As for [`read`](Self::read), and `Misuse` for a number that is too large.
    pub fn document(&self, number: u64) -> Result<Document> {
        let shard = self.shards.partition_point(|s| s.first_document + s.documents <= number);
        let Some(shard) = self.shards.get(shard) else {
            return Err(Error::Misuse {
                what: "the number of a document",
                value: number,
                expected: format!("below {}", self.documents),
            });
        };
        let place = number - shard.first_document;
        shard.check_index()?;
        let file = File::open(&shard.index).map_err(|e| io_error(&shard.index, "open", e))?;
        let words = if self.kind == DataKind::Prompts { 2 } else { 1 };
        let is_last = place + 1 == shard.documents;
        let mut numbers = [0u8; 32];
        let count = if is_last { words } else { 2 * words };
        file.read_exact_at(&mut numbers[..8 * count], 8 * words as u64 * place)
            .map_err(|e| io_error(&shard.index, "read", e))?;
        let number_at = |n: usize| {
            let bytes: [u8; 8] = std::array::from_fn(|i| numbers[8 * n + i]);
            u64::from_le_bytes(bytes)
        };
        let range = |word: usize, end: u64| {
            let start = number_at(word);
            let end = if is_last { end } else { number_at(words + word) };
            if start <= end { Ok(start..end) } else { Err(self.bad_bounds(shard)) }
        };
        let tokens = range(0, shard.tokens)?;
        if tokens.end > shard.tokens {
            return Err(self.bad_bounds(shard));
        }
        let mut ids = vec![0; (tokens.end - tokens.start) as usize];
        self.read_shard(shard, tokens.start, &mut ids)?;
        let extra = match (self.kind, &shard.second) {
            (DataKind::Prompts, Some(lines)) => {
                let range = range(1, shard.extra_bytes)?;
                if range.end > shard.extra_bytes {
                    return Err(self.bad_bounds(shard));
                }
                let mut line = vec![0; (range.end - range.start) as usize];
                lines.read(range.start, &mut line)?;
                Some(String::from_utf8_lossy(&line).trim_end().to_owned())
            }
            _ => None,
        };
        Ok(Document { tokens: ids, extra })
    }

    fn bad_bounds(&self, shard: &OpenShard) -> Error {
        Error::BadIndex {
            path: shard.index.clone(),
            why: "the positions of its documents are not in order".to_owned(),
        }
    }
}

impl OpenShard {
    /// Compares the index with its hash, once: positions of documents have no other.
    fn check_index(&self) -> Result<()> {
        if self.is_good.get().is_some() {
            return Ok(());
        }
        let found =
            fingerprint_of_file(&self.index).map_err(|e| io_error(&self.index, "read", e))?;
        if found.to_string() != self.fingerprint {
            let bytes = std::fs::metadata(&self.index).map_or(0, |metadata| metadata.len());
            return Err(Error::Corrupt { path: self.index.clone(), offset: 0, bytes });
        }
        self.is_good.get_or_init(|| ());
        Ok(())
    }
}

fn require_size(path: &Path, expected: u64) -> Result<()> {
    let found = std::fs::metadata(path).map_err(|e| io_error(path, "find", e))?.len();
    if found == expected {
        return Ok(());
    }
    Err(Error::Changed { path: path.to_owned(), expected, found })
}
