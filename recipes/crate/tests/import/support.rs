//! One way to import a text, and what every imported recipe must hold.

use std::path::Path;

use expect_test::Expect;
use titan_recipes::import::{Imported, Note, NoteKind, Target, import};
use titan_recipes::{
    Diagnostic, Files, Overrides, Purpose, Report, Source, TokenizerFacts, Unusable, load_text,
};

/// Files that are all there.
struct Shelf;

impl Files for Shelf {
    fn recipe(&self, _: &Path) -> Result<String, Box<Diagnostic>> {
        Err(Box::new(Diagnostic::error("an imported recipe extends no other")))
    }

    fn file(&self, _: &Path) -> Result<(), Unusable> {
        Ok(())
    }

    fn data(&self, _: &Path) -> Result<(), Unusable> {
        Ok(())
    }

    fn tokenizer(&self, _: &Path, _: &[&str]) -> Result<TokenizerFacts, Unusable> {
        Ok(TokenizerFacts { end: Some(0), ..TokenizerFacts::default() })
    }

    fn folder(&self, _: &Path) -> Result<(), Unusable> {
        Ok(())
    }
}

pub(crate) fn imported(text: &str) -> Result<Imported, Report> {
    imported_for(text, None)
}

pub(crate) fn imported_for(text: &str, target: Option<&Target>) -> Result<Imported, Report> {
    imported_from("titan.toml", text, target)
}

/// The import of a file of the folder `/home/me`.
pub(crate) fn imported_from(
    file: &str,
    text: &str,
    target: Option<&Target>,
) -> Result<Imported, Report> {
    let name = format!("/home/me/{file}");
    let result = import(Source { name, text: text.to_owned(), base: "/home/me".into() }, target);
    if let Ok(imported) = &result {
        check_format(imported);
    }
    result
}

/// The import of a sound configuration.
#[track_caller]
pub(crate) fn sound(text: &str) -> Imported {
    sound_for(text, None)
}

#[track_caller]
pub(crate) fn sound_for(text: &str, target: Option<&Target>) -> Imported {
    match imported_for(text, target) {
        Ok(imported) => {
            if let Err(report) = loaded(&imported.recipe) {
                panic!("{text}\n{}\n{}", imported.recipe, report.render(false));
            }
            imported
        }
        Err(report) => panic!("{text}\n{}", report.render(false)),
    }
}

/// The import of a configuration whose degrees do not suit its model: rules between settings may be broken.
#[track_caller]
pub(crate) fn unfit_for(text: &str, target: Option<&Target>) -> Imported {
    match imported_for(text, target) {
        Ok(imported) => imported,
        Err(report) => panic!("{text}\n{}", report.render(false)),
    }
}

/// Checks the report of a configuration that cannot be imported.
#[track_caller]
pub(crate) fn refused(text: &str, expected: Expect) {
    match imported(text) {
        Ok(imported) => panic!("was imported:\n{}", imported.recipe),
        Err(report) => {
            assert!(report.errors() > 0);
            expected.assert_eq(&format!("{}\n", report.render(false)));
        }
    }
}

/// Loads an imported recipe.
fn loaded(recipe: &str) -> Result<(), Report> {
    let source = Source { name: "new.toml".into(), text: recipe.into(), base: "/home/me".into() };
    load_text(source, &Overrides::default(), &Shelf, Purpose::Check).map(drop)
}

/// A recipe is TOML and has only keys of the format. Numbers without sense may break rules between settings.
fn check_format(imported: &Imported) {
    let recipe = &imported.recipe;
    let table: toml::Table = toml::from_str(recipe).unwrap_or_else(|e| panic!("{recipe}\n{e}"));
    if let Err(report) = loaded(recipe) {
        let text = report.render(false);
        for fault in ["unknown", "must be an", "TOML", "no choice", "has no"] {
            assert!(!text.contains(fault), "{recipe}\n{text}");
        }
    }
    for required in ["model", "hardware", "parallelism", "training", "optimizer", "schedule"] {
        assert!(table.contains_key(required), "no [{required}]\n{recipe}");
    }
    for note in &imported.notes {
        assert!(recipe.contains(&note.key), "the head of the recipe lacks {}", note.key);
        assert!(!note.text.is_empty() && !note.text.ends_with('.'), "{note:?}");
        assert!(note.line > 0);
    }
    assert!(imported.notes.windows(2).all(|pair| pair[0].line <= pair[1].line));
}

/// A value of a recipe, as TOML.
#[track_caller]
pub(crate) fn value(recipe: &str, table: &str, key: &str) -> String {
    let root: toml::Table = toml::from_str(recipe).unwrap();
    let table = root.get(table).and_then(toml::Value::as_table);
    table.and_then(|table| table.get(key)).map(toml::Value::to_string).unwrap_or_default()
}

/// The notes, one a line.
pub(crate) fn listed(notes: &[Note]) -> String {
    let line = |note: &Note| {
        let kind = match note.kind {
            NoteKind::Dropped => "dropped",
            NoteKind::Changed => "changed",
        };
        format!("{} {kind} {}: {}\n", note.line, note.key, note.text)
    };
    notes.iter().map(line).collect()
}
