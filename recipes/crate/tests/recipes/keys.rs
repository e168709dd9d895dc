//! Keys and tables that are unknown, misplaced or not supported yet.

use expect_test::expect;

use crate::support::{check, edited, sound, with};

#[test]
fn the_sound_recipe_is_sound() {
    let loaded = sound(&edited(&[]), &[]);
    assert_eq!((loaded.layout.world, loaded.layout.shard, loaded.layout.accumulation), (2, 2, 1));
}

#[test]
fn a_misspelled_key() {
    check(
        &with("training", "gradient_clp = 1.0"),
        expect![[r#"
        error: unknown key `gradient_clp` in [training]
          --> r.toml:18:1
           |
        18 | gradient_clp = 1.0
           | ^^^^^^^^^^^^ unknown
           |
           = help: did you mean `gradient_clip`?
    "#]],
    );
}

#[test]
fn a_misspelled_required_key_is_not_missing_too() {
    check(
        &edited(&[("sequence_length", "sequence_lenght")]),
        expect![[r#"
        error: unknown key `sequence_lenght` in [training]
          --> r.toml:19:1
           |
        19 | sequence_lenght = 32
           | ^^^^^^^^^^^^^^^ unknown
           |
           = help: did you mean `sequence_length`?
    "#]],
    );
}

#[test]
fn the_name_that_another_trainer_uses() {
    check(
        &edited(&[("sequence_length", "seq_len"), ("num_layers", "n_layer")]),
        expect![[r#"
        error: unknown key `n_layer` in [model]
         --> r.toml:9:1
          |
        9 | n_layer = 2
          | ^^^^^^^ unknown
          |
          = help: did you mean `num_layers`?

        error: unknown key `seq_len` in [training]
          --> r.toml:19:1
           |
        19 | seq_len = 32
           | ^^^^^^^ unknown
           |
           = help: did you mean `sequence_length`?
    "#]],
    );
}

#[test]
fn a_foreign_name_in_the_wrong_table() {
    check(
        &edited(&[("learning_rate = 3e-3", ""), ("steps = 20", "steps = 20\nlr = 3e-3")]),
        expect![[r#"
            error: unknown key `lr` in [training]
              --> r.toml:19:1
               |
            19 | lr = 3e-3
               | ^^ unknown
               |
               = help: did you mean `learning_rate` of [optimizer]?
        "#]],
    );
}

#[test]
fn a_misspelled_key_beside_the_right_one() {
    check(
        &with("training", "step = 30"),
        expect![[r#"
        error: unknown key `step` in [training]
          --> r.toml:18:1
           |
        18 | step = 30
           | ^^^^ unknown
           |
           = help: did you mean `steps`? That is set already
    "#]],
    );
}

#[test]
fn a_key_of_another_table() {
    check(
        &edited(&[
            ("learning_rate = 3e-3\n", ""),
            ("steps = 20", "steps = 20\nlearning_rate = 3e-3"),
        ]),
        expect![[r#"
            error: unknown key `learning_rate` in [training]
              --> r.toml:19:1
               |
            19 | learning_rate = 3e-3
               | ^^^^^^^^^^^^^ unknown
               |
               = help: `learning_rate` belongs to [optimizer]
        "#]],
    );
}

#[test]
fn a_key_of_the_top_in_the_last_table() {
    check(
        &edited(&[("version = 1\n", ""), ("\"data.txt\" }]", "\"data.txt\" }]\nversion = 1")]),
        expect![[r#"
            error: unknown key `version` in [data]
              --> r.toml:27:1
               |
            27 | version = 1
               | ^^^^^^^ unknown
               |
               = help: `version` belongs to the top of the recipe, before the first table
        "#]],
    );
}

#[test]
fn a_key_of_a_table_at_the_top() {
    check(
        &edited(&[("steps = 20\n", ""), ("version = 1", "version = 1\nsteps = 20")]),
        expect![[r#"
            error: unknown key `steps`
             --> r.toml:2:1
              |
            2 | steps = 20
              | ^^^^^ unknown
              |
              = help: `steps` belongs to [training] or [validation]
        "#]],
    );
}

#[test]
fn a_key_of_a_later_version() {
    check(
        &with("elastic", "min_slices = 1"),
        expect![[r#"
            error: this version cannot train with `elastic.min_slices` = 1
              --> r.toml:30:14
               |
            30 | min_slices = 1
               |              ^ not supported yet
               |
               = help: leave min_slices out; `recipe check`, `plan` and `mfu` take it as it is
        "#]],
    );
}

#[test]
fn a_misspelled_key_of_a_later_version() {
    check(
        &with("parallelism", "experts = 2"),
        expect![[r#"
            error: unknown key `experts` in [parallelism]
              --> r.toml:30:1
               |
            30 | experts = 2
               | ^^^^^^^ unknown
               |
               = help: did you mean `expert`?
        "#]],
    );
}

#[test]
fn a_key_of_a_table_of_a_later_version() {
    check(
        &with("training", "interval_steps = 500"),
        expect![[r#"
            error: unknown key `interval_steps` in [training]
              --> r.toml:18:1
               |
            18 | interval_steps = 500
               | ^^^^^^^^^^^^^^ unknown
               |
               = help: `interval_steps` belongs to [validation] or [checkpoint]
        "#]],
    );
}

#[test]
fn a_folder_of_checkpoints_in_a_store() {
    check(
        &with("checkpoint", "interval_steps = 500\ndirectory = \"gs://bucket/run\""),
        expect![[r#"
            warning: `checkpoint.interval_steps` = 500 is longer than the run of 20 steps
              --> r.toml:30:18
               |
            18 | steps = 20
               |         -- the length of the run
            ...
            30 | interval_steps = 500
               |                  ^^^ comes once, at the end
        "#]],
    );
}

#[test]
fn weights_in_an_object_store_are_not_refused() {
    check(
        &with("model", "init = \"gs://bucket/weights\""),
        expect![[r#"
        error: this version cannot train with weights from an object store (`model.init`)
         --> r.toml:5:8
          |
        5 | init = "gs://bucket/weights"
          |        ^^^^^^^^^^^^^^^^^^^^^ not supported yet
          |
          = help: name a local folder; `recipe check`, `plan` and `mfu` take it as it is
    "#]],
    );
}

#[test]
fn a_key_that_resembles_nothing() {
    check(
        &with("optimizer", "colour = \"red\""),
        expect![[r#"
        error: unknown key `colour` in [optimizer]
          --> r.toml:24:1
           |
        24 | colour = "red"
           | ^^^^^^ unknown
           |
           = help: the keys of [optimizer] are: name, learning_rate, betas, epsilon, momentum, weight_decay
    "#]],
    );
}

#[test]
fn a_misspelled_table_is_read_all_the_same() {
    check(
        &edited(&[("[training]", "[trainig]"), ("steps = 20", "steps = 0")]),
        expect![[r#"
        error: unknown table [trainig]
          --> r.toml:17:2
           |
        17 | [trainig]
           |  ^^^^^^^ unknown
           |
           = help: did you mean `training`?

        error: `training.steps` must be at least 1, found 0
          --> r.toml:18:9
           |
        18 | steps = 0
           |         ^ must be at least 1
           |
           = help: allowed: 1 to 1000000000
    "#]],
    );
}

#[test]
fn a_table_that_another_trainer_has() {
    check(
        &edited(&[("[optimizer]", "[optim]")]),
        expect![[r#"
        error: unknown table [optim]
          --> r.toml:23:2
           |
        23 | [optim]
           |  ^^^^^ unknown
           |
           = help: did you mean `optimizer`?
    "#]],
    );
}

#[test]
fn a_table_that_resembles_nothing() {
    check(
        &with("colours", "red = 1"),
        expect![[r#"
            error: unknown table [colours]
              --> r.toml:29:2
               |
            29 | [colours]
               |  ^^^^^^^ unknown
               |
               = help: a recipe has: model, hardware, parallelism, training, optimizer, schedule, precision, remat, compile, data, validation, checkpoint, metrics, elastic, launch, rl, flux, env, version, name, extends
        "#]],
    );
}

#[test]
fn a_table_in_a_table() {
    check(
        &with("training.extra", "steps = 3"),
        expect![[r#"
            error: unknown key `extra` in [training]
              --> r.toml:29:11
               |
            29 | [training.extra]
               |           ^^^^^ unknown
               |
               = help: the keys of [training] are: steps, sequence_length, local_batch, global_batch, gradient_clip, seed, attention, z_loss, document_mask
        "#]],
    );
}

#[test]
fn keys_of_a_data_source() {
    let sources = "[{ paht = \"data.txt\" }, { path = \"data.txt\", weight = 0.5 }, {}, { path = \"data.txt\", url = \"x\" }]";
    check(
        &edited(&[("[{ path = \"data.txt\" }]", sources)]),
        expect![[r#"
            error: `data.sources[0]` has no weight, and another source has one
              --> r.toml:27:12
               |
            27 | sources = [{ paht = "data.txt" }, { path = "data.txt", weight = 0.5 }, {}, { path = "data.txt", url = "x" }]
               |            ^^^^^^^^^^^^^^^^^^^^^                       ------ a weight
               |            |
               |            either all sources have a weight, or none
               |
               = help: add weight = 1.0 here, or leave all weights out: sources are then read in proportion to their sizes

            error: unknown key `paht` in an entry of `data.sources`
              --> r.toml:27:14
               |
            27 | sources = [{ paht = "data.txt" }, { path = "data.txt", weight = 0.5 }, {}, { path = "data.txt", url = "x" }]
               |              ^^^^ unknown
               |
               = help: did you mean `path`?

            error: an entry of `data.sources` has no `path`
              --> r.toml:27:72
               |
            27 | sources = [{ paht = "data.txt" }, { path = "data.txt", weight = 0.5 }, {}, { path = "data.txt", url = "x" }]
               |                                                                        ^^ incomplete
               |
               = help: add to an entry of `data.sources`, for example: path = "corpus.txt"

            error: unknown key `url` in an entry of `data.sources`
              --> r.toml:27:97
               |
            27 | sources = [{ paht = "data.txt" }, { path = "data.txt", weight = 0.5 }, {}, { path = "data.txt", url = "x" }]
               |                                                                                                 ^^^ unknown
               |
               = help: the keys of an entry of `data.sources` are: path, weight, text_field, prompt_field, response_field, documents, split
        "#]],
    );
}

#[test]
fn all_problems_are_shown_in_reading_order() {
    let text = edited(&[
        ("family = \"llama3\"", "family = \"lama3\""),
        ("devices = 2", "device = 2"),
        ("steps = 20", "steps = \"20\""),
        ("local_batch = 2\n", ""),
        ("[optimizer]", "[optimiser]"),
        ("learning_rate = 3e-3", "learning_rate = -1"),
        ("data.txt", "date.txt"),
    ]);
    check(
        &text,
        expect![[r#"
            error: `model.family` has no choice "lama3"
             --> r.toml:5:10
              |
            5 | family = "lama3"
              |          ^^^^^^^ unknown choice
              |
              = help: did you mean "llama3"? allowed: "llama3", "qwen3", "qwen3-moe", "flux"

            error: unknown key `device` in [hardware]
              --> r.toml:15:1
               |
            15 | device = 2
               | ^^^^^^ unknown
               |
               = help: did you mean `devices`?

            error: [training] has no `local_batch`
              --> r.toml:17:2
               |
            17 | [training]
               |  ^^^^^^^^ incomplete
               |
               = help: add to [training], for example: local_batch = 8

            error: `training.steps` must be an integer, found a string
              --> r.toml:18:9
               |
            18 | steps = "20"
               |         ^^^^ must be an integer
               |
               = help: remove the quotes: steps = 20

            error: unknown table [optimiser]
              --> r.toml:22:2
               |
            22 | [optimiser]
               |  ^^^^^^^^^ unknown
               |
               = help: did you mean `optimizer`?

            error: `optimizer.learning_rate` must be greater than 0, found -1
              --> r.toml:23:17
               |
            23 | learning_rate = -1
               |                 ^^ must be greater than 0

            error: cannot read the data file `date.txt`: no such file
              --> r.toml:26:21
               |
            26 | sources = [{ path = "date.txt" }]
               |                     ^^^^^^^^^^ no such file
               |
               = help: relative paths here start from /recipes
        "#]],
    );
}

#[test]
fn a_setting_without_effect_is_a_warning() {
    check(
        &with("optimizer", "momentum = 0.9"),
        expect![[r#"
        warning: `optimizer.momentum` has no effect with adamw
          --> r.toml:24:12
           |
        24 | momentum = 0.9
           |            ^^^ not used
    "#]],
    );
    check(
        &with("optimizer", "name = \"sgd\"\nbetas = [0.8, 0.9]"),
        expect![[r#"
            warning: `optimizer.betas` has no effect with sgd
              --> r.toml:25:9
               |
            25 | betas = [0.8, 0.9]
               |         ^^^^^^^^^^ not used
        "#]],
    );
}
