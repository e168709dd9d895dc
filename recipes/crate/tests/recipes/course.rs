//! Rules about sequences, batches, the learning rate, checkpoints and lost slices.

use expect_test::expect;

use crate::bases::{EXPERTS, IMAGES, add, clean, edit, mended, told};
use crate::support::{SOUND, edited, load, said, with};

#[test]
fn context_cuts_a_sequence_into_two_pieces_a_rank() {
    let text = edit(EXPERTS, &[("sequence_length = 64", "sequence_length = 60")]);
    let text = add(&text, "parallelism", "context = 4");
    told(
        &text,
        expect![[r#"
        error: `training.sequence_length` = 60 is not a multiple of 2 x context 4 = 8
          --> r.toml:14:19
           |
        14 | sequence_length = 60
           |                   ^^ each rank works on equal pieces of a sequence
        ...
        24 | context = 4
           |           - the context degree
           |
           = help: nearest values of sequence_length: 56, 64
    "#]],
    );
    mended(&text, &["training.sequence_length=56", "training.sequence_length=64"]);
}

#[test]
fn tensor_cuts_a_sequence_too() {
    let text = edit(EXPERTS, &[("sequence_length = 64", "sequence_length = 63")]);
    let tensor = add(&text, "parallelism", "tensor = 2");
    told(
        &tensor,
        expect![[r#"
        error: `training.sequence_length` = 63 is not a multiple of tensor 2
          --> r.toml:14:19
           |
        14 | sequence_length = 63
           |                   ^^ each rank works on equal pieces of a sequence
        ...
        24 | tensor = 2
           |          - the tensor degree
           |
           = help: nearest values of sequence_length: 62, 64
    "#]],
    );
    mended(&tensor, &["training.sequence_length=62", "training.sequence_length=64"]);
    let both = add(&text, "parallelism", "tensor = 2\ncontext = 4");
    told(
        &both,
        expect![[r#"
        error: `training.sequence_length` = 63 is not a multiple of 2 x context 4 x tensor 2 = 16
          --> r.toml:14:19
           |
        14 | sequence_length = 63
           |                   ^^ each rank works on equal pieces of a sequence
        ...
        25 | context = 4
           |           - the context degree
           |
           = help: nearest values of sequence_length: 48, 64
    "#]],
    );
    mended(&both, &["training.sequence_length=48", "training.sequence_length=64"]);
    let short = edit(&both, &[("sequence_length = 63", "sequence_length = 7")]);
    told(
        &short,
        expect![[r#"
        error: `training.sequence_length` = 7 is not a multiple of 2 x context 4 x tensor 2 = 16
          --> r.toml:14:19
           |
        14 | sequence_length = 7
           |                   ^ each rank works on equal pieces of a sequence
        ...
        25 | context = 4
           |           - the context degree
           |
           = help: write sequence_length = 16
    "#]],
    );
    mended(&short, &["training.sequence_length=16"]);
}

#[test]
fn a_sequence_of_text_and_image_is_cut_too() {
    let text = edit(IMAGES, &[("image_size = 64", "image_size = 64\ntext_length = 9")]);
    told(
        &add(&text, "parallelism", "context = 2"),
        expect![[r#"
        error: `training.sequence_length` = 25 is not a multiple of 2 x context 2 = 4
          --> r.toml:27:11
           |
        27 | context = 2
           |           ^ each rank works on equal pieces of a sequence
           |
           = help: choose another image_size or text_length in [flux]
    "#]],
    );
}

#[test]
fn answers_fit_the_sequence() {
    let text = add(
        EXPERTS,
        "rl",
        "reward = \"exact-match\"\nmax_prompt_length = 32\nmax_response_length = 64",
    );
    told(
        &text,
        expect![[r#"
        error: a prompt of 32 and an answer of 64 tokens do not fit a sequence of 64
          --> r.toml:26:23
           |
        14 | sequence_length = 64
           |                   -- the longest sequence
        ...
        26 | max_response_length = 64
           |                       ^^ together 96 tokens
           |
           = help: write sequence_length = 96, or allow shorter answers
    "#]],
    );
    mended(&text, &["training.sequence_length=96", "rl.max_response_length=32"]);
    told(
        &add(EXPERTS, "rl", "reward = \"exact-match\""),
        expect![[r#"
        error: a prompt of 512 and an answer of 1024 tokens do not fit a sequence of 64
          --> r.toml:23:2
           |
        14 | sequence_length = 64
           |                   -- the longest sequence
        ...
        23 | [rl]
           |  ^^ together 1536 tokens
           |
           = help: write sequence_length = 1536, or allow shorter answers
    "#]],
    );
}

#[test]
fn a_batch_counts_data_parallel_ranks_and_not_devices() {
    let text = edit(EXPERTS, &[("local_batch = 2", "local_batch = 2\nglobal_batch = 20")]);
    let text = add(&text, "parallelism", "tensor = 2");
    told(
        &text,
        expect![[r#"
        error: `training.global_batch` = 20 is not a multiple of local_batch 2 x 8 data-parallel ranks = 16
          --> r.toml:16:16
           |
        10 | topology = "4x4"
           |            ----- the devices
        ...
        15 | local_batch = 2
           |               - the local batch
        16 | global_batch = 20
           |                ^^ global batch = local batch x replicate x shard x accumulation
           |
           = help: nearest values of global_batch: 16, 32
    "#]],
    );
    mended(&text, &["training.global_batch=16", "training.global_batch=32"]);
    let text = edit(&text, &[("global_batch = 20", "global_batch = 24")]);
    told(
        &text,
        expect![[r#"
        error: `training.global_batch` = 24 is not a multiple of local_batch 2 x 8 data-parallel ranks = 16
          --> r.toml:16:16
           |
        10 | topology = "4x4"
           |            ----- the devices
        ...
        15 | local_batch = 2
           |               - the local batch
        16 | global_batch = 24
           |                ^^ global batch = local batch x replicate x shard x accumulation
           |
           = help: nearest values of global_batch: 16, 32; or nearest values of local_batch: 1, 3
    "#]],
    );
    mended(&text, &["training.local_batch=1", "training.local_batch=3"]);
}

#[test]
fn a_decay_fits_the_run() {
    let text = add(SOUND, "schedule", "kind = \"wsd\"\ndecay_steps = 30");
    told(
        &text,
        expect![[r#"
        error: `schedule.decay_steps` = 30 is longer than the run of 20 steps
          --> r.toml:31:15
           |
        18 | steps = 20
           |         -- the length of the run
        ...
        31 | decay_steps = 30
           |               ^^ must be at most 20
           |
           = help: a usual decay for this run: decay_steps = 4
    "#]],
    );
    mended(&text, &["schedule.decay_steps=4"]);
    let text = add(SOUND, "schedule", "kind = \"wsd\"\nwarmup_steps = 10\ndecay_steps = 11");
    told(
        &text,
        expect![[r#"
        error: `schedule.decay_steps` = 11 is longer than the 10 steps that warm-up leaves
          --> r.toml:32:15
           |
        18 | steps = 20
           |         -- the length of the run
        ...
        31 | warmup_steps = 10
           |                -- the warm-up
        32 | decay_steps = 11
           |               ^^ must be at most 10
           |
           = help: a usual decay for this run: decay_steps = 2
    "#]],
    );
    mended(&text, &["schedule.decay_steps=2", "schedule.decay_steps=10"]);
    let text = add(SOUND, "schedule", "kind = \"wsd\"\nwarmup_steps = 20\ndecay_steps = 1");
    told(
        &text,
        expect![[r#"
        error: `schedule.decay_steps` = 1 is longer than the 0 steps that warm-up leaves
          --> r.toml:32:15
           |
        18 | steps = 20
           |         -- the length of the run
        ...
        31 | warmup_steps = 20
           |                -- the warm-up
        32 | decay_steps = 1
           |               ^ must be at most 0
           |
           = help: leave room for a decay: fewer warmup_steps, or more steps
    "#]],
    );
    mended(&text, &["schedule.warmup_steps=19", "training.steps=21"]);
}

#[test]
fn a_decay_belongs_to_wsd() {
    told(
        &with("schedule", "kind = \"wsd\""),
        expect![[r#"
            error: [schedule] has no `decay_steps`
              --> r.toml:29:2
               |
            29 | [schedule]
               |  ^^^^^^^^ incomplete
               |
               = help: add to [schedule], for example: decay_steps = 4
        "#]],
    );
    told(
        &with("schedule", "decay_steps = 5\ndecay_kind = \"sqrt\""),
        expect![[r#"
        warning: `schedule.decay_steps` has no effect: it is for kind = "wsd"
          --> r.toml:30:15
           |
        30 | decay_steps = 5
           |               ^ not used

        warning: `schedule.decay_kind` has no effect: it is for kind = "wsd"
          --> r.toml:31:14
           |
        31 | decay_kind = "sqrt"
           |              ^^^^^^ not used
    "#]],
    );
    told(
        &with(
            "schedule",
            "kind = \"wds\"\ndecay_steps = 0\ndecay_kind = \"exp\"\nfinal_fraction = 2",
        ),
        expect![[r#"
            error: `schedule.kind` has no choice "wds"
              --> r.toml:30:8
               |
            30 | kind = "wds"
               |        ^^^^^ unknown choice
               |
               = help: did you mean "wsd"? allowed: "cosine", "linear", "wsd", "constant"

            error: `schedule.decay_steps` must be at least 1, found 0
              --> r.toml:31:15
               |
            31 | decay_steps = 0
               |               ^ must be at least 1
               |
               = help: allowed: 1 to 1000000000

            error: `schedule.decay_kind` has no choice "exp"
              --> r.toml:32:14
               |
            32 | decay_kind = "exp"
               |              ^^^^^ unknown choice
               |
               = help: allowed: "linear", "cosine", "sqrt"

            error: `schedule.final_fraction` must be from 0 to 1, found 2
              --> r.toml:33:18
               |
            33 | final_fraction = 2
               |                  ^ must be from 0 to 1
        "#]],
    );
    clean(&with("schedule", "kind = \"wsd\"\ndecay_steps = 5\ndecay_kind = \"sqrt\""));
}

#[test]
fn the_fast_tier_is_whole() {
    let text = with("checkpoint", "local_directory = \"/dev/shm/t\"");
    told(
        &text,
        expect![[r#"
        error: `checkpoint.local_directory` without `local_interval_steps`
          --> r.toml:30:19
           |
        30 | local_directory = "/dev/shm/t"
           |                   ^^^^^^^^^^^^ the local tier needs both
           |
           = help: add local_interval_steps = 50
    "#]],
    );
    mended(&text, &["checkpoint.local_interval_steps=50"]);
    let text = with("checkpoint", "local_interval_steps = 5");
    told(
        &text,
        expect![[r#"
        error: `checkpoint.local_interval_steps` without `local_directory`
          --> r.toml:30:24
           |
        30 | local_interval_steps = 5
           |                        ^ the local tier needs both
           |
           = help: add local_directory = "/dev/shm/titan"
    "#]],
    );
    mended(&text, &["checkpoint.local_directory=\"/dev/shm/titan\""]);
}

#[test]
fn the_fast_tier_is_the_frequent_one() {
    let tier = "local_directory = \"/dev/shm/t\"\nlocal_interval_steps";
    let text = with("checkpoint", &format!("interval_steps = 20\n{tier} = 40"));
    told(
        &text,
        expect![[r#"
            error: `checkpoint.local_interval_steps` = 40 is longer than interval_steps = 20
              --> r.toml:32:24
               |
            30 | interval_steps = 20
               |                  -- the persistent tier
            31 | local_directory = "/dev/shm/t"
            32 | local_interval_steps = 40
               |                        ^^ the local tier is there to be saved to more often
               |
               = help: for example: local_interval_steps = 2
        "#]],
    );
    mended(&text, &["checkpoint.local_interval_steps=2"]);
    let text = with("checkpoint", &format!("interval_steps = 3\n{tier} = 5"));
    told(
        &text,
        expect![[r#"
        error: `checkpoint.local_interval_steps` = 5 is longer than interval_steps = 3
          --> r.toml:32:24
           |
        30 | interval_steps = 3
           |                  - the persistent tier
        31 | local_directory = "/dev/shm/t"
        32 | local_interval_steps = 5
           |                        ^ the local tier is there to be saved to more often
           |
           = help: for example: local_interval_steps = 1
    "#]],
    );
    mended(&text, &["checkpoint.local_interval_steps=1"]);
    clean(&with("checkpoint", &format!("interval_seconds = 3\n{tier} = 5")));
}

const SLICES: [(&str, &str); 2] = [
    ("\"4x4\"", "\"4x4\"\nslices = 4"),
    ("local_batch = 2", "local_batch = 2\nglobal_batch = 128"),
];

#[test]
fn min_slices_are_there() {
    let text = add(&edit(EXPERTS, &SLICES), "parallelism", "replicate = \"slices\"");
    let text = add(&text, "elastic", "min_slices = 5");
    told(
        &text,
        expect![[r#"
        error: `elastic.min_slices` = 5 is more than the 4 of `hardware.slices`
          --> r.toml:29:14
           |
        11 | slices = 4
           |          - the slices
        ...
        29 | min_slices = 5
           |              ^ must be at most 4
           |
           = help: write min_slices = 4, or less
    "#]],
    );
    mended(&text, &["elastic.min_slices=4"]);
    told(
        &with("elastic", "min_slices = 2"),
        expect![[r#"
        error: `elastic.min_slices` = 2 is more than the 1 of `hardware.slices`
          --> r.toml:30:14
           |
        30 | min_slices = 2
           |              ^ must be at most 1
           |
           = help: write min_slices = 1, or less
    "#]],
    );
}

#[test]
fn fewer_workers_after_a_failure_silently_changes_the_global_batch() {
    // ServiceNow/Fast-LLM#241: the part that a recipe says.
    let text = add(&edit(EXPERTS, &SLICES), "parallelism", "replicate = \"slices\"");
    let text = add(&text, "elastic", "min_slices = 3");
    told(
        &text,
        expect![[r#"
        error: with `elastic.min_slices` = 3 the global batch of 128 sequences cannot stay the same
          --> r.toml:29:14
           |
        17 | global_batch = 128
           |                --- not a multiple of that
        ...
        29 | min_slices = 3
           |              ^ 32 sequences a slice and micro-step x 3 slices
           |
           = help: nearest values of min_slices: 1, 2, 4
    "#]],
    );
    mended(&text, &["elastic.min_slices=1", "elastic.min_slices=2", "elastic.min_slices=4"]);
    let text = edit(&text, &[("global_batch = 128", "global_batch = 384")]);
    clean(&text);
}

#[test]
fn restarts_have_checkpoints() {
    let text = with("elastic", "max_restarts = 30");
    told(
        &text,
        expect![[r#"
            warning: `elastic.max_restarts` = 30 without checkpoints: each restart begins at step 1
              --> r.toml:30:16
               |
            30 | max_restarts = 30
               |                ^^ nothing to go on from
               |
               = help: add a table [checkpoint]
        "#]],
    );
    clean(&add(&text, "checkpoint", ""));
    let text = edited(&[("steps = 20", "steps = 0")]);
    told(
        &add(&text, "elastic", "max_restarts = 30"),
        expect![[r#"
            error: `training.steps` must be at least 1, found 0
              --> r.toml:18:9
               |
            18 | steps = 0
               |         ^ must be at least 1
               |
               = help: allowed: 1 to 1000000000

            warning: `elastic.max_restarts` = 30 without checkpoints: each restart begins at step 1
              --> r.toml:30:16
               |
            30 | max_restarts = 30
               |                ^^ nothing to go on from
               |
               = help: add a table [checkpoint]
        "#]],
    );
}

#[test]
fn a_notice_can_be_looked_at() {
    for notice in ["gone", "/run/gone", "http://metadata.google.internal/a/b", "http://[::1]:80/"] {
        clean(&with("elastic", &format!("preemption_notice = \"{notice}\"")));
    }
    for notice in
        ["", " ", "https://a/b", "ftp://a/b", "http://", "http://a:99999/", "http://:80/x"]
    {
        let text = with("elastic", &format!("preemption_notice = \"{notice}\""));
        let said = said(&load(&text, &[]));
        assert!(said.contains("is neither a file nor a page"), "{notice}: {said}");
    }
}
