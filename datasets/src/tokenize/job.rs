//! What is to be tokenized, and how.

use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::Fingerprint;
use crate::shards::{DataKind, TokenizerFacts, VERSION};
use crate::source::{Fields, Input, TextDocuments};
use crate::tokenizer::Tokenizer;

/// What happens at a record that cannot be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnBadRecord {
    /// Everything ends with an error that names it.
    #[default]
    Fail,
    /// It is passed over, counted and listed in `skipped.jsonl`.
    Skip,
}

/// A tokenization.
#[derive(Clone)]
pub struct Job {
    /// The files, in the order of their documents.
    pub inputs: Vec<Input>,
    /// What is taken of a record.
    pub fields: Fields,
    /// How text files are cut into documents.
    pub documents: TextDocuments,
    /// What makes the tokens.
    pub tokenizer: Arc<Tokenizer>,
    /// The id before each document.
    pub document_start: Option<u32>,
    /// The id after each document, but not after prompts.
    pub document_end: Option<u32>,
    /// The share of the documents that goes to the split `validation`, from 0 to 1.
    pub validation_fraction: f64,
    /// What happens at a bad record.
    pub on_bad_record: OnBadRecord,
    /// A shard ends with the document that brings it to this many tokens.
    pub shard_tokens: u64,
    /// Threads that make tokens.
    pub threads: usize,
    /// The folder of the shards.
    pub output: PathBuf,
    /// Whether to wait where another process is making the same shards, instead of refusing.
    pub waits: bool,
}

/// Everything that the shards depend on: two jobs with equal facts give the same bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobFacts {
    /// Version of the format.
    pub version: u32,
    /// What makes the tokens.
    pub tokenizer: TokenizerFacts,
    /// What is taken of a record.
    pub fields: Fields,
    /// How text files are cut into documents.
    pub documents: TextDocuments,
    /// The id before each document.
    pub document_start: Option<u32>,
    /// The id after each document.
    pub document_end: Option<u32>,
    /// The share of the split `validation`.
    pub validation_fraction: f64,
    /// What happens at a bad record.
    pub on_bad_record: OnBadRecord,
    /// The size of a shard.
    pub shard_tokens: u64,
    /// Name and identity of each file.
    pub inputs: Vec<(String, String)>,
}

impl Job {
    /// What the documents are.
    pub fn kind(&self) -> DataKind {
        match self.fields {
            Fields::Text { .. } => DataKind::Text,
            Fields::Exchange { .. } => DataKind::Instruction,
            Fields::Prompt { .. } => DataKind::Prompts,
        }
    }

    /// What the shards depend on.
    pub fn facts(&self) -> JobFacts {
        JobFacts {
            version: VERSION,
            tokenizer: self.tokenizer.facts(),
            fields: self.fields.clone(),
            documents: self.documents,
            document_start: self.document_start,
            document_end: self.document_end,
            validation_fraction: self.validation_fraction,
            on_bad_record: self.on_bad_record,
            shard_tokens: self.shard_tokens,
            inputs: self.inputs.iter().map(|i| (i.name.clone(), i.identity.clone())).collect(),
        }
    }
}

impl JobFacts {
    /// A hash of all of them.
    pub fn fingerprint(&self) -> Fingerprint {
        // Cannot fail: there are no maps with keys that are not text.
        Fingerprint::of(serde_json::to_string(self).unwrap_or_default().as_bytes())
    }

    /// What differs between two jobs, in words.
    pub fn differences(&self, other: &Self) -> Vec<&'static str> {
        let parts = [
            (self.version != other.version, "the version of the format"),
            (self.tokenizer != other.tokenizer, "the tokenizer"),
            (self.fields != other.fields, "the fields"),
            (self.documents != other.documents, "how text files are cut into documents"),
            (self.document_start != other.document_start, "the token before a document"),
            (self.document_end != other.document_end, "the token after a document"),
            (self.validation_fraction != other.validation_fraction, "the share held out"),
            (self.on_bad_record != other.on_bad_record, "what happens at a bad record"),
            (self.shard_tokens != other.shard_tokens, "the size of a shard"),
            (self.inputs != other.inputs, "the files, or their content"),
        ];
        parts.into_iter().filter(|(differs, _)| *differs).map(|(_, what)| what).collect()
    }
}
