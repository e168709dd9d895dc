//! Sound recipes of other families and machines than that of `support`, and how to break and mend them.

use expect_test::Expect;
use titan_recipes::{Loaded, Purpose};

use crate::support::{expect_report, load_for, said};

/// Experts on one slice of 16 devices.
pub(crate) const EXPERTS: &str = r#"version = 1
name = "experts"

[model]
family = "qwen3-moe"
size = "tiny"

[hardware]
accelerator = "v5e"
topology = "4x4"

[training]
steps = 20
sequence_length = 64
local_batch = 2

[optimizer]
learning_rate = 3e-4

[data]
sources = [{ path = "data.txt" }]
"#;

/// Images on one slice of 4 devices; its sequences are 16 tokens of the image and 8 of the text.
pub(crate) const IMAGES: &str = r#"version = 1
name = "images"

[model]
family = "flux"
size = "tiny"

[hardware]
accelerator = "v5e"
topology = "2x2"

[flux]
image_size = 64

[training]
steps = 20
local_batch = 2

[optimizer]
learning_rate = 3e-4

[data]
sources = [{ path = "data.txt" }]
"#;

/// A recipe with `from` replaced by `to`, for each pair.
#[track_caller]
pub(crate) fn edit(base: &str, edits: &[(&str, &str)]) -> String {
    edits.iter().fold(base.to_owned(), |text, (from, to)| {
        assert!(text.contains(from), "the recipe has no {from:?}");
        text.replacen(from, to, 1)
    })
}

/// A recipe with `lines` added to the table `table`.
pub(crate) fn add(base: &str, table: &str, lines: &str) -> String {
    let header = format!("[{table}]\n");
    match base.contains(&header) {
        true => base.replacen(&header, &format!("{header}{lines}\n"), 1),
        false => format!("{base}\n{header}{lines}\n"),
    }
}

/// Checks all that `recipe check` says about a recipe.
pub(crate) fn told(text: &str, expected: Expect) {
    expect_report(&load_for(Purpose::Check, text, &[]), expected);
}

/// Applies each remedy alone: with any of them the recipe is sound and free of warnings.
#[track_caller]
pub(crate) fn mended(text: &str, remedies: &[&str]) {
    for remedy in remedies {
        let result = load_for(Purpose::Check, text, &[remedy]);
        assert_eq!(said(&result), "", "{remedy} does not help");
    }
}

/// The recipe, which must pass `recipe check` without a word.
#[track_caller]
pub(crate) fn clean(text: &str) -> Loaded {
    let result = load_for(Purpose::Check, text, &[]);
    assert_eq!(said(&result), "");
    result.unwrap()
}
