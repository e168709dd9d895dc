//! The configuration as a list of keys, each of which is either used or accounted for.

use std::collections::BTreeSet;
use std::fmt::Display;

use crate::diagnostic::Diagnostic;
use crate::shown::{Shown, ShownPath, quoted};
use crate::tree::{Entry, Table, Value};
use crate::words::nearest;

use super::{Note, NoteKind, keys};

/// A TorchTitan configuration while it is translated.
pub(super) struct Config<'t> {
    text: &'t str,
    leaves: Vec<Leaf<'t>>,
    notes: Vec<(usize, Note)>,
    /// Parts that are switched on: settings of the others had no effect.
    on: BTreeSet<&'static str>,
    pub(super) problems: Vec<Diagnostic>,
    /// What the job is called in words, for the head of the recipe.
    pub(super) description: Option<String>,
    /// Keys whose paths start from the folder that training is started in.
    pub(super) relative: Vec<Place>,
}

/// One key with its value.
struct Leaf<'t> {
    /// As it was written, with dots.
    path: String,
    /// How 0.2.2 spells it.
    key: String,
    entry: &'t Entry,
    /// Whether it has found its way into the recipe or a note.
    settled: bool,
}

/// A key of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place(usize);

/// A setting with its key; without one it is a default of TorchTitan.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setting<T> {
    pub(super) value: T,
    pub(super) place: Option<Place>,
}

/// A range of numbers together with the words that describe it.
#[derive(Clone, Copy)]
pub(super) struct Range {
    pub(super) allows: fn(f64) -> bool,
    pub(super) words: &'static str,
}

impl<'t> Config<'t> {
    pub(super) fn new(text: &'t str, root: &'t Table) -> Self {
        let mut config = Self {
            text,
            leaves: Vec::new(),
            notes: Vec::new(),
            on: BTreeSet::new(),
            problems: Vec::new(),
            description: None,
            relative: Vec::new(),
        };
        config.flatten("", root);
        config.settle_spellings();
        config
    }

    fn flatten(&mut self, prefix: &str, table: &'t Table) {
        for entry in &table.0 {
            let path = match prefix {
                "" => entry.key.clone(),
                prefix => format!("{prefix}.{}", entry.key),
            };
            let key = keys::modern(&path).to_owned();
            match &entry.node.value {
                Value::Table(inner) if !keys::is_key(&key) => {
                    if inner.0.is_empty() && !keys::is_table(&path) {
                        self.leaves.push(Leaf { path, key, entry, settled: false });
                    } else {
                        self.flatten(&path, inner);
                    }
                }
                other if keys::is_table(&path) => {
                    let what = format!("`{path}` must be a table, found {}", other.kind());
                    let problem = Diagnostic::error(what).at(entry.node.at.clone());
                    let help = format!("write its header with single brackets: [{path}]");
                    self.problems.push(problem.label("must be a table").help(help));
                }
                _ => self.leaves.push(Leaf { path, key, entry, settled: false }),
            }
        }
    }

    /// Of two spellings of one setting, the modern one counts.
    fn settle_spellings(&mut self) {
        for index in 0..self.leaves.len() {
            let leaf = &self.leaves[index];
            let rank = keys::age(&leaf.path);
            let newer = self.leaves.iter().filter(|other| other.key == leaf.key);
            let newer = newer.map(|other| &other.path).min_by_key(|path| keys::age(path));
            if let Some(newer) = newer.filter(|newer| keys::age(newer) < rank) {
                let text = format!("an older spelling of {newer}, which is set too and counts");
                self.dropped(Some(Place(index)), text);
            }
        }
    }

    /// The key, if it was written and has not found another use.
    pub(super) fn place(&self, key: &str) -> Option<Place> {
        self.leaves.iter().position(|leaf| leaf.key == key && !leaf.settled).map(Place)
    }

    /// Keys that have neither been used nor noted, with how 0.2.2 spells them.
    pub(super) fn unsettled(&self) -> Vec<(Place, String)> {
        let open = self.leaves.iter().enumerate().filter(|(_, leaf)| !leaf.settled);
        open.map(|(index, leaf)| (Place(index), leaf.key.clone())).collect()
    }

