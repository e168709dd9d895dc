//! `[data]`: what the model reads.

use std::cell::Cell;
use std::path::Path;

use serde::{Serialize, Serializer};

use crate::diagnostic::Diagnostic;
use crate::files::Files;
use crate::location::Location;
use crate::reader::{Context, POSITIVE, Section};
use crate::shown::Shown;
use crate::source::Item;
use crate::tables::location::{self, Named};
use crate::tables::model::{LANGUAGE_MODELS, MOST_VOCABULARY, Model};
use crate::tree::{Node, Table, Value};
use crate::words::{choice, nearest};

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

/// One source of text.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DataSource {
    /// Where it is. A relative path starts from the folder of the recipe that names it; it is absolute here.
    pub path: Item<Location>,
    /// Its share of the samples, relative to the other sources.
    pub weight: Item<f64>,
}

/// What the model reads.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Data {
    /// How text becomes tokens.
    pub tokenizer: Item<Tokenizer>,
    /// The token that ends a document, of language models only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub document_end: Option<Item<u64>>,
    /// What happens to a record that cannot be read.
    pub on_bad_record: Item<BadRecord>,
    /// Files and folders.
    pub sources: Item<Vec<DataSource>>,
}

impl Data {
    pub(crate) fn read(cx: &mut Context<'_>, root: &Table, model: &Model) -> Self {
        let mut t = cx.section(root, "data");
        let tokenizer = read_tokenizer(&mut t);
        let document_end = match model.flux() {
            None => {
                let document_end = t.integer("document_end", 0, MOST_VOCABULARY - 1);
                t.optional(document_end)
            }
            Some(_) => {
                t.foreign("document_end", LANGUAGE_MODELS, model.family.at.clone());
                None
            }
        };
        let on_bad_record = t.choice::<BadRecord>("on_bad_record");
        let on_bad_record = t.or(on_bad_record, BadRecord::Fail);
        let read = read_sources(&mut t, "data.sources");
        let sources = t.required(read, Vec::new(), EXAMPLE);
        t.finish();
        Self { tokenizer, document_end, on_bad_record, sources }
    }
}

fn read_tokenizer(t: &mut Section<'_, '_>) -> Item<Tokenizer> {
    let text = t.text("tokenizer");
    let tokenizer = text.and_then(|text| {
        let mut value = tokenizer_of(t.context(), &text)
            .map_err(|problem| t.reject("tokenizer", problem.at(text.at.clone())))
            .ok()?;
        if let Tokenizer::File { location: Location::Local(path), largest_id } = &mut value {
            let named = Named { text: &text, path };
            let look = |files: &dyn Files, path: &Path| files.tokenizer(path);
            *largest_id = location::require(t, "tokenizer", "the tokenizer", &named, look);
        }
        Some(Item { value, at: text.at })
    });
    t.or(tokenizer, Tokenizer::Bytes)
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

const EXAMPLE: &str = "[{ path = \"corpus.txt\" }]";

/// Reads the key `sources` of a table; `name` is its whole name.
pub(super) fn read_sources(
    t: &mut Section<'_, '_>,
    name: &'static str,
) -> Option<Item<Vec<DataSource>>> {
    let (nodes, at) = t.list("sources", EXAMPLE)?;
    if nodes.is_empty() {
        let empty = Diagnostic::error(format!("`{name}` is empty"))
            .at(at.clone())
            .label("needs at least one source")
            .help(format!("for example: sources = {EXAMPLE}"));
        t.reject("sources", empty);
    }
    let nodes = nodes.iter().enumerate();
    let sources = nodes.filter_map(|(n, node)| read_source(t.context(), name, n, node)).collect();
    Some(Item::written(sources, at))
}

fn read_source(
    cx: &mut Context<'_>,
    name: &'static str,
    index: usize,
    node: &Node,
) -> Option<DataSource> {
    let example = match &node.value {
        Value::Text(path) => format!("write {{ path = \"{}\" }}", Shown(path)),
        _ => format!("for example: sources = {EXAMPLE}"),
    };
    let mut t = cx.entry(name, index, node, &example)?;
    let text = t.text("path");
    if !t.has("path") {
        t.lacks("path", "\"corpus.txt\"");
    }
    let path = text.and_then(|text| read_path(&mut t, &text));
    let path = t.optional(path);
    let weight = t.number("weight", POSITIVE);
    let weight = t.or(weight, 1.0);
    t.finish();
    path.map(|path| DataSource { path, weight })
}

/// Where a source is, if it can be used.
fn read_path(t: &mut Section<'_, '_>, text: &Item<String>) -> Option<Item<Location>> {
    let read = location::read(t.context(), text, "a data source", "path = \"corpus.txt\"");
    let value = read.map_err(|problem| t.reject("path", problem.at(text.at.clone()))).ok()?;
    if let Location::Local(path) = &value {
        let failed = Cell::new(false);
        let look =
            |files: &dyn Files, path: &Path| files.data(path).inspect_err(|_| failed.set(true));
        location::require(t, "path", "the data file", &Named { text, path }, look);
        if failed.get() && t.context().needs_files() {
            return None;
        }
    }
    Some(Item { value, at: text.at.clone() })
}
