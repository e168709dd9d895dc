//! Reads the literal form into typed settings and collects every problem on the way.
//!
//! A table's module asks its [`Section`] for each key it knows, with the key's kind and range. What it asked
//! for is, by that, the list of legal keys: anything else in the table is an unknown key.

mod keys;
mod values;

use std::collections::{BTreeMap, BTreeSet};

use crate::diagnostic::Diagnostic;
use crate::files::Files;
use crate::origin::Origin;
use crate::purpose::Purpose;
use crate::source::{Item, Loc, Sources};
use crate::tree::{Node, Table, Value};

use keys::{Closed, Keys};
pub(crate) use values::{
    ABOVE_ZERO_FRACTION, AT_LEAST_ONE, BELOW_ONE, Bound, FRACTION, HELD_OUT_FRACTION,
    IntegerOrText, Kind, NOT_NEGATIVE, POSITIVE, Range, no_choice,
};

/// What all tables share while a recipe is read.
pub(crate) struct Context<'a> {
    pub(crate) sources: &'a Sources,
    pub(crate) diagnostics: Vec<Diagnostic>,
    /// Problems that were only counted.
    pub(crate) hidden: usize,
    /// Keys (`training.steps`) and tables (`training`) that are wrong or missing: rules that read them are skipped.
    pub(crate) broken: BTreeSet<String>,
    pub(crate) files: &'a dyn Files,
    pub(crate) purpose: Purpose,
    /// Whether the run is one on this machine, so that its files must be here.
    pub(crate) is_here: bool,
    /// Where each setting comes from, by its whole name.
    pub(crate) origins: BTreeMap<String, Origin>,
    /// What was asked for, when someone wants to know: the schema is made from it.
    pub(crate) asked: Option<Vec<Asked>>,
    keys: Keys,
}

/// A key that a table asked for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Asked {
    pub(crate) table: &'static str,
    pub(crate) key: &'static str,
    pub(crate) kind: Kind,
    pub(crate) required: bool,
}

impl<'a> Context<'a> {
    /// `diagnostics` are problems that the literal form has already.
    pub(crate) fn new(
        sources: &'a Sources,
        files: &'a dyn Files,
        purpose: Purpose,
        diagnostics: Vec<Diagnostic>,
    ) -> Self {
        Self {
            sources,
            diagnostics,
            hidden: 0,
            broken: BTreeSet::new(),
            files,
            purpose,
            is_here: true,
            origins: BTreeMap::new(),
            asked: None,
            keys: Keys::default(),
        }
    }

    /// Whether a file that a recipe names and that cannot be used here is an error. Those of a run on other
    /// machines may well be there.
    pub(crate) fn needs_files(&self) -> bool {
        self.purpose == Purpose::Train || self.is_here
    }

    /// Whether files that a recipe names are looked at.
    pub(crate) fn looks_at_files(&self) -> bool {
        self.purpose != Purpose::Plan
    }

    /// Whether a setting, or the table that it is in, is known to be wrong.
    pub(crate) fn is_broken(&self, key: &str) -> bool {
        let table = key.split('.').next().unwrap_or_default();
        self.broken.contains(key) || self.broken.contains(table)
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

    /// Opens a table that a recipe may leave out: then nothing in it is required.
    pub(crate) fn optional_section<'s>(
        &'s mut self,
        root: &'s Table,
        name: &'static str,
    ) -> Section<'s, 'a> {
        let mut section = self.section(root, name);
        section.sound &= section.table.is_some();
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
        let (asked, missing) = (Vec::new(), Vec::new());
        Section { cx: self, name, prefix, at: None, table, sound: true, asked, missing }
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

    /// The value of `key` without making it legal.
    fn peek(&self, key: &str) -> Option<&'s Node> {
        self.table.and_then(|table| table.get(key)).map(|entry| &entry.node)
    }

