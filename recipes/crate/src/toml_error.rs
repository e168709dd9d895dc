//! Syntax errors in the words of a person who sees the text, where those of the parser need knowledge of its grammar.

use std::ops::Range;

use toml::de::Error;

use crate::diagnostic::Diagnostic;
use crate::shown::Shown;
use crate::source::{Loc, SourceId};
use crate::tree::Table;

/// Words a syntax error; `table` is what could be read of the document.
pub(crate) fn diagnose(source: SourceId, text: &str, table: &Table, error: &Error) -> Diagnostic {
    let span = grown(text, error.span().unwrap_or(0..0));
    let fault = Fault { source, text, span };
    let message = error.message().trim();
    match message {
        "duplicate key" => fault.twice(table),
        "string values must be quoted, expected literal string"
        | "invalid boolean, expected `true`"
        | "invalid boolean, expected `false`"
        | "invalid float, expected `nan`"
        | "invalid float, expected `inf`" => fault.no_value(),
        "invalid basic string, expected `\"`" => fault.open_string('"'),
        "invalid literal string, expected `'`" => fault.open_string('\''),
        "invalid unquoted key, expected letters, numbers, `-`, `_`" if fault.written() != ":" => {
            let rule = "a key has letters, digits, `-`, `_`, or quotes around it";
            fault.problem("not a key").label(rule)
        }
        "invalid unquoted key, expected letters, numbers, `-`, `_`"
        | "key with no value, expected `=`" => fault.no_equals_sign(),
        "recursion limit" | "cannot recurse further; max recursion depth met" => {
            fault.problem("nested too deeply")
        }
        _ if message.starts_with("missing escaped value") => (fault.problem("not an escape"))
            .label("`\\` starts an escape such as `\\n`")
            .help("write `\\\\`, or put the string in single quotes"),
        _ if text.trim_start().starts_with('{') => {
            fault.problem("this looks like JSON").help("a recipe is TOML: write key = value")
        }
        _ => fault.other(message),
    }
}

/// A syntax error at its place.
struct Fault<'t> {
    source: SourceId,
    text: &'t str,
    span: Range<usize>,
}

impl<'t> Fault<'t> {
    fn problem(&self, what: &str) -> Diagnostic {
        let at = Loc { source: self.source, span: self.span.clone() };
        Diagnostic::error(format!("invalid TOML: {what}")).at(at)
    }

    /// The text that is at fault.
    fn written(&self) -> &'t str {
        self.text.get(self.span.clone()).unwrap_or_default().trim()
    }

    /// The line that is at fault.
    fn line(&self) -> &'t str {
        &self.text[line(self.text, self.span.start)]
    }

    fn twice(&self, table: &Table) -> Diagnostic {
        let key = self.written().trim_matches(['"', '\'']);
        let header = self.line().trim_end();
        let (thing, help) = match header.starts_with('[') {
            true => (format!("table {}", Shown(header)), "keep all of its keys in one place"),
            false => (format!("key `{}`", Shown(key)), "keep one of the two"),
        };
        let same = || self.text[..self.span.start].find(header).map(|at| at..at + header.len());
        let first = earlier(table, key, self.span.start).or_else(same);
        self.problem(&format!("the {thing} is there twice"))
            .label("again")
            .context(first.map(|span| Loc { source: self.source, span }), "first here")
            .help(help)
    }

    fn no_value(&self) -> Diagnostic {
        let word = self.written();
        if word.is_empty() {
            return self.problem("a value is missing").label("nothing after the `=`");
        }
        let rest = &self.text[self.span.end..line(self.text, self.span.end).end];
        let problem = match word.to_lowercase().as_str() {
            _ if rest.contains('=') => {
                self.problem("two settings on one line").help("write each on a line of its own")
            }
            "true" | "yes" | "on" => self.problem("not a boolean").help("write true"),
            "false" | "no" | "off" => self.problem("not a boolean").help("write false"),
            "none" | "null" | "nil" => self
                .problem("there is no null")
                .help("leave the key out, or write \"none\" where that is allowed"),
            _ => {
                let word = word.trim_matches(['\u{201c}', '\u{201d}', '\u{2018}', '\u{2019}']);
                self.problem("a string needs quotes").help(format!("write \"{}\"", Shown(word)))
            }
        };
        problem.label("not a value")
    }

    fn open_string(&self, quote: char) -> Diagnostic {
        self.problem("the string does not end").label(format!("expected `{quote}`"))
    }

    fn no_equals_sign(&self) -> Diagnostic {
        let problem = self.problem("a key without `=`").label("expected `=`");
        match self.line().contains(':') {
            true => problem.help("a recipe is TOML, not YAML: write key = value"),
            false => problem,
        }
    }

    /// An error that the parser words well enough.
    fn other(&self, message: &str) -> Diagnostic {
        let (what, wanted) = message.split_once(", expected ").unwrap_or((message, ""));
        let mut problem = self.problem(what);
        match wanted {
            "" | "nothing" => {}
            "newline, `#`" => problem = problem.label("expected the end of the line"),
            wanted => problem = problem.label(format!("expected {wanted}")),
        }
        let range = line(self.text, self.span.start);
        let is_value = !self.text[range.start..self.span.start.min(range.end)].contains('#');
        match number_in(self.line()).filter(|_| is_value && !self.line().contains(char::is_control))
        {
            Some(number) => problem.help(format!("write {number}")),
            None => problem,
        }
    }
}

/// The value of a line if it is a number everywhere but in TOML: `020`, `.5`, `1.`.
fn number_in(line: &str) -> Option<String> {
    let (_, value) = line.split_once('=')?;
    let value = value.split('#').next()?.trim();
    let integer = value.parse::<i64>().map(|number| number.to_string());
    integer.or_else(|_| value.parse::<f64>().map(|number| format!("{number:?}"))).ok()
}

/// The line around a place, without its end.
fn line(text: &str, place: usize) -> Range<usize> {
    let (before, after) = text.split_at(text.floor_char_boundary(place));
    let start = before.rfind('\n').map_or(0, |n| n + 1);
    let end = after.find(['\r', '\n']).map_or(text.len(), |n| before.len() + n);
    start..end
}

/// Where `key` was last written before `place`, in any table.
fn earlier(table: &Table, key: &str, place: usize) -> Option<Range<usize>> {
    let in_entries = table.0.iter().flat_map(|entry| {
        let here = (entry.key == key).then(|| entry.key_at.span.clone());
        let inside = entry.node.table().and_then(|inner| earlier(inner, key, place));
        here.into_iter().chain(inside)
    });
    in_entries.filter(|span| span.end <= place).max_by_key(|span| span.start)
}

/// An empty span would underline nothing: take the character after it, if that is on the same line.
fn grown(text: &str, span: Range<usize>) -> Range<usize> {
    let start = text.floor_char_boundary(span.start);
    let end = text.ceil_char_boundary(span.end).max(start);
    match text[end..].chars().next() {
        Some(c) if start == end && c != '\n' && c != '\r' => start..end + c.len_utf8(),
        _ => start..end,
    }
}
