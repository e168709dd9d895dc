//! The tables `[checkpoint]` and `[validation]`: what each takes, and what is said about anything else.

use expect_test::expect;

use crate::bases::{EXPERTS, add, clean, edit, told};
use crate::support::{SOUND, with};

#[test]
fn checkpoint_with_a_mistake_in_every_line() {
    let lines = "directory = 5\ninterval = \"often\"\nkeep_last = 0\nlocal_directory = \"\"\nlocal_interval_steps = 1.5\nfolder = \"x\"";
    told(
        &with("checkpoint", lines),
        expect![[r#"
            error: `checkpoint.directory` must be a string, found an integer
              --> r.toml:30:13
               |
            30 | directory = 5
               |             ^ must be a string
               |
               = help: put it in quotes: directory = "5"

            error: `checkpoint.interval` has no choice "often"
              --> r.toml:31:12
               |
            31 | interval = "often"
               |            ^^^^^^^ unknown choice
               |
               = help: allowed: "auto"

            error: `checkpoint.keep_last` must be at least 1, found 0
              --> r.toml:32:13
               |
            32 | keep_last = 0
               |             ^ must be at least 1
               |
               = help: allowed: 1 to 1000000

            error: `checkpoint.local_directory` must name a folder
              --> r.toml:33:19
               |
            33 | local_directory = ""
               |                   ^^ not a path
               |
               = help: for example: local_directory = "/dev/shm/titan"

            error: `checkpoint.local_interval_steps` must be an integer, found a float
              --> r.toml:34:24
               |
            34 | local_interval_steps = 1.5
               |                        ^^^ must be an integer
               |
               = help: write local_interval_steps = 2

            error: unknown key `folder` in [checkpoint]
              --> r.toml:35:1
               |
            35 | folder = "x"
               | ^^^^^^ unknown
               |
               = help: did you mean `directory`? That is set already
        "#]],
    );
}

#[test]
fn checkpoint_with_nothing_in_it() {
    let loaded = clean(&with("checkpoint", ""));
    let checkpoint = loaded.recipe.checkpoint.unwrap();
    assert_eq!(checkpoint.directory.to_string(), "checkpoints");
    assert_eq!(*checkpoint.keep_last, 3);
    assert!(checkpoint.keep_every_steps.is_none());
    let loaded = clean(&with("checkpoint", "keep_every_steps = 500"));
    let kept = loaded.recipe.checkpoint.as_ref().unwrap().keep_every_steps.as_ref().unwrap();
    assert_eq!(**kept, 500);
    let settings = loaded.settings().unwrap();
    assert!(settings.iter().any(|setting| setting.name == "checkpoint.keep_every_steps"));
    told(
        &edit(SOUND, &[("[data]", "checkpoint = true\n[data]")]),
        expect![[r#"
            error: unknown key `checkpoint` in [optimizer]
              --> r.toml:26:1
               |
            26 | checkpoint = true
               | ^^^^^^^^^^ unknown
               |
               = help: `checkpoint` is a table of its own: write [checkpoint]
        "#]],
    );
    told(
        &with("checkpoints", "keep_last = 2"),
        expect![[r#"
        error: unknown table [checkpoints]
          --> r.toml:29:2
           |
        29 | [checkpoints]
           |  ^^^^^^^^^^^ unknown
           |
           = help: did you mean `checkpoint`?
    "#]],
    );
}

#[test]
fn checkpoint_intervals_exclude_each_other() {
    let text = with("checkpoint", "interval_steps = 100\ninterval_seconds = 600");
    told(
        &text,
        expect![[r#"
        error: two intervals for the checkpoints
          --> r.toml:31:20
           |
        30 | interval_steps = 100
           |                  --- this is the first
        31 | interval_seconds = 600
           |                    ^^^ this is the second
           |
           = help: keep one of: interval, interval_steps, interval_seconds
    "#]],
    );
    told(
        &with("checkpoint", "interval = \"auto\"\ninterval_steps = 100"),
        expect![[r#"
        error: two intervals for the checkpoints
          --> r.toml:31:18
           |
        30 | interval = "auto"
           |            ------ this is the first
        31 | interval_steps = 100
           |                  ^^^ this is the second
           |
           = help: keep one of: interval, interval_steps, interval_seconds
    "#]],
    );
    told(
        &with("checkpoint", "interval = 100"),
        expect![[r#"
            error: `checkpoint.interval` = 100 has no unit
              --> r.toml:30:12
               |
            30 | interval = 100
               |            ^^^ must be "auto"
               |
               = help: write interval_steps = 100, or interval_seconds = 100
        "#]],
    );
    told(
        &with("checkpoint", "interval_steps = 0\ninterval_seconds = 0"),
        expect![[r#"
        error: `checkpoint.interval_steps` must be at least 1, found 0
          --> r.toml:30:18
           |
        30 | interval_steps = 0
           |                  ^ must be at least 1
           |
           = help: allowed: 1 to 1000000000

        error: `checkpoint.interval_seconds` must be at least 1, found 0
          --> r.toml:31:20
           |
        31 | interval_seconds = 0
           |                    ^ must be at least 1
           |
           = help: allowed: 1 to 2147483648
    "#]],
    );
}

#[test]
fn checkpoint_directories() {
    told(
        &with("checkpoint", "directory = \"~/checkpoints\""),
        expect![[r#"
        error: `checkpoint.directory` starts with `~`
          --> r.toml:30:13
           |
        30 | directory = "~/checkpoints"
           |             ^^^^^^^^^^^^^^^ `~` has no meaning here
           |
           = help: write the whole path
    "#]],
    );
    told(
        &with("checkpoint", "directory = \"/data/taken\""),
        expect![[r#"
        error: `checkpoint.directory` cannot be used: /data/taken is not a folder
          --> r.toml:30:13
           |
        30 | directory = "/data/taken"
           |             ^^^^^^^^^^^^^ must be a folder that can be written to, or be made
    "#]],
    );
    told(
        &with("checkpoint", "directory = \"https://host/x\""),
        expect![[r#"
        error: a checkpoint folder cannot be at https://
          --> r.toml:30:13
           |
        30 | directory = "https://host/x"
           |             ^^^^^^^^^^^^^^^^ unknown scheme
           |
           = help: allowed: a local path, gs:// or s3://
    "#]],
    );
    told(
        &with("checkpoint", "directory = \"gs://\""),
        expect![[r#"
        error: a checkpoint folder needs a bucket and a path
          --> r.toml:30:13
           |
        30 | directory = "gs://"
           |             ^^^^^^^ not an address
           |
           = help: for example: gs://bucket/path
    "#]],
    );
    // On other machines that folder may be usable.
    clean(&add(EXPERTS, "checkpoint", "directory = \"/data/taken\""));
    clean(&with("checkpoint", "directory = \"gs://bucket/x\""));
    clean(&with("checkpoint", "directory = \"taken/../x\""));
}

#[test]
fn validation_with_a_mistake_in_every_line() {
    let lines = "interval_steps = -1\nsteps = \"some\"\nsources = \"valid.txt\"\nevery = 5";
    told(
        &with("validation", lines),
        expect![[r#"
            error: `validation.interval_steps` must be at least 1, found -1
              --> r.toml:30:18
               |
            30 | interval_steps = -1
               |                  ^^ must be at least 1
               |
               = help: allowed: 1 to 1000000000

            error: `validation.steps` must be an integer or "all", found a string
              --> r.toml:31:9
               |
            31 | steps = "some"
               |         ^^^^^^ must be an integer or "all"
               |
               = help: allowed: 1 to 1000000000, or "all"

            error: `validation.sources` must be an array, found a string
              --> r.toml:32:11
               |
            32 | sources = "valid.txt"
               |           ^^^^^^^^^^^ must be an array
               |
               = help: for example: sources = [{ path = "corpus.txt" }]

            error: unknown key `every` in [validation]
              --> r.toml:33:1
               |
            33 | every = 5
               | ^^^^^ unknown
               |
               = help: the keys of [validation] are: interval_steps, steps, sources, fraction
        "#]],
    );
    told(
        &with("validation", ""),
        expect![[r#"
            error: [validation] has no `interval_steps` and no `sources`
              --> r.toml:29:2
               |
            29 | [validation]
               |  ^^^^^^^^^^ incomplete
               |
               = help: add to [validation], for example:
                       interval_steps = 500
                       sources = [{ path = "validation.txt" }]  # or, of [data]: fraction = 0.01
        "#]],
    );
    told(
        &with("validation", "interval_steps = 5\nsteps = 0\nsources = [\"data.txt\"]"),
        expect![[r#"
        error: `validation.steps` must be at least 1, found 0
          --> r.toml:31:9
           |
        31 | steps = 0
           |         ^ must be at least 1
           |
           = help: allowed: 1 to 1000000000, or "all"

        error: `validation.sources[0]` must be a table, found a string
          --> r.toml:32:12
           |
        32 | sources = ["data.txt"]
           |            ^^^^^^^^^^ must be a table
           |
           = help: write { path = "data.txt" }
    "#]],
    );
    told(
        &with("validation", "interval_steps = 5\nsources = []"),
        expect![[r#"
        error: `validation.sources` is empty
          --> r.toml:31:11
           |
        31 | sources = []
           |           ^^ needs at least one source
           |
           = help: for example: sources = [{ path = "corpus.txt" }]
    "#]],
    );
    let text = with("validation", "interval_steps = 5\nsources = [{ path = \"nowhere.txt\" }]");
    told(
        &text,
        expect![[r#"
        error: cannot read the data file `nowhere.txt`: no such file
          --> r.toml:31:21
           |
        31 | sources = [{ path = "nowhere.txt" }]
           |                     ^^^^^^^^^^^^^ no such file
           |
           = help: relative paths here start from /recipes
    "#]],
    );
    clean(&with(
        "validation",
        "interval_steps = 5\nsteps = \"all\"\nsources = [{ path = \"held-out/data.txt\" }]",
    ));
}
