//! What the tests of several files share.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::reader::Limits;
use super::{BadRecord, Content, Fields, Input, Position, Reader, SourceSpec, TextDocuments, find};

/// A record in a form that can be kept and compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Got {
    Text(String, u64, u64),
    Exchange(String, String, u64),
    Prompt(String, String, u64),
    Bad(BadRecord),
}

pub(super) const SMALL: Limits = Limits { batch: 16, line: 40, whole: 64, piece: 16, uncut: 32 };

pub(super) fn text_field() -> Fields {
    Fields::Text { text: "text".to_owned() }
}

pub(super) fn exchange_fields() -> Fields {
    Fields::Exchange { prompt: "q".to_owned(), response: "a".to_owned() }
}

pub(super) fn prompt_field() -> Fields {
    Fields::Prompt { prompt: "q".to_owned() }
}

pub(super) fn write(folder: &TempDir, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
    let path = folder.path().join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, bytes).unwrap();
    path
}

pub(super) fn spec(path: &Path) -> SourceSpec {
    SourceSpec {
        path: path.to_str().unwrap().to_owned(),
        fields: text_field(),
        documents: TextDocuments::Line,
        split: "train".to_owned(),
    }
}

pub(super) fn input(path: &Path) -> Input {
    let mut inputs = find(&spec(path)).unwrap();
    assert_eq!(inputs.len(), 1);
    inputs.remove(0)
}

/// How to read an input in a test.
#[derive(Clone)]
pub(super) struct Reading {
    pub(super) input: Input,
    pub(super) fields: Fields,
    pub(super) documents: TextDocuments,
    pub(super) limits: Limits,
}

impl Reading {
    pub(super) fn new(path: &Path) -> Self {
        Self {
            input: input(path),
            fields: text_field(),
            documents: TextDocuments::Line,
            limits: Limits::STANDARD,
        }
    }

    pub(super) fn small(mut self) -> Self {
        self.limits = SMALL;
        self
    }

    pub(super) fn fields(mut self, fields: Fields) -> Self {
        self.fields = fields;
        self
    }

    pub(super) fn whole(mut self) -> Self {
        self.documents = TextDocuments::File;
        self
    }

    pub(super) fn open(&self, from: Position) -> super::Result<Reader> {
        Reader::open_with(&self.input, &self.fields, self.documents, from, self.limits)
    }

    /// The end of each batch, and what is in it.
    pub(super) fn batches_from(&self, from: Position) -> Vec<(Position, Vec<Got>)> {
        let mut at = from;
        let batches = self.open(from).unwrap().map(|batch| {
            let batch = batch.unwrap();
            assert_eq!(batch.start, at);
            at = batch.end;
            (batch.end, got(&batch))
        });
        batches.collect()
    }

    pub(super) fn all(&self) -> Vec<Got> {
        self.batches_from(Position::default()).into_iter().flat_map(|(_, got)| got).collect()
    }

    pub(super) fn bad(&self) -> Vec<BadRecord> {
        let bad = |got| match got {
            Got::Bad(bad) => Some(bad),
            _ => None,
        };
        self.all().into_iter().filter_map(bad).collect()
    }

    /// Starting at the end of any batch gives the batches after it, and returns all records.
    pub(super) fn check_every_start(&self) -> Vec<Got> {
        let all = self.batches_from(Position::default());
        for (number, (end, _)) in all.iter().enumerate() {
            assert_eq!(self.batches_from(*end), all[number + 1..], "from {end:?}");
        }
        all.into_iter().flat_map(|(_, got)| got).collect()
    }
}

pub(super) fn got(batch: &super::RawBatch) -> Vec<Got> {
    let mut all = Vec::new();
    batch.documents(|document| {
        all.push(match document {
            Err(bad) => Got::Bad(bad),
            Ok(document) => {
                let place = document.place;
                match document.content {
                    Content::Text(text) => Got::Text(text.into_owned(), place.record, place.offset),
                    Content::Part { text, first, last } => {
                        let text = format!("{}{text}{}", mark(first, '<'), mark(last, '>'));
                        Got::Text(text, place.record, place.offset)
                    }
                    Content::Exchange { prompt, response } => {
                        Got::Exchange(prompt.into_owned(), response.into_owned(), place.record)
                    }
                    Content::Prompt { prompt, rest } => {
                        Got::Prompt(prompt.into_owned(), rest, place.record)
                    }
                }
            }
        });
    });
    all
}

fn mark(on: bool, mark: char) -> String {
    if on { mark.to_string() } else { String::new() }
}
