//! From a batch of records to tokens: what the threads do.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::job::Job;
use crate::Result;
use crate::shards::DataKind;
use crate::source::{BadRecord, Content, RawBatch};
use crate::tokenizer::PipelineToken;

/// What became of one batch.
#[derive(Default)]
pub(super) struct Encoded {
    pub(super) records: u64,
    pub(super) empty_documents: u64,
    pub(super) text_bytes: u64,
    pub(super) items: Vec<Item>,
    tokens: Vec<PipelineToken>,
}

/// Something to write, in the order of the records.
pub(super) enum Item {
    /// A document, or a piece of one.
    Piece(Piece),
    Bad(BadRecord),
}

pub(super) struct Piece {
    /// Whether it begins a document, and where that is to go.
    pub(super) begins: Option<Destination>,
    pub(super) ends: bool,
    /// Not learned.
    pub(super) prompt: Range<usize>,
    /// Learned.
    pub(super) text: Range<usize>,
    pub(super) extra: Option<String>,
}

/// Which split a document goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Destination {
    Train,
    Validation,
}

impl Encoded {
    pub(super) fn tokens(&self, range: &Range<usize>) -> &[u32] {
        &PipelineToken::cast_slice(&self.tokens)[range.clone()]
    }
}

/// Turns the records of a batch into tokens.
pub(super) fn encode(job: &Job, batch: &RawBatch) -> Result<Encoded> {
    let mut out = Encoded::default();
    let mut failed = None;
    batch.documents(|document| {
        if failed.is_some() {
            return;
        }
        match document {
            Ok(document) => {
                if let Err(error) = out.add(job, document.content) {
                    failed = Some(error);
                }
            }
            Err(bad) => {
                out.records += 1;
                out.items.push(Item::Bad(bad));
            }
        }
    });
    failed.map_or(Ok(out), Err)
}

impl Encoded {
    fn add(&mut self, job: &Job, content: Content<'_>) -> Result<()> {
        match content {
            Content::Text(text) => {
                self.records += 1;
                self.piece(job, "", &text, Some(job.destination(&[&text])), true, None)
            }
            Content::Part { text, first, last } => {
                self.records += u64::from(first);
                // The whole document is not at hand: its first piece decides.
                let begins = first.then(|| job.destination(&[text]));
                self.piece(job, "", text, begins, last, None)
            }
            Content::Exchange { prompt, response } => {
                self.records += 1;
                if response.is_empty() {
                    self.empty_documents += 1;
                    return Ok(());
                }
                let begins = Some(job.destination(&[&prompt, &response]));
                self.piece(job, &prompt, &response, begins, true, None)
            }
            Content::Prompt { prompt, rest } => {
                self.records += 1;
                let begins = Some(job.destination(&[&prompt]));
                self.piece(job, "", &prompt, begins, false, Some(rest))
            }
        }
    }

    fn piece(
        &mut self,
        job: &Job,
        prompt: &str,
        text: &str,
        begins: Option<Destination>,
        ends: bool,
        extra: Option<String>,
    ) -> Result<()> {
        let is_part = begins.is_none() || !(ends || extra.is_some());
        let first = self.tokens.len();
        self.text_bytes += (prompt.len() + text.len()) as u64;
        job.tokenizer.encode(prompt, &mut self.tokens)?;
        let middle = self.tokens.len();
        job.tokenizer.encode(text, &mut self.tokens)?;
        if self.tokens.len() == first && !is_part {
            self.empty_documents += 1;
            return Ok(());
        }
        let mut learned_from = middle;
        if let (Some(start), true) = (job.document_start, begins.is_some()) {
            if self.tokens.get(first).is_none_or(|token| *token != start) {
                self.tokens.insert(first, start.into());
                learned_from += 1;
            }
            // Nothing predicts it, even where there is no prompt after it.
            learned_from = learned_from.max(first + 1);
        }
        if let (Some(end), true) = (job.document_end, ends)
            && self.tokens.last().is_none_or(|token| *token != end)
        {
            self.tokens.push(end.into());
        }
        // Where no response is told from its prompt, the token before a document is like any other of it.
        let is_instruction = job.kind() == DataKind::Instruction;
        let learned_from = if is_instruction { learned_from } else { first };
        let last = self.tokens.len();
        let ends = ends || extra.is_some();
        let (prompt, text) = (first..learned_from, learned_from..last);
        self.items.push(Item::Piece(Piece { begins, ends, prompt, text, extra }));
        Ok(())
    }
}

impl Job {
    /// Where a document goes: by its text alone, so that it is the same wherever and however often it occurs.
    fn destination(&self, texts: &[&str]) -> Destination {
        if self.validation_fraction <= 0.0 {
            return Destination::Train;
        }
        let hash = match texts {
            [text] => xxh3_64(text.as_bytes()),
            texts => {
                let mut hasher = Xxh3::new();
                for text in texts {
                    hasher.update(&(text.len() as u64).to_le_bytes());
                    hasher.update(text.as_bytes());
                }
                hasher.digest()
            }
        };
        // 53 bits, which a double holds exactly.
        let place = (hash >> 11) as f64 / (1u64 << 53) as f64;
        if place < self.validation_fraction { Destination::Validation } else { Destination::Train }
    }
}