    /// The value of a key.
    pub(super) fn value(&self, place: Place) -> &'t Value {
        &self.leaves[place.0].entry.node.value
    }

    /// A key as it was written.
    pub(super) fn path(&self, place: Place) -> &str {
        &self.leaves[place.0].path
    }

    /// A key that was taken into the recipe.
    pub(super) fn take(&mut self, key: &str) -> Option<Place> {
        let place = self.place(key)?;
        self.settle(place);
        Some(place)
    }

    pub(super) fn settle(&mut self, place: Place) {
        self.leaves[place.0].settled = true;
    }

    pub(super) fn switch_on(&mut self, part: &'static str) {
        self.on.insert(part);
    }

    pub(super) fn is_on(&self, part: &str) -> bool {
        self.on.contains(part)
    }

    /// Says that a key is not carried over one to one. Nothing is said about what nobody wrote.
    pub(super) fn changed(&mut self, place: Option<Place>, text: impl Into<String>) {
        self.note(place, NoteKind::Changed, text.into());
    }

    /// Says that a key has no counterpart.
    pub(super) fn dropped(&mut self, place: Option<Place>, text: impl Into<String>) {
        self.note(place, NoteKind::Dropped, text.into());
    }

    fn note(&mut self, place: Option<Place>, kind: NoteKind, text: String) {
        let Some(place) = place else { return };
        self.settle(place);
        let leaf = &self.leaves[place.0];
        let start = leaf.entry.key_at.span.start;
        let line = 1 + self.text[..start].matches('\n').count();
        self.notes.push((start, Note { key: ShownPath(&leaf.path).to_string(), line, kind, text }));
    }

    /// All notes in the order of the text.
    pub(super) fn into_notes(mut self) -> Vec<Note> {
        self.notes.sort_by_key(|(start, _)| *start);
        self.notes.into_iter().map(|(_, note)| note).collect()
    }
}

/// Typed settings. One that cannot be used is a problem, and reads as TorchTitan's default.
impl Config<'_> {
    /// A whole number from `least` to `most`.
    pub(super) fn integer(
        &mut self,
        key: &'static str,
        (least, most): (i64, i64),
        default: i64,
    ) -> Setting<i64> {
        let Some(place) = self.take(key) else { return Setting { value: default, place: None } };
        let value = match self.value(place) {
            Value::Integer(number) => {
                let found = i64::try_from(*number).ok().filter(|n| (least..=most).contains(n));
                if found.is_none() {
                    let rule = match *number < least.into() {
                        true => format!("at least {least}"),
                        false => format!("at most {most}"),
                    };
                    self.out_of_range(place, &rule);
                }
                found
            }
            _ => self.wrong_kind(place, "an integer"),
        };
        Setting { value: value.unwrap_or(default), place: Some(place) }
    }

    /// A number; an integer is taken as one.
    pub(super) fn number(&mut self, key: &str, range: Range, default: f64) -> Setting<f64> {
        let Some(place) = self.take(key) else { return Setting { value: default, place: None } };
        let number = match self.value(place) {
            Value::Float(number) => Some(*number),
            Value::Integer(number) => Some(*number as f64),
            _ => self.wrong_kind(place, "a number"),
        };
        let value = number.filter(|number| (range.allows)(*number));
        if number.is_some() && value.is_none() {
            self.out_of_range(place, range.words);
        }
        Setting { value: value.unwrap_or(default), place: Some(place) }
    }

    /// A number as it is written into the recipe: in the user's own digits.
    pub(super) fn digits(&self, setting: &Setting<f64>) -> String {
        let plain = || format!("{:?}", setting.value);
        let Some(place) = setting.place else { return plain() };
        let node = &self.leaves[place.0].entry.node;
        match node.value {
            Value::Float(_) => {
                self.text.get(node.at.span.clone()).map_or_else(plain, str::to_owned)
            }
            _ => plain(),
        }
    }

    /// `true` or `false`.
    pub(super) fn flag(&mut self, key: &str, default: bool) -> Setting<bool> {
        let Some(place) = self.take(key) else { return Setting { value: default, place: None } };
        let value = match self.value(place) {
            Value::Boolean(value) => Some(*value),
            _ => self.wrong_kind(place, "true or false"),
        };
        Setting { value: value.unwrap_or(default), place: Some(place) }
    }

    /// Any text. An empty one reads as not written, which is what it means to TorchTitan.
    pub(super) fn text(&mut self, key: &str) -> Option<Setting<String>> {
        let place = self.take(key)?;
        let value = match self.value(place) {
            Value::Text(text) => Some(text.clone()),
            _ => self.wrong_kind(place, "a string"),
        };
        let value = value.filter(|text| !text.is_empty())?;
        Some(Setting { value, place: Some(place) })
    }

    /// A text that another setting uses too.
    pub(super) fn peek_text(&self, key: &str) -> Option<Setting<String>> {
        let index = self.leaves.iter().position(|leaf| leaf.path == key)?;
        match self.value(Place(index)) {
            Value::Text(text) if !text.is_empty() => {
                Some(Setting { value: text.clone(), place: Some(Place(index)) })
            }
            _ => None,
        }
    }

    /// One of `words`; `default` stands for a key that is not there.
    pub(super) fn choice(
        &mut self,
        key: &str,
        words: &[&'static str],
        default: &'static str,
    ) -> Setting<&'static str> {
        let Some(place) = self.take(key) else { return Setting { value: default, place: None } };
        let value = match self.value(place) {
            Value::Text(text) => {
                let word = words.iter().copied().find(|word| word == text);
                if word.is_none() {
                    self.no_choice(place, text, words);
                }
                word
            }
            _ => self.wrong_kind(place, "a string"),
        };
        Setting { value: value.unwrap_or(default), place: Some(place) }
    }
}

