//! Values of a kind that their setting does not take.

use expect_test::expect;

use crate::support::{check, edited, with};

#[test]
fn an_integer_in_quotes() {
    check(
        &edited(&[("steps = 20", "steps = \"10_000\"")]),
        expect![[r#"
        error: `training.steps` must be an integer, found a string
          --> r.toml:18:9
           |
        18 | steps = "10_000"
           |         ^^^^^^^^ must be an integer
           |
           = help: remove the quotes: steps = 10000
    "#]],
    );
}

#[test]
fn a_word_for_an_integer() {
    check(
        &edited(&[("steps = 20", "steps = \"many\"")]),
        expect![[r#"
        error: `training.steps` must be an integer, found a string
          --> r.toml:18:9
           |
        18 | steps = "many"
           |         ^^^^^^ must be an integer
           |
           = help: allowed: 1 to 1000000000
    "#]],
    );
}

#[test]
fn a_float_for_an_integer() {
    check(
        &edited(&[("steps = 20", "steps = 1e3"), ("local_batch = 2", "local_batch = 0.4")]),
        expect![[r#"
            error: `training.steps` must be an integer, found a float
              --> r.toml:18:9
               |
            18 | steps = 1e3
               |         ^^^ must be an integer
               |
               = help: write steps = 1000

            error: `training.local_batch` must be an integer, found a float
              --> r.toml:20:15
               |
            20 | local_batch = 0.4
               |               ^^^ must be an integer
               |
               = help: write local_batch = 1
        "#]],
    );
}

#[test]
fn other_kinds_for_an_integer() {
    check(
        &edited(&[
            ("steps = 20", "steps = true"),
            ("sequence_length = 32", "sequence_length = [32]"),
        ]),
        expect![[r#"
            error: `training.steps` must be an integer, found a boolean
              --> r.toml:18:9
               |
            18 | steps = true
               |         ^^^^ must be an integer
               |
               = help: allowed: 1 to 1000000000

            error: `training.sequence_length` must be an integer, found an array
              --> r.toml:19:19
               |
            19 | sequence_length = [32]
               |                   ^^^^ must be an integer
               |
               = help: allowed: 1 to 16777216
        "#]],
    );
    check(
        &edited(&[
            ("steps = 20", "steps = { max = 20 }"),
            ("sequence_length = 32", "sequence_length = 2026-01-01"),
        ]),
        expect![[r#"
            error: `training.steps` must be an integer, found a table
              --> r.toml:18:9
               |
            18 | steps = { max = 20 }
               |         ^^^^^^^^^^^^ must be an integer
               |
               = help: allowed: 1 to 1000000000

            error: `training.sequence_length` must be an integer, found a date
              --> r.toml:19:19
               |
            19 | sequence_length = 2026-01-01
               |                   ^^^^^^^^^^ must be an integer
               |
               = help: allowed: 1 to 16777216
        "#]],
    );
}

#[test]
fn other_words_than_auto() {
    check(
        &edited(&[("devices = 2", "devices = \"all\"")]),
        expect![[r#"
        error: `hardware.devices` must be an integer or "auto", found a string
          --> r.toml:15:11
           |
        15 | devices = "all"
           |           ^^^^^ must be an integer or "auto"
           |
           = help: allowed: 1 to 1024, or "auto"
    "#]],
    );
    check(
        &edited(&[("devices = 2", "devices = \"Auto\"")]),
        expect![[r#"
        error: `hardware.devices` must be an integer or "auto", found a string
          --> r.toml:15:11
           |
        15 | devices = "Auto"
           |           ^^^^^^ must be an integer or "auto"
           |
           = help: did you mean "auto"?
    "#]],
    );
    check(
        &edited(&[("devices = 2", "devices = \"2\"")]),
        expect![[r#"
        error: `hardware.devices` must be an integer or "auto", found a string
          --> r.toml:15:11
           |
        15 | devices = "2"
           |           ^^^ must be an integer or "auto"
           |
           = help: remove the quotes: devices = 2
    "#]],
    );
}

#[test]
fn a_number_in_quotes() {
    check(
        &edited(&[("3e-3", "\"3e-3\"")]),
        expect![[r#"
        error: `optimizer.learning_rate` must be a number, found a string
          --> r.toml:24:17
           |
        24 | learning_rate = "3e-3"
           |                 ^^^^^^ must be a number
           |
           = help: remove the quotes: learning_rate = 0.003
    "#]],
    );
}

#[test]
fn other_kinds_for_a_number() {
    check(
        &edited(&[("3e-3", "\"fast\"")]),
        expect![[r#"
        error: `optimizer.learning_rate` must be a number, found a string
          --> r.toml:24:17
           |
        24 | learning_rate = "fast"
           |                 ^^^^^^ must be a number
    "#]],
    );
    check(
        &edited(&[("3e-3", "true")]),
        expect![[r#"
        error: `optimizer.learning_rate` must be a number, found a boolean
          --> r.toml:24:17
           |
        24 | learning_rate = true
           |                 ^^^^ must be a number
    "#]],
    );
}

#[test]
fn a_boolean_for_a_number_that_can_be_switched_off() {
    check(
        &with("training", "gradient_clip = false"),
        expect![[r#"
        error: `training.gradient_clip` must be a number, found a boolean
          --> r.toml:18:17
           |
        18 | gradient_clip = false
           |                 ^^^^^ must be a number
           |
           = help: to switch it off, write gradient_clip = "none"
    "#]],
    );
}

#[test]
fn other_kinds_for_two_numbers() {
    check(
        &with("optimizer", "betas = 0.9"),
        expect![[r#"
        error: `optimizer.betas` must be an array of 2 numbers, found a float
          --> r.toml:24:9
           |
        24 | betas = 0.9
           |         ^^^ must be an array of 2 numbers
           |
           = help: for example: betas = [0.9, 0.95]
    "#]],
    );
    check(
        &with("optimizer", "betas = [0.9]"),
        expect![[r#"
        error: `optimizer.betas` must be an array of 2 numbers, found 1 of them
          --> r.toml:24:9
           |
        24 | betas = [0.9]
           |         ^^^^^ must be an array of 2 numbers
           |
           = help: for example: betas = [0.9, 0.95]
    "#]],
    );
    check(
        &with("optimizer", "betas = [0.9, 0.95, 0.99]"),
        expect![[r#"
        error: `optimizer.betas` must be an array of 2 numbers, found 3 of them
          --> r.toml:24:9
           |
        24 | betas = [0.9, 0.95, 0.99]
           |         ^^^^^^^^^^^^^^^^^ must be an array of 2 numbers
           |
           = help: for example: betas = [0.9, 0.95]
    "#]],
    );
    check(
        &with("optimizer", "betas = [\"0.9\", true]"),
        expect![[r#"
        error: `optimizer.betas[0]` must be a number, found a string
          --> r.toml:24:10
           |
        24 | betas = ["0.9", true]
           |          ^^^^^ must be a number
           |
           = help: remove the quotes: 0.9

        error: `optimizer.betas[1]` must be a number, found a boolean
          --> r.toml:24:17
           |
        24 | betas = ["0.9", true]
           |                 ^^^^ must be a number
    "#]],
    );
}

#[test]
fn other_kinds_for_a_boolean() {
    check(
        &with("metrics", "tensorboard = \"yes\""),
        expect![[r#"
        error: `metrics.tensorboard` must be true or false, found a string
          --> r.toml:30:15
           |
        30 | tensorboard = "yes"
           |               ^^^^^ must be true or false
           |
           = help: write tensorboard = true
    "#]],
    );
    check(
        &with("metrics", "tensorboard = 0"),
        expect![[r#"
        error: `metrics.tensorboard` must be true or false, found an integer
          --> r.toml:30:15
           |
        30 | tensorboard = 0
           |               ^ must be true or false
           |
           = help: write tensorboard = false
    "#]],
    );
    check(
        &with("metrics", "tensorboard = \"true\""),
        expect![[r#"
        error: `metrics.tensorboard` must be true or false, found a string
          --> r.toml:30:15
           |
        30 | tensorboard = "true"
           |               ^^^^^^ must be true or false
           |
           = help: remove the quotes: tensorboard = true
    "#]],
    );
    check(
        &with("metrics", "tensorboard = 3.5"),
        expect![[r#"
        error: `metrics.tensorboard` must be true or false, found a float
          --> r.toml:30:15
           |
        30 | tensorboard = 3.5
           |               ^^^ must be true or false
           |
           = help: allowed: true, false
    "#]],
    );
}

#[test]
fn other_kinds_for_a_string() {
    check(
        &edited(&[("\"small\"", "5")]),
        expect![[r#"
        error: `name` must be a string, found an integer
         --> r.toml:2:8
          |
        2 | name = 5
          |        ^ must be a string
          |
          = help: put it in quotes: name = "5"
    "#]],
    );
    check(
        &edited(&[("\"small\"", "[\"small\"]")]),
        expect![[r#"
        error: `name` must be a string, found an array
         --> r.toml:2:8
          |
        2 | name = ["small"]
          |        ^^^^^^^^^ must be a string
          |
          = help: put it in quotes: name = "..."
    "#]],
    );
}

#[test]
fn a_value_for_a_table() {
    let text = edited(&[
        ("[hardware]\naccelerator = \"cpu\"\ndevices = 2\n", ""),
        ("version = 1", "version = 1\nhardware = \"cpu\""),
    ]);
    check(
        &text,
        expect![[r#"
        error: `hardware` must be a table, found a string
         --> r.toml:2:12
          |
        2 | hardware = "cpu"
          |            ^^^^^ must be a table
          |
          = help: write it as a table of its own: [hardware]
    "#]],
    );
    check(
        &edited(&[("[data]", "[[data]]")]),
        expect![[r#"
        error: `data` must be a table, found an array
          --> r.toml:26:1
           |
        26 | [[data]]
           | ^^^^^^^^ must be a table
           |
           = help: write its header with single brackets: [data]
    "#]],
    );
}

#[test]
fn other_kinds_for_data_sources() {
    check(
        &edited(&[("[{ path = \"data.txt\" }]", "\"data.txt\"")]),
        expect![[r#"
        error: `data.sources` must be an array, found a string
          --> r.toml:27:11
           |
        27 | sources = "data.txt"
           |           ^^^^^^^^^^ must be an array
           |
           = help: for example: sources = [{ path = "corpus.txt" }]
    "#]],
    );
    check(
        &edited(&[("[{ path = \"data.txt\" }]", "[\"data.txt\", 5]")]),
        expect![[r#"
        error: `data.sources[0]` must be a table, found a string
          --> r.toml:27:12
           |
        27 | sources = ["data.txt", 5]
           |            ^^^^^^^^^^ must be a table
           |
           = help: write { path = "data.txt" }

        error: `data.sources[1]` must be a table, found an integer
          --> r.toml:27:24
           |
        27 | sources = ["data.txt", 5]
           |                        ^ must be a table
           |
           = help: for example: sources = [{ path = "corpus.txt" }]
    "#]],
    );
    check(
        &edited(&[("[{ path = \"data.txt\" }]", "[]")]),
        expect![[r#"
        error: `data.sources` is empty
          --> r.toml:27:11
           |
        27 | sources = []
           |           ^^ needs at least one source
           |
           = help: for example: sources = [{ path = "corpus.txt" }]
    "#]],
    );
    check(
        &edited(&[("[{ path = \"data.txt\" }]", "[{ path = 5 }]")]),
        expect![[r#"
        error: `data.sources[0].path` must be a string, found an integer
          --> r.toml:27:21
           |
        27 | sources = [{ path = 5 }]
           |                     ^ must be a string
           |
           = help: put it in quotes: path = "5"
    "#]],
    );
}

#[test]
fn other_kinds_for_the_version() {
    check(
        &edited(&[("version = 1", "version = \"1\"")]),
        expect![[r#"
        error: `version` must be an integer, found a string
         --> r.toml:1:11
          |
        1 | version = "1"
          |           ^^^ must be an integer
          |
          = help: remove the quotes: version = 1
    "#]],
    );
    check(
        &edited(&[("version = 1", "version = true")]),
        expect![[r#"
        error: `version` must be an integer, found a boolean
         --> r.toml:1:11
          |
        1 | version = true
          |           ^^^^ must be an integer
          |
          = help: allowed: 1
    "#]],
    );
}
