//! Recipes that extend others.

use expect_test::{Expect, expect};
use titan_recipes::tables::checkpoint::Interval;
use titan_recipes::{Loaded, Purpose, Report};

use crate::bases::add;
use crate::support::{SOUND, Shelf, expect_report, load_from, said};

pub(crate) type Texts<'t> = &'t [(&'t str, &'t str)];

fn layered(texts: Texts<'_>, text: &str) -> Result<Loaded, Report> {
    layered_set(texts, text, &[])
}

fn layered_set(texts: Texts<'_>, text: &str, set: &[&str]) -> Result<Loaded, Report> {
    load_from(Purpose::Check, text, set, &Shelf { texts })
}

#[track_caller]
fn sound(texts: Texts<'_>, text: &str) -> Loaded {
    let result = layered(texts, text);
    assert_eq!(said(&result), "");
    result.unwrap()
}

pub(crate) fn told(texts: Texts<'_>, text: &str, expected: Expect) {
    expect_report(&layered(texts, text), expected);
}

pub(crate) const BASE: Texts<'_> = &[("/recipes/base.toml", SOUND)];
pub(crate) const CHILD: &str = "extends = \"base.toml\"\n";

#[test]
fn a_recipe_that_changes_one_key() {
    let loaded = sound(BASE, &format!("{CHILD}[training]\nsteps = 7\n"));
    assert_eq!(*loaded.recipe.training.steps, 7);
    assert_eq!(*loaded.recipe.training.sequence_length, 32);
    assert_eq!(&**loaded.recipe.name, "small");
    // A recipe that changes nothing is the same one.
    assert_eq!(*sound(BASE, CHILD).recipe.training.steps, 20);
    let named = sound(BASE, &format!("{CHILD}name = \"child\"\nversion = 1\n"));
    assert_eq!(&**named.recipe.name, "child");
}

#[test]
fn three_levels() {
    let texts: Texts<'_> = &[
        ("/recipes/base.toml", SOUND),
        ("/recipes/middle.toml", "extends = \"base.toml\"\n[training]\nsteps = 8\nseed = 3\n"),
    ];
    let loaded = sound(texts, "extends = \"middle.toml\"\n[training]\nsteps = 9\n");
    let training = &loaded.recipe.training;
    assert_eq!((*training.steps, *training.seed, *training.local_batch), (9, 3, 2));
    let set = layered_set(texts, "extends = \"middle.toml\"\n", &["training.seed=4"]).unwrap();
    assert_eq!((*set.recipe.training.steps, *set.recipe.training.seed), (8, 4));
}

#[test]
fn paths_start_from_the_folder_of_the_recipe_that_names_them() {
    let texts: Texts<'_> = &[
        ("/recipes/../shared/base.toml", "extends = \"more/low.toml\"\n"),
        ("/recipes/../shared/more/low.toml", SOUND),
    ];
    let loaded = sound(texts, "extends = \"../shared/base.toml\"\n");
    let path = loaded.recipe.data.sources[0].path.local().unwrap().to_owned();
    assert_eq!(path.to_str(), Some("/recipes/../shared/more/data.txt"));
}

#[test]
fn lists_are_replaced() {
    let child = format!(
        "{CHILD}[data]\nsources = [{{ path = \"a/data.txt\" }}, {{ path = \"b/data.txt\" }}]\n[optimizer]\nbetas = [0.8, 0.9]\n"
    );
    let loaded = sound(BASE, &child);
    assert_eq!(loaded.recipe.data.sources.len(), 2);
    assert_eq!(*loaded.recipe.optimizer.betas, [0.8, 0.9]);
}

