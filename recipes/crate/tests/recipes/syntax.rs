//! Texts that are not TOML. A syntax error stops the reading: what follows it would be guesses.

use expect_test::expect;

use crate::support::{check, edited};

#[test]
fn a_string_without_quotes() {
    check(
        &edited(&[("\"llama3\"", "llama3")]),
        expect![[r#"
        error: invalid TOML: a string needs quotes
         --> r.toml:5:10
          |
        5 | family = llama3
          |          ^^^^^^ not a value
          |
          = help: write "llama3"
    "#]],
    );
}

#[test]
fn words_of_other_languages() {
    check(
        &edited(&[("devices = 2", "devices = None")]),
        expect![[r#"
            error: invalid TOML: there is no null
              --> r.toml:15:11
               |
            15 | devices = None
               |           ^^^^ not a value
               |
               = help: leave the key out, or write "none" where that is allowed
        "#]],
    );
    check(
        &edited(&[("[data]", "[metrics]\ntensorboard = True\n[data]")]),
        expect![[r#"
            error: invalid TOML: not a boolean
              --> r.toml:27:15
               |
            27 | tensorboard = True
               |               ^^^^ not a value
               |
               = help: write true
        "#]],
    );
}

#[test]
fn a_missing_value() {
    check(
        &edited(&[("steps = 20", "steps =")]),
        expect![[r#"
        error: invalid TOML: a value is missing
          --> r.toml:18:8
           |
        18 | steps =
           |        ^ nothing after the `=`
    "#]],
    );
}

#[test]
fn a_string_that_does_not_end() {
    check(
        &edited(&[("\"llama3\"", "\"llama3")]),
        expect![[r#"
        error: invalid TOML: the string does not end
         --> r.toml:5:17
          |
        5 | family = "llama3
          |                 ^ expected `"`
    "#]],
    );
    check(
        &edited(&[("\"llama3\"", "'llama3")]),
        expect![[r#"
        error: invalid TOML: the string does not end
         --> r.toml:5:17
          |
        5 | family = 'llama3
          |                 ^ expected `'`
    "#]],
    );
}

#[test]
fn an_escape_that_is_none() {
    check(
        &edited(&[("data.txt", "C:\\data.txt")]),
        expect![[r#"
            error: invalid TOML: not an escape
              --> r.toml:27:25
               |
            27 | sources = [{ path = "C:\data.txt" }]
               |                         ^ `\` starts an escape such as `\n`
               |
               = help: write `\\`, or put the string in single quotes
        "#]],
    );
}

#[test]
fn brackets_that_do_not_close() {
    check(
        &edited(&[("[training]", "[training")]),
        expect![[r#"
        error: invalid TOML: unclosed table
          --> r.toml:17:10
           |
        17 | [training
           |          ^ expected `]`
    "#]],
    );
    check(
        &edited(&[("\"data.txt\" }]", "\"data.txt\" }")]),
        expect![[r#"
        error: invalid TOML: unclosed array
          --> r.toml:27:33
           |
        27 | sources = [{ path = "data.txt" }
           |                                 ^ expected `]`
    "#]],
    );
    check(
        &edited(&[("\"data.txt\" }]", "\"data.txt\" ]")]),
        expect![[r#"
        error: invalid TOML: invalid inline table element
          --> r.toml:27:32
           |
        27 | sources = [{ path = "data.txt" ]
           |                                ^ expected `,`
    "#]],
    );
}

#[test]
fn numbers_that_are_none() {
    check(
        &edited(&[("steps = 20", "steps = 020")]),
        expect![[r#"
            error: invalid TOML: unexpected leading zero
              --> r.toml:18:9
               |
            18 | steps = 020
               |         ^
               |
               = help: write 20
        "#]],
    );
    check(
        &edited(&[("steps = 20", "steps = 1,000")]),
        expect![[r#"
            error: invalid TOML: unexpected key or value
              --> r.toml:18:10
               |
            18 | steps = 1,000
               |          ^ expected the end of the line
        "#]],
    );
    check(
        &edited(&[("3e-3", ".003")]),
        expect![[r#"
            error: invalid TOML: invalid mantissa
              --> r.toml:24:17
               |
            24 | learning_rate = .003
               |                 ^ expected digits
               |
               = help: write 0.003
        "#]],
    );
    check(
        &edited(&[("3e-3", "3e")]),
        expect![[r#"
        error: invalid TOML: invalid exponent
          --> r.toml:24:19
           |
        24 | learning_rate = 3e
           |                   ^ expected digits
    "#]],
    );
}

#[test]
fn two_settings_on_a_line() {
    check(
        &edited(&[("steps = 20\n", "steps = 20 ")]),
        expect![[r#"
            error: invalid TOML: two settings on one line
              --> r.toml:18:9
               |
            18 | steps = 20 sequence_length = 32
               |         ^^^^^^^^^^^^^^^^^^ not a value
               |
               = help: write each on a line of its own
        "#]],
    );
}

#[test]
fn a_key_twice() {
    check(
        &edited(&[("local_batch = 2", "local_batch = 2\nsteps = 30")]),
        expect![[r#"
        error: invalid TOML: the key `steps` is there twice
          --> r.toml:21:1
           |
        18 | steps = 20
           | ----- first here
        ...
        21 | steps = 30
           | ^^^^^ again
           |
           = help: keep one of the two
    "#]],
    );
}

#[test]
fn a_table_twice() {
    check(
        &edited(&[("[data]", "[training]\nseed = 1\n\n[data]")]),
        expect![[r#"
        error: invalid TOML: the table [training] is there twice
          --> r.toml:26:2
           |
        17 | [training]
           | ---------- first here
        ...
        26 | [training]
           |  ^^^^^^^^ again
           |
           = help: keep all of its keys in one place
    "#]],
    );
}

#[test]
fn a_value_and_a_table_of_one_name() {
    check(
        &edited(&[("[data]", "[training.steps]\nmost = 1\n\n[data]")]),
        expect![[r#"
            error: invalid TOML: the table [training.steps] is there twice
              --> r.toml:26:11
               |
            26 | [training.steps]
               |           ^^^^^ again
               |
               = help: keep all of its keys in one place
        "#]],
    );
}

#[test]
fn yaml() {
    let yaml = "model:\n  family: llama3\n  size: tiny\ntraining:\n  steps: 10\n  seed: 0\n";
    check(
        yaml,
        expect![[r#"
            error: invalid TOML: a key without `=`
             --> r.toml:1:6
              |
            1 | model:
              |      ^ expected `=`
              |
              = help: a recipe is TOML, not YAML: write key = value

            error: invalid TOML: a key without `=`
             --> r.toml:2:11
              |
            2 |   family: llama3
              |           ^ expected `=`

            error: invalid TOML: a key without `=`
             --> r.toml:3:9
              |
            3 |   size: tiny
              |         ^ expected `=`

            error: invalid TOML: a key without `=`
             --> r.toml:4:10
              |
            4 | training:
              |          ^ expected `=`

            error: invalid TOML: a key without `=`
             --> r.toml:5:10
              |
            5 |   steps: 10
              |          ^ expected `=`

            note: 1 more problem, shown when these are solved
        "#]],
    );
}

#[test]
fn json() {
    check(
        "{\"version\": 1, \"model\": {\"family\": \"llama3\"}}\n",
        expect![[r#"
        error: invalid TOML: this looks like JSON
         --> r.toml:1:1
          |
        1 | {"version": 1, "model": {"family": "llama3"}}
          | ^
          |
          = help: a recipe is TOML: write key = value
    "#]],
    );
}

#[test]
fn prose() {
    check(
        "To be, or not to be,\nthat is the question\n",
        expect![[r#"
            error: invalid TOML: a key without `=`
             --> r.toml:1:4
              |
            1 | To be, or not to be,
              |    ^ expected `=`

            error: invalid TOML: a key without `=`
             --> r.toml:2:6
              |
            2 | that is the question
              |      ^ expected `=`
        "#]],
    );
}

#[test]
fn several_errors_and_a_bad_override() {
    let text = edited(&[("steps = 20", "steps = "), ("devices = 2", "devices = two")]);
    crate::support::check_set(
        &text,
        &["training"],
        expect![[r#"
            error: invalid TOML: a string needs quotes
              --> r.toml:15:11
               |
            15 | devices = two
               |           ^^^ not a value
               |
               = help: write "two"

            error: invalid TOML: a value is missing
              --> r.toml:18:9
               |
            18 | steps =
               |         ^ nothing after the `=`

            error: `--set` needs KEY=VALUE
             --> --set #1:1:1
              |
            1 | training
              | ^^^^^^^^ no `=` here
              |
              = help: for example: --set training.steps=100
        "#]],
    );
}

#[test]
fn many_errors_are_counted() {
    check(
        &"oops\n".repeat(1000),
        expect![[r#"
            error: invalid TOML: a key without `=`
             --> r.toml:1:5
              |
            1 | oops
              |     ^ expected `=`

            error: invalid TOML: a key without `=`
             --> r.toml:2:5
              |
            2 | oops
              |     ^ expected `=`

            error: invalid TOML: a key without `=`
             --> r.toml:3:5
              |
            3 | oops
              |     ^ expected `=`

            error: invalid TOML: a key without `=`
             --> r.toml:4:5
              |
            4 | oops
              |     ^ expected `=`

            error: invalid TOML: a key without `=`
             --> r.toml:5:5
              |
            5 | oops
              |     ^ expected `=`

            note: 995 more problems, shown when these are solved
        "#]],
    );
}

#[test]
fn quotes_of_a_word_processor() {
    check(
        &edited(&[("\"llama3\"", "\u{201c}llama3\u{201d}")]),
        expect![[r#"
            error: invalid TOML: a string needs quotes
             --> r.toml:5:10
              |
            5 | family = “llama3”
              |          ^^^^^^^^ not a value
              |
              = help: write "llama3"
        "#]],
    );
}

#[test]
fn control_characters() {
    check(
        "# a \u{1b}[31mred\u{1b}[0m comment\n",
        expect![[r#"
        error: invalid TOML: invalid comment character
         --> r.toml:1:5
          |
        1 | # a ␛[31mred␛[0m comment
          |     ^ expected printable characters
    "#]],
    );
    check(
        "a\0b = 1\n",
        expect![[r#"
            error: invalid TOML: not a key
             --> r.toml:1:2
              |
            1 | a␀b = 1
              |  ^ a key has letters, digits, `-`, `_`, or quotes around it
        "#]],
    );
}

#[test]
fn nested_beyond_all_reason() {
    check(
        &format!("x = {}\n", "[".repeat(100)),
        expect![[r#"
        error: invalid TOML: nested too deeply
         --> r.toml:1:85
          |
        1 | x = [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[
          |                                                                                     ^
    "#]],
    );
    check(
        &format!("x{} = 1\n", ".x".repeat(100)),
        expect![[r#"
        error: invalid TOML: nested too deeply
         --> r.toml:1:1
          |
        1 | x.x.x.x.x.x.x.x.x.x.x.x.x.x.x.x.x.x.x.x.x.x.x.x.x.x.x.x.x.x.x.x.x.x.x.x.x.x.x.x.x.x.x.x.x.x.x.x.x.x.x.x.x.x.x.x.x.x.x.x.x.x.x.x.x.x.x...
          | ^
    "#]],
    );
}
