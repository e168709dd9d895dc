//! Rules about experts, images and positions, and keys of another family.

use expect_test::expect;

use crate::bases::{EXPERTS, IMAGES, add, clean, edit, mended, told};
use crate::support::with;

fn model(base: &str, lines: &str) -> String {
    add(base, "model", lines)
}

#[test]
fn a_token_meets_at_most_all_experts() {
    let text = model(EXPERTS, "num_experts = 4\nexperts_per_token = 6");
    told(
        &text,
        expect![[r#"
        error: `model.experts_per_token` = 6 is more than `model.num_experts` = 4
         --> r.toml:6:21
          |
        5 | num_experts = 4
          |               - all experts
        6 | experts_per_token = 6
          |                     ^ a token is sent to different experts
          |
          = help: write experts_per_token = 4, or less
    "#]],
    );
    mended(&text, &["model.experts_per_token=4"]);
    // Only one of the two is written.
    let text = model(EXPERTS, "num_experts = 1");
    told(
        &text,
        expect![[r#"
            error: `model.experts_per_token` = 2 (of size "tiny") is more than `model.num_experts` = 1
             --> r.toml:5:15
              |
            5 | num_experts = 1
              |               ^ a token is sent to different experts
              |
              = help: write experts_per_token = 1, or less
        "#]],
    );
    mended(&text, &["model.experts_per_token=1"]);
    let text = model(EXPERTS, "experts_per_token = 9");
    told(
        &text,
        expect![[r#"
            error: `model.experts_per_token` = 9 is more than `model.num_experts` = 8 (of size "tiny")
             --> r.toml:5:21
              |
            5 | experts_per_token = 9
              |                     ^ a token is sent to different experts
              |
              = help: write experts_per_token = 8, or less
        "#]],
    );
    mended(&text, &["model.experts_per_token=8"]);
}

#[test]
fn weights_of_experts_can_be_counted() {
    let text = model(
        EXPERTS,
        "hidden_size = 1_048_576\nnum_layers = 4096\nnum_experts = 16_384\nexpert_intermediate_size = 4_194_304",
    );
    told(
        &text,
        expect![[r#"
            error: the experts have 885443715538058477568 weights, more than can be counted
             --> r.toml:7:15
              |
            7 | num_experts = 16_384
              |               ^^^^^^ experts x layers x hidden_size x expert_intermediate_size x 3
              |
              = help: the largest published models have 1e12 weights: check these dimensions
        "#]],
    );
}

#[test]
fn heads_of_an_image_model_divide_its_width() {
    let text = model(IMAGES, "num_heads = 3");
    told(
        &text,
        expect![[r#"
            error: `model.hidden_size` = 128 (of size "tiny") is not a multiple of `model.num_heads` = 3
             --> r.toml:5:13
              |
            5 | num_heads = 3
              |             ^ must divide hidden_size 128
              |
              = help: write num_heads = 4
        "#]],
    );
    mended(&text, &["model.num_heads=4"]);
    // No number of heads gives an odd width even heads.
    told(
        &model(IMAGES, "hidden_size = 127"),
        expect![[r#"
            error: `model.hidden_size` = 127 is not a multiple of `model.num_heads` = 4 (of size "tiny")
             --> r.toml:5:15
              |
            5 | hidden_size = 127
              |               ^^^ must divide hidden_size 127
        "#]],
    );
}

#[test]
fn axes_fill_the_head() {
    let text = model(IMAGES, "rope_axes = [16, 56, 56]");
    told(
        &text,
        expect![[r#"
        error: the `model.rope_axes` 16, 56, 56 add up to 128, not to the head dimension 32
         --> r.toml:5:13
          |
        5 | rope_axes = [16, 56, 56]
          |             ^^^^^^^^^^^^ index, row and column each turn an even part of every head
          |
          = help: for example: rope_axes = [4, 14, 14]
    "#]],
    );
    mended(&text, &["model.rope_axes=[4, 14, 14]"]);
    let text = model(IMAGES, "rope_axes = [7, 13, 12]");
    told(
        &text,
        expect![[r#"
        error: one of the `model.rope_axes` 7, 13, 12 is odd
         --> r.toml:5:13
          |
        5 | rope_axes = [7, 13, 12]
          |             ^^^^^^^^^^^ index, row and column each turn an even part of every head
          |
          = help: for example: rope_axes = [4, 14, 14]
    "#]],
    );
    mended(&text, &["model.rope_axes=[4, 14, 14]"]);
    // Only the width is written, or only the heads.
    let text = model(IMAGES, "hidden_size = 256");
    told(
        &text,
        expect![[r#"
        error: the `model.rope_axes` 8, 12, 12 add up to 32, not to the head dimension 64
         --> r.toml:5:15
          |
        5 | hidden_size = 256
          |               ^^^ index, row and column each turn an even part of every head
          |
          = help: for example: rope_axes = [8, 28, 28]
    "#]],
    );
    mended(&text, &["model.rope_axes=[8, 28, 28]"]);
    told(
        &model(IMAGES, "hidden_size = 129\nnum_heads = 3"),
        expect![[r#"
            error: the head dimension hidden_size / num_heads = 43 is odd
             --> r.toml:6:13
              |
            6 | num_heads = 3
              |             ^ index, row and column each turn an even part of every head
        "#]],
    );
}

#[test]
fn images_are_whole_tokens() {
    let text = edit(IMAGES, &[("image_size = 64", "image_size = 250")]);
    told(
        &text,
        expect![[r#"
        error: `flux.image_size` = 250 is not a multiple of 16 pixels
          --> r.toml:13:14
           |
        13 | image_size = 250
           |              ^^^ one token is a square of 16 x 16 pixels
           |
           = help: nearest values of image_size: 240, 256
    "#]],
    );
    mended(&text, &["flux.image_size=240", "flux.image_size=256"]);
    told(
        &edit(IMAGES, &[("image_size = 64", "image_size = 8")]),
        expect![[r#"
        error: `flux.image_size` must be at least 16, found 8
          --> r.toml:13:14
           |
        13 | image_size = 8
           |              ^ must be at least 16
           |
           = help: allowed: 16 to 16384
    "#]],
    );
}

#[test]
fn sequences_are_text_and_image() {
    let text = add(IMAGES, "training", "sequence_length = 32");
    told(
        &text,
        expect![[r#"
        error: `training.sequence_length` = 32 is not the 24 tokens of one sample
          --> r.toml:16:19
           |
        16 | sequence_length = 32
           |                   ^^ 16 of the image and 8 of the text
           |
           = help: leave sequence_length out: it follows from [flux]
    "#]],
    );
    mended(&text, &["training.sequence_length=24", "flux.text_length=16"]);
}

#[test]
fn frequency_factors_are_in_order() {
    let lines = "rope_scaling = \"llama3\"\nrope_low_frequency_factor = 4\nrope_high_frequency_factor = 4.0";
    let text = with("model", lines);
    told(
        &text,
        expect![[r#"
        error: `model.rope_high_frequency_factor` = 4 is not above the low one, 4
         --> r.toml:7:30
          |
        7 | rope_high_frequency_factor = 4.0
          |                              ^^^ frequencies between the two factors are blended
          |
          = help: Llama 3.1 has rope_low_frequency_factor = 1 and rope_high_frequency_factor = 4
    "#]],
    );
    mended(&text, &["model.rope_low_frequency_factor=1"]);
    told(
        &with("model", "rope_scaling = \"llama3\"\nrope_low_frequency_factor = 5"),
        expect![[r#"
        error: `model.rope_high_frequency_factor` = 4 is not above the low one, 5
         --> r.toml:6:29
          |
        6 | rope_low_frequency_factor = 5
          |                             ^ frequencies between the two factors are blended
          |
          = help: Llama 3.1 has rope_low_frequency_factor = 1 and rope_high_frequency_factor = 4
    "#]],
    );
}

#[test]
fn stretched_positions_have_constants_only_when_they_are_stretched() {
    told(
        &with("model", "rope_scaling_factor = 8\nrope_original_length = 8192"),
        expect![[r#"
        warning: `model.rope_scaling_factor` has no effect: it is for rope_scaling = "llama3"
         --> r.toml:5:23
          |
        5 | rope_scaling_factor = 8
          |                       ^ not used

        warning: `model.rope_original_length` has no effect: it is for rope_scaling = "llama3"
         --> r.toml:6:24
          |
        6 | rope_original_length = 8192
          |                        ^^^^ not used
    "#]],
    );
    told(
        &with("model", "rope_scaling = \"yarn\""),
        expect![[r#"
        error: `model.rope_scaling` has no choice "yarn"
         --> r.toml:5:16
          |
        5 | rope_scaling = "yarn"
          |                ^^^^^^ unknown choice
          |
          = help: allowed: "none", "llama3"
    "#]],
    );
    clean(&with("model", "rope_scaling = \"llama3\"\nrope_scaling_factor = 32"));
}
