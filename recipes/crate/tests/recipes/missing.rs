//! Keys and tables that are missing, and the two keys of the top: `version` and `name`.

use expect_test::expect;

use crate::support::{check, edited, sound};

#[test]
fn missing_keys_of_a_table_are_one_problem() {
    check(
        &edited(&[("steps = 20\n", ""), ("local_batch = 2\n", "")]),
        expect![[r#"
        error: [training] has no `steps` and no `local_batch`
          --> r.toml:17:2
           |
        17 | [training]
           |  ^^^^^^^^ incomplete
           |
           = help: add to [training], for example:
                   steps = 1000
                   local_batch = 8
    "#]],
    );
}

#[test]
fn a_missing_key() {
    check(
        &edited(&[("learning_rate = 3e-3", "")]),
        expect![[r#"
        error: [optimizer] has no `learning_rate`
          --> r.toml:23:2
           |
        23 | [optimizer]
           |  ^^^^^^^^^ incomplete
           |
           = help: add to [optimizer], for example: learning_rate = 3e-4
    "#]],
    );
}

#[test]
fn missing_tables() {
    check(
        "version = 1\n",
        expect![[r#"
            error: the recipe has no table [hardware]
            --> r.toml
             = help: add, for example:
                     [hardware]
                     accelerator = "cpu"

            error: the recipe has no table [model]
            --> r.toml
             = help: add, for example:
                     [model]
                     family = "llama3"
                     size = "tiny"

            error: the recipe has no table [training]
            --> r.toml
             = help: add, for example:
                     [training]
                     steps = 1000
                     sequence_length = 4096
                     local_batch = 8

            error: the recipe has no table [optimizer]
            --> r.toml
             = help: add, for example:
                     [optimizer]
                     learning_rate = 3e-4

            error: the recipe has no table [data]
            --> r.toml
             = help: add, for example:
                     [data]
                     sources = [{ path = "corpus.txt" }]
        "#]],
    );
}

#[test]
fn an_empty_table() {
    check(
        &edited(&[("sources = [{ path = \"data.txt\" }]", "")]),
        expect![[r#"
        error: [data] has no `sources`
          --> r.toml:26:2
           |
        26 | [data]
           |  ^^^^ incomplete
           |
           = help: add to [data], for example: sources = [{ path = "corpus.txt" }]
    "#]],
    );
}

#[test]
fn a_model_without_size_needs_every_dimension() {
    check(
        &edited(&[("vocab_size = 256\n", ""), ("num_heads = 4\n", "")]),
        expect![[r#"
            error: [model] has no `vocab_size` and no `num_heads`
             --> r.toml:4:2
              |
            4 | [model]
              |  ^^^^^ incomplete
              |
              = help: add to [model], for example:
                      vocab_size = 256
                      num_heads = 8
        "#]],
    );
}

#[test]
fn an_empty_recipe() {
    check(
        "",
        expect![[r#"
        error: the recipe is empty
        --> r.toml
         = help: start from a copy of recipes/llama3_tiny.toml
    "#]],
    );
    check(
        "# to be done\n",
        expect![[r#"
        error: the recipe is empty
        --> r.toml
         = help: start from a copy of recipes/llama3_tiny.toml
    "#]],
    );
}

#[test]
fn no_version() {
    check(
        &edited(&[("version = 1\n", "")]),
        expect![[r#"
        error: the recipe has no `version`
        --> r.toml
         = help: its first line is: version = 1
    "#]],
    );
}

#[test]
fn another_version_has_no_other_problems() {
    check(
        &edited(&[("version = 1", "version = 2"), ("[training]", "[train.er]")]),
        expect![[r#"
        error: this version of titan-tpu reads recipes of version 1, not 2
         --> r.toml:1:11
          |
        1 | version = 2
          |           ^ unknown version
          |
          = help: write version = 1
    "#]],
    );
}

#[test]
fn illegal_names() {
    check(
        &edited(&[("\"small\"", "\"my run/1\"")]),
        expect![[r#"
        error: `name` = "my run/1" cannot name a run folder
         --> r.toml:2:8
          |
        2 | name = "my run/1"
          |        ^^^^^^^^^^ up to 63 letters, digits, `-`, `_`, `.`, the first a letter or digit
          |
          = help: for example: name = "my-run-1"
    "#]],
    );
    check(
        &edited(&[("\"small\"", "\"../x\"")]),
        expect![[r#"
        error: `name` = "../x" cannot name a run folder
         --> r.toml:2:8
          |
        2 | name = "../x"
          |        ^^^^^^ up to 63 letters, digits, `-`, `_`, `.`, the first a letter or digit
          |
          = help: for example: name = "x"
    "#]],
    );
    check(
        &edited(&[("\"small\"", "\"\"")]),
        expect![[r#"
        error: `name` = "" cannot name a run folder
         --> r.toml:2:8
          |
        2 | name = ""
          |        ^^ up to 63 letters, digits, `-`, `_`, `.`, the first a letter or digit
          |
          = help: for example: name = "run"
    "#]],
    );
    check(
        &edited(&[("\"small\"", &format!("\"{}\"", "n".repeat(64)))]),
        expect![[r#"
            error: `name` = "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn" cannot name a run folder
             --> r.toml:2:8
              |
            2 | name = "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn"
              |        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ up to 63 letters, digits, `-`, `_`, `.`, the first a letter or digit
              |
              = help: for example: name = "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn"
        "#]],
    );
}

#[test]
fn without_a_name_the_file_gives_it() {
    assert_eq!(*sound(&edited(&[("name = \"small\"\n", "")]), &[]).recipe.name, "r");
}
