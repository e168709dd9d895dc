//! `[env]`: variables of the workers' environment, which are secret.

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use crate::diagnostic::Diagnostic;
use crate::purpose::Purpose;
use crate::reader::{Context, Section};
use crate::secrets::{Secret, was_masked};
use crate::shown::Shown;
use crate::source::{Item, Loc};
use crate::tables::location::masked;
use crate::tree::{Entry, Table, Value};

/// The value of one variable.
#[derive(Clone, Debug, PartialEq)]
pub enum EnvValue {
    /// As written in the recipe.
    Secret(Secret),
    /// The value of a variable of the launcher's environment.
    From(String),
}

impl Serialize for EnvValue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Secret(secret) => secret.serialize(serializer),
            Self::From(name) => {
                let mut map = serializer.serialize_map(Some(1))?;
                map.serialize_entry(FROM, name)?;
                map.end()
            }
        }
    }
}

const FROM: &str = "from";

/// Variables of the workers' environment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Env {
    /// Names with their values, in the order they were written.
    pub variables: Vec<(String, Item<EnvValue>)>,
    /// Where the table was written.
    pub at: Option<Loc>,
}

impl Serialize for Env {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.variables.iter().map(|(name, value)| (name, value)))
    }
}

impl Env {
    /// Whether there are no variables.
    pub fn is_empty(&self) -> bool {
        self.variables.is_empty()
    }

    pub(crate) fn read(cx: &mut Context<'_>, root: &Table) -> Self {
        let mut t = cx.optional_section(root, "env");
        let at = t.at();
        let mut variables = Vec::new();
        for entry in t.entries() {
            if let Some(value) = read_variable(&mut t, entry) {
                let at = entry.node.at.clone();
                t.note_origin(&entry.key, at.clone());
                variables.push((entry.key.clone(), Item::written(value, at)));
            }
        }
        t.finish_free();
        Self { variables, at }
    }
}

fn read_variable(t: &mut Section<'_, '_>, entry: &Entry) -> Option<EnvValue> {
    let (name, at) = (&entry.key, entry.node.at.clone());
    let shown = Shown(name);
    if !is_name(name) {
        // What stands behind a `=` may be the value.
        let before = Shown(name.split('=').next().unwrap_or_default());
        let what = format!("`{before}` cannot name a variable of the environment");
        let problem = Diagnostic::error(what)
            .at(entry.key_at.clone())
            .label("letters, digits and `_`, the first no digit");
        t.reject(name, problem);
        return None;
    }
    if let Some(why) = reserved(name) {
        let problem = Diagnostic::error(format!("`env.{shown}` is {why}"))
            .at(entry.key_at.clone())
            .label("not to be set here");
        t.reject(name, problem);
        return None;
    }
    let is_run = t.context().purpose == Purpose::Train;
    let read = match &entry.node.value {
        Value::Text(text) if is_run && was_masked(text) => {
            let from = example(name);
            let give = format!("give it again, or take it from the environment: {from}");
            Err(masked("this secret", &give))
        }
        Value::Text(text) if text.contains('\0') => {
            Err(Diagnostic::error(format!("`env.{shown}` has a NUL, which no variable can hold"))
                .label("not a value"))
        }
        Value::Text(text) => Ok(EnvValue::Secret(Secret::new(text.clone()))),
        Value::Table(table) => from_table(&shown, table),
        other => Err(Diagnostic::error(format!(
            "`env.{shown}` must be a string, found {}",
            other.kind()
        ))
        .label("must be a string")
        .help(format!("put it in quotes, or take it from the environment: {}", example(name)))),
    };
    match read {
        Ok(value) => Some(value),
        Err(problem) => {
            t.reject(name, problem.at(at));
            None
        }
    }
}

fn example(name: &str) -> String {
    format!("{} = {{ from = \"{}\" }}", Shown(name), Shown(name))
}

fn from_table(shown: &Shown<&String>, table: &Table) -> Result<EnvValue, Diagnostic> {
    match table.0.as_slice() {
        [Entry { key, node, .. }] if key == FROM => match &node.value {
            Value::Text(from) if is_name(from) => Ok(EnvValue::From(from.clone())),
            _ => Err(Diagnostic::error(format!("`env.{shown}.from` must name a variable"))
                .label("not a name")
                .help(example(shown.0))),
        },
        _ => Err(Diagnostic::error(format!("`env.{shown}` may have the key `from` and no other"))
            .label("not a value")
            .help(example(shown.0))),
    }
}

fn is_name(name: &str) -> bool {
    let rest = |c: char| c.is_ascii_alphanumeric() || c == '_';
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && name.chars().all(rest)
}

/// Variables that the launcher itself sets for every worker; those that begin with `TITAN_` are too.
pub(crate) const OURS: [&str; 7] =
    ["RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "PYTHONPATH", "PYTHONHOME"];

fn reserved(name: &str) -> Option<&'static str> {
    let is_ours = OURS.contains(&name) || name.starts_with("TITAN_");
    is_ours.then_some("set by titan-tpu itself")
}
