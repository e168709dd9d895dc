//! Recipes that extend something that is no sound recipe.

use expect_test::expect;

use crate::bases::{add, edit};
use crate::extends::{BASE, CHILD, Texts, told};
use crate::support::SOUND;

#[test]
fn a_base_that_is_not_toml() {
    let texts: Texts<'_> = &[("/recipes/base.toml", "version = 1\n[model\nfamily = \"llama3\"\n")];
    told(
        texts,
        CHILD,
        expect![[r#"
        error: invalid TOML: unclosed table
         --> base.toml:2:7
          |
        2 | [model
          |       ^ expected `]`
    "#]],
    );
    // A recipe that is no TOML itself says nothing of what it extends.
    told(
        texts,
        "extends = \"base.toml\"\nname = small\n",
        expect![[r#"
        error: invalid TOML: a string needs quotes
         --> r.toml:2:8
          |
        2 | name = small
          |        ^^^^^ not a value
          |
          = help: write "small"
    "#]],
    );
}

#[test]
fn a_base_with_a_wrong_value() {
    let base = edit(SOUND, &[("steps = 20", "steps = \"20\""), ("num_heads = 4", "num_head = 4")]);
    let texts: Texts<'_> = &[("/recipes/base.toml", &base)];
    told(
        texts,
        CHILD,
        expect![[r#"
        error: unknown key `num_head` in [model]
          --> base.toml:10:1
           |
        10 | num_head = 4
           | ^^^^^^^^ unknown
           |
           = help: did you mean `num_heads`?

        error: `training.steps` must be an integer, found a string
          --> base.toml:18:9
           |
        18 | steps = "20"
           |         ^^^^ must be an integer
           |
           = help: remove the quotes: steps = 20
    "#]],
    );
    // A value that is laid over a wrong one mends it.
    let child = format!("{CHILD}[training]\nsteps = 5\n[model]\nnum_heads = 4\n");
    told(
        texts,
        &child,
        expect![[r#"
        error: unknown key `num_head` in [model]
          --> base.toml:10:1
           |
        10 | num_head = 4
           | ^^^^^^^^ unknown
           |
           = help: did you mean `num_heads`?
    "#]],
    );
}

#[test]
fn a_base_of_another_version() {
    let base = edit(SOUND, &[("version = 1", "version = 2")]);
    let texts: Texts<'_> = &[("/recipes/base.toml", &base)];
    told(
        texts,
        CHILD,
        expect![[r#"
        error: this version of titan-tpu reads recipes of version 1, not 2
         --> base.toml:1:11
          |
        1 | version = 2
          |           ^ unknown version
          |
          = help: write version = 1
    "#]],
    );
    told(
        texts,
        &format!("{CHILD}version = 1\n"),
        expect![[r#"
        error: this version of titan-tpu reads recipes of version 1, not 2
         --> base.toml:1:11
          |
        1 | version = 2
          |           ^ unknown version
          |
          = help: write version = 1
    "#]],
    );
    told(
        BASE,
        &format!("{CHILD}version = 3\n"),
        expect![[r#"
        error: this version of titan-tpu reads recipes of version 1, not 3
         --> r.toml:2:11
          |
        2 | version = 3
          |           ^ unknown version
          |
          = help: write version = 1
    "#]],
    );
}

#[test]
fn a_base_that_is_empty_or_something_else() {
    told(
        &[("/recipes/base.toml", "")],
        CHILD,
        expect![[r#"
            error: cannot extend this recipe: the recipe is empty
             --> r.toml:1:11
              |
            1 | extends = "base.toml"
              |           ^^^^^^^^^^^ nothing to extend
              |
              = help: start from a copy of recipes/llama3_tiny.toml
        "#]],
    );
    told(
        &[("/recipes/base.toml", "# nothing\n")],
        &format!("{CHILD}{SOUND}"),
        expect![[r#"
            error: cannot extend this recipe: the recipe is empty
             --> r.toml:1:11
              |
            1 | extends = "base.toml"
              |           ^^^^^^^^^^^ nothing to extend
              |
              = help: start from a copy of recipes/llama3_tiny.toml
        "#]],
    );
    let titan = "[job]\ndump_folder = \"out\"\n[model]\nname = \"llama3\"\n";
    told(
        &[("/recipes/base.toml", titan)],
        CHILD,
        expect![[r#"
        error: this is a configuration of TorchTitan, not a recipe
         --> base.toml:1:2
          |
        1 | [job]
          |  ^^^ a table of TorchTitan
          |
          = help: turn it into a recipe with: titan-tpu recipe import FILE
    "#]],
    );
}

#[test]
fn a_base_that_is_no_path() {
    told(
        BASE,
        "extends = 1\n",
        expect![[r#"
        error: `extends` must be the path of a recipe, found an integer
         --> r.toml:1:11
          |
        1 | extends = 1
          |           ^ must be a string
          |
          = help: for example: extends = "qwen3_8b.toml"
    "#]],
    );
    told(
        BASE,
        "extends = [\"base.toml\"]\n",
        expect![[r#"
        error: `extends` must be the path of a recipe, found an array
         --> r.toml:1:11
          |
        1 | extends = ["base.toml"]
          |           ^^^^^^^^^^^^^ must be a string
          |
          = help: for example: extends = "qwen3_8b.toml"
    "#]],
    );
    told(
        BASE,
        "[extends]\nfile = \"base.toml\"\n",
        expect![[r#"
        error: `extends` must be the path of a recipe, found a table
         --> r.toml:1:1
          |
        1 | [extends]
          | ^^^^^^^^^ must be a string
          |
          = help: for example: extends = "qwen3_8b.toml"
    "#]],
    );
    told(
        BASE,
        "extend = \"base.toml\"\n",
        expect![[r#"
            error: unknown key `extend`
             --> r.toml:1:1
              |
            1 | extend = "base.toml"
              | ^^^^^^ unknown
              |
              = help: did you mean `extends`?
        "#]],
    );
    told(
        BASE,
        &format!("{SOUND}extends = \"base.toml\"\n"),
        expect![[r#"
        error: unknown key `extends` in [data]
          --> r.toml:28:1
           |
        28 | extends = "base.toml"
           | ^^^^^^^ unknown
           |
           = help: `extends` belongs to the top of the recipe, before the first table
    "#]],
    );
}

#[test]
fn secrets_of_a_base_are_not_shown() {
    let base = add(SOUND, "env", "TOKEN = \"hush\"\nTOKEN-2 = \"hush\"");
    let texts: Texts<'_> = &[("/recipes/base.toml", &base)];
    told(
        texts,
        CHILD,
        expect![[r#"
            error: `TOKEN-2` cannot name a variable of the environment
              --> base.toml:31:1
               |
            31 | TOKEN-2 = ****
               | ^^^^^^^ letters, digits and `_`, the first no digit
        "#]],
    );
    let broken = add(SOUND, "env", "TOKEN = \"hush\nMORE = hush");
    told(
        &[("/recipes/base.toml", &broken)],
        CHILD,
        expect![[r#"
            error: invalid TOML: the string does not end
              --> base.toml:30:14
               |
            30 | TOKEN = ****
               |              ^ expected `"`

            error: invalid TOML: a string needs quotes
              --> base.toml:31:8
               |
            31 | MORE = ****
               |        ^^^^ not a value
               |
               = help: write "****"
        "#]],
    );
}
