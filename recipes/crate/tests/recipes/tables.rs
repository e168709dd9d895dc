//! The tables that a recipe may leave out: what each takes, and what is said about anything else.

use expect_test::expect;

use crate::bases::{IMAGES, add, clean, edit, mended, told};
use crate::support::{SOUND, load_from, said, with};

#[test]
fn reinforcement_with_a_mistake_in_every_line() {
    let lines = "algorithm = \"ppo\"\nreward = 1\nprompts_per_step = 0\nsamples_per_prompt = \"8\"\nmax_prompt_length = -1\ntemperature = 0\ntop_p = 1.5\nclip_low = 1.0\nclip_high = -0.1\nkl_coefficient = \"none\"\nbeta = 0.1";
    told(
        &with("rl", lines),
        expect![[r#"
            error: `rl.algorithm` has no choice "ppo"
              --> r.toml:30:13
               |
            30 | algorithm = "ppo"
               |             ^^^^^ unknown choice
               |
               = help: allowed: "grpo", "dr-grpo", "dapo"

            error: `rl.reward` must be a string, found an integer
              --> r.toml:31:10
               |
            31 | reward = 1
               |          ^ must be a string
               |
               = help: put it in quotes: reward = "1"

            error: `rl.prompts_per_step` must be at least 1, found 0
              --> r.toml:32:20
               |
            32 | prompts_per_step = 0
               |                    ^ must be at least 1
               |
               = help: allowed: 1 to 16777216

            error: `rl.samples_per_prompt` must be an integer, found a string
              --> r.toml:33:22
               |
            33 | samples_per_prompt = "8"
               |                      ^^^ must be an integer
               |
               = help: remove the quotes: samples_per_prompt = 8

            error: `rl.max_prompt_length` must be at least 1, found -1
              --> r.toml:34:21
               |
            34 | max_prompt_length = -1
               |                     ^^ must be at least 1
               |
               = help: allowed: 1 to 16777216

            error: `rl.temperature` must be greater than 0, found 0
              --> r.toml:35:15
               |
            35 | temperature = 0
               |               ^ must be greater than 0

            error: `rl.top_p` must be greater than 0 and at most 1, found 1.5
              --> r.toml:36:9
               |
            36 | top_p = 1.5
               |         ^^^ must be greater than 0 and at most 1

            error: `rl.clip_low` must be at least 0 and below 1, found 1.0
              --> r.toml:37:12
               |
            37 | clip_low = 1.0
               |            ^^^ must be at least 0 and below 1

            error: `rl.clip_high` must be 0 or greater, found -0.1
              --> r.toml:38:13
               |
            38 | clip_high = -0.1
               |             ^^^^ must be 0 or greater

            error: `rl.kl_coefficient` must be a number, found a string
              --> r.toml:39:18
               |
            39 | kl_coefficient = "none"
               |                  ^^^^^^ must be a number

            error: unknown key `beta` in [rl]
              --> r.toml:40:1
               |
            40 | beta = 0.1
               | ^^^^ unknown
               |
               = help: did you mean `kl_coefficient`? That is set already
        "#]],
    );
    told(
        &with("rl", ""),
        expect![[r#"
        error: [rl] has no `reward`
          --> r.toml:29:2
           |
        29 | [rl]
           |  ^^ incomplete
           |
           = help: add to [rl], for example: reward = "exact-match"

        error: a prompt of 512 and an answer of 1024 tokens do not fit a sequence of 32
          --> r.toml:29:2
           |
        19 | sequence_length = 32
           |                   -- the longest sequence
        ...
        29 | [rl]
           |  ^^ together 1536 tokens
           |
           = help: write sequence_length = 1536, or allow shorter answers
    "#]],
    );
    let text = edit(SOUND, &[("sequence_length = 32", "sequence_length = 1536")]);
    let rl = |lines: &str| clean(&add(&text, "rl", lines)).recipe.rl.unwrap();
    assert_eq!(*rl("reward = \"exact-match\"").clip_high, 0.2);
    assert_eq!(*rl("reward = \"exact-match\"\nalgorithm = \"dapo\"").clip_high, 0.28);
}

#[test]
fn launch_with_a_mistake_in_every_line() {
    told(
        &with("launch", "on = \"k8s\"\nimage = 5\nnamespace = true\nqueue = []\npartition = \"x\""),
        expect![[r#"
            error: `launch.on` has no choice "k8s"
              --> r.toml:30:6
               |
            30 | on = "k8s"
               |      ^^^^^ unknown choice
               |
               = help: allowed: "local", "gke", "ray", "slurm", "ssh"

            error: `launch.image` must be a string, found an integer
              --> r.toml:31:9
               |
            31 | image = 5
               |         ^ must be a string
               |
               = help: put it in quotes: image = "5"

            error: `launch.namespace` must be a string, found a boolean
              --> r.toml:32:13
               |
            32 | namespace = true
               |             ^^^^ must be a string
               |
               = help: put it in quotes: namespace = "true"

            error: `launch.queue` must be a string, found an array
              --> r.toml:33:9
               |
            33 | queue = []
               |         ^^ must be a string
               |
               = help: put it in quotes: queue = "..."

            error: unknown key `partition` in [launch]
              --> r.toml:34:1
               |
            34 | partition = "x"
               | ^^^^^^^^^ unknown
               |
               = help: did you mean `queue`? That is set already
        "#]],
    );
    clean(&with("launch", ""));
}

#[test]
fn images_with_a_mistake_in_every_line() {
    let lines = "text_length = 0\nprompt_dropout = 1.5\ntimesteps = \"normal\"\nimg_size = 64";
    told(
        &add(IMAGES, "flux", lines),
        expect![[r#"
        error: `flux.text_length` must be at least 1, found 0
          --> r.toml:13:15
           |
        13 | text_length = 0
           |               ^ must be at least 1
           |
           = help: allowed: 1 to 65536

        error: `flux.prompt_dropout` must be from 0 to 1, found 1.5
          --> r.toml:14:18
           |
        14 | prompt_dropout = 1.5
           |                  ^^^ must be from 0 to 1

        error: `flux.timesteps` has no choice "normal"
          --> r.toml:15:13
           |
        15 | timesteps = "normal"
           |             ^^^^^^^^ unknown choice
           |
           = help: allowed: "uniform", "logit-normal"

        error: unknown key `img_size` in [flux]
          --> r.toml:16:1
           |
        16 | img_size = 64
           | ^^^^^^^^ unknown
           |
           = help: did you mean `image_size`? That is set already
    "#]],
    );
    told(
        &edit(IMAGES, &[("image_size = 64", "image_size = \"256x256\"")]),
        expect![[r#"
        error: `flux.image_size` must be an integer, found a string
          --> r.toml:13:14
           |
        13 | image_size = "256x256"
           |              ^^^^^^^^^ must be an integer
           |
           = help: allowed: 16 to 16384
    "#]],
    );
    clean(&edit(IMAGES, &[("[flux]\nimage_size = 64\n", "")]));
}

#[test]
fn remat_and_compile() {
    told(
        &with("remat", "policy = true\nmode = \"full\""),
        expect![[r#"
            error: `remat.policy` must be a string, found a boolean
              --> r.toml:30:10
               |
            30 | policy = true
               |          ^^^^ must be a string
               |
               = help: allowed: "none", "selective", "full"

            error: unknown key `mode` in [remat]
              --> r.toml:31:1
               |
            31 | mode = "full"
               | ^^^^ unknown
               |
               = help: did you mean `policy`? That is set already
        "#]],
    );
    told(
        &with("remat", "policy = \"selectiv\""),
        expect![[r#"
        error: `remat.policy` has no choice "selectiv"
          --> r.toml:30:10
           |
        30 | policy = "selectiv"
           |          ^^^^^^^^^^ unknown choice
           |
           = help: did you mean "selective"? allowed: "none", "selective", "full"
    "#]],
    );
    told(
        &with("compile", "enabled = 1\nbackend = \"xla\""),
        expect![[r#"
        error: `compile.enabled` must be true or false, found an integer
          --> r.toml:30:11
           |
        30 | enabled = 1
           |           ^ must be true or false
           |
           = help: write enabled = true

        error: unknown key `backend` in [compile]
          --> r.toml:31:1
           |
        31 | backend = "xla"
           | ^^^^^^^ unknown
           |
           = help: the keys of [compile] are: enabled
    "#]],
    );
    told(
        &edit(SOUND, &[("[model]", "compile = true\n\n[model]")]),
        expect![[r#"
        error: `compile` must be a table, found a boolean
         --> r.toml:4:11
          |
        4 | compile = true
          |           ^^^^ must be a table
          |
          = help: write it as a table of its own: [compile]
    "#]],
    );
    let text = with("compile", "enabled = 1");
    mended(&text, &["compile.enabled=true"]);
}

#[test]
fn environment_with_a_mistake_in_every_line() {
    let lines = "GOOD = \"a\"\n1BAD = \"hush\"\nRANK = \"hush\"\nTITAN_X = \"hush\"\nNUMBER = 17\nLIST = [\"hush\"]\nOTHER = { from = \"not a name\" }\nMORE = { from = \"X\", default = \"hush\" }\nMASKED = \"********\"\n\"A-B\" = \"hush\"\nDEEP.DEEPER = \"hush\"";
    let text = with("env", lines);
    told(
        &text,
        expect![[r#"
            error: `1BAD` cannot name a variable of the environment
              --> r.toml:31:1
               |
            31 | 1BAD = ****
               | ^^^^ letters, digits and `_`, the first no digit

            error: `env.RANK` is set by titan-tpu itself
              --> r.toml:32:1
               |
            32 | RANK = ****
               | ^^^^ not to be set here

            error: `env.TITAN_X` is set by titan-tpu itself
              --> r.toml:33:1
               |
            33 | TITAN_X = ****
               | ^^^^^^^ not to be set here

            error: `env.NUMBER` must be a string, found an integer
              --> r.toml:34:10
               |
            34 | NUMBER = **
               |          ^^ must be a string
               |
               = help: put it in quotes, or take it from the environment: NUMBER = { from = "NUMBER" }

            error: `env.LIST` must be a string, found an array
              --> r.toml:35:8
               |
            35 | LIST = ****
               |        ^^^^ must be a string
               |
               = help: put it in quotes, or take it from the environment: LIST = { from = "LIST" }

            error: `env.OTHER.from` must name a variable
              --> r.toml:36:9
               |
            36 | OTHER = ****
               |         ^^^^ not a name
               |
               = help: OTHER = { from = "OTHER" }

            error: `env.MORE` may have the key `from` and no other
              --> r.toml:37:8
               |
            37 | MORE = ****
               |        ^^^^ not a value
               |
               = help: MORE = { from = "MORE" }

            error: `A-B` cannot name a variable of the environment
              --> r.toml:39:1
               |
            39 | "A-B" = ****
               | ^^^^^ letters, digits and `_`, the first no digit

            error: `env.DEEP` may have the key `from` and no other
              --> r.toml:40:1
               |
            40 | DEEP.DEEPER = ****
               | ^^^^ not a value
               |
               = help: DEEP = { from = "DEEP" }
        "#]],
    );
    told(
        &edit(SOUND, &[("[model]", "env = \"hush\"\n\n[model]")]),
        expect![[r#"
            error: `env` must be a table, found a string
             --> r.toml:4:7
              |
            4 | env = ****
              |       ^^^^ must be a table
              |
              = help: write it as a table of its own: [env]
        "#]],
    );
    told(
        &with("evn", "TOKEN = \"hush\""),
        expect![[r#"
        error: unknown table [evn]
          --> r.toml:29:2
           |
        29 | [evn]
           |  ^^^ unknown
           |
           = help: did you mean `env`?
    "#]],
    );
}

#[test]
fn environment_is_kept_and_not_shown() {
    let loaded = clean(&with("env", "TOKEN = \"hush\"\nOTHER = { from = \"HOME\" }"));
    let text = loaded.recipe.to_toml(&loaded.layout).unwrap();
    assert!(!text.contains("hush"), "{text}");
    assert!(!format!("{loaded:?}").contains("hush"));
    assert!(text.contains("********") && text.contains("from = \"HOME\""), "{text}");
    // What was written down cannot be used again without the secret.
    let again =
        load_from(titan_recipes::Purpose::Train, &text, &[], &crate::support::Shelf::default());
    assert!(said(&again).contains("masked"), "{}", said(&again));
}

#[test]
fn tables_that_are_words() {
    told(
        &edit(SOUND, &[("[model]", "remat = \"full\"\nrl = true\nlaunch = \"gke\"\n\n[model]")]),
        expect![[r#"
        error: `remat` must be a table, found a string
         --> r.toml:4:9
          |
        4 | remat = "full"
          |         ^^^^^^ must be a table
          |
          = help: write it as a table of its own: [remat]

        error: `rl` must be a table, found a boolean
         --> r.toml:5:6
          |
        5 | rl = true
          |      ^^^^ must be a table
          |
          = help: write it as a table of its own: [rl]

        error: `launch` must be a table, found a string
         --> r.toml:6:10
          |
        6 | launch = "gke"
          |          ^^^^^ must be a table
          |
          = help: write it as a table of its own: [launch]
    "#]],
    );
    told(
        &format!("{SOUND}\n[[checkpoint]]\nkeep_last = 1\n"),
        expect![[r#"
        error: `checkpoint` must be a table, found an array
          --> r.toml:29:1
           |
        29 | [[checkpoint]]
           | ^^^^^^^^^^^^^^ must be a table
           |
           = help: write its header with single brackets: [checkpoint]
    "#]],
    );
}
