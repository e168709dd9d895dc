//! `--set KEY=VALUE`: what it means, and where messages point when it is wrong.

use expect_test::{Expect, expect};
use titan_recipes::Auto;

use crate::support::{SOUND, check_set, data_files, edited, sound, with};

fn check(set: &str, expected: Expect) {
    check_set(SOUND, &[set], expected);
}

#[test]
fn values_of_every_kind() {
    let set = [
        "training.steps = 40",
        "name=another",
        "optimizer.name='sgd'",
        "optimizer.momentum=0.9",
        "optimizer.learning_rate=1",
        "hardware.devices=auto",
        "training.gradient_clip=none",
        "metrics.tensorboard=false",
        "schedule={ kind = \"linear\", warmup_steps = 3 }",
        "data.sources=[{ path = \"a/data.txt\" }, { path = \"data.txt\" }]",
    ];
    let recipe = sound(SOUND, &set).recipe;
    assert_eq!(*recipe.training.steps, 40);
    assert_eq!(*recipe.name, "another");
    assert_eq!(recipe.hardware.devices.value, Auto::Auto);
    assert_eq!(*recipe.training.gradient_clip, None);
    assert!(!*recipe.metrics.tensorboard);
    assert_eq!(*recipe.schedule.warmup_steps, 3);
    assert_eq!(recipe.data.sources.len(), 2);
}

#[test]
fn the_last_one_wins_and_only_that_is_checked() {
    let set = ["training.steps=0", "training.steps=30", "\"training\".\"steps\"=50"];
    assert_eq!(*sound(SOUND, &set).recipe.training.steps, 50);
}

#[test]
fn an_override_mends_a_mistake_of_the_file() {
    sound(&edited(&[("steps = 20", "steps = 0")]), &["training.steps=1"]);
    sound(&edited(&[("steps = 20", "")]), &["training.steps=1"]);
}

#[test]
fn relative_paths_start_from_where_they_are_written() {
    let of = |set: &[&str]| data_files(&sound(SOUND, set))[0].display().to_string();
    assert_eq!(of(&[]), "/recipes/data.txt");
    assert_eq!(of(&["data.sources=[{path=\"x/data.txt\"}]"]), "/here/x/data.txt");
    assert_eq!(of(&["data.sources=[{path=\"/abs/data.txt\"}]"]), "/abs/data.txt");
}

