//! `[data]`: what the model reads.

use std::path::PathBuf;

use serde::Serialize;

use crate::diagnostic::Diagnostic;
use crate::reader::Context;
use crate::source::Item;
use crate::tree::{Node, Table, Value};
use crate::words::{choice, nearest};

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
        let list = t.list("sources");
        let read = list.map(|(nodes, at)| {
            if nodes.is_empty() {
                let empty = Diagnostic::error("`data.sources` is empty")
                    .at(at.clone())
                    .label("needs at least one source")
                    .help("for example: sources = [{ path = \"corpus.txt\" }]");
                t.reject("sources", empty);
            }
            let mut sources = Vec::new();
            for node in nodes {
                match read_source(t.context(), node) {
                    Ok(source) => sources.push(source),
                    Err(problem) => t.reject("sources", problem),
                }
            }
            Item::written(sources, at)
        });
        let sources = t.required(read, Vec::new(), "[{ path = \"corpus.txt\" }]");
        t.finish();
        Self { tokenizer, sources }
    }
}

fn read_source(cx: &mut Context<'_>, node: &Node) -> Result<DataSource, Diagnostic> {
    const EXAMPLE: &str = "for example: { path = \"corpus.txt\" }";
    let Value::Table(table) = &node.value else {
        return Err(Diagnostic::error(format!(
            "a data source must be a table, found {}",
            node.value.kind()
        ))
        .at(node.at.clone())
        .label("not a table")
        .help(EXAMPLE));
    };
    for entry in &table.0 {
        if entry.key != "path" {
            let help = match nearest(&entry.key, ["path"]) {
                Some(word) => format!("did you mean `{word}`?"),
                None => "a data source has one key: path".to_owned(),
            };
            return Err(Diagnostic::error(format!("unknown key `{}` in a data source", entry.key))
                .at(entry.key_at.clone())
                .label("unknown key")
                .help(help));
        }
    }
    let Some(entry) = table.get("path") else {
        return Err(Diagnostic::error("a data source has no `path`")
            .at(node.at.clone())
            .label("needs a path")
            .help(EXAMPLE));
    };
    let at = entry.node.at.clone();
    let Value::Text(text) = &entry.node.value else {
        return Err(Diagnostic::error(format!(
            "`path` must be a string, found {}",
            entry.node.value.kind()
        ))
        .at(at)
        .label("expected a string"));
    };
    if text.is_empty() || text.contains('\0') {
        return Err(Diagnostic::error("`path` must name a file")
            .at(at)
            .label("not a path")
            .help(EXAMPLE));
    }
    if let Some((scheme, _)) = text.split_once("://") {
        return Err(Diagnostic::error(format!(
            "data from {scheme}:// is not supported by this version"
        ))
        .at(at)
        .label("not supported yet")
        .help("copy the data to a local file and name that"));
    }
    let path = cx.sources.get(at.source).base.join(text);
    if path.to_str().is_none() {
        let folder = "its folder's name is not valid UTF-8, which a recipe cannot hold";
        return Err(Diagnostic::error(format!("cannot use the data file `{text}`: {folder}"))
            .at(at)
            .label(folder)
            .help("rename the folder, or give an absolute path elsewhere"));
    }
    if let Err(problem) = (cx.probe)(&path) {
        let help = if path.is_absolute() && text.as_str() == path.as_os_str() {
            "a data source is a file of text that this user can read".to_owned()
        } else {
            format!(
                "a relative path starts from the recipe's folder, so this is {}",
                path.display()
            )
        };
        return Err(Diagnostic::error(format!("cannot read the data file `{text}`: {problem}"))
            .at(at)
            .label(problem)
            .help(help));
    }
    Ok(DataSource { path: Item::written(path, at) })
}
