//! Entries of `sources`: what is read of a record, how text is cut, weights, and what is held out.

use expect_test::{Expect, expect};
use titan_recipes::Loaded;
use titan_recipes::tables::data::{Documents, Fields};

use crate::bases::{IMAGES, add, clean, edit, mended, told};
use crate::support::{SOUND, edited, with};

const ONE: &str = "[{ path = \"data.txt\" }]";

/// The sound recipe with these sources.
fn of(sources: &str) -> String {
    edited(&[(ONE, sources)])
}

/// The sound recipe with one source that has these keys too.
fn with_keys(keys: &str) -> String {
    of(&format!("[{{ path = \"data.txt\", {keys} }}]"))
}

/// A sound recipe whose sources are prompts.
fn prompts(keys: &str) -> String {
    let text = edit(&with_keys(keys), &[("sequence_length = 32", "sequence_length = 1536")]);
    add(&text, "rl", "reward = \"exact-match\"")
}

fn written(loaded: &Loaded) -> String {
    loaded.recipe.to_toml(&loaded.layout).unwrap()
}

#[test]
fn what_is_read_by_default() {
    let loaded = clean(SOUND);
    let source = &loaded.recipe.data.sources[0];
    assert_eq!((&source.weight, *source.documents), (&None, Documents::File));
    assert_eq!(*source.split, "train");
    let Fields::Text { text_field } = &source.fields else { panic!("{source:?}") };
    assert_eq!(**text_field, "text");
    expect![[r#"
        path = "/recipes/data.txt"
        text_field = "text"
        documents = "file"
        split = "train"

        [metrics]
        every_steps = 1
        tensorboard = true

        [elastic]
        max_restarts = 5
        max_application_restarts = 2
        step_timeout_seconds = "auto"
        start_timeout_seconds = "auto"
        grace_seconds = 30
    "#]]
    .assert_eq(written(&loaded).split_once("[[data.sources]]\n").unwrap().1);
}

#[test]
fn a_prompt_with_its_response() {
    let keys = "prompt_field = \"question\", response_field = \"answer\", split = \"test\", documents = \"lines\"";
    let loaded = clean(&with_keys(keys));
    let source = &loaded.recipe.data.sources[0];
    let Fields::Instruction { prompt_field, response_field } = &source.fields else {
        panic!("{source:?}")
    };
    assert_eq!((&***prompt_field, &***response_field), ("question", "answer"));
    assert_eq!((*source.documents, &**source.split), (Documents::Lines, "test"));
    // What is written down is the same.
    assert_eq!(clean(&written(&loaded)).recipe.data, loaded.recipe.data);
}

#[test]
fn prompts_of_reinforcement_learning() {
    for (keys, field) in
        [("split = \"train\"", "prompt"), ("prompt_field = \"question\"", "question")]
    {
        let loaded = clean(&prompts(keys));
        let source = &loaded.recipe.data.sources[0];
        let Fields::Prompt { prompt_field } = &source.fields else { panic!("{source:?}") };
        assert_eq!(**prompt_field, field);
        assert_eq!(clean(&written(&loaded)).recipe.data, loaded.recipe.data);
    }
}

#[test]
fn half_of_a_pair() {
    let text = with_keys("prompt_field = \"question\"");
    told(
        &text,
        expect![[r#"
            error: `data.sources[0].prompt_field` without `response_field`
              --> r.toml:27:48
               |
            27 | sources = [{ path = "data.txt", prompt_field = "question" }]
               |                                                ^^^^^^^^^^ a prompt and its response go together
               |
               = help: add response_field = "response", or to learn all of one text, write text_field alone
        "#]],
    );
    told(
        &with_keys("response_field = \"answer\""),
        expect![[r#"
            error: `data.sources[0].response_field` without `prompt_field`
              --> r.toml:27:50
               |
            27 | sources = [{ path = "data.txt", response_field = "answer" }]
               |                                                  ^^^^^^^^ a prompt and its response go together
               |
               = help: add prompt_field = "prompt", or to learn all of one text, write text_field alone
        "#]],
    );
}

#[test]
fn a_text_and_a_pair() {
    told(
        &with_keys("text_field = \"t\", prompt_field = \"p\", response_field = \"r\""),
        expect![[r#"
            error: `data.sources[0].text_field` together with `prompt_field`
              --> r.toml:27:46
               |
            27 | sources = [{ path = "data.txt", text_field = "t", prompt_field = "p", response_field = "r" }]
               |                                              ^^^                 --- not of one text
               |                                              |
               |                                              a record is one text, or a prompt with its response
               |
               = help: keep text_field alone, or prompt_field with response_field
        "#]],
    );
    told(
        &with_keys("text_field = \"t\", response_field = \"r\""),
        expect![[r#"
        error: `data.sources[0].text_field` together with `response_field`
          --> r.toml:27:46
           |
        27 | sources = [{ path = "data.txt", text_field = "t", response_field = "r" }]
           |                                              ^^^                   --- not of one text
           |                                              |
           |                                              a record is one text, or a prompt with its response
           |
           = help: keep text_field alone, or prompt_field with response_field
    "#]],
    );
}

#[test]
fn more_than_prompts_where_answers_are_sampled() {
    told(
        &prompts("text_field = \"question\", response_field = \"answer\""),
        expect![[r#"
        error: `data.sources[0].text_field` in a recipe with [rl]
          --> r.toml:27:46
           |
        27 | sources = [{ path = "data.txt", text_field = "question", response_field = "answer" }]
           |                                              ^^^^^^^^^^ its sources are prompts
        28 |
        29 | [rl]
           |  -- answers are sampled
           |
           = help: write prompt_field = "question"

        error: `data.sources[0].response_field` in a recipe with [rl]
          --> r.toml:27:75
           |
        27 | sources = [{ path = "data.txt", text_field = "question", response_field = "answer" }]
           |                                                                           ^^^^^^^^ its sources are prompts
        28 |
        29 | [rl]
           |  -- answers are sampled
           |
           = help: remove it; the field of the prompt is prompt_field
    "#]],
    );
    let text = add(
        &prompts("split = \"train\""),
        "validation",
        "interval_steps = 5\nsources = [{ path = \"x/data.txt\", text_field = \"question\" }]",
    );
    told(
        &text,
        expect![[r#"
        error: `validation.sources[0].text_field` in a recipe with [rl]
          --> r.toml:34:48
           |
        29 | [rl]
           |  -- answers are sampled
        ...
        34 | sources = [{ path = "x/data.txt", text_field = "question" }]
           |                                                ^^^^^^^^^^ its sources are prompts
           |
           = help: write prompt_field = "question"
    "#]],
    );
}

#[test]
fn keys_of_a_source_of_other_kinds() {
    told(
        &with_keys("text_field = 5, documents = \"line\", split = \"\", weight = \"1\""),
        expect![[r#"
            error: `data.sources[0].text_field` must be a string, found an integer
              --> r.toml:27:46
               |
            27 | sources = [{ path = "data.txt", text_field = 5, documents = "line", split = "", weight = "1" }]
               |                                              ^ must be a string
               |
               = help: put it in quotes: text_field = "5"

            error: `data.sources[0].documents` has no choice "line"
              --> r.toml:27:61
               |
            27 | sources = [{ path = "data.txt", text_field = 5, documents = "line", split = "", weight = "1" }]
               |                                                             ^^^^^^ unknown choice
               |
               = help: did you mean "lines"? allowed: "file", "lines"

            error: `data.sources[0].split` is empty
              --> r.toml:27:77
               |
            27 | sources = [{ path = "data.txt", text_field = 5, documents = "line", split = "", weight = "1" }]
               |                                                                             ^^ must be a name
               |
               = help: leave it out, or for example: split = "train"

            error: `data.sources[0].weight` must be a number, found a string
              --> r.toml:27:90
               |
            27 | sources = [{ path = "data.txt", text_field = 5, documents = "line", split = "", weight = "1" }]
               |                                                                                          ^^^ must be a number
               |
               = help: remove the quotes: weight = 1.0
        "#]],
    );
    // A pair that is wrong itself is no missing half.
    told(
        &with_keys("prompt_field = 5, response_field = \"\""),
        expect![[r#"
            error: `data.sources[0].prompt_field` must be a string, found an integer
              --> r.toml:27:48
               |
            27 | sources = [{ path = "data.txt", prompt_field = 5, response_field = "" }]
               |                                                ^ must be a string
               |
               = help: put it in quotes: prompt_field = "5"

            error: `data.sources[0].response_field` is empty
              --> r.toml:27:68
               |
            27 | sources = [{ path = "data.txt", prompt_field = 5, response_field = "" }]
               |                                                                    ^^ must be a name
               |
               = help: leave it out, or for example: response_field = "response"
        "#]],
    );
}

#[test]
fn names_of_other_trainers() {
    told(
        &with_keys("proportion = 1.0, text_column = \"t\""),
        expect![[r#"
            error: unknown key `proportion` in an entry of `data.sources`
              --> r.toml:27:33
               |
            27 | sources = [{ path = "data.txt", proportion = 1.0, text_column = "t" }]
               |                                 ^^^^^^^^^^ unknown
               |
               = help: did you mean `weight`?

            error: unknown key `text_column` in an entry of `data.sources`
              --> r.toml:27:51
               |
            27 | sources = [{ path = "data.txt", proportion = 1.0, text_column = "t" }]
               |                                                   ^^^^^^^^^^^ unknown
               |
               = help: did you mean `text_field`?
        "#]],
    );
}

#[test]
fn weights_of_all_sources_or_of_none() {
    let check = |sources: &str, expected: Expect| told(&of(sources), expected);
    check(
        "[{ path = \"data.txt\" }, { path = \"x/data.txt\", weight = 0.5 }]",
        expect![[r#"
        error: `data.sources[0]` has no weight, and another source has one
          --> r.toml:27:12
           |
        27 | sources = [{ path = "data.txt" }, { path = "x/data.txt", weight = 0.5 }]
           |            ^^^^^^^^^^^^^^^^^^^^^                         ------ a weight
           |            |
           |            either all sources have a weight, or none
           |
           = help: add weight = 1.0 here, or leave all weights out: sources are then read in proportion to their sizes
    "#]],
    );
    check(
        "[{ path = \"data.txt\", weight = 1 }, { path = \"x/data.txt\" }, { path = \"y/data.txt\" }]",
        expect![[r#"
            error: `data.sources[1]` has no weight, and another source has one
              --> r.toml:27:47
               |
            27 | sources = [{ path = "data.txt", weight = 1 }, { path = "x/data.txt" }, { path = "y/data.txt" }]
               |                                 ------        ^^^^^^^^^^^^^^^^^^^^^^^ either all sources have a weight, or none
               |                                 |
               |                                 a weight
               |
               = help: add weight = 1.0 here, or leave all weights out: sources are then read in proportion to their sizes
        "#]],
    );
    let all = "[{ path = \"data.txt\", weight = 1 }, { path = \"x/data.txt\", weight = 0.5 }]";
    let weights = clean(&of(all)).recipe.data.sources.value;
    let weights: Vec<f64> = weights.iter().filter_map(|s| s.weight.as_ref()).map(|w| **w).collect();
    assert_eq!(weights, [1.0, 0.5]);
    clean(&of("[{ path = \"data.txt\" }, { path = \"x/data.txt\" }]"));
    // Without any keys there is no place for a weight.
    check(
        "[{ path = \"data.txt\", weight = 1 }, 5]",
        expect![[r#"
        error: `data.sources[1]` must be a table, found an integer
          --> r.toml:27:47
           |
        27 | sources = [{ path = "data.txt", weight = 1 }, 5]
           |                                               ^ must be a table
           |
           = help: for example: sources = [{ path = "corpus.txt" }]
    "#]],
    );
}

#[test]
fn a_share_of_the_training_data() {
    let loaded = clean(&with("validation", "interval_steps = 5\nfraction = 0.01"));
    let validation = loaded.recipe.validation.as_ref().unwrap();
    assert_eq!(validation.fraction().map(|fraction| **fraction), Some(0.01));
    assert!(validation.sources().is_none());
    let again = clean(&written(&loaded)).recipe.validation.unwrap();
    assert_eq!(again.held_out, validation.held_out);
    for fraction in ["0", "0.51", "\"1%\""] {
        let text = with("validation", &format!("interval_steps = 5\nfraction = {fraction}"));
        mended(&text, &["validation.fraction=0.5", "validation.fraction=1e-9"]);
    }
    told(
        &with("validation", "interval_steps = 5\nfraction = 1.0"),
        expect![[r#"
        error: `validation.fraction` must be greater than 0 and at most 0.5, found 1.0
          --> r.toml:31:12
           |
        31 | fraction = 1.0
           |            ^^^ must be greater than 0 and at most 0.5
    "#]],
    );
}

#[test]
fn data_of_its_own_and_a_share() {
    let lines = "interval_steps = 5\nfraction = 0.1\nsources = [{ path = \"x/data.txt\" }]";
    told(
        &with("validation", lines),
        expect![[r#"
            error: `validation.fraction` together with `validation.sources`
              --> r.toml:31:12
               |
            31 | fraction = 0.1
               |            ^^^ data of its own, or a share of the training data
            32 | sources = [{ path = "x/data.txt" }]
               |           ------------------------- data of its own
               |
               = help: keep one of: sources, fraction
        "#]],
    );
    told(
        &with("validation", "interval_steps = 5"),
        expect![[r#"
        error: [validation] has no `sources`
          --> r.toml:29:2
           |
        29 | [validation]
           |  ^^^^^^^^^^ incomplete
           |
           = help: add to [validation], for example: sources = [{ path = "validation.txt" }]  # or, of [data]: fraction = 0.01
    "#]],
    );
    // Of two layers, the upper one's counts.
    let text = with("validation", "interval_steps = 5\nsources = [{ path = \"x/data.txt\" }]");
    mended(&text, &["validation.fraction=0.1"]);
}

#[test]
fn a_share_of_prompts_or_of_images() {
    let lines = "interval_steps = 5\nfraction = 0.1";
    told(
        &add(&prompts("split = \"train\""), "validation", lines),
        expect![[r#"
        error: `validation.fraction` in a recipe with [rl]
          --> r.toml:34:12
           |
        29 | [rl]
           |  -- its sources are prompts
        ...
        34 | fraction = 0.1
           |            ^^^ prompts are not split
           |
           = help: write sources = [{ path = "validation.jsonl" }], with prompts of its own
    "#]],
    );
    told(
        &add(IMAGES, "validation", lines),
        expect![[r#"
        error: `validation.fraction` is for language models
          --> r.toml:27:1
           |
         5 | family = "flux"
           |          ------ the family
        ...
        27 | fraction = 0.1
           | ^^^^^^^^ not a setting of this model
           |
           = help: remove it
    "#]],
    );
    let text = add(&prompts("split = \"train\""), "validation", "interval_steps = 5");
    told(
        &text,
        expect![[r#"
        error: [validation] has no `sources`
          --> r.toml:32:2
           |
        32 | [validation]
           |  ^^^^^^^^^^ incomplete
           |
           = help: add to [validation], for example: sources = [{ path = "validation.txt" }]
    "#]],
    );
}

#[test]
fn another_split_of_the_same_folder_is_other_data() {
    let lines = |split: &str| {
        format!("interval_steps = 5\nsources = [{{ path = \"data.txt\", split = \"{split}\" }}]")
    };
    clean(&with("validation", &lines("validation")));
    told(
        &with("validation", &lines("train")),
        expect![[r#"
        warning: the model is validated on data that it is trained on
          --> r.toml:31:21
           |
        31 | sources = [{ path = "data.txt", split = "train" }]
           |                     ^^^^^^^^^^ is in [data] too
    "#]],
    );
}
