//! Reads the literal form into typed settings and collects every problem on the way.
//!
//! A table's module asks its [`Section`] for each key it knows, with the key's kind and range. What it asked
//! for is, by that, the list of legal keys: anything else in the table is an unknown key.

use std::collections::BTreeSet;
use std::path::Path;

use crate::diagnostic::Diagnostic;
use crate::source::{Item, Loc, Sources};
use crate::tree::{Entry, Node, Table, Value};
use crate::words::{Auto, Choice, nearest};

/// What all tables share while a recipe is read.
pub(crate) struct Context<'a> {
    pub(crate) sources: &'a Sources,
    pub(crate) diagnostics: Vec<Diagnostic>,
    /// Keys (`training.steps`) whose value is wrong or missing: rules that read them are skipped.
    pub(crate) broken: BTreeSet<String>,
    /// Every legal key with its table, in the order of the schema.
    pub(crate) known: Vec<(&'static str, &'static str)>,
    /// Keys that no table asked for.
    unknown: Vec<(&'static str, String, Loc)>,
    /// Says what is wrong with a data file, if anything; the disk in the product, a stub in tests.
    pub(crate) probe: &'a dyn Fn(&Path) -> Result<(), String>,
}

impl<'a> Context<'a> {
    pub(crate) fn new(
        sources: &'a Sources,
        probe: &'a dyn Fn(&Path) -> Result<(), String>,
    ) -> Self {
        Self {
            sources,
            diagnostics: Vec::new(),
            broken: BTreeSet::new(),
            known: Vec::new(),
            unknown: Vec::new(),
            probe,
        }
    }

    /// Opens a table of the recipe; a missing table reads as an empty one.
    pub(crate) fn section<'s>(
        &'s mut self,
        root: &'s Table,
        name: &'static str,
    ) -> Section<'s, 'a> {
        let entry = root.get(name);
        let table = entry.and_then(|entry| match &entry.node.value {
            Value::Table(table) => Some(table),
            _ => None,
        });
        if let (Some(entry), None) = (entry, table) {
            self.diagnostics.push(
                Diagnostic::error(format!(
                    "`{name}` must be a table, found {}",
                    entry.node.value.kind()
                ))
                .at(entry.node.at.clone())
                .label("not a table")
                .help(format!("write it as a table of its own: [{name}]")),
            );
        }
        Section {
            cx: self,
            name,
            header: entry.map(|e| e.key_at.clone()),
            table,
            asked: Vec::new(),
        }
    }

    /// Turns every unknown key into a problem with the nearest legal key. Called once, when all tables have
    /// said which keys they know.
    pub(crate) fn report_unknown_keys(&mut self) {
        for (table, key, at) in std::mem::take(&mut self.unknown) {
            let in_table = |table: &str| -> Vec<&'static str> {
                self.known.iter().filter(|(t, _)| *t == table).map(|(_, k)| *k).collect()
            };
            let here = in_table(table);
            let elsewhere = self.known.iter().find(|(t, k)| *t != table && *k == key);
            let help = if let Some(word) = nearest(&key, here.iter().copied()) {
                format!("did you mean `{word}`?")
            } else if let Some((other, _)) = elsewhere {
                format!("`{key}` belongs to the table [{other}]")
            } else if let Some((other, word)) =
                self.known.iter().find(|(t, k)| *t != table && nearest(&key, [*k]).is_some())
            {
                format!("did you mean `{word}` of the table [{other}]?")
            } else {
                format!("the keys of [{table}] are: {}", here.join(", "))
            };
            self.diagnostics.push(
                Diagnostic::error(format!("unknown key `{key}` in [{table}]"))
                    .at(at)
                    .label("unknown key")
                    .help(help),
            );
        }
    }
}

/// A table that is being read.
pub(crate) struct Section<'s, 'a> {
    cx: &'s mut Context<'a>,
    name: &'static str,
    header: Option<Loc>,
    table: Option<&'s Table>,
    asked: Vec<&'static str>,
}

/// A range of numbers together with the words that describe it.
#[derive(Clone, Copy)]
pub(crate) struct Range {
    allows: fn(f64) -> bool,
    words: &'static str,
}