    /// The value of `key`, if it is a text, without making it legal.
    pub(crate) fn peek_text(&self, key: &str) -> Option<&'s str> {
        match &self.peek(key)?.value {
            Value::Text(text) => Some(text),
            _ => None,
        }
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
        self.mark_required(key);
        if self.sound {
            self.missing.push((key, example.to_owned()));
        }
    }

    /// Where the table was written.
    pub(crate) fn at(&self) -> Option<Loc> {
        self.at.clone()
    }

    /// Whether the recipe has this table.
    pub(crate) fn exists(&self) -> bool {
        self.table.is_some()
    }

    /// Every entry of a table whose keys are free; all of them are legal.
    pub(crate) fn entries(&self) -> &'s [crate::tree::Entry] {
        self.table.map_or(&[], |table| &table.0)
    }

    /// The setting that was just asked for, or the default when the recipe leaves it out (or got it wrong, which is
    /// reported).
    pub(crate) fn or<T>(&mut self, item: Option<Item<T>>, default: T) -> Item<T> {
        self.or_from(item, default, Origin::Default)
    }

    /// A setting that the recipe leaves out, or got wrong.
    pub(crate) fn default_of<T>(&mut self, key: &str, value: T) -> Item<T> {
        self.cx.origins.insert(self.name_of(key), Origin::Default);
        Item::derived(value)
    }

    /// The whole name of a key, for messages.
    pub(crate) fn name_of(&self, key: &str) -> String {
        format!("{}{key}", self.prefix)
    }

    /// Like [`Section::or`], for a value that comes from somewhere else than the defaults.
    pub(crate) fn or_from<T>(
        &mut self,
        item: Option<Item<T>>,
        value: T,
        origin: Origin,
    ) -> Item<T> {
        let key = self.asked.last().copied().unwrap_or_default();
        let origin = match item.as_ref().and_then(|item| item.at.clone()) {
            Some(at) => Origin::Written(at),
            None => origin,
        };
        self.cx.origins.insert(format!("{}{key}", self.prefix), origin);
        item.unwrap_or_else(|| Item::derived(value))
    }

    /// The setting that was just asked for, if the recipe has it.
    pub(crate) fn optional<T>(&mut self, item: Option<Item<T>>) -> Option<Item<T>> {
        let key = self.asked.last().copied().unwrap_or_default();
        if let Some(at) = item.as_ref().and_then(|item| item.at.clone()) {
            self.cx.origins.insert(format!("{}{key}", self.prefix), Origin::Written(at));
        }
        item
    }

    /// Refuses a key that only tables of another kind have; `kind` says which.
    pub(crate) fn foreign(&mut self, key: &'static str, kind: &str, at: Option<Loc>) {
        let Some(entry) = self.table.and_then(|table| table.get(key)) else { return };
        if self.asked.contains(&key) {
            return;
        }
        self.asked.push(key);
        let problem = Diagnostic::error(format!("`{}{key}` is for {kind}", self.prefix))
            .at(entry.key_at.clone())
            .label("not a setting of this model")
            .context(at, "the family")
            .help("remove it");
        self.reject(key, problem);
    }

    /// Warns of a setting that has no effect beside the others; it reads as not set.
    pub(crate) fn idle<T>(
        &mut self,
        key: &str,
        item: Option<Item<T>>,
        why: &str,
    ) -> Option<Item<T>> {
        if let Some(at) = item.and_then(|item| item.at) {
            let message = format!("`{}{key}` has no effect: it {why}", self.prefix);
            self.cx.diagnostics.push(Diagnostic::warning(message).at(at).label("not used"));
        }
        None
    }

    /// Remembers what `key` takes, if someone wants to know.
    fn note(&mut self, key: &'static str, kind: Kind) {
        let table = self.name;
        if let Some(asked) = &mut self.cx.asked
            && !asked.iter().any(|asked| (asked.table, asked.key) == (table, key))
        {
            asked.push(Asked { table, key, kind, required: false });
        }
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
        self.mark_required(key);
        if !self.has(key) {
            self.lacks(key, example);
        }
        self.or(item, stand_in)
    }

    /// Remembers that a table needs `key`, if someone wants to know.
    fn mark_required(&mut self, key: &'static str) {
        let table = self.name;
        let asked = self.cx.asked.iter_mut().flatten();
        for asked in asked.filter(|asked| (asked.table, asked.key) == (table, key)) {
            asked.required = true;
        }
    }

    /// Remembers where a value with a name of its own comes from.
    pub(crate) fn note_origin(&mut self, key: &str, at: Loc) {
        self.cx.origins.insert(format!("{}{key}", self.prefix), Origin::Written(at));
    }

    /// Closes a table whose keys are free.
    pub(crate) fn finish_free(self) {
        if let Some(asked) = &mut self.cx.asked {
            let (table, kind) = (self.name, Kind::Free);
            asked.push(Asked { table, key: "", kind, required: false });
        }
    }

    /// Closes the table: remembers its legal keys and which of the recipe's keys are none of them.
    pub(crate) fn finish(self) {
        let Self { cx, name, at, table, asked, missing, .. } = self;
        let entries = table.iter().flat_map(|table| &table.0);
        let (set, unknown) = entries.partition(|entry| asked.contains(&entry.key.as_str()));
        let closed = Closed { name, at, exists: table.is_some(), unknown, set, missing };
        cx.hidden += cx.keys.close(closed, &asked);
    }
}
