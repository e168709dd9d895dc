//! A sound recipe to make mistakes in, and the one way to check what is said about them.

use std::path::{Path, PathBuf};

use expect_test::Expect;
use titan_recipes::{
    Diagnostic, Files, Loaded, Overrides, Purpose, Report, Source, TokenizerFacts, Unusable,
    load_text,
};

/// A small sound recipe without presets, so that every line of it can be broken.
pub(crate) const SOUND: &str = r#"version = 1
name = "small"

[model]
family = "llama3"
vocab_size = 256
hidden_size = 64
intermediate_size = 128
num_layers = 2
num_heads = 4
num_kv_heads = 2

[hardware]
accelerator = "cpu"
devices = 2

[training]
steps = 20
sequence_length = 32
local_batch = 2
global_batch = 4

[optimizer]
learning_rate = 3e-3

[data]
sources = [{ path = "data.txt" }]
"#;

/// The sound recipe with `from` replaced by `to`, for each pair.
#[track_caller]
pub(crate) fn edited(edits: &[(&str, &str)]) -> String {
    edits.iter().fold(SOUND.to_owned(), |text, (from, to)| {
        assert!(text.contains(from), "the recipe has no {from:?}");
        text.replacen(from, to, 1)
    })
}

/// The sound recipe with `line` added to the table `table`.
#[track_caller]
pub(crate) fn with(table: &str, line: &str) -> String {
    let header = format!("[{table}]\n");
    match SOUND.contains(&header) {
        true => edited(&[(&header, &format!("{header}{line}\n"))]),
        false => format!("{SOUND}\n{header}{line}\n"),
    }
}

/// The files of a test: data files called `data.txt`, folders that can be made unless they are called `taken`, a
/// tokenizer called `tokenizer.json` with 1000 ids, the same without an end of documents called `endless.json`, and
/// the recipes of `texts`.
#[derive(Default)]
pub(crate) struct Shelf<'t> {
    pub(crate) texts: &'t [(&'t str, &'t str)],
}

fn named(path: &Path, name: &str) -> Result<(), Unusable> {
    match path.file_name() {
        Some(file) if file == name => Ok(()),
        _ => Err(Unusable { why: "no such file".into(), near: None }),
    }
}

impl Files for Shelf<'_> {
    fn recipe(&self, path: &Path) -> Result<String, Box<Diagnostic>> {
        let found = self.texts.iter().find(|(name, _)| Path::new(name) == path);
        let missing = || Box::new(Diagnostic::error("cannot read the recipe: no such file"));
        found.map(|(_, text)| (*text).to_owned()).ok_or_else(missing)
    }

    fn file(&self, path: &Path) -> Result<(), Unusable> {
        named(path, "data.txt")
    }

    fn data(&self, path: &Path) -> Result<(), Unusable> {
        named(path, "data.txt")
    }

    fn tokenizer(&self, path: &Path, texts: &[&str]) -> Result<TokenizerFacts, Unusable> {
        let end = named(path, "tokenizer.json").map(|()| 998);
        let end = end.or_else(|why| named(path, "endless.json").map(|()| 0).map_err(|_| why))?;
        let asked = |text: &str| (text == "the").then(|| (text.to_owned(), 7));
        Ok(TokenizerFacts {
            largest_id: 999,
            start: Some(997),
            end: Some(end).filter(|end| *end > 0),
            added: vec![("<|begin_of_text|>".into(), 997), ("<|end_of_text|>".into(), 998)],
            asked: texts.iter().filter_map(|text| asked(text)).collect(),
        })
    }

    fn folder(&self, path: &Path) -> Result<(), Unusable> {
        match path.ends_with("taken") {
            true => {
                Err(Unusable { why: format!("{} is not a folder", path.display()), near: None })
            }
            false => Ok(()),
        }
    }
}

/// Loads a recipe called `r.toml` in the folder `/recipes`, from the folder `/here`, to train it.
pub(crate) fn load(text: &str, set: &[&str]) -> Result<Loaded, Report> {
    load_for(Purpose::Train, text, set)
}

/// Like [`load`], for another purpose.
pub(crate) fn load_for(purpose: Purpose, text: &str, set: &[&str]) -> Result<Loaded, Report> {
    load_from(purpose, text, set, &Shelf::default())
}

/// Like [`load_for`], with other files.
pub(crate) fn load_from(
    purpose: Purpose,
    text: &str,
    set: &[&str],
    files: &dyn Files,
) -> Result<Loaded, Report> {
    let source = Source { name: "r.toml".into(), text: text.into(), base: "/recipes".into() };
    let set = set.iter().map(|text| (*text).to_owned()).collect();
    let overrides = Overrides { set, base: "/here".into(), ..Overrides::default() };
    load_text(source, &overrides, files, purpose)
}

/// All that is said about a recipe; what every report must hold is checked on the way.
pub(crate) fn said(result: &Result<Loaded, Report>) -> String {
    let report = match result {
        Ok(loaded) => &loaded.warnings,
        Err(report) => report,
    };
    assert_eq!(result.is_err(), report.errors() > 0, "errors, and only errors, stop a run");
    assert!(report.diagnostics.len() <= 20, "a report fits on a few screens");
    for diagnostic in &report.diagnostics {
        let places = diagnostic.context.iter().map(|(at, _)| at).chain(&diagnostic.at);
        for at in places {
            let text = &report.sources.get(at.source).text;
            assert!(text.get(at.span.clone()).is_some(), "{:?} in {text:?}", at.span);
        }
    }
    let text = report.render(false);
    let raw = text.chars().find(|c| c.is_control() && *c != '\n');
    assert_eq!(raw, None, "a control character of the recipe reaches the terminal: {text:?}");
    text
}

/// Checks the whole report about a recipe.
pub(crate) fn check(text: &str, expected: Expect) {
    check_set(text, &[], expected);
}

/// Checks the whole report about a recipe with some `--set`.
pub(crate) fn check_set(text: &str, set: &[&str], expected: Expect) {
    expect_report(&load(text, set), expected);
}

/// Checks all that is said about a recipe.
pub(crate) fn expect_report(result: &Result<Loaded, Report>, expected: Expect) {
    let text = said(result);
    // Trailing spaces would not survive in the source of a test.
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    expected.assert_eq(&format!("{}\n", lines.join("\n")));
}

/// The recipe, which must be sound and free of warnings.
#[track_caller]
pub(crate) fn sound(text: &str, set: &[&str]) -> Loaded {
    let result = load(text, set);
    assert_eq!(said(&result), "");
    result.unwrap()
}

/// The data files of a recipe.
pub(crate) fn data_files(loaded: &Loaded) -> Vec<PathBuf> {
    let sources = loaded.recipe.data.sources.iter();
    sources.map(|source| source.path.local().unwrap().to_owned()).collect()
}