pub(crate) const POSITIVE: Range = Range { allows: |x| x > 0.0, words: "greater than 0" };
pub(crate) const NOT_NEGATIVE: Range = Range { allows: |x| x >= 0.0, words: "0 or greater" };
pub(crate) const FRACTION: Range =
    Range { allows: |x| (0.0..=1.0).contains(&x), words: "from 0 to 1" };
pub(crate) const BELOW_ONE: Range =
    Range { allows: |x| (0.0..1.0).contains(&x), words: "at least 0 and below 1" };

impl<'s, 'a> Section<'s, 'a> {
    /// The context, for problems that a table finds by itself.
    pub(crate) fn context(&mut self) -> &mut Context<'a> {
        self.cx
    }

    fn path(&self, key: &str) -> String {
        format!("{}.{key}", self.name)
    }

    fn entry(&mut self, key: &'static str) -> Option<&'s Entry> {
        self.asked.push(key);
        self.table.and_then(|table| table.get(key))
    }

    /// Reports a problem with the value of `key`, which rules must then leave alone.
    pub(crate) fn reject(&mut self, key: &str, diagnostic: Diagnostic) {
        let path = self.path(key);
        self.cx.broken.insert(path);
        self.cx.diagnostics.push(diagnostic);
    }

    fn wrong_kind(&mut self, key: &'static str, node: &Node, wanted: &str, help: Option<String>) {
        let mut diagnostic = Diagnostic::error(format!(
            "`{}` must be {wanted}, found {}",
            self.path(key),
            node.value.kind()
        ))
        .at(node.at.clone())
        .label(format!("expected {wanted}"));
        diagnostic.help = help;
        self.reject(key, diagnostic);
    }

    /// A whole number from `least` to `most`.
    pub(crate) fn integer(
        &mut self,
        key: &'static str,
        least: u64,
        most: u64,
    ) -> Option<Item<u64>> {
        let entry = self.entry(key)?;
        self.integer_of(key, &entry.node, least, most, None)
    }

    /// A whole number, or the word `auto`.
    pub(crate) fn auto_or_integer(
        &mut self,
        key: &'static str,
        least: u64,
        most: u64,
    ) -> Option<Item<Auto<u64>>> {
        let entry = self.entry(key)?;
        if let Value::Text(word) = &entry.node.value
            && word == "auto"
        {
            return Some(Item::written(Auto::Auto, entry.node.at.clone()));
        }
        let item = self.integer_of(key, &entry.node, least, most, Some("auto"))?;
        Some(Item { value: Auto::Fixed(item.value), at: item.at })
    }

    fn integer_of(
        &mut self,
        key: &'static str,
        node: &Node,
        least: u64,
        most: u64,
        word: Option<&str>,
    ) -> Option<Item<u64>> {
        let wanted = match word {
            Some(word) => format!("an integer or \"{word}\""),
            None => "an integer".to_owned(),
        };
        match &node.value {
            Value::Integer(number) => match u64::try_from(*number) {
                Ok(value) if (least..=most).contains(&value) => {
                    Some(Item::written(value, node.at.clone()))
                }
                _ => {
                    let rule = if *number > 0 && *number as u64 > most {
                        format!("at most {most}")
                    } else {
                        format!("at least {least}")
                    };
                    let help = match word {
                        Some(word) if *number < 0 => {
                            format!("to have it worked out, write {key} = \"{word}\"")
                        }
                        _ => format!("allowed: {least} to {most}"),
                    };
                    let diagnostic = Diagnostic::error(format!(
                        "`{}` must be {rule}, found {number}",
                        self.path(key)
                    ))
                    .at(node.at.clone())
                    .label(format!("must be {rule}"))
                    .help(help);
                    self.reject(key, diagnostic);
                    None
                }
            },
            Value::Float(number) if number.is_finite() => {
                let near = number.round().clamp(least as f64, most as f64);
                self.wrong_kind(key, node, &wanted, Some(format!("write {key} = {near}")));
                None
            }
            Value::Text(text) => {
                let help = match (text.trim().replace('_', "").parse::<u64>(), word) {
                    (Ok(number), _) => Some(format!("remove the quotes: {key} = {number}")),
                    (Err(_), Some(word)) if nearest(text, [word]).is_some() => {
                        Some(format!("did you mean \"{word}\"?"))
                    }
                    _ => None,
                };
                self.wrong_kind(key, node, &wanted, help);
                None
            }
            _ => {
                self.wrong_kind(key, node, &wanted, None);
                None
            }
        }
    }

    /// A number; an integer is taken as one.
    pub(crate) fn number(&mut self, key: &'static str, range: Range) -> Option<Item<f64>> {
        let entry = self.entry(key)?;
        self.number_of(key, &entry.node, range)
    }

    /// A number, or the word `none`, which reads as no number.
    pub(crate) fn number_or_none(
        &mut self,
        key: &'static str,
        range: Range,
    ) -> Option<Item<Option<f64>>> {
        let entry = self.entry(key)?;
        if let Value::Text(word) = &entry.node.value
            && word == "none"
        {
            return Some(Item::written(None, entry.node.at.clone()));
        }
        let item = self.number_of(key, &entry.node, range)?;
        Some(Item { value: Some(item.value), at: item.at })
    }

    /// Exactly `N` numbers.
    pub(crate) fn numbers<const N: usize>(
        &mut self,
        key: &'static str,
        range: Range,
    ) -> Option<Item<[f64; N]>> {
        let entry = self.entry(key)?;
        let Value::List(nodes) = &entry.node.value else {
            self.wrong_kind(key, &entry.node, &format!("an array of {N} numbers"), None);
            return None;
        };
        if nodes.len() != N {
            let diagnostic = Diagnostic::error(format!(
                "`{}` must have {N} numbers, found {}",
                self.path(key),
                nodes.len()
            ))
            .at(entry.node.at.clone())
            .label(format!("expected {N} numbers"));
            self.reject(key, diagnostic);
            return None;
        }
        let mut values = [0.0; N];
        let mut sound = true;
        for (value, node) in values.iter_mut().zip(nodes) {
            match self.number_of(key, node, range) {
                Some(item) => *value = item.value,
                None => sound = false,
            }
        }
        sound.then(|| Item::written(values, entry.node.at.clone()))
    }

    fn number_of(&mut self, key: &'static str, node: &Node, range: Range) -> Option<Item<f64>> {
        let number = match &node.value {
            Value::Float(number) => *number,
            Value::Integer(number) => *number as f64,
            Value::Text(text) => {
                let help = text
                    .trim()
                    .parse::<f64>()
                    .ok()
                    .map(|_| format!("remove the quotes: {key} = {}", text.trim()));
                self.wrong_kind(key, node, "a number", help);
                return None;
            }
            _ => {
                self.wrong_kind(key, node, "a number", None);
                return None;
            }
        };
        if number.is_finite() && (range.allows)(number) {
            return Some(Item::written(number, node.at.clone()));
        }
        let diagnostic = Diagnostic::error(format!(
            "`{}` must be {}, found {}",
            self.path(key),
            range.words,
            written(self.cx.sources, &node.at)
        ))
        .at(node.at.clone())
        .label(format!("must be {}", range.words));
        self.reject(key, diagnostic);
        None
    }

    /// `true` or `false`.
    pub(crate) fn boolean(&mut self, key: &'static str) -> Option<Item<bool>> {
        let entry = self.entry(key)?;
        match &entry.node.value {
            Value::Boolean(value) => Some(Item::written(*value, entry.node.at.clone())),
            other => {
                let help = match other {
                    Value::Text(text) if text == "true" || text == "false" => {
                        Some(format!("remove the quotes: {key} = {text}"))
                    }
                    _ => Some("write true or false".to_owned()),
                };
                self.wrong_kind(key, &entry.node, "a boolean", help);
                None
            }
        }
    }

    /// Any text.
    pub(crate) fn text(&mut self, key: &'static str) -> Option<Item<String>> {
        let entry = self.entry(key)?;
        match &entry.node.value {
            Value::Text(text) => Some(Item::written(text.clone(), entry.node.at.clone())),
            _ => {
                let help = format!("put it in quotes: {key} = \"...\"");
                self.wrong_kind(key, &entry.node, "a string", Some(help));
                None
            }
        }
    }

    /// One of the words of `T`.
    pub(crate) fn choice<T: Choice>(&mut self, key: &'static str) -> Option<Item<T>> {
        self.choice_with(key, &[])
    }

    /// One of the words of `T`; a word of `later` is known, but to later versions only.
    pub(crate) fn choice_with<T: Choice>(
        &mut self,
        key: &'static str,
        later: &[&str],
    ) -> Option<Item<T>> {
        let entry = self.entry(key)?;
        let words: Vec<&str> = T::WORDS.iter().map(|(word, _)| *word).collect();
        let Value::Text(text) = &entry.node.value else {
            let help = format!("allowed: \"{}\"", words.join("\", \""));
            self.wrong_kind(key, &entry.node, "a string", Some(help));
            return None;
        };
        if let Some((_, value)) = T::WORDS.iter().find(|(word, _)| word == text) {
            return Some(Item::written(*value, entry.node.at.clone()));
        }
        let path = self.path(key);
        let (message, label) = if later.contains(&text.as_str()) {
            (format!("`{path}` = \"{text}\" is not supported by this version"), "not supported yet")
        } else {
            (format!("`{path}` has no choice \"{text}\""), "unknown choice")
        };
        let allowed = format!("allowed: \"{}\"", words.join("\", \""));
        let help = match nearest(text, words.iter().copied()) {
            Some(word) => format!("did you mean \"{word}\"? {allowed}"),
            None => allowed,
        };
        let diagnostic =
            Diagnostic::error(message).at(entry.node.at.clone()).label(label).help(help);
        self.reject(key, diagnostic);
        None
    }

    /// The nodes of an array; each is read by the caller.
    pub(crate) fn list(&mut self, key: &'static str) -> Option<(&'s [Node], Loc)> {
        let entry = self.entry(key)?;
        match &entry.node.value {
            Value::List(nodes) => Some((nodes, entry.node.at.clone())),
            _ => {
                self.wrong_kind(key, &entry.node, "an array", None);
                None
            }
        }
    }

    /// The setting, or the default when the recipe leaves it out (or got it wrong, which is reported).
    pub(crate) fn or<T>(&mut self, item: Option<Item<T>>, default: T) -> Item<T> {
        item.unwrap_or_else(|| Item::derived(default))
    }

    /// The setting that was just asked for; if the recipe leaves it out, that is a problem. `example` is a
    /// legal value, and stands in for the missing one so that reading can go on.
    pub(crate) fn required<T>(
        &mut self,
        item: Option<Item<T>>,
        example: T,
        written: &str,
    ) -> Item<T> {
        let key = self.asked.last().copied().unwrap_or_default();
        let missing = self.table.is_none_or(|table| table.get(key).is_none());
        if missing && item.is_none() {
            let (message, label) = match self.header {
                Some(_) => (format!("[{}] has no `{key}`", self.name), "this table needs it"),
                None => {
                    (format!("the recipe has no [{}] table, which needs `{key}`", self.name), "")
                }
            };
            let mut diagnostic = Diagnostic::error(message)
                .at(self.header.clone())
                .help(format!("add to [{}], for example: {key} = {written}", self.name));
            if !label.is_empty() {
                diagnostic = diagnostic.label(label);
            }
            self.reject(key, diagnostic);
        }
        self.or(item, example)
    }

    /// Closes the table: remembers its legal keys and which of the recipe's keys are none of them.
    pub(crate) fn finish(self) {
        let Self { cx, name, table, asked, .. } = self;
        for entry in table.iter().flat_map(|table| &table.0) {
            if !asked.contains(&entry.key.as_str()) {
                cx.unknown.push((name, entry.key.clone(), entry.key_at.clone()));
            }
        }
        cx.known.extend(asked.into_iter().map(|key| (name, key)));
    }
}

/// The text of a location, as the user wrote it.
fn written(sources: &Sources, at: &Loc) -> String {
    sources.get(at.source).text.get(at.span.clone()).unwrap_or_default().trim().to_owned()
}
