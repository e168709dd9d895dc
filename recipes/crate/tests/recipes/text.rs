//! Carets stand under the right characters, whatever the text around them is.

use expect_test::expect;

use crate::support::{SOUND, check, edited, sound, with};

#[test]
fn a_byte_order_mark() {
    let marked = format!("\u{feff}{SOUND}");
    sound(&marked, &[]);
    check(
        &marked.replace("version = 1", "version = 0"),
        expect![[r#"
        error: this version of titan-tpu reads recipes of version 1, not 0
         --> r.toml:1:11
          |
        1 | version = 0
          |           ^ unknown version
          |
          = help: write version = 1
    "#]],
    );
}

#[test]
fn windows_line_ends() {
    let windows = |text: String| text.replace('\n', "\r\n");
    sound(&windows(edited(&[])), &[]);
    check(
        &windows(edited(&[("steps = 20", "steps = 0"), ("3e-3", "\"x\"")])),
        expect![[r#"
        error: `training.steps` must be at least 1, found 0
          --> r.toml:18:9
           |
        18 | steps = 0
           |         ^ must be at least 1
           |
           = help: allowed: 1 to 1000000000

        error: `optimizer.learning_rate` must be a number, found a string
          --> r.toml:24:17
           |
        24 | learning_rate = "x"
           |                 ^^^ must be a number
    "#]],
    );
    check(
        &windows(edited(&[("[{ path = \"data.txt\" }]", "[\n  5,\n]")])),
        expect![[r#"
        error: `data.sources[0]` must be a table, found an integer
          --> r.toml:28:3
           |
        28 |   5,
           |   ^ must be a table
           |
           = help: for example: sources = [{ path = "corpus.txt" }]
    "#]],
    );
    check(
        &windows(edited(&[("global_batch = 4", "global_batch = 5")])),
        expect![[r#"
        error: `training.global_batch` = 5 is not a multiple of local_batch 2 x 2 devices = 4
          --> r.toml:21:16
           |
        15 | devices = 2
           |           - the devices
        ...
        20 | local_batch = 2
           |               - the local batch
        21 | global_batch = 5
           |                ^ global batch = local batch x devices x accumulation
           |
           = help: nearest values of global_batch: 4, 8
    "#]],
    );
}

#[test]
fn tabs() {
    check(
        &edited(&[("steps = 20", "\tsteps\t=\t0 # a\ttab")]),
        expect![[r#"
        error: `training.steps` must be at least 1, found 0
          --> r.toml:18:10
           |
        18 |     steps    =    0 # a    tab
           |                   ^ must be at least 1
           |
           = help: allowed: 1 to 1000000000
    "#]],
    );
}

#[test]
fn text_that_is_not_ascii() {
    check(
        &edited(&[("[{ path = \"data.txt\" }]", "[{ path = \"données/テキスト.txt\" }, 5]")]),
        expect![[r#"
            error: cannot read the data file `données/テキスト.txt`: no such file
              --> r.toml:27:21
               |
            27 | sources = [{ path = "données/テキスト.txt" }, 5]
               |                     ^^^^^^^^^^^^^^^^^^^^^^ no such file
               |
               = help: relative paths here start from /recipes

            error: `data.sources[1]` must be a table, found an integer
              --> r.toml:27:43
               |
            27 | sources = [{ path = "données/テキスト.txt" }, 5]
               |                                               ^ must be a table
               |
               = help: for example: sources = [{ path = "corpus.txt" }]
        "#]],
    );
    check(
        &with("training", "\"größe\" = 3"),
        expect![[r#"
            error: unknown key `größe` in [training]
              --> r.toml:18:1
               |
            18 | "größe" = 3
               | ^^^^^^^ unknown
               |
               = help: the keys of [training] are: steps, sequence_length, local_batch, global_batch, gradient_clip, seed, attention, z_loss, document_mask
        "#]],
    );
    check(
        &with("training", "\"😀\" = 3"),
        expect![[r#"
            error: unknown key `😀` in [training]
              --> r.toml:18:1
               |
            18 | "😀" = 3
               | ^^^^ unknown
               |
               = help: the keys of [training] are: steps, sequence_length, local_batch, global_batch, gradient_clip, seed, attention, z_loss, document_mask
        "#]],
    );
}

#[test]
fn characters_that_cannot_be_seen() {
    check(
        &with("training", "\"seed\u{200b}\" = 3"),
        expect![[r#"
        error: unknown key `seed\u{200b}` in [training]
          --> r.toml:18:1
           |
        18 | "seed�" = 3
           | ^^^^^^^ unknown
           |
           = help: did you mean `seed`?
    "#]],
    );
    check(
        &with("training", "\"a\u{202e}b\" = 3"),
        expect![[r#"
            error: unknown key `a\u{202e}b` in [training]
              --> r.toml:18:1
               |
            18 | "a�b" = 3
               | ^^^^^ unknown
               |
               = help: the keys of [training] are: steps, sequence_length, local_batch, global_batch, gradient_clip, seed, attention, z_loss, document_mask
        "#]],
    );
    check(
        &with("training", "\"\\u001b[31m\\n\\u009b\" = 3 # \u{9b}31m"),
        expect![[r#"
            error: unknown key `\u{1b}[31m\n\u{9b}` in [training]
              --> r.toml:18:1
               |
            18 | "\u001b[31m\n\u009b" = 3 # ·31m
               | ^^^^^^^^^^^^^^^^^^^^ unknown
               |
               = help: the keys of [training] are: steps, sequence_length, local_batch, global_batch, gradient_clip, seed, attention, z_loss, document_mask
        "#]],
    );
}

#[test]
fn a_control_sequence_in_values() {
    check(
        &edited(&[("\"small\"", "\"\\u001b]0;owned\\u0007\"")]),
        expect![[r#"
            error: `name` = "\u{1b}]0;owned\u{7}" cannot name a run folder
             --> r.toml:2:8
              |
            2 | name = "\u001b]0;owned\u0007"
              |        ^^^^^^^^^^^^^^^^^^^^^^ up to 63 letters, digits, `-`, `_`, `.`, the first a letter or digit
              |
              = help: for example: name = "0-owned"
        "#]],
    );
    check(
        &edited(&[("\"llama3\"", "\"\\u001b[2J\"")]),
        expect![[r#"
            error: `model.family` has no choice "\u{1b}[2J"
             --> r.toml:5:10
              |
            5 | family = "\u001b[2J"
              |          ^^^^^^^^^^^ unknown choice
              |
              = help: allowed: "llama3", "qwen3", "qwen3-moe", "flux"
        "#]],
    );
    check(
        &edited(&[("data.txt", "\\u001b[2J\\n.txt")]),
        expect![[r#"
            error: cannot read the data files `\u{1b}[2J\n.txt`: no such file
              --> r.toml:27:21
               |
            27 | sources = [{ path = "\u001b[2J\n.txt" }]
               |                     ^^^^^^^^^^^^^^^^^ no such file
               |
               = help: relative paths here start from /recipes
        "#]],
    );
    check(
        &with("model", "size = \"\\u001b[2J\""),
        expect![[r#"
            error: `model.size` has no choice "\u{1b}[2J"
             --> r.toml:5:8
              |
            5 | size = "\u001b[2J"
              |        ^^^^^^^^^^^ not a size of llama3
              |
              = help: allowed: "tiny", "8b", "70b", "405b"
        "#]],
    );
}

#[test]
fn a_long_line() {
    let far = format!("steps = 0 {} # {}", " ".repeat(300), "x".repeat(300));
    check(
        &edited(&[("steps = 20", &far)]),
        expect![[r#"
        error: `training.steps` must be at least 1, found 0
          --> r.toml:18:9
           |
        18 | steps = 0                                                                                                                           ...
           |         ^ must be at least 1
           |
           = help: allowed: 1 to 1000000000
    "#]],
    );
    let spaces = " ".repeat(300);
    check(
        &edited(&[("steps = 20", &format!("steps = {spaces} 0"))]),
        expect![[r#"
        error: `training.steps` must be at least 1, found 0
          --> r.toml:18:310
           |
        18 | ...                                                      0
           |                                                          ^ must be at least 1
           |
           = help: allowed: 1 to 1000000000
    "#]],
    );
}

#[test]
fn a_long_word_is_cut() {
    check(
        &edited(&[("\"cpu\"", &format!("\"{}\"", "cpu ".repeat(50)))]),
        expect![[r#"
            error: `hardware.accelerator` has no choice "cpu cpu cpu cpu cpu cpu cpu cpu cpu cpu cpu cpu cpu cpu cpu cpu cpu cpu cpu cpu ..."
              --> r.toml:14:15
               |
            14 | accelerator = "cpu cpu cpu cpu cpu cpu cpu cpu cpu cpu cpu cpu cpu cpu cpu cpu cpu cpu cpu cpu cpu cpu cpu cpu cpu cpu cpu cpu cpu c...
               |               ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ unknown choice
               |
               = help: allowed: "cpu", "tpu-emulated", "cuda", "v4", "v5e", "v5p", "v6e", "tpu7x"
        "#]],
    );
}

#[test]
fn only_the_first_line_of_a_long_value_is_underlined() {
    check(
        &edited(&[("3e-3", "[\n  1,\n  2,\n]")]),
        expect![[r#"
        error: `optimizer.learning_rate` must be a number, found an array
          --> r.toml:24:17
           |
        24 | learning_rate = [
           |                 ^ must be a number
    "#]],
    );
}

#[test]
fn no_newline_at_the_end() {
    sound(SOUND.trim_end(), &[]);
    check(
        edited(&[("[{ path = \"data.txt\" }]", "5")]).trim_end(),
        expect![[r#"
        error: `data.sources` must be an array, found an integer
          --> r.toml:27:11
           |
        27 | sources = 5
           |           ^ must be an array
           |
           = help: for example: sources = [{ path = "corpus.txt" }]
    "#]],
    );
    check(
        edited(&[("[{ path = \"data.txt\" }]", "")]).trim_end(),
        expect![[r#"
        error: invalid TOML: a value is missing
          --> r.toml:27:10
           |
        27 | sources =
           |          ^ nothing after the `=`
    "#]],
    );
}
