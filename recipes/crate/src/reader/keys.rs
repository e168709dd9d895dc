//! Keys that no table knows, and keys that a table lacks. Both are reported when all tables are read, because a
//! key that is misspelled, or in the wrong table, is one mistake and not two.

use crate::diagnostic::Diagnostic;
use crate::report::SHOWN;
use crate::shown::{Shown, list};
use crate::source::Loc;
use crate::tree::{Entry, Table, Value};
use crate::words::{JARO_WINKLER, similar, synonym};

use super::Context;

/// A key with the table that it belongs to; the table is empty for the recipe itself.
type Known = (&'static str, &'static str);

/// What the tables said about keys, in the order that they were read.
#[derive(Default)]
pub(super) struct Keys {
    known: Vec<Known>,
    strangers: Vec<Stranger>,
    gaps: Vec<Gap>,
}

/// A table after it was read, with what is wrong with its keys.
pub(super) struct Closed<'s> {
    pub(super) name: &'static str,
    pub(super) at: Option<Loc>,
    pub(super) exists: bool,
    pub(super) unknown: Vec<&'s Entry>,
    pub(super) set: Vec<&'s Entry>,
    pub(super) missing: Vec<(&'static str, String)>,
}

/// An unknown key.
struct Stranger {
    table: &'static str,
    key: String,
    at: Loc,
    is_table: bool,
    /// Known keys of the same table that are set in the same source.
    set: Vec<String>,
    /// Index in `gaps` of what the same table lacks.
    gap: Option<usize>,
}

/// The required keys that a table lacks.
struct Gap {
    table: &'static str,
    at: Option<Loc>,
    exists: bool,
    keys: Vec<(&'static str, String)>,
}

/// What an unknown key was probably meant to be.
enum Guess {
    /// Another key of its own table.
    Misspelled(&'static str),
    /// The same key of other tables.
    Misplaced(Vec<Known>),
    /// A table of the recipe.
    Table,
    /// A similar key of another table.
    Elsewhere(Known),
    Nothing,
}

impl Keys {
    /// Takes in what a table said; returns how many unknown keys were only counted. There can be as many as a
    /// file has lines; beyond the first ones of a table, none would be shown.
    pub(super) fn close(&mut self, mut closed: Closed<'_>, asked: &[&'static str]) -> usize {
        let table = closed.name;
        for key in asked {
            if !self.known.contains(&(table, key)) {
                self.known.push((table, key));
            }
        }
        closed.unknown.sort_by_key(|entry| entry.key_at.start());
        let before = self.strangers.iter().rev().take_while(|s| s.table == table).count();
        let room = SHOWN.saturating_sub(before);
        let hidden = closed.unknown.len().saturating_sub(room);
        // One of the keys that are only counted may be the missing one misspelled.
        let gap = (!closed.missing.is_empty() && hidden == 0).then_some(self.gaps.len());
        if gap.is_some() {
            let Closed { at, exists, .. } = closed;
            self.gaps.push(Gap { table, at, exists, keys: std::mem::take(&mut closed.missing) });
        }
        self.strangers.extend(closed.unknown.iter().take(room).map(|entry| {
            Stranger {
                table,
                key: entry.key.clone(),
                at: entry.key_at.clone(),
                is_table: matches!(entry.node.value, Value::Table(_)),
                set: (closed.set.iter())
                    .filter(|known| known.key_at.source == entry.key_at.source)
                    .map(|known| known.key.clone())
                    .collect(),
                gap,
            }
        }));
        hidden
    }

    fn of(&self, table: &str) -> Vec<&'static str> {
        self.known.iter().filter(|(t, _)| *t == table).map(|(_, key)| *key).collect()
    }

    /// From what is certain to what is vague.
    fn guess(&self, stranger: &Stranger) -> Guess {
        let Stranger { table, key, is_table, .. } = stranger;
        let here = self.of(table);
        if let Some(word) = synonym(key, &here) {
            return Guess::Misspelled(word);
        }
        // Entries of arrays are no place that a stray key could be moved to, and tables are no keys.
        let names_table = |key: &str| self.known.iter().any(|(t, _)| *t == key);
        let others = self
            .known
            .iter()
            .filter(|(t, k)| !is_table && t != table && !t.contains('.') && !names_table(k));
        let known: Vec<Known> = others.copied().collect();
        if !table.is_empty() && names_table(key) {
            return Guess::Table;
        }
        let homes: Vec<Known> = known.iter().filter(|(_, k)| k == key).copied().collect();
        if !homes.is_empty() {
            return Guess::Misplaced(homes);
        }
        if let Some(home) = known.iter().find(|(_, k)| synonym(key, &[*k]).is_some()) {
            return Guess::Elsewhere(*home);
        }
        if let Some(word) = similar(key, &here, JARO_WINKLER) {
            return Guess::Misspelled(word);
        }
        // A resemblance to a key of another table must be strong to mean anything.
        let near = known.iter().find(|(_, k)| similar(key, &[*k], 1.0).is_some());
        near.map_or(Guess::Nothing, |home| Guess::Elsewhere(*home))
    }
}

