//! Sizes, dimensions and weights of a family, and keys of another one.

use expect_test::expect;

use crate::bases::{EXPERTS, IMAGES, add, clean, edit, told};
use crate::support::{SOUND, with};

fn model(base: &str, lines: &str) -> String {
    add(base, "model", lines)
}

#[test]
fn keys_of_another_family() {
    told(
        &with("model", "num_experts = 8\nrope_axes = [2, 2, 2]"),
        expect![[r#"
            error: `model.num_experts` is for the family qwen3-moe
             --> r.toml:5:1
              |
            5 | num_experts = 8
              | ^^^^^^^^^^^ not a setting of this model
            6 | rope_axes = [2, 2, 2]
            7 | family = "llama3"
              |          -------- the family
              |
              = help: remove it

            error: `model.rope_axes` is for the family flux
             --> r.toml:6:1
              |
            6 | rope_axes = [2, 2, 2]
              | ^^^^^^^^^ not a setting of this model
            7 | family = "llama3"
              |          -------- the family
              |
              = help: remove it
        "#]],
    );
    told(
        &model(EXPERTS, "intermediate_size = 512\nrope_scaling = \"llama3\""),
        expect![[r#"
            error: `model.intermediate_size` is for dense models; an expert has expert_intermediate_size
             --> r.toml:5:1
              |
            5 | intermediate_size = 512
              | ^^^^^^^^^^^^^^^^^ not a setting of this model
            6 | rope_scaling = "llama3"
            7 | family = "qwen3-moe"
              |          ----------- the family
              |
              = help: remove it

            error: `model.rope_scaling` is for the family llama3
             --> r.toml:6:1
              |
            6 | rope_scaling = "llama3"
              | ^^^^^^^^^^^^ not a setting of this model
            7 | family = "qwen3-moe"
              |          ----------- the family
              |
              = help: remove it
        "#]],
    );
    told(
        &model(IMAGES, "vocab_size = 256\nnum_layers = 2\nnum_experts = 2"),
        expect![[r#"
            error: `model.vocab_size` is for language models
             --> r.toml:5:1
              |
            5 | vocab_size = 256
              | ^^^^^^^^^^ not a setting of this model
            ...
            8 | family = "flux"
              |          ------ the family
              |
              = help: remove it

            error: `model.num_layers` is for language models
             --> r.toml:6:1
              |
            6 | num_layers = 2
              | ^^^^^^^^^^ not a setting of this model
            7 | num_experts = 2
            8 | family = "flux"
              |          ------ the family
              |
              = help: remove it

            error: `model.num_experts` is for the family qwen3-moe
             --> r.toml:7:1
              |
            7 | num_experts = 2
              | ^^^^^^^^^^^ not a setting of this model
            8 | family = "flux"
              |          ------ the family
              |
              = help: remove it
        "#]],
    );
}

#[test]
fn the_table_of_images_with_a_language_model() {
    told(
        &with("flux", "image_size = 64"),
        expect![[r#"
            error: the table [flux] means nothing for llama3
              --> r.toml:29:2
               |
             5 | family = "llama3"
               |          -------- the family
            ...
            29 | [flux]
               |  ^^^^ for the family flux only
               |
               = help: remove the table, or choose family = "flux"
        "#]],
    );
    told(
        &with("flux", ""),
        expect![[r#"
            error: the table [flux] means nothing for llama3
              --> r.toml:29:2
               |
             5 | family = "llama3"
               |          -------- the family
            ...
            29 | [flux]
               |  ^^^^ for the family flux only
               |
               = help: remove the table, or choose family = "flux"
        "#]],
    );
}

#[test]
fn sizes_of_another_family() {
    let size = |family: &str, size: &str| {
        edit(EXPERTS, &[("qwen3-moe", family), ("\"tiny\"", &format!("\"{size}\""))])
    };
    told(
        &size("qwen3", "235b-a22b"),
        expect![[r#"
            error: `model.size` has no choice "235b-a22b"
             --> r.toml:6:8
              |
            6 | size = "235b-a22b"
              |        ^^^^^^^^^^^ not a size of qwen3
              |
              = help: allowed: "tiny", "0.6b", "1.7b", "4b", "8b", "14b", "32b"
                      "235b-a22b" is a size of qwen3-moe
        "#]],
    );
    told(
        &size("qwen3-moe", "8b"),
        expect![[r#"
            error: `model.size` has no choice "8b"
             --> r.toml:6:8
              |
            6 | size = "8b"
              |        ^^^^ not a size of qwen3-moe
              |
              = help: allowed: "tiny", "30b-a3b", "235b-a22b"
                      "8b" is a size of llama3 and qwen3
        "#]],
    );
    told(
        &size("flux", "pro"),
        expect![[r#"
            error: `model.size` has no choice "pro"
             --> r.toml:6:8
              |
            6 | size = "pro"
              |        ^^^^^ not a size of flux
              |
              = help: allowed: "tiny", "dev", "schnell"
        "#]],
    );
    told(
        &size("llama4", "8b"),
        expect![[r#"
        error: `model.family` has no choice "llama4"
         --> r.toml:5:10
          |
        5 | family = "llama4"
          |          ^^^^^^^^ unknown choice
          |
          = help: did you mean "llama3"? allowed: "llama3", "qwen3", "qwen3-moe", "flux"
    "#]],
    );
    clean(&size("qwen3", "8b"));
}

#[test]
fn a_model_of_another_family_without_its_dimensions() {
    told(
        &edit(EXPERTS, &[("size = \"tiny\"", "num_experts = 8")]),
        expect![[r#"
        error: [model] has no `vocab_size` and no `hidden_size` and no `experts_per_token` and no `expert_intermediate_size` and no `num_layers` and no `num_heads` and no `num_kv_heads`
         --> r.toml:4:2
          |
        4 | [model]
          |  ^^^^^ incomplete
          |
          = help: add to [model], for example:
                  vocab_size = 256
                  hidden_size = 256
                  experts_per_token = 2
                  expert_intermediate_size = 256
                  num_layers = 2
                  num_heads = 8
                  num_kv_heads = 2
    "#]],
    );
    told(
        &edit(EXPERTS, &[("size = \"tiny\"\n", "")]),
        expect![[r#"
        error: [model] has no `size`
         --> r.toml:4:2
          |
        4 | [model]
          |  ^^^^^ incomplete
          |
          = help: add to [model], for example: size = "tiny"
    "#]],
    );
    told(
        &edit(IMAGES, &[("size = \"tiny\"", "hidden_size = 128")]),
        expect![[r#"
        error: [model] has no `num_heads` and no `num_double_layers` and no `num_single_layers` and no `intermediate_size` and no `in_channels` and no `text_size` and no `pooled_size`
         --> r.toml:4:2
          |
        4 | [model]
          |  ^^^^^ incomplete
          |
          = help: add to [model], for example:
                  num_heads = 4
                  num_double_layers = 2
                  num_single_layers = 4
                  intermediate_size = 512
                  in_channels = 48
                  text_size = 32
                  pooled_size = 24
    "#]],
    );
}

#[test]
fn weights_from_a_folder() {
    told(
        &with("model", "init = \"weights/qwen\""),
        expect![[r#"
            error: cannot read config.json of the model folder `weights/qwen`: no such file
             --> r.toml:5:8
              |
            5 | init = "weights/qwen"
              |        ^^^^^^^^^^^^^^ no such file
              |
              = help: relative paths here start from /recipes
        "#]],
    );
    told(
        &add(EXPERTS, "model", "init = \"weights/qwen\""),
        expect![[r#"
            warning: cannot read config.json of the model folder `weights/qwen` on this machine: no such file
             --> r.toml:5:8
              |
            5 | init = "weights/qwen"
              |        ^^^^^^^^^^^^^^ no such file
              |
              = help: relative paths here start from /recipes
        "#]],
    );
    told(
        &with("model", "init = \"hf://Qwen/Qwen3-8B\"\ninit_std = 0"),
        expect![[r#"
        error: a model folder cannot be at hf://
         --> r.toml:5:8
          |
        5 | init = "hf://Qwen/Qwen3-8B"
          |        ^^^^^^^^^^^^^^^^^^^^ unknown scheme
          |
          = help: allowed: a local path, gs:// or s3://

        error: `model.init_std` must be greater than 0, found 0
         --> r.toml:6:12
          |
        6 | init_std = 0
          |            ^ must be greater than 0
    "#]],
    );
    clean(&add(SOUND, "model", "init = \"gs://bucket/weights\""));
}