#[test]
fn a_missing_data_file() {
    check(
        "data.sources=[{path=\"corpus.txt\"}]",
        expect![[r#"
        error: cannot read the data file `corpus.txt`: no such file
         --> --set #1:1:21
          |
        1 | data.sources=[{path="corpus.txt"}]
          |                     ^^^^^^^^^^^^ no such file
          |
          = help: relative paths here start from /here
    "#]],
    );
}

#[test]
fn a_misspelled_key() {
    check(
        "training.step=3",
        expect![[r#"
        error: unknown key `step` in [training]
         --> --set #1:1:10
          |
        1 | training.step=3
          |          ^^^^ unknown
          |
          = help: did you mean `steps`?
    "#]],
    );
    check(
        "trainig.steps=3",
        expect![[r#"
        error: unknown table [trainig]
         --> --set #1:1:1
          |
        1 | trainig.steps=3
          | ^^^^^^^ unknown
          |
          = help: did you mean `training`?
    "#]],
    );
    check(
        "steps=3",
        expect![[r#"
            error: unknown key `steps`
             --> --set #1:1:1
              |
            1 | steps=3
              | ^^^^^ unknown
              |
              = help: `steps` belongs to [training] or [validation]
        "#]],
    );
}

#[test]
fn no_value_or_no_key() {
    check(
        "",
        expect![[r#"
        error: `--set` needs KEY=VALUE
         --> --set #1:1:1
          |
        1 |
          | ^ no `=` here
          |
          = help: for example: --set training.steps=100
    "#]],
    );
    check(
        "training.steps",
        expect![[r#"
        error: `--set` needs KEY=VALUE
         --> --set #1:1:1
          |
        1 | training.steps
          | ^^^^^^^^^^^^^^ no `=` here
          |
          = help: for example: --set training.steps=100
    "#]],
    );
    check(
        "training.steps=",
        expect![[r#"
        error: `training.steps` has no value
         --> --set #1:1:1
          |
        1 | training.steps=
          | ^^^^^^^^^^^^^^^ nothing after the `=`
          |
          = help: for example: --set training.steps=100
    "#]],
    );
    check(
        "training.steps = ",
        expect![[r#"
            error: `training.steps` has no value
             --> --set #1:1:1
              |
            1 | training.steps =
              | ^^^^^^^^^^^^^^^^ nothing after the `=`
              |
              = help: for example: --set training.steps=100
        "#]],
    );
    check(
        "=3",
        expect![[r#"
        error: `--set` needs a key of the recipe before the `=`
         --> --set #1:1:1
          |
        1 | =3
          | ^ not a key
          |
          = help: for example: --set training.steps=100
    "#]],
    );
    check(
        "training..steps=3",
        expect![[r#"
        error: `--set` needs a key of the recipe before the `=`
         --> --set #1:1:1
          |
        1 | training..steps=3
          | ^^^^^^^^^^^^^^^ not a key
          |
          = help: for example: --set training.steps=100
    "#]],
    );
    check(
        "training steps=3",
        expect![[r#"
        error: `--set` needs a key of the recipe before the `=`
         --> --set #1:1:1
          |
        1 | training steps=3
          | ^^^^^^^^^^^^^^ not a key
          |
          = help: for example: --set training.steps=100
    "#]],
    );
}

#[test]
fn a_bare_word_for_a_number() {
    check(
        "training.steps=many",
        expect![[r#"
        error: `training.steps` must be an integer, found a string
         --> --set #1:1:16
          |
        1 | training.steps=many
          |                ^^^^ must be an integer
          |
          = help: allowed: 1 to 1000000000
    "#]],
    );
    check(
        "training.steps=0400",
        expect![[r#"
        error: `training.steps` must be an integer, found a string
         --> --set #1:1:16
          |
        1 | training.steps=0400
          |                ^^^^ must be an integer
          |
          = help: write steps = 400
    "#]],
    );
    check(
        "optimizer.learning_rate=.003",
        expect![[r#"
        error: `optimizer.learning_rate` must be a number, found a string
         --> --set #1:1:25
          |
        1 | optimizer.learning_rate=.003
          |                         ^^^^ must be a number
          |
          = help: write learning_rate = 0.003
    "#]],
    );
}

#[test]
fn a_bare_word_for_a_boolean() {
    check(
        "metrics.tensorboard=False",
        expect![[r#"
        error: `metrics.tensorboard` must be true or false, found a string
         --> --set #1:1:21
          |
        1 | metrics.tensorboard=False
          |                     ^^^^^ must be true or false
          |
          = help: write tensorboard = false
    "#]],
    );
}

#[test]
fn a_word_that_is_toml_by_accident() {
    check(
        "name=2026-01-01",
        expect![[r#"
        error: `name` must be a string, found a date
         --> --set #1:1:6
          |
        1 | name=2026-01-01
          |      ^^^^^^^^^^ must be a string
          |
          = help: put it in quotes: name = "2026-01-01"
    "#]],
    );
}

#[test]
fn values_that_are_out_of_range() {
    check(
        "training.steps=-1",
        expect![[r#"
        error: `training.steps` must be at least 1, found -1
         --> --set #1:1:16
          |
        1 | training.steps=-1
          |                ^^ must be at least 1
          |
          = help: allowed: 1 to 1000000000
    "#]],
    );
    check(
        "parallelism.shard=-1",
        expect![[r#"
        error: `parallelism.shard` must be at least 1, found -1
         --> --set #1:1:19
          |
        1 | parallelism.shard=-1
          |                   ^^ must be at least 1
          |
          = help: to have it worked out, write shard = "auto"
    "#]],
    );
}

#[test]
fn an_array_that_does_not_end() {
    check(
        "optimizer.betas=[0.9, 0.95",
        expect![[r#"
        error: invalid TOML: unclosed array
         --> --set #1:1:27
          |
        1 | optimizer.betas=[0.9, 0.95
          |                           ^ expected `]`
    "#]],
    );
    check(
        "name=\"x",
        expect![[r#"
        error: invalid TOML: the string does not end
         --> --set #1:1:8
          |
        1 | name="x
          |        ^ expected `"`
    "#]],
    );
}

#[test]
fn a_value_for_a_table_and_a_table_for_a_value() {
    check(
        "training=5",
        expect![[r#"
        error: `training` must be a table, found an integer
         --> --set #1:1:10
          |
        1 | training=5
          |          ^ must be a table
          |
          = help: write it as a table of its own: [training]
    "#]],
    );
    check(
        "training.steps.most=5",
        expect![[r#"
        error: `training.steps` must be an integer, found a table
         --> --set #1:1:10
          |
        1 | training.steps.most=5
          |          ^^^^^ must be an integer
          |
          = help: allowed: 1 to 1000000000
    "#]],
    );
    check(
        "data.sources.0.path=x",
        expect![[r#"
        error: `data.sources` must be an array, found a table
         --> --set #1:1:21
          |
        1 | data.sources.0.path=x
          |                     ^ must be an array
          |
          = help: for example: sources = [{ path = "corpus.txt" }]
    "#]],
    );
}

#[test]
fn a_rule_between_the_file_and_an_override() {
    check_set(
        &with("schedule", "warmup_steps = 10"),
        &["training.steps=5"],
        expect![[r#"
        error: `schedule.warmup_steps` = 10 is longer than the run of 5 steps
          --> r.toml:30:16
           |
        30 | warmup_steps = 10
           |                ^^ must be at most 5
           |
          ::: --set #1:1:16
           |
         1 | training.steps=5
           |                - the length of the run
           |
           = help: a usual warm-up for this run: warmup_steps = 1
    "#]],
    );
    check_set(
        SOUND,
        &["hardware.devices=3", "training.local_batch=3"],
        expect![[r#"
        error: `training.global_batch` = 4 is not a multiple of local_batch 3 x 3 devices = 9
          --> r.toml:21:16
           |
        21 | global_batch = 4
           |                ^ global batch = local batch x devices x accumulation
           |
          ::: --set #2:1:22
           |
         1 | training.local_batch=3
           |                      - the local batch
           |
          ::: --set #1:1:18
           |
         1 | hardware.devices=3
           |                  - the devices
           |
           = help: write global_batch = 9
    "#]],
    );
}

#[test]
fn each_override_is_named_by_its_number() {
    check_set(
        SOUND,
        &["training.steps=1", "training.seed=x", "oops"],
        expect![[r#"
        error: `training.seed` must be an integer, found a string
         --> --set #2:1:15
          |
        1 | training.seed=x
          |               ^ must be an integer
          |
          = help: allowed: 0 to 9223372036854775807

        error: `--set` needs KEY=VALUE
         --> --set #3:1:1
          |
        1 | oops
          | ^^^^ no `=` here
          |
          = help: for example: --set training.steps=100
    "#]],
    );
}

#[test]
fn control_characters() {
    check(
        "training.\u{1b}[31m=1",
        expect![[r#"
            error: `--set` needs a key of the recipe before the `=`
             --> --set #1:1:1
              |
            1 | training.␛[31m=1
              | ^^^^^^^^^^^^^^ not a key
              |
              = help: for example: --set training.steps=100
        "#]],
    );
    check(
        "name=\u{1b}[31m",
        expect![[r#"
        error: `name` = "\u{1b}[31m" cannot name a run folder
         --> --set #1:1:6
          |
        1 | name=␛[31m
          |      ^^^^^ up to 63 letters, digits, `-`, `_`, `.`, the first a letter or digit
          |
          = help: for example: name = "31m"
    "#]],
    );
}
