//! Reads the literal form into typed settings and collects every problem on the way.
//!
//! A table's module asks its [`Section`] for each key it knows, with the key's kind and range. What it asked
//! for is, by that, the list of legal keys: anything else in the table is an unknown key.

mod keys;
mod values;

use std::collections::BTreeSet;
use std::path::Path;

use crate::diagnostic::Diagnostic;
use crate::files::Unusable;
use crate::source::{Item, Loc, Sources};
use crate::tree::{Node, Table, Value};

use keys::{Closed, Keys};
pub(crate) use values::{BELOW_ONE, FRACTION, NOT_NEGATIVE, POSITIVE, no_choice};

/// Says what is wrong with a data file, if anything; the disk in the product, a stub in tests.
pub(crate) type Probe<'a> = &'a dyn Fn(&Path) -> Result<(), Unusable>;

/// What all tables share while a recipe is read.
pub(crate) struct Context<'a> {
    pub(crate) sources: &'a Sources,
    pub(crate) diagnostics: Vec<Diagnostic>,
    /// Problems that were only counted.
    pub(crate) hidden: usize,
    /// Keys (`training.steps`) and tables (`training`) that are wrong or missing: rules that read them are skipped.
    pub(crate) broken: BTreeSet<String>,
    pub(crate) probe: Probe<'a>,
    keys: Keys,
}

impl<'a> Context<'a> {
    /// `diagnostics` are problems that the literal form has already.
    pub(crate) fn new(
        sources: &'a Sources,
        probe: Probe<'a>,
        diagnostics: Vec<Diagnostic>,
    ) -> Self {
        let (broken, keys) = (BTreeSet::new(), Keys::default());
        Self { sources, diagnostics, hidden: 0, broken, probe, keys }
    }

    /// The recipe itself as a table; `tables` are its legal tables.
    pub(crate) fn root<'s>(
        &'s mut self,
        root: &'s Table,
        tables: &[&'static str],
    ) -> Section<'s, 'a> {
        let mut root = self.opened("", String::new(), Some(root));
        root.asked.extend(tables);
        root
    }

    /// Opens a table of the recipe; a missing table reads as an empty one.
    pub(crate) fn section<'s>(
        &'s mut self,
        root: &'s Table,
        name: &'static str,
    ) -> Section<'s, 'a> {
        let entry = root.get(name).or_else(|| self.misspelled(root, name));
        let table = entry.and_then(|entry| entry.node.table());
        if let (Some(entry), None) = (entry, table) {
            let kind = entry.node.value.kind();
            let help = match &entry.node.value {
                Value::List(_) => format!("write its header with single brackets: [{name}]"),
                _ => format!("write it as a table of its own: [{name}]"),
            };
            self.broken.insert(name.to_owned());
            self.diagnostics.push(
                Diagnostic::error(format!("`{name}` must be a table, found {kind}"))
                    .at(entry.node.at.clone())
                    .label("must be a table")
                    .help(help),
            );
        }
        let mut section = self.opened(name, format!("{name}."), table);
        section.at = entry.map(|entry| entry.key_at.clone());
        section.sound = entry.is_none() || table.is_some();
        section
    }

    /// Opens one entry of the array of tables `name`; `example` is a legal one.
    pub(crate) fn entry<'s>(
        &'s mut self,
        name: &'static str,
        index: usize,
        node: &'s Node,
        example: &str,
    ) -> Option<Section<'s, 'a>> {
        let Some(table) = node.table() else {
            let kind = node.value.kind();
            self.diagnostics.push(
                Diagnostic::error(format!("`{name}[{index}]` must be a table, found {kind}"))
                    .at(node.at.clone())
                    .label("must be a table")
                    .help(example),
            );
            return None;
        };
        let mut section = self.opened(name, format!("{name}[{index}]."), Some(table));
        section.at = Some(node.at.clone());
        Some(section)
    }

    fn opened<'s>(
        &'s mut self,
        name: &'static str,
        prefix: String,
        table: Option<&'s Table>,
    ) -> Section<'s, 'a> {
        let (asked, later, missing) = (Vec::new(), &[][..], Vec::new());
        Section { cx: self, name, prefix, at: None, table, sound: true, asked, later, missing }
    }
}

/// A table that is being read.
pub(crate) struct Section<'s, 'a> {
    cx: &'s mut Context<'a>,
    /// `training`; empty for the recipe itself; `data.sources` for each entry of that array.
    name: &'static str,
    /// What stands before a key in messages: `training.`, `data.sources[1].`.
    prefix: String,
    at: Option<Loc>,
    table: Option<&'s Table>,
    /// False if something else is where the table should be, which is reported already.
    sound: bool,
    asked: Vec<&'static str>,
    later: &'static [&'static str],
    /// Required keys that are not there, with an example of a value.
    missing: Vec<(&'static str, String)>,
}

impl<'s, 'a> Section<'s, 'a> {
    /// The context, for problems that a table finds by itself.
    pub(crate) fn context(&mut self) -> &mut Context<'a> {
        self.cx
    }

    /// The value of `key`, whatever it is; from now on `key` is legal here.
    pub(crate) fn node(&mut self, key: &'static str) -> Option<&'s Node> {
        self.asked.push(key);
        self.table.and_then(|table| table.get(key)).map(|entry| &entry.node)
    }

    /// Whether the recipe has `key`, with a good value or a bad one.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.table.is_some_and(|table| table.get(key).is_some())
    }

    /// Reports a problem with the value of `key`, which rules must then leave alone.
    pub(crate) fn reject(&mut self, key: &str, diagnostic: Diagnostic) {
        self.cx.broken.insert(format!("{}{key}", self.prefix));
        self.cx.diagnostics.push(diagnostic);
    }

    /// Reports that the recipe lacks `key`; `example` is a legal value as a recipe writes it.
    pub(crate) fn lacks(&mut self, key: &'static str, example: &str) {
        self.cx.broken.insert(format!("{}{key}", self.prefix));
        if self.sound {
            self.missing.push((key, example.to_owned()));
        }
    }

    /// The setting, or the default when the recipe leaves it out (or got it wrong, which is reported).
    pub(crate) fn or<T>(&mut self, item: Option<Item<T>>, default: T) -> Item<T> {
        item.unwrap_or_else(|| Item::derived(default))
    }

    /// The setting that was just asked for; if the recipe leaves it out, that is a problem. `stand_in` takes the
    /// place of a missing value so that reading can go on; `example` is for the message.
    pub(crate) fn required<T>(
        &mut self,
        item: Option<Item<T>>,
        stand_in: T,
        example: &str,
    ) -> Item<T> {
        let key = self.asked.last().copied().unwrap_or_default();
        if !self.has(key) {
            self.lacks(key, example);
        }
        self.or(item, stand_in)
    }

    /// Names keys of the recipe format that this version does nothing with.
    pub(crate) fn later(&mut self, keys: &'static [&'static str]) {
        self.later = keys;
    }

    /// Closes the table: remembers its legal keys and which of the recipe's keys are none of them.
    pub(crate) fn finish(self) {
        let Self { cx, name, at, table, asked, later, missing, .. } = self;
        let entries = table.iter().flat_map(|table| &table.0);
        let (set, unknown) = entries.partition(|entry| asked.contains(&entry.key.as_str()));
        let closed = Closed { name, at, exists: table.is_some(), unknown, set, missing };
        cx.hidden += cx.keys.close(closed, &asked, later);
    }
}
