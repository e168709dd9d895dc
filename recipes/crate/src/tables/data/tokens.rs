//! The tokens at the edges of documents: `document_start` and `document_end`.

use serde::{Serialize, Serializer};

use crate::diagnostic::Diagnostic;
use crate::reader::{IntegerOrText, Section};
use crate::shown::Shown;
use crate::source::Item;
use crate::tables::model::MOST_VOCABULARY;
use crate::tokenizer::TokenizerFacts;
use crate::words::nearest;

use super::Tokenizer;

pub(super) const KEYS: [&str; 2] = ["document_start", "document_end"];

const AUTO: &str = "auto";
const NONE: &str = "none";

/// How a recipe names the token at an edge of documents.
#[derive(Clone, Debug, PartialEq)]
pub enum TokenName {
    /// What the tokenizer says; `bytes` has no such token.
    Auto,
    /// Nothing is put there.
    Nothing,
    /// By its id.
    Id(u64),
    /// By its text.
    Text(String),
}

impl TokenName {
    /// The id of the token; `auto` is the one that the tokenizer has for this edge.
    ///
    /// # Errors
    /// The text, if it is no token of the tokenizer. Texts of the vocabulary proper must be asked for when the facts
    /// are read.
    pub fn id(&self, auto: Option<u64>, tokenizer: &TokenizerFacts) -> Result<Option<u64>, &str> {
        match self {
            Self::Auto => Ok(auto),
            Self::Nothing => Ok(None),
            Self::Id(id) => Ok(Some(*id)),
            Self::Text(text) => tokenizer.id(text).map(Some).ok_or(text),
        }
    }

    /// Whether only a tokenizer can tell which token this is.
    pub fn needs_a_tokenizer(&self) -> bool {
        matches!(self, Self::Auto | Self::Text(_))
    }
}

impl Serialize for TokenName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Auto => serializer.serialize_str(AUTO),
            Self::Nothing => serializer.serialize_str(NONE),
            Self::Id(id) => serializer.serialize_u64(*id),
            Self::Text(text) => serializer.serialize_str(text),
        }
    }
}

/// The token at one edge of every document.
#[derive(Clone, Debug, PartialEq)]
pub struct DocumentToken {
    /// How the recipe names it.
    pub name: TokenName,
    /// Its id, if there is such a token and the tokenizer that knows it could be read.
    pub id: Option<u64>,
}

impl Serialize for DocumentToken {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.name.serialize(serializer)
    }
}

/// Reads both. `facts` are there if the tokenizer is a file that could be read.
pub(super) fn read(
    t: &mut Section<'_, '_>,
    tokenizer: &Tokenizer,
    facts: Option<&TokenizerFacts>,
) -> [Item<DocumentToken>; 2] {
    let auto = [facts.and_then(|facts| facts.start), facts.and_then(|facts| facts.end)];
    // What a text means to a tokenizer that is wrong itself is not known.
    let is_known = !t.context().is_broken("data.tokenizer");
    let id_of = |key: &str, name: &TokenName, auto| match (tokenizer, facts) {
        (_, Some(facts)) => name.id(auto, facts).map_err(|text| unknown(key, text, facts)),
        (Tokenizer::Bytes, None) if is_known => match name {
            TokenName::Text(text) => Err(no_text(key, text)),
            TokenName::Id(id) => Ok(Some(*id)),
            TokenName::Auto | TokenName::Nothing => Ok(None),
        },
        _ => Ok(if let TokenName::Id(id) = name { Some(*id) } else { None }),
    };
    let mut read_one = |key, auto| {
        let item = t.integer_or_text(key, 0, MOST_VOCABULARY - 1).and_then(|written| {
            let name = match written.value {
                IntegerOrText::Integer(id) => TokenName::Id(id),
                IntegerOrText::Text(text) if text == AUTO => TokenName::Auto,
                IntegerOrText::Text(text) if text == NONE => TokenName::Nothing,
                IntegerOrText::Text(text) => TokenName::Text(text),
            };
            let id = id_of(key, &name, auto);
            let id = id.map_err(|problem| t.reject(key, problem.at(written.at.clone()))).ok()?;
            Some(Item { value: DocumentToken { name, id }, at: written.at })
        });
        t.or(item, DocumentToken { name: TokenName::Auto, id: auto })
    };
    [read_one(KEYS[0], auto[0]), read_one(KEYS[1], auto[1])]
}

/// A text that is no token of the tokenizer.
fn unknown(key: &str, text: &str, facts: &TokenizerFacts) -> Diagnostic {
    /// A tokenizer can have hundreds of added tokens.
    const SHOWN: usize = 5;
    let added = facts.added.iter().map(|(token, _)| token.as_str());
    let help = if let Ok(id) = text.trim().parse::<u64>() {
        format!("an id has no quotes: {key} = {id}")
    } else if let Some(near) = nearest(text, added.clone().chain([AUTO, NONE])) {
        format!("did you mean \"{}\"?", Shown(near))
    } else {
        let some: Vec<String> = added.take(SHOWN).map(|t| format!("\"{}\"", Shown(t))).collect();
        let more = if facts.added.len() > SHOWN { ", .." } else { "" };
        match some.is_empty() {
            true => format!("write its id, or {key} = \"{NONE}\""),
            false => format!("its added tokens are: {}{more}", some.join(", ")),
        }
    };
    Diagnostic::error(format!("`data.{key}` = \"{}\" is no token of the tokenizer", Shown(text)))
        .label("neither an added token nor one of the vocabulary")
        .help(help)
}

/// Tokens that are bytes have no texts.
fn no_text(key: &str, text: &str) -> Diagnostic {
    let help = match (text.as_bytes(), text.trim().parse::<u64>(), nearest(text, [AUTO, NONE])) {
        (_, _, Some(word)) => format!("did you mean \"{word}\"?"),
        (_, Ok(id), _) => format!("an id has no quotes: {key} = {id}"),
        ([byte], ..) => format!("write its byte as a number: {key} = {byte}"),
        _ => format!("write the number of a byte, such as {key} = 0, or \"{NONE}\""),
    };
    Diagnostic::error(format!("`data.{key}` = \"{}\" is no byte", Shown(text)))
        .label("the tokenizer \"bytes\" has ids from 0 to 255")
        .help(help)
}