#[test]
fn of_several_intervals_that_of_the_upper_layer_counts() {
    let base = add(SOUND, "checkpoint", "interval_steps = 10\nkeep_last = 7");
    let texts: Texts<'_> = &[("/recipes/base.toml", &base)];
    let interval = |text: &str, set: &[&str]| {
        let result = layered_set(texts, text, set);
        assert_eq!(said(&result), "");
        let checkpoint = result.unwrap().recipe.checkpoint.unwrap();
        assert_eq!(*checkpoint.keep_last, 7);
        *checkpoint.interval
    };
    assert_eq!(interval(CHILD, &[]), Interval::Steps(10));
    let seconds = format!("{CHILD}[checkpoint]\ninterval_seconds = 60\n");
    assert_eq!(interval(&seconds, &[]), Interval::Seconds(60));
    assert_eq!(interval(&seconds, &["checkpoint.interval=auto"]), Interval::Auto);
    let same = format!("{CHILD}[checkpoint]\ninterval_steps = 5\n");
    assert_eq!(interval(&same, &[]), Interval::Steps(5));
    // Two in one layer are a mistake all the same.
    let both = format!("{CHILD}[checkpoint]\ninterval_seconds = 5\ninterval = \"auto\"\n");
    told(
        texts,
        &both,
        expect![[r#"
            error: two intervals for the checkpoints
             --> r.toml:4:12
              |
            3 | interval_seconds = 5
              |                    - this is the first
            4 | interval = "auto"
              |            ^^^^^^ this is the second
              |
              = help: keep one of: interval, interval_steps, interval_seconds
        "#]],
    );
}

#[test]
fn a_file_that_is_not_there() {
    told(
        &[],
        "extends = \"base.toml\"\n",
        expect![[r#"
            error: cannot extend `base.toml`: no such file
             --> r.toml:1:11
              |
            1 | extends = "base.toml"
              |           ^^^^^^^^^^^ this recipe
              |
              = help: relative paths here start from /recipes
        "#]],
    );
    told(
        &[],
        "extends = \"/else/where.toml\"\nversion = 2\n",
        expect![[r#"
            error: cannot extend `/else/where.toml`: no such file
             --> r.toml:1:11
              |
            1 | extends = "/else/where.toml"
              |           ^^^^^^^^^^^^^^^^^^ this recipe
        "#]],
    );
    told(
        &[],
        "extends = \"\"\n",
        expect![[r#"
            error: `extends` names no recipe
             --> r.toml:1:11
              |
            1 | extends = ""
              |           ^^ empty
              |
              = help: for example: extends = "qwen3_8b.toml"
        "#]],
    );
}

#[test]
fn a_circle() {
    told(
        &[("/recipes/r.toml", "extends = \"r.toml\"\n")],
        "extends = \"r.toml\"\n",
        expect![[r#"
        error: `r.toml` extends itself
         --> r.toml:1:11
          |
        1 | extends = "r.toml"
          |           ^^^^^^^^ leads back to a recipe that leads here
    "#]],
    );
    let texts: Texts<'_> = &[
        ("/recipes/a.toml", "extends = \"b.toml\"\n"),
        ("/recipes/b.toml", "name = \"b\"\nextends = \"a.toml\"\n"),
    ];
    told(
        texts,
        "extends = \"a.toml\"\n",
        expect![[r#"
        error: `a.toml` extends itself
         --> b.toml:2:11
          |
        2 | extends = "a.toml"
          |           ^^^^^^^^ leads back to a recipe that leads here
    "#]],
    );
}

#[test]
fn a_tower() {
    let texts: Vec<(String, String)> = (0..20)
        .map(|n| (format!("/recipes/{n}.toml"), format!("extends = \"{}.toml\"\n", n + 1)))
        .collect();
    let texts: Vec<(&str, &str)> = texts.iter().map(|(name, text)| (&**name, &**text)).collect();
    told(
        &texts,
        "extends = \"0.toml\"\n",
        expect![[r#"
        error: more than 16 recipes extend each other
         --> 14.toml:1:11
          |
        1 | extends = "15.toml"
          |           ^^^^^^^^^ too deep
    "#]],
    );
}

#[test]
fn a_rule_between_two_layers() {
    told(
        BASE,
        &format!("{CHILD}\n[model]\nnum_heads = 5\n"),
        expect![[r#"
        error: `model.hidden_size` = 64 is not a multiple of `model.num_heads` = 5
         --> r.toml:4:13
          |
        4 | num_heads = 5
          |             ^ must divide hidden_size 64
          |
         ::: base.toml:7:15
          |
        7 | hidden_size = 64
          |               -- not a multiple
          |
          = help: nearest values of num_heads: 2, 4, 8
    "#]],
    );
}
