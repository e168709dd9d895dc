//! Rules between settings: one test per rule of `src/rules.rs`.

use expect_test::expect;

use crate::support::{check, check_set, edited, sound, with};

#[test]
fn heads_divide_hidden() {
    check(
        &edited(&[("num_heads = 4", "num_heads = 5")]),
        expect![[r#"
        error: `model.hidden_size` = 64 is not a multiple of `model.num_heads` = 5
          --> r.toml:10:13
           |
         7 | hidden_size = 64
           |               -- not a multiple
        ...
        10 | num_heads = 5
           |             ^ must divide hidden_size 64
           |
           = help: nearest values of num_heads: 2, 4, 8
    "#]],
    );
    // No number of heads gives an odd width even heads.
    check(
        &edited(&[("hidden_size = 64", "hidden_size = 63")]),
        expect![[r#"
            error: `model.hidden_size` = 63 is not a multiple of `model.num_heads` = 4
              --> r.toml:10:13
               |
             7 | hidden_size = 63
               |               -- not a multiple
            ...
            10 | num_heads = 4
               |             ^ must divide hidden_size 63
               |
               = help: nearest values of hidden_size: 56, 64; or add head_dim = 16, which frees the two from each other
        "#]],
    );
    sound(&edited(&[("hidden_size = 64", "hidden_size = 63\nhead_dim = 16")]), &[]);
}

#[test]
fn kv_heads_divide_heads() {
    check(
        &edited(&[("num_kv_heads = 2", "num_kv_heads = 3")]),
        expect![[r#"
        error: `model.num_heads` = 4 is not a multiple of `model.num_kv_heads` = 3
          --> r.toml:11:16
           |
        10 | num_heads = 4
           |             - the query heads
        11 | num_kv_heads = 3
           |                ^ query heads share key/value heads in equal groups
           |
           = help: nearest values of num_kv_heads: 1, 2, 4
    "#]],
    );
    // With a preset only the query heads are written.
    let dimensions = "vocab_size = 256\nhidden_size = 64\nintermediate_size = 128\nnum_layers = 2\nnum_heads = 4\nnum_kv_heads = 2";
    check(
        &edited(&[(dimensions, "size = \"tiny\"\nnum_heads = 3")]),
        expect![[r#"
            error: `model.hidden_size` = 256 (of size "tiny") is not a multiple of `model.num_heads` = 3
             --> r.toml:7:13
              |
            7 | num_heads = 3
              |             ^ must divide hidden_size 256
              |
              = help: nearest values of num_heads: 2, 4, 8
        "#]],
    );
}

#[test]
fn head_dim_is_usable() {
    check(
        &with("model", "head_dim = 33"),
        expect![[r#"
        error: `model.head_dim` = 33 is odd
         --> r.toml:5:12
          |
        5 | head_dim = 33
          |            ^^ rotary positions turn pairs of channels, so it must be even
          |
          = help: nearest values of head_dim: 32, 34
    "#]],
    );
    check(
        &edited(&[("hidden_size = 64", "hidden_size = 36")]),
        expect![[r#"
        error: the head dimension hidden_size 36 / num_heads 4 = 9 is odd
          --> r.toml:10:13
           |
        10 | num_heads = 4
           |             ^ rotary positions turn pairs of channels, so it must be even
           |
           = help: nearest values of num_heads: 2, 6, 18; or nearest values of head_dim: 8, 10
    "#]],
    );
    check(
        &edited(&[("hidden_size = 64", "hidden_size = 32768")]),
        expect![[r#"
        error: the head dimension hidden_size 32768 / num_heads 4 = 8192 is too large
          --> r.toml:10:13
           |
        10 | num_heads = 4
           |             ^ a head has at most 4096 channels
           |
           = help: nearest values of num_heads: 8, 16, 32
    "#]],
    );
}

#[test]
fn vocabulary_holds_the_tokenizer() {
    check(
        &edited(&[
            ("vocab_size = 256", "vocab_size = 255"),
            ("[data]", "[data]\ntokenizer = \"bytes\""),
        ]),
        expect![[r#"
            error: `model.vocab_size` = 255 is smaller than the 256 ids of the tokenizer "bytes"
              --> r.toml:6:14
               |
             6 | vocab_size = 255
               |              ^^^ must be at least 256
            ...
            27 | tokenizer = "bytes"
               |             ------- this tokenizer
               |
               = help: write vocab_size = 256, or a rounder number above it
        "#]],
    );
}

#[test]
fn axes_multiply_to_the_world_with_auto() {
    let text = edited(&[("devices = 2", "devices = 6"), ("global_batch = 4", "global_batch = 12")]);
    sound(&text, &[]);
    check_set(
        &text,
        &["parallelism.replicate=4"],
        expect![[r#"
        error: cannot work out the shard degree: world 6 is not a multiple of replicate 4
          --> --set #1:1:23
           |
         1 | parallelism.replicate=4
           |                       ^ must divide the world of 6 devices
           |
          ::: r.toml:15:11
           |
        15 | devices = 6
           |           - the world
           |
           = help: nearest values of replicate: 2, 3, 6; or set devices = 8 in [hardware]
    "#]],
    );
    // Without a number of devices there are as many as the mesh asks for.
    let loaded = sound(&text, &["hardware.devices=auto", "parallelism.replicate=2"]);
    assert_eq!((loaded.layout.world, loaded.layout.replicate, loaded.layout.shard), (2, 2, 1));
}

#[test]
fn axes_multiply_to_the_world_with_numbers() {
    check(
        &with("parallelism", "replicate = 2\nshard = 2"),
        expect![[r#"
        error: replicate 2 x shard 2 = 4 is not the world of 2 devices
          --> r.toml:31:9
           |
        15 | devices = 2
           |           - the world
        ...
        31 | shard = 2
           |         ^ the axes must multiply to the number of devices
           |
           = help: write shard = 1 or shard = "auto"; or set devices = 4 in [hardware]
    "#]],
    );
    check(
        &with("parallelism", "shard = 3"),
        expect![[r#"
        error: replicate 1 x shard 3 = 3 is not the world of 2 devices
          --> r.toml:30:9
           |
        15 | devices = 2
           |           - the world
        ...
        30 | shard = 3
           |         ^ the axes must multiply to the number of devices
           |
           = help: write shard = 2 or shard = "auto"; or set devices = 3 in [hardware]
    "#]],
    );
    check(
        &with("parallelism", "replicate = 1048576\nshard = 1048576"),
        expect![[r#"
        error: replicate 1048576 x shard 1048576 = 1099511627776 is not the world of 2 devices
          --> r.toml:31:9
           |
        15 | devices = 2
           |           - the world
        ...
        31 | shard = 1048576
           |         ^^^^^^^ the axes must multiply to the number of devices
           |
           = help: write replicate = 1 and shard = 2
    "#]],
    );
}

#[test]
fn batches_divide() {
    check(
        &edited(&[("global_batch = 4", "global_batch = 6")]),
        expect![[r#"
        error: `training.global_batch` = 6 is not a multiple of local_batch 2 x 2 devices = 4
          --> r.toml:21:16
           |
        15 | devices = 2
           |           - the devices
        ...
        20 | local_batch = 2
           |               - the local batch
        21 | global_batch = 6
           |                ^ global batch = local batch x devices x accumulation
           |
           = help: nearest values of global_batch: 4, 8; or nearest values of local_batch: 1, 3
    "#]],
    );
    check(
        &edited(&[("global_batch = 4", "global_batch = 3")]),
        expect![[r#"
        error: `training.global_batch` = 3 is not a multiple of local_batch 2 x 2 devices = 4
          --> r.toml:21:16
           |
        15 | devices = 2
           |           - the devices
        ...
        20 | local_batch = 2
           |               - the local batch
        21 | global_batch = 3
           |                ^ global batch = local batch x devices x accumulation
           |
           = help: write global_batch = 4
    "#]],
    );
    check(
        &edited(&[("global_batch = 4", "global_batch = 1")]),
        expect![[r#"
        error: `training.global_batch` = 1 is not a multiple of local_batch 2 x 2 devices = 4
          --> r.toml:21:16
           |
        15 | devices = 2
           |           - the devices
        ...
        20 | local_batch = 2
           |               - the local batch
        21 | global_batch = 1
           |                ^ global batch = local batch x devices x accumulation
           |
           = help: write global_batch = 4
    "#]],
    );
}

#[test]
fn warmup_fits_the_run() {
    check(
        &with("schedule", "warmup_steps = 21"),
        expect![[r#"
        error: `schedule.warmup_steps` = 21 is longer than the run of 20 steps
          --> r.toml:30:16
           |
        18 | steps = 20
           |         -- the length of the run
        ...
        30 | warmup_steps = 21
           |                ^^ must be at most 20
           |
           = help: a usual warm-up for this run: warmup_steps = 1
    "#]],
    );
    sound(&with("schedule", "warmup_steps = 20"), &[]);
}

#[test]
fn tokens_can_be_counted() {
    let huge = [
        ("steps = 20", "steps = 1_000_000_000"),
        ("sequence_length = 32", "sequence_length = 16_777_216"),
        ("global_batch = 4", "global_batch = 4_294_967_296"),
    ];
    check(
        &edited(&huge),
        expect![[r#"
        error: the run would read 72057594037927936000000000 tokens, more than can be counted
          --> r.toml:18:9
           |
        18 | steps = 1_000_000_000
           |         ^^^^^^^^^^^^^ each step reads 72057594037927936 tokens
           |
           = help: write steps = 13, or less
    "#]],
    );
}

/// In each case one setting is wrong by itself, and a rule that reads it would be broken too: only the setting is
/// reported.
#[test]
fn a_rule_is_skipped_when_an_input_is_wrong() {
    let devices = ("devices = 2", "devices = 0");
    let cases: &[&[(&str, &str)]] = &[
        &[("hidden_size = 64", "hidden_size = 0"), ("num_heads = 4", "num_heads = 6")],
        &[("num_heads = 4", "num_heads = \"4\""), ("num_kv_heads = 2", "num_kv_heads = 3")],
        &[("num_kv_heads = 2", "num_kv_heads = 0"), ("num_heads = 4", "num_heads = 1")],
        &[("hidden_size = 64", "hidden_size = 36"), ("num_heads = 4", "num_heads = 0")],
        &[("vocab_size = 256", "vocab_size = 10"), ("[data]", "[data]\ntokenizer = \"byte\"")],
        &[devices, ("[training]", "[parallelism]\nreplicate = 4\n[training]")],
        &[devices, ("[training]", "[parallelism]\nshard = 4\n[training]")],
        &[("global_batch = 4", "global_batch = 5"), ("local_batch = 2", "local_batch = 2.0")],
        &[devices, ("global_batch = 4", "global_batch = 5")],
        &[("steps = 20", "steps = 0"), ("[data]", "[schedule]\nwarmup_steps = 50\n[data]")],
        &[("steps = 20", "steps = 1_000_000_000"), ("sequence_length = 32", "sequence_length = 0")],
        // A misspelled key is an input that is wrong, too.
        &[
            ("devices = 2", "devises = 8"),
            ("[training]", "[parallelism]\nreplicate = 8\n[training]"),
        ],
        &[("[hardware]", "[hardwear]"), ("[training]", "[parallelism]\nreplicate = 8\n[training]")],
    ];
    for edits in cases {
        let result = crate::support::load(&edited(edits), &[]);
        let text = crate::support::said(&result);
        assert_eq!(result.unwrap_err().errors(), 1, "{edits:?}\n{text}");
    }
}
