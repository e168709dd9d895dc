//! The literal form of a recipe: its file, the files that it extends, and every `--set`, laid over each other.

use std::path::{Path, PathBuf};

use crate::diagnostic::Diagnostic;
use crate::files::Files;
use crate::recipe::{Overrides, VERSION};
use crate::secrets::{blank_parsed, without_secrets, without_secrets_of_no_toml};
use crate::shipped;
use crate::shown::{Shown, ShownPath};
use crate::source::{Loc, Source, SourceId, Sources};
use crate::syntax::{parse_document, parse_override};
use crate::tables::checkpoint::INTERVALS;
use crate::tables::validation::HELD_OUT;
use crate::tree::{Entry, Table, Value, overlay};
use crate::words::{JARO_WINKLER, similar};

/// What the layers gave.
pub(crate) struct Literal {
    /// Nothing, if a layer cannot be read: going on would be guessing what was meant.
    pub(crate) root: Option<Table>,
    pub(crate) problems: Vec<Diagnostic>,
    /// Problems that were only counted.
    pub(crate) hidden: usize,
}

const EXTENDS: &str = "extends";

/// Recipes in a row that extend each other; more are a mistake.
const DEEPEST: usize = 16;

/// Parses the recipe with all that it extends, and lays every `--set` over it. In `sources` secrets are masked.
pub(crate) fn literal_form(
    sources: &mut Sources,
    source: Source,
    overrides: &Overrides,
    files: &dyn Files,
) -> Literal {
    let mut layers = Layers { sources, files, chain: Vec::new(), problems: Vec::new(), hidden: 0 };
    let mut root = layers.file(source, None);
    for key in &overrides.unset {
        if let Some(root) = root.as_mut() {
            remove(root, key);
        }
    }
    let options = overrides.options.iter().map(|(name, text)| ((*name).to_owned(), text));
    let numbered = overrides.set.iter().enumerate();
    let set = numbered.map(|(n, text)| (format!("--set #{}", n + 1), text));
    for (name, text) in options.chain(set) {
        let base = overrides.base.clone();
        let upper = layers.set(Source { name, text: text.clone(), base });
        if let (Some(root), Some(upper)) = (root.as_mut(), upper) {
            lay_over(root, upper);
        }
    }
    if let Some(problem) = root.as_ref().and_then(not_this_format) {
        layers.problems.push(problem);
        root = None;
    }
    let Layers { problems, hidden, .. } = layers;
    Literal { root, problems, hidden }
}

struct Layers<'a> {
    sources: &'a mut Sources,
    files: &'a dyn Files,
    /// The files that are being read, each extended by the one before it.
    chain: Vec<PathBuf>,
    problems: Vec<Diagnostic>,
    hidden: usize,
}

impl Layers<'_> {
    /// One recipe with all that it extends; `path` is where it was read from, if it extends or is extended.
    fn file(&mut self, mut source: Source, path: Option<PathBuf>) -> Option<Table> {
        // A byte-order mark is no text, and would shift the first line.
        if let Some(text) = source.text.strip_prefix('\u{feff}') {
            source.text = text.to_owned();
        }
        let own = path.unwrap_or_else(|| source.base.join(file_name(&source.name)));
        let id = self.sources.add(source);
        let mut upper = self.parse(id)?;
        let Some(index) = upper.0.iter().position(|entry| entry.key == EXTENDS) else {
            return match misspelled(&upper) {
                Some(problem) => {
                    self.problems.push(problem);
                    None
                }
                None => Some(upper),
            };
        };
        let entry = upper.0.remove(index);
        self.chain.push(own);
        let lower = self.extended(id, &entry);
        self.chain.pop();
        let mut lower = lower?;
        if let Some(mut problem) = not_this_format(&lower) {
            if problem.at.is_none() {
                problem.message = format!("cannot extend this recipe: {}", problem.message);
                problem = problem.at(entry.node.at.clone()).label("nothing to extend");
            }
            self.problems.push(problem);
            return None;
        }
        lay_over(&mut lower, upper);
        Some(lower)
    }

    fn parse(&mut self, id: SourceId) -> Option<Table> {
        let text = std::mem::take(&mut self.sources.get_mut(id).text);
        let mut masked = without_secrets_of_no_toml(&text);
        let parsed = parse_document(id, &text, &masked);
        if let Ok(root) = &parsed {
            masked = without_secrets(&text);
            blank_parsed(&mut masked, root);
        }
        self.sources.get_mut(id).text = masked;
        match parsed {
            Ok(root) => Some(root),
            Err((problems, hidden)) => {
                self.problems.extend(problems);
                self.hidden += hidden;
                None
            }
        }
    }

    fn set(&mut self, source: Source) -> Option<Table> {
        let text = source.text.clone();
        let id = self.sources.add(source);
        let mut masked = without_secrets(&text);
        let parsed = parse_override(id, &text, &masked);
        if let Ok(root) = &parsed {
            blank_parsed(&mut masked, root);
        }
        self.sources.get_mut(id).text = masked;
        match parsed {
            Ok(table) => match table.get(EXTENDS) {
                None => return Some(table),
                Some(entry) => {
                    let what = "`extends` cannot be set by an option";
                    let problem = Diagnostic::error(what)
                        .at(entry.key_at.clone())
                        .label("the recipe itself says what it extends")
                        .help("write a recipe that extends the other: extends = \"other.toml\"");
                    self.problems.push(problem);
                }
            },
            Err(problem) => self.problems.push(problem),
        }
        None
    }

    /// The recipe that an entry `extends` names.
    fn extended(&mut self, id: SourceId, entry: &Entry) -> Option<Table> {
        let at = entry.node.at.clone();
        match self.open(id, entry) {
            Ok((source, path)) => self.file(source, Some(path)),
            Err(problem) => {
                self.problems.push(problem.at(at));
                None
            }
        }
    }

    fn open(&self, id: SourceId, entry: &Entry) -> Result<(Source, PathBuf), Diagnostic> {
        const EXAMPLE: &str = "for example: extends = \"qwen3_8b.toml\"";
        let Value::Text(name) = &entry.node.value else {
            let kind = entry.node.value.kind();
            let what = format!("`extends` must be the path of a recipe, found {kind}");
            return Err(Diagnostic::error(what).label("must be a string").help(EXAMPLE));
        };
        if name.is_empty() {
            let what = "`extends` names no recipe";
            return Err(Diagnostic::error(what).label("empty").help(EXAMPLE));
        }
        let base = &self.sources.get(id).base;
        let path = base.join(name);
        let shown = ShownPath(name);
        let same = |other: &PathBuf| same_file(other, &path);
        if self.chain.iter().any(same) {
            let what = format!("`{shown}` extends itself");
            return Err(Diagnostic::error(what).label("leads back to a recipe that leads here"));
        }
        if self.chain.len() >= DEEPEST {
            let what = format!("more than {DEEPEST} recipes extend each other");
            return Err(Diagnostic::error(what).label("too deep"));
        }
        let text = match self.files.recipe(&path) {
            Ok(text) => text,
            Err(problem) => match shipped::find(Path::new(name)) {
                Some(source) => return Ok((source, path)),
                None => return Err(not_extended(*problem, name, base)),
            },
        };
        let folder = path.parent().map(Path::to_owned).unwrap_or_default();
        // Messages call it as the user would: from where the recipe that extends it was called.
        let called = Path::new(&self.sources.get(id).name).with_file_name(name);
        Ok((Source { name: called.display().to_string(), text, base: folder }, path))
    }
}

