//! Whole configurations, with the recipes that they become.

use expect_test::{ExpectFile, expect_file};

use crate::support::{imported_from, listed};

#[track_caller]
fn check(file: &str, text: &str, recipe: ExpectFile, notes: ExpectFile) {
    let imported = imported_from(file, text, None).unwrap();
    recipe.assert_eq(&imported.recipe);
    notes.assert_eq(&listed(&imported.notes));
}

#[test]
fn llama3_8b() {
    check(
        "llama3_8b.toml",
        include_str!("data/llama3_8b.toml"),
        expect_file!["data/llama3_8b.recipe.toml"],
        expect_file!["data/llama3_8b.notes.txt"],
    );
}

#[test]
fn qwen3_30b_a3b() {
    check(
        "qwen3_30b_a3b.toml",
        include_str!("data/qwen3_30b_a3b.toml"),
        expect_file!["data/qwen3_30b_a3b.recipe.toml"],
        expect_file!["data/qwen3_30b_a3b.notes.txt"],
    );
}

#[test]
fn flux_dev() {
    check(
        "flux_dev.toml",
        include_str!("data/flux_dev.toml"),
        expect_file!["data/flux_dev.recipe.toml"],
        expect_file!["data/flux_dev.notes.txt"],
    );
}
