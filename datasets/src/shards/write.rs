//! Writing shards, so that a writer that was killed can go on where it last said that it was.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use super::file::fingerprint_of_file;
use super::index::shard_path;
use super::{BLOCK, DOCUMENTS, DataKind, EXTRA, Shard, Split, TARGETS, TOKENS};
use crate::Result;
use crate::files::io_error;

/// A column is written in pieces of this size.
const BUFFER: usize = 16 * BLOCK as usize;

/// A shard ends with this many documents, however short: their positions are read back when it is finished.
const MOST_DOCUMENTS: u64 = 1 << 22;

/// All that a [`SplitWriter`] knows, besides what is in its files.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct SplitState {
    finished: Vec<Shard>,
    /// Of the finished shards and the open one.
    targets: u64,
    largest_id: Option<u32>,
    /// Of the open shard.
    tokens: u64,
    documents: u64,
    extra_bytes: u64,
    /// The bits of the last byte of `.targets`, if that is not whole.
    bits: u8,
}

/// Writes the shards of one split.
pub(crate) struct SplitWriter {
    folder: PathBuf,
    split: String,
    kind: DataKind,
    token_bytes: u8,
    /// A shard ends after the document that brings it to this.
    shard_tokens: u64,
    state: SplitState,
    open: Option<OpenShard>,
}

struct OpenShard {
    tokens: Column,
    second: Option<Column>,
    documents: Column,
}

impl SplitWriter {
    /// A writer that goes on from `state`: what the files hold beyond it is cut off.
    pub(crate) fn resume(
        folder: &Path,
        split: &str,
        kind: DataKind,
        token_bytes: u8,
        shard_tokens: u64,
        state: SplitState,
    ) -> Result<Self> {
        let mut writer = Self {
            folder: folder.to_owned(),
            split: split.to_owned(),
            kind,
            token_bytes,
            shard_tokens,
            open: None,
            state,
        };
        if writer.state.documents > 0 {
            writer.open = Some(writer.open_shard()?);
        }
        Ok(writer)
    }

    fn words(&self) -> u64 {
        if self.kind == DataKind::Prompts { 2 } else { 1 }
    }

    fn open_shard(&self) -> Result<OpenShard> {
        let name = self.shard_name();
        let open = |ending, bytes| Column::open(shard_path(&self.folder, &name, ending), bytes);
        let SplitState { tokens, documents, extra_bytes, .. } = self.state;
        Ok(OpenShard {
            tokens: open(TOKENS, tokens * u64::from(self.token_bytes))?,
            second: match self.kind {
                DataKind::Text => None,
                DataKind::Instruction => Some(open(TARGETS, tokens / 8)?),
                DataKind::Prompts => Some(open(EXTRA, extra_bytes)?),
            },
            documents: open(DOCUMENTS, 8 * self.words() * documents)?,
        })
    }

    fn shard_name(&self) -> String {
        format!("{}-{:05}", self.split, self.state.finished.len())
    }

    /// Begins a document; `extra` is the line of a prompt.
    pub(crate) fn begin(&mut self, extra: Option<&str>) -> Result<()> {
        if self.open.is_none() {
            self.open = Some(self.open_shard()?);
        }
        let Some(open) = &mut self.open else { return Ok(()) };
        open.documents.append(&self.state.tokens.to_le_bytes())?;
        if self.kind == DataKind::Prompts {
            open.documents.append(&self.state.extra_bytes.to_le_bytes())?;
            if let Some(lines) = &mut open.second {
                let line = extra.unwrap_or("{}");
                lines.append(line.as_bytes())?;
                lines.append(b"\n")?;
                self.state.extra_bytes += line.len() as u64 + 1;
            }
        }
        self.state.documents += 1;
        Ok(())
    }

    /// Appends tokens to the document; `learned` is whether they are targets.
    pub(crate) fn append(&mut self, tokens: &[u32], learned: bool) -> Result<()> {
        let Some(open) = &mut self.open else { return Ok(()) };
        match self.token_bytes {
            1 => open.tokens.extend(tokens.iter().map(|id| *id as u8))?,
            2 => open.tokens.extend(tokens.iter().flat_map(|id| (*id as u16).to_le_bytes()))?,
            _ => open.tokens.extend(tokens.iter().flat_map(|id| id.to_le_bytes()))?,
        }
        let state = &mut self.state;
        if let (DataKind::Instruction, Some(targets)) = (self.kind, &mut open.second) {
            for place in state.tokens..state.tokens + tokens.len() as u64 {
                state.bits |= u8::from(learned) << (place % 8);
                if place % 8 == 7 {
                    targets.append(&[state.bits])?;
                    state.bits = 0;
                }
            }
        }
        state.tokens += tokens.len() as u64;
        state.targets += if learned { tokens.len() as u64 } else { 0 };
        state.largest_id = state.largest_id.max(tokens.iter().copied().max());
        Ok(())
    }

    /// Ends the document, and the shard if that is full.
    pub(crate) fn end(&mut self) -> Result<()> {
        if self.state.tokens >= self.shard_tokens || self.state.documents >= MOST_DOCUMENTS {
            self.finish_shard()?;
        }
        Ok(())
    }

