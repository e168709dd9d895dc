//! How language models are trained: experts in balance, their capacity, attention, documents; and what the engine of
//! this version takes.

use expect_test::expect;

use crate::bases::{EXPERTS, IMAGES, add, clean, edit, mended, told};
use crate::support::{sound, with};

/// Experts on devices of this machine.
fn local_experts() -> String {
    edit(EXPERTS, &[("\"v5e\"\ntopology = \"4x4\"", "\"cpu\"\ndevices = 4")])
}

#[test]
fn every_axis_muon_and_compiled_steps_are_trained() {
    for lines in ["expert = 4", "tensor = 2", "context = 2", "expert = 2\ntensor = 2\ncontext = 2"]
    {
        let loaded = sound(&add(&local_experts(), "parallelism", lines), &[]);
        assert_eq!(loaded.layout.world, 4, "{lines}");
    }
    sound(&with("optimizer", "name = \"muon\""), &[]);
    sound(&with("compile", "enabled = true"), &[]);
}

#[test]
fn experts_are_balanced_by_a_loss_unless_the_recipe_says_otherwise() {
    let balancing = |lines: &str| {
        let loaded = clean(&add(EXPERTS, "model", lines));
        let experts = loaded.recipe.model.decoder().unwrap().experts().unwrap().clone();
        let coefficient = experts.load_balancing_coefficient.map(|item| item.value);
        (experts.load_balancing.to_string(), coefficient)
    };
    assert_eq!(balancing(""), ("auxiliary-loss".to_owned(), Some(1e-3)));
    assert_eq!(balancing("load_balancing = \"bias\""), ("bias".to_owned(), Some(1e-3)));
    assert_eq!(balancing("load_balancing = \"none\""), ("none".to_owned(), None));
    let bias = "load_balancing = \"bias\"\nload_balancing_coefficient = 0.01";
    assert_eq!(balancing(bias), ("bias".to_owned(), Some(0.01)));
}

