//! The lists of sources, of `[data]` and of `[validation]`.

use std::cell::Cell;
use std::path::Path;

use serde::Serialize;

use crate::diagnostic::Diagnostic;
use crate::files::Files;
use crate::location::Location;
use crate::pattern::{is_pattern, literal};
use crate::reader::{Context, POSITIVE, Section};
use crate::shown::Shown;
use crate::source::{Item, Loc};
use crate::tables::location::{self, Named};
use crate::tree::{Node, Table, Value};
use crate::words::choice;

choice! {
    /// How the text of a plain file is cut into documents.
    Documents {
        /// A file is a document.
        File = "file",
        /// A line is a document.
        Lines = "lines",
    }
}

/// One source of documents.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DataSource {
    /// Where it is: a file, a folder, a pattern of files or an address. A relative path starts from the folder of the
    /// recipe that names it; it is absolute here. A path that does not exist is a pattern if it has `*`, `?` or `[`.
    pub path: Item<Location>,
    /// Its share of the samples, relative to the other sources. Either all sources of a list have one or none; without
    /// weights they are read as one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<Item<f64>>,
    /// The fields of a record that are read.
    #[serde(flatten)]
    pub fields: Fields,
    /// How plain text is cut into documents.
    pub documents: Item<Documents>,
    /// The split of a folder in Hugging Face layout.
    pub split: Item<String>,
}

/// The fields of a record that are read.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Fields {
    /// A text that is learned as a whole.
    Text {
        /// The field of the text.
        text_field: Item<String>,
    },
    /// A prompt with its response, which alone is learned.
    Instruction {
        /// The field of the prompt.
        prompt_field: Item<String>,
        /// The field of the response.
        response_field: Item<String>,
    },
    /// A prompt, of a recipe with `[rl]`.
    Prompt {
        /// The field of the prompt.
        prompt_field: Item<String>,
    },
}

const TEXT: &str = "text_field";
const PROMPT: &str = "prompt_field";
const RESPONSE: &str = "response_field";

/// Keys of a source that name something inside of it.
pub(crate) const NAMES: [&str; 4] = [TEXT, PROMPT, RESPONSE, "split"];

/// The lists of sources, by their whole names.
pub(crate) const SOURCES: [&str; 2] = ["data.sources", "validation.sources"];

pub(super) const EXAMPLE: &str = "[{ path = \"corpus.txt\" }]";

/// Where the table is that makes prompts of all sources, if the recipe has it.
pub(in crate::tables) fn prompts_of(root: &Table) -> Option<Loc> {
    root.get("rl").map(|entry| entry.key_at.clone())
}

/// Reads the key `sources` of a table; `name` is its whole name. `prompts` is where it says that they are prompts.
pub(in crate::tables) fn read_sources(
    t: &mut Section<'_, '_>,
    name: &'static str,
    prompts: Option<&Loc>,
) -> Option<Item<Vec<DataSource>>> {
    let (nodes, at) = t.list("sources", EXAMPLE)?;
    if nodes.is_empty() {
        let empty = Diagnostic::error(format!("`{name}` is empty"))
            .at(at.clone())
            .label("needs at least one source")
            .help(format!("for example: sources = {EXAMPLE}"));
        t.reject("sources", empty);
    }
    if let Some(problem) = all_or_none_have_weights(name, nodes) {
        t.reject("sources", problem);
    }
    let read = |(n, node)| read_source(t.context(), name, n, node, prompts);
    let sources = nodes.iter().enumerate().filter_map(read).collect();
    Some(Item::written(sources, at))
}

/// Sources without weights are as heavy as they are large, which no weight of another source can be compared with.
fn all_or_none_have_weights(name: &str, nodes: &[Node]) -> Option<Diagnostic> {
    let weight = |node: &Node| node.table().and_then(|table| table.get("weight")).cloned();
    let weighted = nodes.iter().find_map(weight)?;
    let mut all = nodes.iter().enumerate();
    let (n, bare) = all.find(|(_, node)| node.table().is_some() && weight(node).is_none())?;
    Some(
        Diagnostic::error(format!("`{name}[{n}]` has no weight, and another source has one"))
            .at(bare.at.clone())
            .label("either all sources have a weight, or none")
            .context(Some(weighted.key_at), "a weight")
            .help(
                "add weight = 1.0 here, or leave all weights out: sources are then read in proportion to their sizes",
            ),
    )
}

fn read_source(
    cx: &mut Context<'_>,
    name: &'static str,
    index: usize,
    node: &Node,
    prompts: Option<&Loc>,
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
    let weight = t.optional(weight);
    let fields = read_fields(&mut t, prompts);
    let documents = t.choice::<Documents>("documents");
    let documents = t.or(documents, Documents::File);
    let split = read_name(&mut t, "split", "train");
    let split = t.or(split, "train".to_owned());
    t.finish();
    path.map(|path| DataSource { path, weight, fields, documents, split })
}

