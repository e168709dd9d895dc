//! Rules about slices, the mesh and what its axes divide.

use expect_test::expect;

use crate::bases::{EXPERTS, IMAGES, add, clean, edit, mended, told};
use crate::support::{SOUND, edited};

#[test]
fn the_bases_are_sound() {
    let experts = clean(EXPERTS).layout;
    assert_eq!((experts.world, experts.shard, experts.global_batch), (16, 16, 32));
    let images = clean(IMAGES).layout;
    assert_eq!((images.world, images.sequence_length), (4, 24));
}

#[test]
fn one_axis_that_does_not_divide_the_world() {
    let text = add(EXPERTS, "parallelism", "tensor = 3");
    told(
        &text,
        expect![[r#"
            error: cannot work out the shard degree: world 16 is not a multiple of tensor 3
              --> r.toml:24:10
               |
            10 | topology = "4x4"
               |            ----- the world
            ...
            24 | tensor = 3
               |          ^ must divide the world of 16 devices
               |
               = help: nearest values of tensor: 1, 2
        "#]],
    );
    mended(&text, &["parallelism.tensor=2"]);
}

#[test]
fn axes_whose_product_does_not_divide_the_world() {
    let text = add(EXPERTS, "parallelism", "replicate = 3\ntensor = 2\ncontext = 4");
    told(
        &text,
        expect![[r#"
            error: cannot work out the shard degree: world 16 is not a multiple of replicate 3 x context 4 x tensor 2 = 24
              --> r.toml:24:13
               |
            10 | topology = "4x4"
               |            ----- the world
            ...
            24 | replicate = 3
               |             ^ must divide the world of 16 devices
               |
               = help: nearest values of replicate: 1, 2
        "#]],
    );
    mended(&text, &["parallelism.replicate=1", "parallelism.replicate=2"]);
    let text = add(EXPERTS, "parallelism", "tensor = 32");
    told(
        &text,
        expect![[r#"
            error: cannot work out the shard degree: world 16 is not a multiple of tensor 32
              --> r.toml:24:10
               |
            10 | topology = "4x4"
               |            ----- the world
            ...
            24 | tensor = 32
               |          ^^ must divide the world of 16 devices
               |
               = help: nearest values of tensor: 1, 2
        "#]],
    );
}

#[test]
fn numbers_for_all_axes_that_do_not_multiply_to_the_world() {
    let text = add(EXPERTS, "parallelism", "shard = 8\ntensor = 2\ncontext = 2");
    told(
        &text,
        expect![[r#"
        error: context 2 x tensor 2 x shard 8 = 32 is not the world of 16 devices
          --> r.toml:24:9
           |
        10 | topology = "4x4"
           |            ----- the world
        ...
        24 | shard = 8
           |         ^ the axes must multiply to the number of devices
           |
           = help: write shard = 4 or shard = "auto"
    "#]],
    );
    mended(&text, &["parallelism.shard=4", "parallelism.shard=auto"]);
    let text = add(EXPERTS, "parallelism", "shard = 8\ntensor = 3\ncontext = 2");
    told(
        &text,
        expect![[r#"
        error: context 2 x tensor 3 x shard 8 = 48 is not the world of 16 devices
          --> r.toml:24:9
           |
        10 | topology = "4x4"
           |            ----- the world
        ...
        24 | shard = 8
           |         ^ the axes must multiply to the number of devices
           |
           = help: write shard = "auto" and smaller degrees of the other axes
    "#]],
    );
}

#[test]
fn a_mesh_of_the_recipe_on_devices_of_the_recipe() {
    let text = add(&edited(&[("global_batch = 4\n", "")]), "parallelism", "tensor = 2\nshard = 2");
    told(
        &text,
        expect![[r#"
        error: tensor 2 x shard 2 = 4 is not the world of 2 devices
          --> r.toml:30:9
           |
        15 | devices = 2
           |           - the world
        ...
        30 | shard = 2
           |         ^ the axes must multiply to the number of devices
           |
           = help: write shard = 1 or shard = "auto"; or set devices = 4 in [hardware]
    "#]],
    );
    mended(&text, &["parallelism.shard=1", "parallelism.shard=auto", "hardware.devices=4"]);
}

#[test]
fn experts_are_spread_over_the_ranks_of_one_copy() {
    let text = add(EXPERTS, "parallelism", "replicate = 4\nexpert = 8");
    told(
        &text,
        expect![[r#"
        error: `parallelism.expert` = 8 does not divide the shard degree 4
          --> r.toml:25:10
           |
        25 | expert = 8
           |          ^ experts are spread over the ranks of one copy of the model
           |
           = help: nearest values of expert: 1, 2, 4
    "#]],
    );
    mended(&text, &["parallelism.expert=1", "parallelism.expert=2", "parallelism.expert=4"]);
    let text = add(EXPERTS, "parallelism", "replicate = 8\ntensor = 2\nexpert = 4");
    told(
        &text,
        expect![[r#"
        error: `parallelism.expert` = 4 does not divide shard 1 x context 1 x tensor 2 = 2
          --> r.toml:26:10
           |
        26 | expert = 4
           |          ^ experts are spread over the ranks of one copy of the model
           |
           = help: nearest values of expert: 1, 2
    "#]],
    );
    mended(&text, &["parallelism.expert=1", "parallelism.expert=2"]);
}

#[test]
fn experts_are_spread_evenly() {
    let text = add(EXPERTS, "parallelism", "expert = 3");
    told(
        &text,
        expect![[r#"
            error: `parallelism.expert` = 3 does not divide `model.num_experts` = 8 (of size "tiny")
              --> r.toml:24:10
               |
            24 | expert = 3
               |          ^ each rank holds the same number of experts
               |
               = help: nearest values of expert: 1, 2, 4
        "#]],
    );
    mended(&text, &["parallelism.expert=2", "parallelism.expert=4", "parallelism.expert=1"]);
    let text = add(
        &edit(EXPERTS, &[("\"tiny\"", "\"tiny\"\nnum_experts = 6")]),
        "parallelism",
        "expert = 4",
    );
    told(
        &text,
        expect![[r#"
        error: `parallelism.expert` = 4 does not divide `model.num_experts` = 6
          --> r.toml:25:10
           |
         7 | num_experts = 6
           |               - the experts
        ...
        25 | expert = 4
           |          ^ each rank holds the same number of experts
           |
           = help: nearest values of expert: 1, 2
    "#]],
    );
    mended(&text, &["parallelism.expert=1", "parallelism.expert=2"]);
}

#[test]
fn a_dense_model_has_no_experts_to_spread() {
    let text = add(SOUND, "parallelism", "expert = 2");
    told(
        &text,
        expect![[r#"
        error: `parallelism.expert` = 2 with family "llama3", which has no experts
          --> r.toml:30:10
           |
         5 | family = "llama3"
           |          -------- a dense model
        ...
        30 | expert = 2
           |          ^ nothing to spread
           |
           = help: leave expert out, or choose family = "qwen3-moe"
    "#]],
    );
    mended(&text, &["parallelism.expert=1"]);
    told(
        &add(IMAGES, "parallelism", "expert = 2"),
        expect![[r#"
            error: `parallelism.expert` = 2 with family "flux", which has no experts
              --> r.toml:26:10
               |
             5 | family = "flux"
               |          ------ a model of images
            ...
            26 | expert = 2
               |          ^ nothing to spread
               |
               = help: leave expert out
        "#]],
    );
}

#[test]
fn tensor_divides_heads() {
    let text = edited(&[("devices = 2", "devices = 8"), ("global_batch = 4\n", "")]);
    let text = add(&text, "parallelism", "tensor = 8");
    told(
        &text,
        expect![[r#"
        error: `parallelism.tensor` = 8 does not divide `model.num_heads` = 4
          --> r.toml:29:10
           |
        10 | num_heads = 4
           |             - this many
        ...
        29 | tensor = 8
           |          ^ each rank computes the same number of heads
           |
           = help: nearest values of tensor: 1, 2
    "#]],
    );
    mended(&text, &["parallelism.tensor=1", "parallelism.tensor=2"]);
}

#[test]
fn tensor_divides_kv_heads() {
    let text = edited(&[("devices = 2", "devices = 8"), ("global_batch = 4\n", "")]);
    let text = add(&text, "parallelism", "tensor = 4");
    told(
        &text,
        expect![[r#"
        error: `parallelism.tensor` = 4 does not divide `model.num_kv_heads` = 2
          --> r.toml:29:10
           |
        11 | num_kv_heads = 2
           |                - this many
        ...
        29 | tensor = 4
           |          ^ each rank computes the same number of key/value heads
           |
           = help: nearest values of tensor: 1, 2
    "#]],
    );
    mended(&text, &["parallelism.tensor=1", "parallelism.tensor=2"]);
}

#[test]
fn tensor_divides_the_feed_forward() {
    let text = edited(&[("intermediate_size = 128", "intermediate_size = 127")]);
    let text = add(&text, "parallelism", "tensor = 2");
    told(
        &text,
        expect![[r#"
        error: `parallelism.tensor` = 2 does not divide `model.intermediate_size` = 127
          --> r.toml:30:10
           |
         8 | intermediate_size = 127
           |                     --- this many
        ...
        30 | tensor = 2
           |          ^ each rank holds an equal part of it
           |
           = help: write tensor = 1
    "#]],
    );
    mended(&text, &["parallelism.tensor=1"]);
    let text = edit(IMAGES, &[("\"tiny\"", "\"tiny\"\nintermediate_size = 511")]);
    told(
        &add(&text, "parallelism", "tensor = 2"),
        expect![[r#"
        error: `parallelism.tensor` = 2 does not divide `model.intermediate_size` = 511
          --> r.toml:27:10
           |
         7 | intermediate_size = 511
           |                     --- this many
        ...
        27 | tensor = 2
           |          ^ each rank holds an equal part of it
           |
           = help: write tensor = 1
    "#]],
    );
}

#[test]
fn tensor_on_as_many_devices_as_the_mesh_needs() {
    let text = edited(&[("devices = 2\n", ""), ("global_batch = 4\n", "")]);
    told(
        &add(&text, "parallelism", "tensor = 4"),
        expect![[r#"
        error: `parallelism.tensor` = 4 does not divide `model.num_kv_heads` = 2
          --> r.toml:28:10
           |
        11 | num_kv_heads = 2
           |                - this many
        ...
        28 | tensor = 4
           |          ^ each rank computes the same number of key/value heads
           |
           = help: nearest values of tensor: 1, 2
    "#]],
    );
    told(
        &add(&text, "parallelism", "tensor = 3"),
        expect![[r#"
            error: `parallelism.tensor` = 3 does not divide `model.num_heads` = 4
              --> r.toml:28:10
               |
            10 | num_heads = 4
               |             - this many
            ...
            28 | tensor = 3
               |          ^ each rank computes the same number of heads
               |
               = help: nearest values of tensor: 1, 2
        "#]],
    );
    clean(&add(&text, "parallelism", "tensor = 2"));
}
