//! Mistakes of messages that are known and not yet mended; each test says what is right.

use titan_recipes::Purpose;

use crate::bases::{EXPERTS, IMAGES, add, clean, edit, mended};
use crate::support::{SOUND, Shelf, edited, load_for, load_from, said, with};

/// What is said about a recipe that must be refused.
#[track_caller]
fn refused(text: &str, set: &[&str]) -> String {
    let result = load_for(Purpose::Check, text, set);
    let said = said(&result);
    assert!(result.is_err(), "it is taken without a word: {said}");
    said
}

#[test]
fn tensor_2_is_suggested_where_the_mesh_says_how_many_devices_there_are() {
    let text = edited(&[("devices = 2\n", ""), ("global_batch = 4\n", "")]);
    let said = refused(&add(&text, "parallelism", "tensor = 3"), &[]);
    assert!(said.contains("tensor: 1, 2"), "{said}");
}

#[test]
fn a_tensor_degree_that_is_suggested_divides_the_heads() {
    let text = add(EXPERTS, "parallelism", "tensor = 3");
    let said = refused(&text, &[]);
    let values = said.split("nearest values of tensor: ").nth(1).map(str::trim);
    for value in values.unwrap_or("1").split(", ") {
        mended(&text, &[&format!("parallelism.tensor={value}")]);
    }
}

#[test]
fn the_axis_to_change_is_underlined() {
    let text = add(EXPERTS, "parallelism", "replicate = 3\ntensor = 2\ncontext = 4");
    assert!(refused(&text, &[]).contains("r.toml:24:13"));
}

#[test]
fn devices_for_slices_are_not_beyond_the_limit() {
    let text =
        edited(&[("devices = 2", "devices = 1000\nslices = 600"), ("global_batch = 4\n", "")]);
    let text = add(&text, "parallelism", "replicate = \"slices\"");
    assert!(!refused(&text, &[]).contains("1200"));
    mended(&text, &["hardware.devices=600"]);
}

#[test]
fn lengths_of_sequences_are_not_beyond_the_limit() {
    let lengths =
        [("devices = 2", "devices = 3"), ("sequence_length = 32", "sequence_length = 16_777_215")];
    let text =
        add(&edited(&lengths).replace("global_batch = 4\n", ""), "parallelism", "context = 3");
    let said = refused(&text, &[]);
    assert!(!said.contains("16777218"), "{said}");
    mended(&text, &["training.sequence_length=16777212"]);
}

#[test]
fn a_help_says_something() {
    for lines in ["hidden_size = 127", "hidden_size = 129\nnum_heads = 3"] {
        let said = refused(&add(IMAGES, "model", lines), &[]);
        assert!(!said.lines().any(|line| line.trim_end().ends_with("help:")), "{said}");
    }
}

#[test]
fn a_wrong_size_is_one_problem() {
    let text = edit(IMAGES, &[("\"tiny\"", "\"pro\""), ("steps", "sequence_length = 24\nsteps")]);
    let said = refused(&text, &[]);
    assert_eq!(said.matches("error:").count(), 1, "{said}");
}

#[test]
fn two_intervals_are_counted_in_reading_order() {
    let said = refused(&with("checkpoint", "interval_seconds = 5\ninterval = \"auto\""), &[]);
    assert!(said.contains("r.toml:31:12"), "{said}");
}

#[test]
fn a_base_that_is_empty_is_named() {
    let texts = [("/recipes/base.toml", "# nothing\n")];
    let child = format!("extends = \"base.toml\"\n{SOUND}");
    let said = said(&load_from(Purpose::Check, &child, &[], &Shelf { texts: &texts }));
    assert!(
        said.contains("base.toml") && !said.contains("the recipe is empty\n--> r.toml"),
        "{said}"
    );
}

#[test]
fn a_misspelled_extends_is_one_problem() {
    let said = refused("extend = \"base.toml\"\n", &[]);
    assert_eq!(said.matches("error:").count(), 1, "{said}");
}

