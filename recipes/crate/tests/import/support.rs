//! One way to import a text, and what every imported recipe must hold.

use expect_test::Expect;
use titan_recipes::import::{Imported, Note, NoteKind, Target, import};
use titan_recipes::{Report, Source};

/// Every table and key that a recipe may have.
const FORMAT: &[(&str, &[&str])] = &[
    ("", &["version", "name"]),
    (
        "model",
        &[
            "family",
            "size",
            "vocab_size",
            "hidden_size",
            "intermediate_size",
            "num_layers",
            "num_heads",
            "num_kv_heads",
            "head_dim",
            "rope_theta",
            "rope_scaling",
            "norm_eps",
            "tie_embeddings",
            "num_experts",
            "experts_per_token",
            "expert_intermediate_size",
            "num_double_layers",
            "num_single_layers",
            "in_channels",
            "text_size",
            "pooled_size",
            "guidance_embedding",
            "rope_axes",
            "init",
        ],
    ),
    ("hardware", &["accelerator", "devices", "topology", "slices"]),
    ("parallelism", &["replicate", "shard", "expert", "tensor", "context"]),
    (
        "training",
        &["steps", "sequence_length", "local_batch", "global_batch", "gradient_clip", "seed"],
    ),
    ("optimizer", &["name", "learning_rate", "betas", "epsilon", "weight_decay"]),
    ("schedule", &["kind", "warmup_steps", "final_fraction", "decay_steps", "decay_kind"]),
    ("precision", &["params", "compute", "reduce"]),
    ("remat", &["policy"]),
    ("compile", &["enabled"]),
    ("flux", &["image_size", "text_length", "prompt_dropout"]),
    ("data", &["sources", "tokenizer", "on_bad_record"]),
    ("validation", &["interval_steps", "steps", "sources"]),
    ("checkpoint", &["directory", "interval_steps", "keep_last"]),
    ("metrics", &["every_steps", "tensorboard"]),
];

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

/// A recipe is TOML, has only keys of the format, and none of its lines is too long to read.
fn check_format(imported: &Imported) {
    let recipe = &imported.recipe;
    let table: toml::Table = toml::from_str(recipe).unwrap_or_else(|e| panic!("{recipe}\n{e}"));
    let keys_of = |name: &str| FORMAT.iter().find(|(table, _)| *table == name).map(|(_, k)| *k);
    for (key, value) in &table {
        match value {
            toml::Value::Table(inner) => {
                let known = keys_of(key).unwrap_or_else(|| panic!("[{key}]\n{recipe}"));
                let stranger = inner.keys().find(|key| !known.contains(&key.as_str()));
                assert_eq!(stranger, None, "[{key}]\n{recipe}");
            }
            _ => assert!(keys_of("").unwrap().contains(&key.as_str()), "{key}\n{recipe}"),
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
