//! Words that their setting does not know.

use expect_test::expect;

use crate::support::{check, edited, with};

#[test]
fn other_kinds_for_a_choice() {
    check(
        &edited(&[("\"cpu\"", "1")]),
        expect![[r#"
            error: `hardware.accelerator` must be a string, found an integer
              --> r.toml:14:15
               |
            14 | accelerator = 1
               |               ^ must be a string
               |
               = help: allowed: "cpu", "tpu-emulated", "cuda", "v4", "v5e", "v5p", "v6e", "tpu7x"
        "#]],
    );
}

#[test]
fn an_unknown_choice() {
    check(
        &with("optimizer", "name = \"AdamW\""),
        expect![[r#"
            error: `optimizer.name` has no choice "AdamW"
              --> r.toml:24:8
               |
            24 | name = "AdamW"
               |        ^^^^^^^ unknown choice
               |
               = help: did you mean "adamw"? allowed: "adamw", "muon", "sgd"
        "#]],
    );
    check(
        &with("optimizer", "name = \"lion\""),
        expect![[r#"
            error: `optimizer.name` has no choice "lion"
              --> r.toml:24:8
               |
            24 | name = "lion"
               |        ^^^^^^ unknown choice
               |
               = help: allowed: "adamw", "muon", "sgd"
        "#]],
    );
    check(
        &with("precision", "compute = \"bf16\""),
        expect![[r#"
        error: `precision.compute` has no choice "bf16"
          --> r.toml:30:11
           |
        30 | compute = "bf16"
           |           ^^^^^^ unknown choice
           |
           = help: did you mean "bfloat16"? allowed: "float32", "bfloat16"
    "#]],
    );
}

#[test]
fn a_choice_of_a_later_version() {
    check(
        &edited(&[("\"cpu\"", "\"tpu7x\"")]),
        expect![[r#"
            error: [hardware] has no `topology`
              --> r.toml:13:2
               |
            13 | [hardware]
               |  ^^^^^^^^ incomplete
               |
               = help: add to [hardware], for example: topology = "2x2x4"

            error: this version cannot train with `hardware.accelerator` = "tpu7x"
              --> r.toml:14:15
               |
            14 | accelerator = "tpu7x"
               |               ^^^^^^^ not supported yet
               |
               = help: train on accelerator = "cpu"; `recipe check`, `plan` and `mfu` take it as it is
        "#]],
    );
    check(
        &edited(&[("\"cpu\"", "\"gpu\"")]),
        expect![[r#"
            error: `hardware.accelerator` has no choice "gpu"
              --> r.toml:14:15
               |
            14 | accelerator = "gpu"
               |               ^^^^^ unknown choice
               |
               = help: did you mean "cuda"? allowed: "cpu", "tpu-emulated", "cuda", "v4", "v5e", "v5p", "v6e", "tpu7x"
        "#]],
    );
}

#[test]
fn an_unknown_size() {
    check(
        &with("model", "size = \"teeny\""),
        expect![[r#"
            error: `model.size` has no choice "teeny"
             --> r.toml:5:8
              |
            5 | size = "teeny"
              |        ^^^^^^^ not a size of llama3
              |
              = help: allowed: "tiny", "8b", "70b", "405b"
        "#]],
    );
    check(
        &with("model", "size = 8"),
        expect![[r#"
        error: `model.size` must be a string, found an integer
         --> r.toml:5:8
          |
        5 | size = 8
          |        ^ must be a string
          |
          = help: put it in quotes: size = "8"
    "#]],
    );
}

#[test]
fn a_size_of_an_unknown_family_is_not_a_problem_of_its_own() {
    check(
        &edited(&[("\"llama3\"", "\"qwen3\"\nsize = \"0_6b\"")]),
        expect![[r#"
            error: `model.size` has no choice "0_6b"
             --> r.toml:6:8
              |
            6 | size = "0_6b"
              |        ^^^^^^ not a size of qwen3
              |
              = help: did you mean "0.6b"? allowed: "tiny", "0.6b", "1.7b", "4b", "8b", "14b", "32b"
        "#]],
    );
}