#[test]
fn extends_on_the_command_line_is_refused() {
    refused(SOUND, &["extends=nowhere.toml"]);
}

#[test]
fn reinforcement_of_images_is_refused() {
    let text = edit(IMAGES, &[("image_size = 64", "image_size = 1024")]);
    refused(&add(&text, "rl", "reward = \"exact-match\""), &[]);
}

#[test]
fn words_that_a_cluster_cannot_take_are_refused() {
    for line in ["image = \"\"", "namespace = \"My Space\"", "namespace = \"\"", "queue = \"\""] {
        refused(&add(EXPERTS, "launch", &format!("on = \"gke\"\n{line}")), &[]);
    }
}

#[test]
fn an_address_with_a_slash_missing_is_no_folder() {
    let said = refused(&with("checkpoint", "directory = \"gs:/bucket/x\""), &[]);
    assert!(said.contains("gs://bucket/x"), "{said}");
}

#[test]
fn an_address_with_a_space_is_told_so() {
    let said = refused(&edited(&[("data.txt", "s3://bucket/a b")]), &[]);
    assert!(said.contains("space"), "{said}");
}

#[test]
fn the_example_of_a_decay_fits_the_run() {
    let text = with("schedule", "kind = \"wsd\"");
    let said = refused(&text, &[]);
    let example = said.split("decay_steps = ").nth(1).unwrap().trim();
    mended(&text, &[&format!("schedule.decay_steps={example}")]);
}

#[test]
fn the_example_of_a_local_interval_is_the_frequent_one() {
    let text = with("checkpoint", "interval_steps = 10\nlocal_directory = \"/dev/shm/t\"");
    let said = refused(&text, &[]);
    let example = said.split("local_interval_steps = ").nth(1).unwrap().trim();
    mended(&text, &[&format!("checkpoint.local_interval_steps={example}")]);
}

#[test]
fn a_name_that_is_suggested_suits_the_cluster() {
    for name in ["ünï", &"a".repeat(64)] {
        let text = edit(EXPERTS, &[("\"experts\"", &format!("\"{name}\""))]);
        let text = add(&text, "launch", "on = \"gke\"");
        let said = refused(&text, &[]);
        let suggested = said.split("name = \"").last().unwrap().split('"').next().unwrap();
        clean(&text.replace(name, suggested));
    }
}

#[test]
fn names_of_torchtitan_are_known_in_the_new_tables() {
    let cases = [
        ("checkpoint", "folder = \"x\"", "did you mean `directory`?"),
        ("checkpoint", "interval = 100", "interval_steps = 100"),
        ("rl", "reward = \"exact-match\"\nbeta = 0.1", "did you mean `kl_coefficient`?"),
        ("remat", "mode = \"full\"", "did you mean `policy`?"),
        ("launch", "partition = \"x\"", "did you mean `queue`?"),
    ];
    for (table, lines, help) in cases {
        let said = refused(&with(table, lines), &[]);
        assert!(said.contains(help), "{said}");
    }
}

#[test]
fn names_of_chips_lead_to_ours() {
    for (name, ours) in [
        ("TPU v5 lite", "v5e"),
        ("v5litepod", "v5e"),
        ("TPU v6 lite", "v6e"),
        ("trillium", "v6e"),
        ("TPU v5p", "v5p"),
        ("TPU v5e", "v5e"),
        ("v7x", "tpu7x"),
        ("ironwood", "tpu7x"),
        ("H100", "cuda"),
    ] {
        let said = refused(&edit(EXPERTS, &[("\"v5e\"", &format!("\"{name}\""))]), &[]);
        assert!(said.contains(&format!("did you mean \"{ours}\"?")), "{said}");
    }
}

#[test]
fn a_table_as_a_key_of_another_is_told_where_it_belongs() {
    let said = refused(&edit(SOUND, &[("[data]", "checkpoint = true\n[data]")]), &[]);
    assert!(said.contains("[checkpoint]"), "{said}");
}
