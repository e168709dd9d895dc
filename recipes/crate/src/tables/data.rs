//! `[data]`: what the model reads.

use std::path::Path;

use serde::{Serialize, Serializer};

use crate::diagnostic::Diagnostic;
use crate::files::Files;
use crate::location::Location;
use crate::reader::{Context, Section};
use crate::shown::Shown;
use crate::source::Item;
use crate::tables::location::{self, Named};
use crate::tables::model::{LANGUAGE_MODELS, Model};
use crate::tokenizer::TokenizerFacts;
use crate::tree::Table;
use crate::words::{choice, nearest};

mod sources;
mod tokens;

pub use sources::{DataSource, Documents, Fields};
pub(crate) use sources::{NAMES, SOURCES};
pub(super) use sources::{prompts_of, read_sources};
pub use tokens::{DocumentToken, TokenName};

/// How text becomes tokens.
#[derive(Clone, Debug, PartialEq)]
pub enum Tokenizer {
    /// One token per byte: 256 ids, no file needed.
    Bytes,
    /// A `tokenizer.json` of Hugging Face's tokenizers.
    File {
        /// Where it is.
        location: Location,
        /// Its largest token id, added tokens included, if the file was there to be read.
        largest_id: Option<u64>,
    },
}

impl Serialize for Tokenizer {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Bytes => serializer.serialize_str(BYTES),
            Self::File { location, .. } => location.serialize(serializer),
        }
    }
}

impl Tokenizer {
    /// The largest id that it can give, if that is known.
    pub fn largest_id(&self) -> Option<u64> {
        match self {
            Self::Bytes => Some(255),
            Self::File { largest_id, .. } => *largest_id,
        }
    }
}

const BYTES: &str = "bytes";

choice! {
    /// What happens to a record that cannot be read.
    BadRecord {
        /// The run ends.
        Fail = "fail",
        /// It is passed over and counted.
        Skip = "skip",
    }
}

/// What the model reads.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Data {
    /// How text becomes tokens.
    pub tokenizer: Item<Tokenizer>,
    /// The token that is put before each document, of language models only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub document_start: Option<Item<DocumentToken>>,
    /// The token that is put after each document, of language models only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub document_end: Option<Item<DocumentToken>>,
    /// What happens to a record that cannot be read.
    pub on_bad_record: Item<BadRecord>,
    /// Files and folders.
    pub sources: Item<Vec<DataSource>>,
}

impl Data {
    /// The token before each document, as far as it is known; see [`Data::is_settled`].
    pub fn start_id(&self) -> Option<u64> {
        self.document_start.as_ref().and_then(|token| token.id)
    }

    /// The token after each document, as far as it is known; see [`Data::is_settled`].
    pub fn end_id(&self) -> Option<u64> {
        self.document_end.as_ref().and_then(|token| token.id)
    }

    /// Whether the tokens at the edges of documents are known. They are not where a tokenizer has to tell them that
    /// was not there to be asked: one at an address, or on the machines of the run.
    pub fn is_settled(&self) -> bool {
        let tokens = [&self.document_start, &self.document_end];
        self.tokenizer.largest_id().is_some()
            || !tokens.into_iter().flatten().any(|token| token.name.needs_a_tokenizer())
    }

    pub(crate) fn read(cx: &mut Context<'_>, root: &Table, model: &Model) -> Self {
        let prompts = prompts_of(root);
        let mut t = cx.section(root, "data");
        let (tokenizer, facts) = read_tokenizer(&mut t);
        let [document_start, document_end] = match model.flux() {
            None => tokens::read(&mut t, &tokenizer, facts.as_ref()).map(Some),
            Some(_) => {
                for key in tokens::KEYS {
                    t.foreign(key, LANGUAGE_MODELS, model.family.at.clone());
                }
                [None, None]
            }
        };
        let on_bad_record = t.choice::<BadRecord>("on_bad_record");
        let on_bad_record = t.or(on_bad_record, BadRecord::Fail);
        let read = read_sources(&mut t, "data.sources", prompts.as_ref());
        let sources = t.required(read, Vec::new(), sources::EXAMPLE);
        t.finish();
        Self { tokenizer, document_start, document_end, on_bad_record, sources }
    }
}

/// The tokenizer, and what it says about its tokens if it is a file that could be read.
fn read_tokenizer(t: &mut Section<'_, '_>) -> (Item<Tokenizer>, Option<TokenizerFacts>) {
    let text = t.text("tokenizer");
    let mut facts = None;
    let tokenizer = text.and_then(|text| {
        let mut value = tokenizer_of(t.context(), &text)
            .map_err(|problem| t.reject("tokenizer", problem.at(text.at.clone())))
            .ok()?;
        if let Tokenizer::File { location: Location::Local(path), largest_id } = &mut value {
            let texts: Vec<&str> = tokens::KEYS.iter().filter_map(|key| t.peek_text(key)).collect();
            let named = Named { text: &text, path };
            let look = |files: &dyn Files, path: &Path| files.tokenizer(path, &texts);
            facts = location::require(t, "tokenizer", "the tokenizer", &named, look);
            *largest_id = facts.as_ref().map(|facts| facts.largest_id);
        }
        Some(Item { value, at: text.at })
    });
    (t.or(tokenizer, Tokenizer::Bytes), facts)
}

fn tokenizer_of(cx: &Context<'_>, text: &Item<String>) -> Result<Tokenizer, Diagnostic> {
    if **text == BYTES {
        return Ok(Tokenizer::Bytes);
    }
    if !text.contains(['/', '.']) {
        let word = nearest(text, [BYTES]);
        let help = match word {
            Some(word) => format!("did you mean \"{word}\"?"),
            None => "allowed: \"bytes\", or the path of a tokenizer.json".to_owned(),
        };
        let what = format!("`data.tokenizer` has no choice \"{}\"", Shown(&**text));
        return Err(Diagnostic::error(what).label("unknown choice").help(help));
    }
    let location = location::read(cx, text, "a tokenizer", "tokenizer = \"tokenizer.json\"")?;
    Ok(Tokenizer::File { location, largest_id: None })
}
