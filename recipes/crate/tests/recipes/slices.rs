//! Rules about slices, and meshes on several of them.

use expect_test::expect;

use crate::bases::{EXPERTS, add, edit, mended, told};
use crate::support::edited;

#[test]
fn only_replicas_cross_slices() {
    let text = edit(EXPERTS, &[("\"4x4\"", "\"4x4\"\nslices = 2")]);
    told(
        &text,
        expect![[r#"
        error: replicate 1 does not spread over 2 slices
          --> r.toml:11:10
           |
        11 | slices = 2
           |          ^ every other axis stays inside a slice, so replicate must be a multiple of slices
           |
           = help: write replicate = "slices" in [parallelism]
    "#]],
    );
    mended(&text, &["parallelism.replicate=slices"]);
    let text = add(&text, "parallelism", "replicate = 3");
    told(
        &text,
        expect![[r#"
        error: replicate 3 does not spread over 2 slices
          --> r.toml:25:13
           |
        11 | slices = 2
           |          - the slices
        ...
        25 | replicate = 3
           |             ^ every other axis stays inside a slice, so replicate must be a multiple of slices
           |
           = help: write replicate = "slices" in [parallelism]
    "#]],
    );
    mended(&text, &["parallelism.replicate=slices"]);
}

#[test]
fn devices_are_those_of_the_topology() {
    let text = edit(EXPERTS, &[("\"4x4\"", "\"4x4\"\ndevices = 32")]);
    told(
        &text,
        expect![[r#"
        error: `hardware.devices` = 32 is not the 16 devices of 1 slice of 4x4
          --> r.toml:11:11
           |
        10 | topology = "4x4"
           |            ----- 16 chips
        11 | devices = 32
           |           ^^ v5e has 1 device a chip
           |
           = help: leave devices out, or write devices = 16
    "#]],
    );
    mended(&text, &["hardware.devices=16", "hardware.devices=auto"]);
    // A chip of v7x has two devices.
    let tpu7x = [("v5e", "tpu7x"), ("\"4x4\"", "\"2x2x2\"\nslices = 2\ndevices = 16")];
    let text = add(&edit(EXPERTS, &tpu7x), "parallelism", "replicate = \"slices\"");
    told(
        &text,
        expect![[r#"
            error: `hardware.devices` = 16 is not the 32 devices of 2 slices of 2x2x2
              --> r.toml:12:11
               |
            10 | topology = "2x2x2"
               |            ------- 8 chips
            11 | slices = 2
            12 | devices = 16
               |           ^^ tpu7x has 2 devices a chip
               |
               = help: leave devices out, or write devices = 32
        "#]],
    );
    mended(&text, &["hardware.devices=32"]);
}

#[test]
fn slices_divide_the_devices() {
    let text = edited(&[("devices = 2", "devices = 3\nslices = 2"), ("global_batch = 4\n", "")]);
    let text = add(&text, "parallelism", "replicate = \"slices\"");
    told(
        &text,
        expect![[r#"
        error: `hardware.devices` = 3 cannot be spread over 2 slices
          --> r.toml:15:11
           |
        15 | devices = 3
           |           ^ each slice has the same number of devices
        16 | slices = 2
           |          - the slices
           |
           = help: nearest values of devices: 2, 4
    "#]],
    );
    mended(&text, &["hardware.devices=2", "hardware.devices=4"]);
    // No suggestion is beyond the largest number of devices.
    let text = edit(&text, &[("devices = 3\nslices = 2", "devices = 1000\nslices = 600")]);
    told(
        &text,
        expect![[r#"
            error: `hardware.devices` = 1000 cannot be spread over 600 slices
              --> r.toml:15:11
               |
            15 | devices = 1000
               |           ^^^^ each slice has the same number of devices
            16 | slices = 600
               |          --- the slices
               |
               = help: write devices = 600
        "#]],
    );
}

#[test]
fn a_mesh_on_slices() {
    let text = edit(EXPERTS, &[("\"4x4\"", "\"4x4\"\nslices = 3")]);
    let text = add(&text, "parallelism", "replicate = \"slices\"\nshard = 8");
    told(
        &text,
        expect![[r#"
        error: replicate 3 x shard 8 = 24 is not the world of 48 devices
          --> r.toml:26:9
           |
        10 | topology = "4x4"
           |            ----- the world
        ...
        26 | shard = 8
           |         ^ the axes must multiply to the number of devices
           |
           = help: write shard = 16 or shard = "auto"
    "#]],
    );
    mended(&text, &["parallelism.shard=16", "parallelism.shard=auto"]);
    let text = edit(EXPERTS, &[("\"4x4\"", "\"4x4\"\nslices = 2")]);
    let text = add(&text, "parallelism", "replicate = 6");
    told(
        &text,
        expect![[r#"
        error: cannot work out the shard degree: world 32 is not a multiple of replicate 6
          --> r.toml:25:13
           |
        10 | topology = "4x4"
           |            ----- the world
        ...
        25 | replicate = 6
           |             ^ must divide the world of 32 devices
           |
           = help: nearest values of replicate: 2, 4, 8
    "#]],
    );
    mended(&text, &["parallelism.replicate=2", "parallelism.replicate=4"]);
}
