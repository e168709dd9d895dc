//! Numbers out of range.

use expect_test::expect;

use crate::support::{check, edited, sound, with};

#[test]
fn zero_and_less_for_a_count() {
    check(
        &edited(&[("steps = 20", "steps = 0"), ("local_batch = 2", "local_batch = -4")]),
        expect![[r#"
            error: `training.steps` must be at least 1, found 0
              --> r.toml:18:9
               |
            18 | steps = 0
               |         ^ must be at least 1
               |
               = help: allowed: 1 to 1000000000

            error: `training.local_batch` must be at least 1, found -4
              --> r.toml:20:15
               |
            20 | local_batch = -4
               |               ^^ must be at least 1
               |
               = help: allowed: 1 to 1048576
        "#]],
    );
}

#[test]
fn minus_one_where_auto_is_meant() {
    check(
        &edited(&[("devices = 2", "devices = -1"), ("global_batch = 4", "global_batch = -1")]),
        expect![[r#"
            error: `hardware.devices` must be at least 1, found -1
              --> r.toml:15:11
               |
            15 | devices = -1
               |           ^^ must be at least 1
               |
               = help: to have it worked out, write devices = "auto"

            error: `training.global_batch` must be at least 1, found -1
              --> r.toml:21:16
               |
            21 | global_batch = -1
               |                ^^ must be at least 1
               |
               = help: to have it worked out, write global_batch = "auto"
        "#]],
    );
    check(
        &with("parallelism", "shard = -2"),
        expect![[r#"
        error: `parallelism.shard` must be at least 1, found -2
          --> r.toml:30:9
           |
        30 | shard = -2
           |         ^^ must be at least 1
           |
           = help: to have it worked out, write shard = "auto"
    "#]],
    );
}

#[test]
fn minus_one_where_there_is_no_auto() {
    check(
        &with("parallelism", "replicate = -1"),
        expect![[r#"
            error: `parallelism.replicate` must be at least 1, found -1
              --> r.toml:30:13
               |
            30 | replicate = -1
               |             ^^ must be at least 1
               |
               = help: allowed: 1 to 1048576, or "slices"
        "#]],
    );
}

#[test]
fn zero_where_auto_is_legal() {
    check(
        &with("parallelism", "shard = 0"),
        expect![[r#"
        error: `parallelism.shard` must be at least 1, found 0
          --> r.toml:30:9
           |
        30 | shard = 0
           |         ^ must be at least 1
           |
           = help: allowed: 1 to 1048576, or "auto"
    "#]],
    );
}

#[test]
fn too_much() {
    check(
        &edited(&[("devices = 2", "devices = 100_000")]),
        expect![[r#"
        error: `hardware.devices` must be at most 1024, found 100_000
          --> r.toml:15:11
           |
        15 | devices = 100_000
           |           ^^^^^^^ must be at most 1024
           |
           = help: allowed: 1 to 1024, or "auto"
    "#]],
    );
}

#[test]
fn beyond_64_bits() {
    check(
        &edited(&[("steps = 20", "steps = 99999999999999999999")]),
        expect![[r#"
        error: `training.steps` must be at most 1000000000, found 99999999999999999999
          --> r.toml:18:9
           |
        18 | steps = 99999999999999999999
           |         ^^^^^^^^^^^^^^^^^^^^ must be at most 1000000000
           |
           = help: allowed: 1 to 1000000000
    "#]],
    );
    check(
        &with("training", "seed = -170141183460469231731687303715884105729"),
        expect![[r#"
        error: `training.seed` must be at least 0, found -170141183460469231731687303715884105729
          --> r.toml:18:8
           |
        18 | seed = -170141183460469231731687303715884105729
           |        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ must be at least 0
           |
           = help: allowed: 0 to 9223372036854775807
    "#]],
    );
    check(
        &with("training", "seed = 0xffff_ffff_ffff_ffff_ffff"),
        expect![[r#"
        error: `training.seed` must be at most 9223372036854775807, found 0xffff_ffff_ffff_ffff_ffff
          --> r.toml:18:8
           |
        18 | seed = 0xffff_ffff_ffff_ffff_ffff
           |        ^^^^^^^^^^^^^^^^^^^^^^^^^^ must be at most 9223372036854775807
           |
           = help: allowed: 0 to 9223372036854775807
    "#]],
    );
}

#[test]
fn not_a_number_and_infinity() {
    check(
        &edited(&[("3e-3", "nan")]),
        expect![[r#"
        error: `optimizer.learning_rate` must be greater than 0, found nan
          --> r.toml:24:17
           |
        24 | learning_rate = nan
           |                 ^^^ must be greater than 0
    "#]],
    );
    check(
        &edited(&[("3e-3", "inf")]),
        expect![[r#"
        error: `optimizer.learning_rate` must be a number that float32 can hold, found inf
          --> r.toml:24:17
           |
        24 | learning_rate = inf
           |                 ^^^ must be a number that float32 can hold
    "#]],
    );
    check(
        &edited(&[("3e-3", "1e400")]),
        expect![[r#"
        error: `optimizer.learning_rate` must be a number that float32 can hold, found 1e400
          --> r.toml:24:17
           |
        24 | learning_rate = 1e400
           |                 ^^^^^ must be a number that float32 can hold
    "#]],
    );
    check(
        &edited(&[("3e-3", "-inf")]),
        expect![[r#"
        error: `optimizer.learning_rate` must be greater than 0, found -inf
          --> r.toml:24:17
           |
        24 | learning_rate = -inf
           |                 ^^^^ must be greater than 0
    "#]],
    );
    check(
        &edited(&[("steps = 20", "steps = inf")]),
        expect![[r#"
        error: `training.steps` must be an integer, found a float
          --> r.toml:18:9
           |
        18 | steps = inf
           |         ^^^ must be an integer
           |
           = help: allowed: 1 to 1000000000
    "#]],
    );
}

#[test]
fn numbers_that_float32_would_round_to_zero() {
    check(
        &with("model", "norm_eps = 1e-50"),
        expect![[r#"
        error: `model.norm_eps` must be a number that float32 can hold, found 1e-50
         --> r.toml:5:12
          |
        5 | norm_eps = 1e-50
          |            ^^^^^ must be a number that float32 can hold
    "#]],
    );
}

#[test]
fn numbers_at_their_borders() {
    check(
        &edited(&[("3e-3", "0.0")]),
        expect![[r#"
        error: `optimizer.learning_rate` must be greater than 0, found 0.0
          --> r.toml:24:17
           |
        24 | learning_rate = 0.0
           |                 ^^^ must be greater than 0
    "#]],
    );
    check(
        &with("optimizer", "weight_decay = -0.1"),
        expect![[r#"
        error: `optimizer.weight_decay` must be 0 or greater, found -0.1
          --> r.toml:24:16
           |
        24 | weight_decay = -0.1
           |                ^^^^ must be 0 or greater
    "#]],
    );
    check(
        &with("optimizer", "betas = [-0.1, 1.0]"),
        expect![[r#"
        error: `optimizer.betas[0]` must be at least 0 and below 1, found -0.1
          --> r.toml:24:10
           |
        24 | betas = [-0.1, 1.0]
           |          ^^^^ must be at least 0 and below 1

        error: `optimizer.betas[1]` must be at least 0 and below 1, found 1.0
          --> r.toml:24:16
           |
        24 | betas = [-0.1, 1.0]
           |                ^^^ must be at least 0 and below 1
    "#]],
    );
    check(
        &with("schedule", "final_fraction = 1.5"),
        expect![[r#"
        error: `schedule.final_fraction` must be from 0 to 1, found 1.5
          --> r.toml:30:18
           |
        30 | final_fraction = 1.5
           |                  ^^^ must be from 0 to 1
    "#]],
    );
    check(
        &with("training", "gradient_clip = 0"),
        expect![[r#"
        error: `training.gradient_clip` must be greater than 0, found 0
          --> r.toml:18:17
           |
        18 | gradient_clip = 0
           |                 ^ must be greater than 0
           |
           = help: to switch it off, write gradient_clip = "none"
    "#]],
    );
    sound(&with("schedule", "final_fraction = 0"), &["optimizer.betas=[0, 0.999]"]);
    sound(&with("training", "gradient_clip = \"none\"\nseed = 0"), &["optimizer.weight_decay=0"]);
}

#[test]
fn an_integer_is_a_number() {
    assert_eq!(*sound(&edited(&[("3e-3", "1")]), &[]).recipe.optimizer.learning_rate, 1.0);
}

/// The largest legal model and batch: every product that plans are made of must fit in 64 bits.
#[test]
fn no_product_of_legal_values_overflows() {
    let largest = [
        "model.vocab_size=16777216",
        "model.hidden_size=1048576",
        "model.intermediate_size=4194304",
        "model.num_layers=4096",
        "model.num_heads=4096",
        "model.num_kv_heads=4096",
        "model.head_dim=4096",
        "hardware.devices=1024",
        "training.sequence_length=16777216",
        "training.local_batch=1048576",
        "training.global_batch=4294967296",
        "training.steps=13",
        "parallelism.replicate=1024",
    ];
    let loaded = sound(&edited(&[]), &largest);
    let layout = loaded.layout;
    assert!(layout.global_tokens().checked_mul(13).is_some());
    assert_eq!(layout.local_batch * layout.world * layout.accumulation, layout.global_batch);

    // The formulas of titan-parallelism: weights, and FLOPs per token with attention over all positions.
    let model = loaded.recipe.model.decoder().unwrap();
    let inner = model.intermediate_size().unwrap();
    let [hidden, inner, layers] =
        [&model.hidden_size, inner, &model.num_layers].map(|x| u128::from(**x));
    let [heads, kv, head_dim] =
        [&model.num_heads, &model.num_kv_heads, &model.head_dim].map(|x| u128::from(**x));
    let block = 2 * hidden * head_dim * (heads + kv) + 3 * hidden * inner + 2 * hidden;
    let weights = layers * block + hidden + 2 * u128::from(*model.vocab_size) * hidden;
    let attention = 12 * layers * heads * head_dim * u128::from(layout.sequence_length);
    let flops = 6 * weights + attention;
    assert!(u64::try_from(flops).is_ok(), "{flops}");

    // One more of anything is refused.
    for setting in largest.iter().filter(|setting| !setting.starts_with("parallelism")) {
        let (key, value) = setting.split_once('=').unwrap();
        let more = format!("{key}={}", value.parse::<u64>().unwrap() + 1);
        let result = crate::support::load(&edited(&[]), &[&largest[..], &[&more]].concat());
        assert!(result.is_err(), "{more}");
    }
}