impl Context<'_> {
    /// The unknown table of the recipe that `name` was probably meant to be: it is read in its place, so that a
    /// misspelled header is one problem, and the problems below it are found all the same.
    pub(super) fn misspelled<'s>(&self, root: &'s Table, name: &'static str) -> Option<&'s Entry> {
        let tables = self.keys.of("");
        let strangers =
            root.0.iter().filter(|e| !tables.contains(&&*e.key) && e.node.table().is_some());
        let near = |key: &str| synonym(key, &tables).or(similar(key, &tables, JARO_WINKLER));
        strangers.take(SHOWN).find(|entry| near(&entry.key) == Some(name))
    }

    /// Reports unknown and missing keys. Called once, when all tables are read.
    pub(crate) fn report_keys(&mut self) {
        let mut keys = std::mem::take(&mut self.keys);
        for stranger in std::mem::take(&mut keys.strangers) {
            let guess = keys.guess(&stranger);
            if let Guess::Misspelled(key) = guess {
                self.broken.insert(dotted(stranger.table, key));
                if let Some(gap) = stranger.gap {
                    keys.gaps[gap].keys.retain(|(missing, _)| *missing != key);
                }
            }
            let homes: &[Known] = match &guess {
                Guess::Misplaced(homes) => homes,
                Guess::Elsewhere(home) => std::slice::from_ref(home),
                _ => &[],
            };
            for (table, key) in homes.iter().copied() {
                self.broken.insert(dotted(table, key));
                for gap in keys.gaps.iter_mut().filter(|gap| gap.table == table) {
                    gap.keys.retain(|(missing, _)| *missing != key);
                }
            }
            self.diagnostics.push(stranger.report(&guess, &keys));
        }
        let gaps = keys.gaps.into_iter().filter(|gap| !gap.keys.is_empty());
        self.diagnostics.extend(gaps.map(Gap::report));
    }
}

impl Stranger {
    fn report(&self, guess: &Guess, keys: &Keys) -> Diagnostic {
        let key = Shown(&self.key);
        let thing = match (self.table, self.is_table) {
            ("", true) => format!("table [{key}]"),
            ("", false) => format!("key `{key}`"),
            (table, _) => format!("key `{key}` in {}", title(table)),
        };
        let help = match guess {
            Guess::Misspelled(word) if self.set.iter().any(|key| key == word) => {
                format!("did you mean `{word}`? That is set already")
            }
            Guess::Misspelled(word) => format!("did you mean `{word}`?"),
            Guess::Misplaced(homes) if homes[0].0.is_empty() => {
                format!("`{key}` belongs to the top of the recipe, before the first table")
            }
            Guess::Misplaced(homes) => {
                let homes: Vec<String> = homes.iter().map(|(table, _)| title(table)).collect();
                format!("`{key}` belongs to {}", homes.join(" or "))
            }
            Guess::Table => format!("`{key}` is a table of its own: write [{key}]"),
            Guess::Elsewhere((table, word)) => {
                format!("did you mean `{word}` of {}?", title(table))
            }
            Guess::Nothing => {
                let here = list(&keys.of(self.table));
                match self.table {
                    "" => format!("a recipe has: {here}"),
                    table => format!("the keys of {} are: {here}", title(table)),
                }
            }
        };
        let message = format!("unknown {thing}");
        Diagnostic::error(message).at(self.at.clone()).label("unknown").help(help)
    }
}

impl Gap {
    fn report(self) -> Diagnostic {
        let lines: Vec<String> =
            self.keys.iter().map(|(k, example)| format!("{k} = {example}")).collect();
        let add = match lines.as_slice() {
            [line] => format!(" {line}"),
            lines => format!("\n{}", lines.join("\n")),
        };
        if self.table.is_empty() {
            let names: Vec<String> = self.keys.iter().map(|(key, _)| format!("`{key}`")).collect();
            return Diagnostic::error(format!("the recipe has no {}", names.join(" and no ")))
                .help(format!("its first line is:{add}"));
        }
        if !self.exists {
            return Diagnostic::error(format!("the recipe has no table [{}]", self.table))
                .help(format!("add, for example:\n[{}]\n{}", self.table, lines.join("\n")));
        }
        let names: Vec<String> = self.keys.iter().map(|(key, _)| format!("`{key}`")).collect();
        let title = title(self.table);
        Diagnostic::error(format!("{title} has no {}", names.join(" and no ")))
            .at(self.at)
            .label("incomplete")
            .help(format!("add to {title}, for example:{add}"))
    }
}

fn dotted(table: &str, key: &str) -> String {
    if table.is_empty() { key.to_owned() } else { format!("{table}.{key}") }
}

/// How messages call a table.
fn title(table: &str) -> String {
    match table {
        "" => "the recipe".to_owned(),
        array if array.contains('.') => format!("an entry of `{array}`"),
        table => format!("[{table}]"),
    }
}
