//! `[data]`: what the model reads.

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::diagnostic::Diagnostic;
use crate::files::{NO_SUCH_FILE, Unusable};
use crate::reader::Context;
use crate::shown::{Shown, ShownPath};
use crate::source::Item;
use crate::tree::{Node, Table, Value};
use crate::words::choice;

choice! {
    /// How text becomes tokens.
    TokenizerKind {
        /// One token per byte: 256 ids, no file needed.
        Bytes = "bytes",
    }
}

/// One file of text.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DataSource {
    /// Where it is. A relative path starts from the folder of the recipe that names it; it is absolute here.
    pub path: Item<PathBuf>,
}

/// What the model reads.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Data {
    /// How text becomes tokens.
    pub tokenizer: Item<TokenizerKind>,
    /// Files, read as one stream in this order.
    pub sources: Item<Vec<DataSource>>,
}

impl Data {
    pub(crate) fn read(cx: &mut Context<'_>, root: &Table) -> Self {
        let mut t = cx.section(root, "data");
        let tokenizer = t.choice::<TokenizerKind>("tokenizer");
        let tokenizer = t.or(tokenizer, TokenizerKind::Bytes);
        let list = t.list("sources", EXAMPLE);
        let read = list.map(|(nodes, at)| {
            if nodes.is_empty() {
                let empty = Diagnostic::error("`data.sources` is empty")
                    .at(at.clone())
                    .label("needs at least one source")
                    .help(format!("for example: sources = {EXAMPLE}"));
                t.reject("sources", empty);
            }
            let nodes = nodes.iter().enumerate();
            let sources = nodes.filter_map(|(n, node)| read_source(t.context(), n, node)).collect();
            Item::written(sources, at)
        });
        let sources = t.required(read, Vec::new(), EXAMPLE);
        t.later(&["on_bad_record"]);
        t.finish();
        Self { tokenizer, sources }
    }
}

const EXAMPLE: &str = "[{ path = \"corpus.txt\" }]";

fn read_source(cx: &mut Context<'_>, index: usize, node: &Node) -> Option<DataSource> {
    let example = match &node.value {
        Value::Text(path) => format!("write {{ path = \"{}\" }}", Shown(path)),
        _ => format!("for example: sources = {EXAMPLE}"),
    };
    let mut t = cx.entry("data.sources", index, node, &example)?;
    let text = t.text("path");
    if !t.has("path") {
        t.lacks("path", "\"corpus.txt\"");
    }
    let path = text.and_then(|text| match usable(t.context(), &text) {
        Ok(path) => Some(Item { value: path, at: text.at }),
        Err(problem) => {
            t.reject("path", problem.at(text.at));
            None
        }
    });
    t.later(&["weight"]);
    t.finish();
    path.map(|path| DataSource { path })
}

/// The absolute path of a data file that can be read.
fn usable(cx: &Context<'_>, text: &Item<String>) -> Result<PathBuf, Diagnostic> {
    let shown = ShownPath(&**text);
    if text.is_empty() || text.contains('\0') {
        return Err(Diagnostic::error("a data source must name a file")
            .label("not a path")
            .help("for example: path = \"corpus.txt\""));
    }
    if let Some((scheme, _)) = text.split_once("://") {
        let scheme = Shown(scheme);
        return Err(Diagnostic::error(format!(
            "data from {scheme}:// is not supported by this version"
        ))
        .label("not supported yet")
        .help("copy the data to a local file and name that"));
    }
    let base = text.at.as_ref().map(|at| &*cx.sources.get(at.source).base);
    let base = base.unwrap_or(Path::new(""));
    let path = base.join(&**text);
    if path.to_str().is_none() {
        let folder = "the name of its folder is not valid UTF-8, which a recipe cannot hold";
        return Err(Diagnostic::error(format!("cannot use the data file `{shown}`: {folder}"))
            .label("in this folder")
            .help("rename the folder, or give an absolute path elsewhere"));
    }
    let Err(Unusable { why, near }) = (cx.probe)(&path) else {
        return Ok(path);
    };
    let mut help = Vec::new();
    if let Some(near) = near {
        help.push(format!("did you mean `{}`?", ShownPath(near_text(text, &near))));
    }
    if text.starts_with('~') {
        help.push("`~` has no meaning here: write the whole path".to_owned());
    } else if why == NO_SUCH_FILE && path != Path::new(&**text) {
        help.push(format!("relative paths here start from {}", ShownPath(base)));
    }
    let problem = Diagnostic::error(format!("cannot read the data file `{shown}`: {why}"));
    let problem = problem.label(why);
    Err(if help.is_empty() { problem } else { problem.help(help.join("\n")) })
}

/// The path that was written, with the name of the file `near`.
fn near_text(text: &str, near: &Path) -> PathBuf {
    Path::new(text).with_file_name(near.file_name().unwrap_or_default())
}
