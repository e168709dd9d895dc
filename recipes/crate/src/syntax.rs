//! From text to the literal form: TOML documents and `--set` arguments.

use std::ops::Range;

use toml::de::{DeTable, Error};

use crate::diagnostic::Diagnostic;
use crate::shown::Shown;
use crate::source::{Loc, SourceId};
use crate::toml_error::diagnose;
use crate::tree::{Table, Value, table_of};

/// Syntax errors that are shown: a file that is not TOML at all gives one or two for each of its lines.
const SHOWN: usize = 5;

/// Parses a whole document; otherwise the first syntax errors, and how many more there are. What is wrong is said
/// of `masked`, the same text without its secrets.
pub(crate) fn parse_document(
    source: SourceId,
    text: &str,
    masked: &str,
) -> Result<Table, (Vec<Diagnostic>, usize)> {
    let (table, mut errors) = DeTable::parse_recoverable(text);
    let table = table_of(source, table.get_ref());
    if errors.is_empty() {
        return Ok(table);
    }
    errors.sort_by_key(place);
    let mut problems: Vec<Diagnostic> = Vec::new();
    let (mut hidden, mut last) = (0, None);
    for error in &errors {
        let start = place(error);
        // What follows the first error of a line is mostly caused by it.
        let is_same_line = |last| masked.get(last..start).is_some_and(|t| !t.contains('\n'));
        if last.replace(start).is_some_and(is_same_line) {
            continue;
        }
        if problems.len() == SHOWN {
            hidden += 1;
            continue;
        }
        let mut problem = diagnose(source, masked, &table, error);
        if problems.iter().any(|earlier| earlier.help == problem.help) {
            problem.help = None;
        }
        problems.push(problem);
    }
    Err((problems, hidden))
}

fn place(error: &Error) -> usize {
    error.span().map_or(0, |span| span.start)
}

/// Parses one `--set KEY=VALUE`. The value is TOML; a bare word is taken as a string. What is wrong is said of
/// `masked`, the same text without its secrets.
pub(crate) fn parse_override(
    source: SourceId,
    text: &str,
    masked: &str,
) -> Result<Table, Diagnostic> {
    const EXAMPLE: &str = "for example: --set training.steps=100";
    let problem = |what: String, at: Range<usize>, label: &str| {
        Err(Diagnostic::error(what).at(Loc { source, span: at }).label(label).help(EXAMPLE))
    };
    let Some((key, value)) = text.split_once('=') else {
        return problem("`--set` needs KEY=VALUE".to_owned(), 0..text.len(), "no `=` here");
    };
    // `key = value` is itself a TOML document, so keys with dots and quotes, and values of any kind, mean here
    // what they mean in a file, and the spans point into the argument.
    let (table, errors) = DeTable::parse_recoverable(text);
    let Some(error) = errors.first() else {
        return Ok(table_of(source, table.get_ref()));
    };
    let Some(mut path) = parse_key(source, key) else {
        let what = "`--set` needs a key of the recipe before the `=`";
        let label = match key.contains('[') && key.contains(']') {
            true => "an array is replaced as a whole: data.sources=[{ path = \"..\" }]",
            false => "not a key",
        };
        return problem(what.to_owned(), 0..key.len(), label);
    };
    let word = value.trim();
    if word.is_empty() {
        let what = format!("`{}` has no value", Shown(key.trim()));
        return problem(what, 0..text.len(), "nothing after the `=`");
    }
    if word.starts_with(['[', '{', '"', '\'']) {
        return Err(diagnose(source, masked, &Table::default(), error));
    }
    let start = text.len() - value.trim_start().len();
    let at = Loc { source, span: start..start + word.len() };
    set_leaf(&mut path, &Value::Text(word.to_owned()), &at);
    Ok(path)
}

/// The tables that a dotted key leads through, with some value at its end.
fn parse_key(source: SourceId, key: &str) -> Option<Table> {
    let document = format!("{key}=0");
    let (table, errors) = DeTable::parse_recoverable(&document);
    let table = table_of(source, table.get_ref());
    (errors.is_empty() && table.0.len() == 1).then_some(table)
}

fn set_leaf(table: &mut Table, leaf: &Value, at: &Loc) {
    for entry in &mut table.0 {
        entry.node.at = at.clone();
        match &mut entry.node.value {
            Value::Table(inner) => set_leaf(inner, leaf, at),
            value => *value = leaf.clone(),
        }
    }
}
