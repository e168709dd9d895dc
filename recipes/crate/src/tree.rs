//! The literal form of a recipe: TOML values with the place of every key and value.

use std::ops::Range;

use toml::de::{DeTable, DeValue};

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
    /// A number beyond 128 bits is the largest or smallest of them: all are out of every range.
    Integer(i128),
    Float(f64),
    Boolean(bool),
    /// Legal TOML that no key takes (a date), with its name for messages.
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

impl Node {
    /// The table that this is, if it is one.
    pub(crate) fn table(&self) -> Option<&Table> {
        match &self.value {
            Value::Table(table) => Some(table),
            _ => None,
        }
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

pub(crate) fn table_of(source: SourceId, table: &DeTable<'_>) -> Table {
    let mut entries: Vec<Entry> = table
        .iter()
        .map(|(key, value)| Entry {
            key: key.get_ref().to_string(),
            key_at: Loc { source, span: key.span() },
            node: node_of(source, value.get_ref(), value.span()),
        })
        .collect();
    entries.sort_by_key(|entry| entry.key_at.start());
    Table(entries)
}

fn node_of(source: SourceId, value: &DeValue<'_>, span: Range<usize>) -> Node {
    let value = match value {
        DeValue::String(text) => Value::Text(text.to_string()),
        DeValue::Integer(number) => {
            let digits = number.as_str();
            let beyond = if digits.starts_with('-') { i128::MIN } else { i128::MAX };
            Value::Integer(i128::from_str_radix(digits, number.radix()).unwrap_or(beyond))
        }
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
