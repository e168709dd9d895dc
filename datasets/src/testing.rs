//! Shards for the tests.

use std::path::{Path, PathBuf};

use crate::shards::{DataKind, INDEX, ShardIndex, SplitState, SplitWriter, TokenizerFacts};
use crate::{SourceConfig, SplitPath};

/// A document: tokens that are not learned, then tokens that are.
pub(crate) type Tokens = (Vec<u32>, Vec<u32>);

/// A temporary folder of shards, removed when dropped.
pub(crate) struct Shards {
    folder: tempfile::TempDir,
}

impl Shards {
    /// Shards of a kind, of ids up to `largest_id`, that end after `shard_tokens` tokens.
    pub(crate) fn new(
        kind: DataKind,
        largest_id: u32,
        shard_tokens: u64,
        documents: &[Tokens],
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), kind, largest_id, shard_tokens, documents);
        Self { folder }
    }

    /// Text: one token for each byte.
    pub(crate) fn of_text(shard_tokens: u64, documents: &[&str]) -> Self {
        let documents: Vec<Tokens> =
            documents.iter().map(|text| (vec![], text.bytes().map(u32::from).collect())).collect();
        Self::new(DataKind::Text, 255, shard_tokens, &documents)
    }

    /// `count` tokens, each its own position: 0, 1, 2, ..
    pub(crate) fn counting(count: u32) -> Self {
        Self::new(DataKind::Text, count, 1000, &[(vec![], (0..count).collect())])
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn split(&self) -> SplitPath {
        SplitPath { folder: self.path().to_owned(), split: "train".to_owned() }
    }

    pub(crate) fn source(&self, weight: f64) -> SourceConfig {
        SourceConfig { name: self.path().display().to_string(), splits: vec![self.split()], weight }
    }
}

fn write(folder: &Path, kind: DataKind, largest_id: u32, shard_tokens: u64, documents: &[Tokens]) {
    let facts = TokenizerFacts { name: "test".to_owned(), fingerprint: None, largest_id };
    let mut index = ShardIndex::new(facts, kind);
    let mut writer = SplitWriter::resume(
        folder,
        "train",
        kind,
        index.token_bytes,
        shard_tokens,
        SplitState::default(),
    )
    .unwrap();
    for (number, (prompt, text)) in documents.iter().enumerate() {
        writer.begin(Some(&format!("{{\"number\":{number}}}"))).unwrap();
        writer.append(prompt, false).unwrap();
        writer.append(text, true).unwrap();
        writer.end().unwrap();
    }
    index.splits.insert("train".to_owned(), writer.finish().unwrap());
    std::fs::write(folder.join(INDEX), index.to_text()).unwrap();
}
