//! The literal form of a recipe: TOML values with the place of every key and value.

use std::ops::Range;

use toml::de::{DeTable, DeValue};

use crate::diagnostic::Diagnostic;
use crate::source::{Loc, SourceId};

/// A value as it was written.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) value: Value,
    pub(crate) at: Loc,
}

/// The kinds of TOML values that a recipe can hold.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Text(String),
    Integer(i64),
    Float(f64),
    Boolean(bool),
    /// Legal TOML that no key takes (a date, an integer beyond 64 bits), with its name for messages.
    Other(&'static str),
    List(Vec<Node>),
    Table(Table),
}

/// Keys in the order they were written.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table(pub(crate) Vec<Entry>);

/// A key with its value.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) key_at: Loc,
    pub(crate) node: Node,
}

impl Table {
    pub(crate) fn get(&self, key: &str) -> Option<&Entry> {
        self.0.iter().find(|entry| entry.key == key)
    }
}

impl Value {
    /// The name of the kind with its article, for messages.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Value::Text(_) => "a string",
            Value::Integer(_) => "an integer",
            Value::Float(_) => "a float",
            Value::Boolean(_) => "a boolean",
            Value::Other(kind) => kind,
            Value::List(_) => "an array",
            Value::Table(_) => "a table",
        }
    }
}

/// Parses a whole document; every syntax error becomes a diagnostic.
pub(crate) fn parse_document(source: SourceId, text: &str) -> Result<Table, Vec<Diagnostic>> {
    let (table, errors) = DeTable::parse_recoverable(text);
    if errors.is_empty() {
        return Ok(table_of(source, table.get_ref()));
    }
    // A file that is not TOML at all gives an error for each of its lines: the first ones say enough.
    const SHOWN: usize = 5;
    let hidden = errors.len().saturating_sub(SHOWN);
    let mut diagnostics: Vec<Diagnostic> = errors
        .into_iter()
        .take(SHOWN)
        .map(|error| {
            let span = error.span().unwrap_or(0..0);
            Diagnostic::error(format!("invalid TOML: {}", error.message().trim()))
                .at(Loc { source, span: grown(text, span) })
        })
        .collect();
    if let (Some(last), true) = (diagnostics.last_mut(), hidden > 0) {
        last.help =
            Some(format!("{hidden} more syntax errors follow; is this a titan-tpu recipe?"));
    }
    Err(diagnostics)
}

/// An empty span would underline nothing: take the character after it, or the one before at the end.
fn grown(text: &str, span: Range<usize>) -> Range<usize> {
    if !span.is_empty() {
        return span;
    }
    match text[span.start.min(text.len())..].chars().next() {
        Some(c) if c != '\n' => span.start..span.start + c.len_utf8(),
        _ => span,
    }
}

fn table_of(source: SourceId, table: &DeTable<'_>) -> Table {
    let mut entries: Vec<Entry> = table
        .iter()
        .map(|(key, value)| Entry {
            key: key.get_ref().to_string(),
            key_at: Loc { source, span: key.span() },
            node: node_of(source, value.get_ref(), value.span()),
        })
        .collect();
    entries.sort_by_key(|entry| entry.key_at.span.start);
    Table(entries)
}

fn node_of(source: SourceId, value: &DeValue<'_>, span: Range<usize>) -> Node {
    let value = match value {
        DeValue::String(text) => Value::Text(text.to_string()),
        DeValue::Integer(number) => match i64::from_str_radix(number.as_str(), number.radix()) {
            Ok(integer) => Value::Integer(integer),
            Err(_) => Value::Other("an integer beyond 64 bits"),
        },
        DeValue::Float(number) => match number.as_str().parse() {
            Ok(float) => Value::Float(float),
            Err(_) => Value::Other("a float that cannot be read"),
        },
        DeValue::Boolean(boolean) => Value::Boolean(*boolean),
        DeValue::Datetime(_) => Value::Other("a date"),
        DeValue::Array(array) => Value::List(
            array.iter().map(|item| node_of(source, item.get_ref(), item.span())).collect(),
        ),
        DeValue::Table(table) => Value::Table(table_of(source, table)),
    };
    Node { value, at: Loc { source, span } }
}

/// Lays `upper` over `lower`: tables are merged key by key, anything else is replaced.
pub(crate) fn overlay(lower: &mut Table, upper: Table) {
    for entry in upper.0 {
        match lower.0.iter_mut().find(|existing| existing.key == entry.key) {
            Some(existing) => match (&mut existing.node.value, entry.node.value) {
                (Value::Table(below), Value::Table(above)) => overlay(below, above),
                (_, value) => {
                    existing.node = Node { value, at: entry.node.at };
                    existing.key_at = entry.key_at;
                }
            },
            None => lower.0.push(entry),
        }
    }
}

/// Parses one `--set KEY=VALUE`. The value is TOML; a bare word is taken as a string.
pub(crate) fn parse_override(source: SourceId, text: &str) -> Result<Table, Diagnostic> {
    let whole = Loc { source, span: 0..text.len() };
    let Some((key, value)) = text.split_once('=') else {
        return Err(Diagnostic::error("`--set` needs KEY=VALUE")
            .at(whole)
            .label("no `=` here")
            .help("for example: --set training.steps=100"));
    };
    // `key = value` is itself a TOML document, so keys with dots and quotes, and values of any kind,
    // mean here what they mean in a file, and the spans point into the argument.
    let (table, errors) = DeTable::parse_recoverable(text);
    if errors.is_empty() && !value.trim().is_empty() {
        return Ok(table_of(source, table.get_ref()));
    }
    let path: Vec<&str> = key.trim().split('.').collect();
    if path.iter().any(|part| part.is_empty() || !part.chars().all(is_bare_key)) {
        return Err(Diagnostic::error("`--set` needs a key of the recipe before the `=`")
            .at(Loc { source, span: 0..key.len() })
            .label("not a key")
            .help("for example: --set training.steps=100"));
    }
    let start = key.len() + 1;
    let at = Loc { source, span: start..text.len() };
    let node = Node { value: Value::Text(value.trim().to_owned()), at };
    let mut offset = 0;
    let mut spans = Vec::new();
    for part in key.split('.') {
        let trimmed = offset + (part.len() - part.trim_start().len());
        spans.push(Loc { source, span: trimmed..trimmed + part.trim().len() });
        offset += part.len() + 1;
    }
    let nested = path.iter().zip(spans).rev().fold(node, |node, (part, key_at)| Node {
        at: node.at.clone(),
        value: Value::Table(Table(vec![Entry { key: (*part).to_owned(), key_at, node }])),
    });
    match nested.value {
        Value::Table(table) => Ok(table),
        _ => Err(Diagnostic::error("`--set` needs KEY=VALUE").at(whole)),
    }
}

fn is_bare_key(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}