#[test]
fn a_word_that_balances_nothing() {
    told(
        &add(EXPERTS, "model", "load_balancing = \"aux_loss\""),
        expect![[r#"
        error: `model.load_balancing` has no choice "aux_loss"
         --> r.toml:5:18
          |
        5 | load_balancing = "aux_loss"
          |                  ^^^^^^^^^^ unknown choice
          |
          = help: did you mean "auxiliary-loss"? allowed: "none", "auxiliary-loss", "bias"
    "#]],
    );
}

#[test]
fn a_coefficient_of_nought() {
    let text = add(EXPERTS, "model", "load_balancing_coefficient = 0");
    told(
        &text,
        expect![[r#"
        error: `model.load_balancing_coefficient` must be greater than 0, found 0
         --> r.toml:5:30
          |
        5 | load_balancing_coefficient = 0
          |                              ^ must be greater than 0
    "#]],
    );
    mended(&text, &["model.load_balancing_coefficient=1e-2"]);
}

#[test]
fn a_coefficient_without_anything_that_has_one() {
    let lines = "load_balancing = \"none\"\nload_balancing_coefficient = 0.001";
    let text = add(EXPERTS, "model", lines);
    told(
        &text,
        expect![[r#"
        warning: `model.load_balancing_coefficient` has no effect: it is for load_balancing = "auxiliary-loss" or "bias"
         --> r.toml:6:30
          |
        6 | load_balancing_coefficient = 0.001
          |                              ^^^^^ not used
    "#]],
    );
    mended(&text, &["model.load_balancing=bias", "model.load_balancing=auxiliary-loss"]);
}

#[test]
fn balance_without_experts() {
    let lines = "load_balancing = \"bias\"\nload_balancing_coefficient = 0.001";
    told(
        &with("model", lines),
        expect![[r#"
        error: `model.load_balancing` is for the family qwen3-moe
         --> r.toml:5:1
          |
        5 | load_balancing = "bias"
          | ^^^^^^^^^^^^^^ not a setting of this model
        6 | load_balancing_coefficient = 0.001
        7 | family = "llama3"
          |          -------- the family
          |
          = help: remove it

        error: `model.load_balancing_coefficient` is for the family qwen3-moe
         --> r.toml:6:1
          |
        6 | load_balancing_coefficient = 0.001
          | ^^^^^^^^^^^^^^^^^^^^^^^^^^ not a setting of this model
        7 | family = "llama3"
          |          -------- the family
          |
          = help: remove it
    "#]],
    );
}

#[test]
fn a_capacity_is_dropless_or_a_number() {
    let capacity = |lines: &str| {
        let text = add(EXPERTS, "parallelism", &format!("expert = 4\n{lines}"));
        *clean(&text).recipe.parallelism.expert_capacity_factor
    };
    assert_eq!(capacity(""), None);
    assert_eq!(capacity("expert_capacity_factor = \"dropless\""), None);
    assert_eq!(capacity("expert_capacity_factor = 1"), Some(1.0));
    assert_eq!(capacity("expert_capacity_factor = 64.0"), Some(64.0));
}

#[test]
fn a_capacity_below_an_even_share() {
    let lines = "expert = 4\nexpert_capacity_factor = 0.5";
    let text = add(EXPERTS, "parallelism", lines);
    told(
        &text,
        expect![[r#"
        error: `parallelism.expert_capacity_factor` must be at least 1, found 0.5
          --> r.toml:25:26
           |
        25 | expert_capacity_factor = 0.5
           |                          ^^^ must be at least 1
           |
           = help: to leave no token out, write expert_capacity_factor = "dropless"
    "#]],
    );
    mended(&text, &["parallelism.expert_capacity_factor=dropless"]);
    let lines = "expert = 4\nexpert_capacity_factor = \"none\"";
    told(
        &add(EXPERTS, "parallelism", lines),
        expect![[r#"
        error: `parallelism.expert_capacity_factor` must be a number, found a string
          --> r.toml:25:26
           |
        25 | expert_capacity_factor = "none"
           |                          ^^^^^^ must be a number
           |
           = help: to leave no token out, write expert_capacity_factor = "dropless"
    "#]],
    );
}

#[test]
fn a_capacity_of_experts_that_are_not_spread() {
    let text = add(EXPERTS, "parallelism", "expert_capacity_factor = 2.0");
    told(
        &text,
        expect![[r#"
        warning: `parallelism.expert_capacity_factor` has no effect with expert = 1
          --> r.toml:24:26
           |
        24 | expert_capacity_factor = 2.0
           |                          ^^^ not used
    "#]],
    );
    mended(&text, &["parallelism.expert=4", "parallelism.expert_capacity_factor=dropless"]);
    // One mistake is one message.
    let text = add(EXPERTS, "parallelism", "expert_capacity_factor = 2.0\nexpert = \"all\"");
    told(
        &text,
        expect![[r#"
        error: `parallelism.expert` must be an integer, found a string
          --> r.toml:25:10
           |
        25 | expert = "all"
           |          ^^^^^ must be an integer
           |
           = help: allowed: 1 to 1048576
    "#]],
    );
}

#[test]
fn a_negative_weight_of_the_denominator() {
    let text = with("training", "z_loss = -1e-4");
    told(
        &text,
        expect![[r#"
        error: `training.z_loss` must be 0 or greater, found -1e-4
          --> r.toml:18:10
           |
        18 | z_loss = -1e-4
           |          ^^^^^ must be 0 or greater
    "#]],
    );
    mended(&text, &["training.z_loss=1e-4", "training.z_loss=0"]);
}

#[test]
fn attention_as_another_trainer_calls_it() {
    told(
        &with("training", "attention = \"sdpa\""),
        expect![[r#"
        error: `training.attention` has no choice "sdpa"
          --> r.toml:18:13
           |
        18 | attention = "sdpa"
           |             ^^^^^^ unknown choice
           |
           = help: did you mean "fused"? allowed: "fused", "plain"
    "#]],
    );
    told(
        &with("training", "attention = \"flex\""),
        expect![[r#"
        error: `training.attention` has no choice "flex"
          --> r.toml:18:13
           |
        18 | attention = "flex"
           |             ^^^^^^ unknown choice
           |
           = help: allowed: "fused", "plain"
    "#]],
    );
}

#[test]
fn settings_of_text_with_a_model_of_images() {
    let text = add(IMAGES, "training", "z_loss = 1e-4\ndocument_mask = false");
    told(
        &add(&text, "data", "document_end = 0"),
        expect![[r#"
        error: `training.z_loss` is for language models
          --> r.toml:16:1
           |
         5 | family = "flux"
           |          ------ the family
        ...
        16 | z_loss = 1e-4
           | ^^^^^^ not a setting of this model
           |
           = help: remove it

        error: `training.document_mask` is for language models
          --> r.toml:17:1
           |
         5 | family = "flux"
           |          ------ the family
        ...
        17 | document_mask = false
           | ^^^^^^^^^^^^^ not a setting of this model
           |
           = help: remove it

        error: `data.document_end` is for language models
          --> r.toml:25:1
           |
         5 | family = "flux"
           |          ------ the family
        ...
        25 | document_end = 0
           | ^^^^^^^^^^^^ not a setting of this model
           |
           = help: remove it
    "#]],
    );
    // Images are attended to as well.
    clean(&add(IMAGES, "training", "attention = \"plain\""));
}

#[test]
fn names_of_other_trainers() {
    let text = add(EXPERTS, "model", "router_aux_loss_coef = 0.001");
    let text = add(&text, "parallelism", "expert = 4\ncapacity_factor = 2.0");
    told(
        &add(&text, "data", "eos_token_id = 0"),
        expect![[r#"
        error: unknown key `router_aux_loss_coef` in [model]
         --> r.toml:5:1
          |
        5 | router_aux_loss_coef = 0.001
          | ^^^^^^^^^^^^^^^^^^^^ unknown
          |
          = help: did you mean `load_balancing_coefficient`?

        error: unknown key `eos_token_id` in [data]
          --> r.toml:22:1
           |
        22 | eos_token_id = 0
           | ^^^^^^^^^^^^ unknown
           |
           = help: did you mean `document_end`?

        error: unknown key `capacity_factor` in [parallelism]
          --> r.toml:27:1
           |
        27 | capacity_factor = 2.0
           | ^^^^^^^^^^^^^^^ unknown
           |
           = help: did you mean `expert_capacity_factor`?
    "#]],
    );
}