    /// Brings everything to the disk, and returns what [`resume`](Self::resume) needs.
    pub(crate) fn save(&mut self) -> Result<SplitState> {
        if let Some(open) = &mut self.open {
            for column in open.columns() {
                column.save()?;
            }
        }
        Ok(self.state.clone())
    }

    fn finish_shard(&mut self) -> Result<()> {
        let Some(mut open) = self.open.take() else { return Ok(()) };
        let state = &mut self.state;
        if let (DataKind::Instruction, Some(targets)) = (self.kind, &mut open.second)
            && !state.tokens.is_multiple_of(8)
        {
            targets.append(&[state.bits])?;
        }
        let OpenShard { tokens, second, mut documents } = open;
        let extra_bytes = if self.kind == DataKind::Prompts { state.extra_bytes } else { 0 };
        for column in [Some(tokens), second].into_iter().flatten() {
            let hashes = column.finish()?;
            documents.extend(hashes.into_iter().flat_map(u64::to_le_bytes))?;
        }
        let path = documents.path.clone();
        documents.finish()?;
        let fingerprint = fingerprint_of_file(&path).map_err(|e| io_error(&path, "read", e))?;
        let shard = Shard {
            name: format!("{}-{:05}", self.split, state.finished.len()),
            tokens: state.tokens,
            documents: state.documents,
            extra_bytes,
            fingerprint: fingerprint.to_string(),
        };
        state.finished.push(shard);
        (state.tokens, state.documents, state.extra_bytes, state.bits) = (0, 0, 0, 0);
        Ok(())
    }

    /// Finishes the last shard and says what there is.
    pub(crate) fn finish(mut self) -> Result<Split> {
        self.finish_shard()?;
        let SplitState { finished, targets, largest_id, .. } = self.state;
        Ok(Split {
            tokens: finished.iter().map(|shard| shard.tokens).sum(),
            documents: finished.iter().map(|shard| shard.documents).sum(),
            targets,
            largest_id,
            fingerprint: Split::fingerprint_of(&finished),
            shards: finished,
        })
    }

    /// Tokens so far.
    pub(crate) fn tokens(&self) -> u64 {
        self.state.tokens + self.state.finished.iter().map(|shard| shard.tokens).sum::<u64>()
    }
}

impl OpenShard {
    fn columns(&mut self) -> impl Iterator<Item = &mut Column> {
        [Some(&mut self.tokens), self.second.as_mut(), Some(&mut self.documents)]
            .into_iter()
            .flatten()
    }
}

/// A file that is appended to, with the hash of each of its blocks.
struct Column {
    path: PathBuf,
    file: File,
    /// Bytes of whole blocks that are in the file and hashed.
    done: u64,
    hashes: Vec<u64>,
    /// What comes after them; may be in the file already.
    rest: Vec<u8>,
}

impl Column {
    /// Opens a file and cuts it to `bytes`.
    fn open(path: PathBuf, bytes: u64) -> Result<Self> {
        let open = || -> io::Result<Self> {
            let file =
                File::options().create(true).truncate(false).read(true).write(true).open(&path)?;
            if file.metadata()?.len() < bytes {
                return Err(io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    "it is shorter than it was",
                ));
            }
            file.set_len(bytes)?;
            let mut column =
                Self { path: path.clone(), file, done: 0, hashes: Vec::new(), rest: Vec::new() };
            let mut block = vec![0; BLOCK as usize];
            while column.done + BLOCK <= bytes {
                column.file.read_exact_at(&mut block, column.done)?;
                column.hashes.push(xxh3_64(&block));
                column.done += BLOCK;
            }
            column.rest = vec![0; (bytes - column.done) as usize];
            column.file.read_exact_at(&mut column.rest, column.done)?;
            Ok(column)
        };
        open().map_err(|error| io_error(&path, "open", error))
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.rest.extend_from_slice(bytes);
        self.write_if_full()
    }

    fn extend(&mut self, bytes: impl Iterator<Item = u8>) -> Result<()> {
        self.rest.extend(bytes);
        self.write_if_full()
    }

    fn write_if_full(&mut self) -> Result<()> {
        if self.rest.len() < BUFFER {
            return Ok(());
        }
        let whole = self.rest.len() - self.rest.len() % BLOCK as usize;
        self.file
            .write_all_at(&self.rest[..whole], self.done)
            .map_err(|error| io_error(&self.path, "write", error))?;
        self.hashes.extend(self.rest[..whole].chunks_exact(BLOCK as usize).map(xxh3_64));
        self.done += whole as u64;
        self.rest.drain(..whole);
        Ok(())
    }

    fn save(&mut self) -> Result<()> {
        self.file
            .write_all_at(&self.rest, self.done)
            .and_then(|()| self.file.sync_data())
            .map_err(|error| io_error(&self.path, "write", error))
    }

    fn finish(mut self) -> Result<Vec<u64>> {
        self.save()?;
        self.hashes.extend(self.rest.chunks(BLOCK as usize).map(xxh3_64));
        Ok(self.hashes)
    }
}
