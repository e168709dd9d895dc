//! The recipe while it is written: tables in the order of the format, with comments that line up.

use crate::shown::is_treacherous;

use super::{Note, NoteKind};

/// Tables of a recipe in the order that they are written.
const TABLES: [&str; 14] = [
    "",
    "model",
    "hardware",
    "parallelism",
    "training",
    "optimizer",
    "schedule",
    "precision",
    "remat",
    "compile",
    "flux",
    "data",
    "validation",
    "checkpoint",
];

/// The table that follows all others.
const LAST: &str = "metrics";

/// Columns of a line of comment.
const WIDTH: usize = 100;

/// Keys with their values, in the order that they were put in.
#[derive(Default)]
pub(super) struct Draft(Vec<Line>);

struct Line {
    table: &'static str,
    key: &'static str,
    value: String,
    comment: String,
}

impl Draft {
    /// Adds a key; `value` is TOML.
    pub(super) fn put(&mut self, table: &'static str, key: &'static str, value: impl ToString) {
        self.put_why(table, key, value, "");
    }

    /// Adds a key with a comment behind it.
    pub(super) fn put_why(
        &mut self,
        table: &'static str,
        key: &'static str,
        value: impl ToString,
        comment: &str,
    ) {
        let (value, comment) = (value.to_string(), comment.to_owned());
        self.0.push(Line { table, key, value, comment });
    }

    /// The value of a key that was put in.
    pub(super) fn get(&self, table: &str, key: &str) -> Option<&str> {
        let line = self.0.iter().find(|line| line.table == table && line.key == key);
        line.map(|line| &*line.value)
    }

    /// The text of the recipe.
    pub(super) fn render(&self, origin: &str, description: Option<&str>, notes: &[Note]) -> String {
        let mut text = String::new();
        comment(&mut text, "", origin);
        if let Some(description) = description {
            comment(&mut text, "", description);
        }
        block(&mut text, notes, NoteKind::Changed, "Check before the first run:");
        block(&mut text, notes, NoteKind::Dropped, "Left out:");
        for table in TABLES.into_iter().chain([LAST]) {
            self.render_table(&mut text, table);
        }
        text
    }

    fn render_table(&self, text: &mut String, table: &str) {
        /// A comment further right than this would not be seen.
        const FURTHEST: usize = 60;
        let lines: Vec<&Line> = self.0.iter().filter(|line| line.table == table).collect();
        if lines.is_empty() {
            return;
        }
        text.push('\n');
        if !table.is_empty() {
            text.push_str(&format!("[{table}]\n"));
        }
        let settings: Vec<String> =
            lines.iter().map(|line| format!("{} = {}", line.key, line.value)).collect();
        let widths = lines.iter().zip(&settings).filter(|(line, _)| !line.comment.is_empty());
        let widths = widths.map(|(_, setting)| setting.chars().count());
        let column = widths.filter(|width| *width <= FURTHEST).max().unwrap_or(0);
        for (line, setting) in lines.iter().zip(&settings) {
            match line.comment.as_str() {
                "" => text.push_str(&format!("{setting}\n")),
                why if setting.chars().count() > column || column + why.len() + 4 > WIDTH => {
                    comment(text, "", why);
                    text.push_str(&format!("{setting}\n"));
                }
                why => text.push_str(&format!("{setting:column$}  # {why}\n")),
            }
        }
    }
}

/// The notes of one kind as a list, those with the same words together.
fn block(text: &mut String, notes: &[Note], kind: NoteKind, title: &str) {
    let mut groups: Vec<(Vec<&str>, &str)> = Vec::new();
    for note in notes.iter().filter(|note| note.kind == kind) {
        match groups.iter_mut().find(|(_, words)| *words == note.text) {
            Some((keys, _)) => keys.push(&note.key),
            None => groups.push((vec![&note.key], &note.text)),
        }
    }
    if groups.is_empty() {
        return;
    }
    text.push_str("#\n");
    comment(text, "", title);
    for (keys, words) in groups {
        comment(text, "- ", &format!("{}: {words}", keys.join(", ")));
    }
}

/// Writes words as lines of comment, the further ones indented below the first.
fn comment(text: &mut String, bullet: &str, words: &str) {
    let mut line = format!("# {bullet}");
    let indent = line.len();
    for word in words.split_whitespace() {
        let length = line.chars().count();
        if length > indent && length + 1 + word.chars().count() > WIDTH {
            text.push_str(line.trim_end());
            text.push('\n');
            line = format!("#{}", " ".repeat(indent - 1));
        }
        if line.chars().count() > indent {
            line.push(' ');
        }
        line.push_str(word);
    }
    text.push_str(line.trim_end());
    text.push('\n');
}

/// A string of TOML on one line, in which nothing is invisible.
pub(super) fn string(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if is_treacherous(c) => out.push_str(&format!("\\U{:08X}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