/// A name inside of a source, which cannot be empty.
fn read_name(t: &mut Section<'_, '_>, key: &'static str, example: &str) -> Option<Item<String>> {
    let text = t.text(key).filter(|text| {
        if text.is_empty() {
            let problem = Diagnostic::error(format!("`{}` is empty", t.name_of(key)))
                .at(text.at.clone())
                .label("must be a name")
                .help(format!("leave it out, or for example: {key} = \"{example}\""));
            t.reject(key, problem);
        }
        !text.is_empty()
    });
    t.optional(text)
}

fn read_fields(t: &mut Section<'_, '_>, prompts: Option<&Loc>) -> Fields {
    let text = read_name(t, TEXT, "text");
    let prompt = read_name(t, PROMPT, "prompt");
    let response = read_name(t, RESPONSE, "response");
    if let Some(rl) = prompts {
        for (key, item) in [(TEXT, text), (RESPONSE, response)] {
            if let Some(item) = item {
                t.reject(key, only_prompts(&t.name_of(key), key, &item, rl));
            }
        }
        let prompt_field = prompt.unwrap_or_else(|| t.default_of(PROMPT, "prompt".to_owned()));
        return Fields::Prompt { prompt_field };
    }
    if let Some((key, problem)) = at_odds(t, [&text, &prompt, &response]) {
        t.reject(key, problem);
    }
    match (prompt, response) {
        (Some(prompt_field), Some(response_field)) => {
            Fields::Instruction { prompt_field, response_field }
        }
        _ => {
            let text_field = text.unwrap_or_else(|| t.default_of(TEXT, "text".to_owned()));
            Fields::Text { text_field }
        }
    }
}

/// A field that prompts do not have.
fn only_prompts(name: &str, key: &str, item: &Item<String>, rl: &Loc) -> Diagnostic {
    let help = match key {
        TEXT => format!("write {PROMPT} = \"{}\"", Shown(&**item)),
        _ => format!("remove it; the field of the prompt is {PROMPT}"),
    };
    Diagnostic::error(format!("`{name}` in a recipe with [rl]"))
        .at(item.at.clone())
        .label("its sources are prompts")
        .context(Some(rl.clone()), "answers are sampled")
        .help(help)
}

/// A record is one text, or a prompt with its response.
fn at_odds(
    t: &Section<'_, '_>,
    [text, prompt, response]: [&Option<Item<String>>; 3],
) -> Option<(&'static str, Diagnostic)> {
    let at = |item: &Option<Item<String>>| item.as_ref().and_then(|item| item.at.clone());
    let pair = [(PROMPT, prompt), (RESPONSE, response)];
    if t.has(TEXT) {
        let (key, other) = pair.into_iter().find(|(key, _)| t.has(key))?;
        let problem = Diagnostic::error(format!("`{}` together with `{key}`", t.name_of(TEXT)))
            .at(at(text))
            .label("a record is one text, or a prompt with its response")
            .context(at(other), "not of one text")
            .help(format!("keep {TEXT} alone, or {PROMPT} with {RESPONSE}"));
        return Some((TEXT, problem));
    }
    let (key, item, other, example) = match (t.has(PROMPT), t.has(RESPONSE)) {
        (true, false) => (PROMPT, prompt, RESPONSE, "response"),
        (false, true) => (RESPONSE, response, PROMPT, "prompt"),
        _ => return None,
    };
    let problem = Diagnostic::error(format!("`{}` without `{other}`", t.name_of(key)))
        .at(at(item))
        .label("a prompt and its response go together")
        .help(format!(
            "add {other} = \"{example}\", or to learn all of one text, write {TEXT} alone"
        ));
    Some((key, problem))
}

/// Where a source is, if it can be used.
fn read_path(t: &mut Section<'_, '_>, text: &Item<String>) -> Option<Item<Location>> {
    let read = location::read(t.context(), text, "a data source", "path = \"corpus.txt\"");
    let mut value = read.map_err(|problem| t.reject("path", problem.at(text.at.clone()))).ok()?;
    if let Location::Local(path) = &mut value {
        let has_pattern = is_pattern(Path::new(&**text));
        let cx = t.context();
        let base = location::base(cx, text.at.as_ref());
        // The folder of the recipe is no part of the pattern, whatever its name.
        if has_pattern && is_pattern(base) && !cx.files.exists(path) {
            *path = literal(base).join(&**text);
        }
        let failed = Cell::new(false);
        let look =
            |files: &dyn Files, path: &Path| files.data(path).inspect_err(|_| failed.set(true));
        let what = if has_pattern { "the data files" } else { "the data file" };
        location::require(t, "path", what, &Named { text, path }, look);
        if failed.get() && t.context().needs_files() {
            return None;
        }
    }
    Some(Item { value, at: text.at.clone() })
}