impl Config<'_> {
    /// A problem with the value of a key.
    pub(super) fn problem(
        &mut self,
        place: Place,
        what: impl Display,
        label: impl Into<String>,
        help: Option<String>,
    ) {
        let leaf = &self.leaves[place.0];
        let at = leaf.entry.node.at.clone();
        let message = format!("`{}` {what}", ShownPath(&leaf.path));
        let mut problem = Diagnostic::error(message).at(at).label(label);
        problem.help = help;
        self.problems.push(problem);
    }

    fn wrong_kind<T>(&mut self, place: Place, rule: &str) -> Option<T> {
        let found = self.value(place).kind();
        let help = match self.value(place) {
            Value::Text(text) => self.unquoted(place, text, rule),
            Value::Float(number) if rule == "an integer" && number.fract() == 0.0 => {
                Some(format!("write {number}"))
            }
            _ => None,
        };
        let what = format!("must be {rule}, found {found}");
        self.problem(place, what, format!("must be {rule}"), help);
        None
    }

    /// A number or boolean in quotes is one without them.
    fn unquoted(&self, place: Place, text: &str, rule: &str) -> Option<String> {
        let text = text.trim();
        let fits = match rule {
            "an integer" => text.parse::<i64>().is_ok(),
            "a number" => text.parse::<f64>().is_ok_and(f64::is_finite),
            _ => matches!(text, "true" | "false"),
        };
        let key = self.path(place).rsplit('.').next().unwrap_or_default();
        fits.then(|| format!("write it without quotes: {key} = {}", Shown(text)))
    }

    fn out_of_range(&mut self, place: Place, rule: &str) {
        let at = &self.leaves[place.0].entry.node.at;
        let written = self.text.get(at.span.clone()).unwrap_or_default();
        let what = format!("must be {rule}, found {}", Shown(written));
        self.problem(place, what, format!("must be {rule}"), None);
    }

    pub(super) fn no_choice(&mut self, place: Place, text: &str, words: &[&str]) {
        let allowed = format!("allowed: {}", quoted(words));
        let help = match nearest(text, words.iter().copied()) {
            Some(word) => format!("did you mean \"{word}\"? {allowed}"),
            None => allowed,
        };
        let what = format!("has no choice \"{}\"", Shown(text));
        self.problem(place, what, "unknown choice", Some(help));
    }
}