/// Why a recipe cannot be extended.
fn not_extended(problem: Diagnostic, name: &str, base: &Path) -> Diagnostic {
    let why = problem.message.trim_start_matches("cannot read the recipe: ");
    let mut worded = Diagnostic::error(format!("cannot extend `{}`: {why}", ShownPath(name)));
    let from = || format!("relative paths here start from {}", ShownPath(base));
    worded.help = problem.help.or_else(|| Path::new(name).is_relative().then(from));
    worded.label("this recipe")
}

/// A key that was meant to be `extends`: without its base a recipe lacks everything, which is one mistake.
fn misspelled(root: &Table) -> Option<Diagnostic> {
    let mut texts = root.0.iter().filter(|entry| matches!(entry.node.value, Value::Text(_)));
    let entry = texts.find(|entry| similar(&entry.key, &[EXTENDS], JARO_WINKLER).is_some())?;
    Some(
        Diagnostic::error(format!("unknown key `{}`", Shown(&entry.key)))
            .at(entry.key_at.clone())
            .label("unknown")
            .help(format!("did you mean `{EXTENDS}`?")),
    )
}

fn file_name(name: &str) -> PathBuf {
    Path::new(name).file_name().map(PathBuf::from).unwrap_or_default()
}

fn same_file(a: &Path, b: &Path) -> bool {
    let real = |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    a == b || real(a) == real(b)
}

/// Removes the setting `table.key`.
fn remove(root: &mut Table, path: &str) {
    let Some((name, key)) = path.split_once('.') else { return };
    if let Some(entry) = root.0.iter_mut().find(|entry| entry.key == name)
        && let Value::Table(table) = &mut entry.node.value
    {
        table.0.retain(|entry| entry.key != key);
    }
}

/// Lays `upper` over `lower`. Of settings that exclude each other, the upper layer's counts.
fn lay_over(lower: &mut Table, upper: Table) {
    let exclusive: [(&str, &[&str]); 2] = [("checkpoint", &INTERVALS), ("validation", &HELD_OUT)];
    for (name, keys) in exclusive {
        let table = upper.get(name).and_then(|entry| entry.node.table());
        if table.is_some_and(|table| keys.iter().any(|key| table.get(key).is_some()))
            && let Some(entry) = lower.0.iter_mut().find(|entry| entry.key == name)
            && let Value::Table(below) = &mut entry.node.value
        {
            below.0.retain(|entry| !keys.contains(&&*entry.key));
        }
    }
    overlay(lower, upper);
}

/// A recipe without content, or of another version, has no other problem that could be named.
fn not_this_format(root: &Table) -> Option<Diagnostic> {
    if root.0.is_empty() {
        let help = "start from a copy of recipes/llama3_tiny.toml";
        return Some(Diagnostic::error("the recipe is empty").help(help));
    }
    let foreign = ["job", "optimizer", "training", "model"];
    let job = root.get("job").or_else(|| root.get("lr_scheduler"));
    if let Some(entry) = job
        && root.get("version").is_none()
        && foreign.iter().any(|key| root.get(key).is_some())
    {
        let at: Loc = entry.key_at.clone();
        return Some(
            Diagnostic::error("this is a configuration of TorchTitan, not a recipe")
                .at(at)
                .label("a table of TorchTitan")
                .help("turn it into a recipe with: titan-tpu recipe import FILE"),
        );
    }
    let node = &root.get("version")?.node;
    match node.value {
        Value::Integer(other) if other != VERSION.into() => Some(
            Diagnostic::error(format!(
                "this version of titan-tpu reads recipes of version {VERSION}, not {other}"
            ))
            .at(node.at.clone())
            .label("unknown version")
            .help(format!("write version = {VERSION}")),
        ),
        _ => None,
    }
}
