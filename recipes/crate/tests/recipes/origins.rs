//! Where each setting comes from.

use std::collections::BTreeMap;

use expect_test::expect;
use titan_recipes::{Loaded, Purpose};

use crate::bases::{EXPERTS, IMAGES, clean, edit};
use crate::support::{Shelf, load_from, said};

/// The origin of each setting in words, with the value.
fn origins(loaded: &Loaded) -> BTreeMap<String, String> {
    let settings = loaded.settings().unwrap();
    let words = settings.into_iter().map(|setting| {
        let origin = setting.origin.describe(&loaded.warnings.sources);
        let how = if setting.is_resolved { ", worked out" } else { "" };
        (setting.name.clone(), format!("{} from {origin}{how}", setting.text()))
    });
    words.collect()
}

fn shown(loaded: &Loaded, keys: &[&str]) -> String {
    let origins = origins(loaded);
    let line = |key: &&str| {
        let origin = origins.get(*key).map_or("not set", String::as_str);
        format!("{key} = {origin}\n")
    };
    keys.iter().map(line).collect()
}

#[test]
fn every_kind_of_origin() {
    let child = "extends = \"base.toml\"\n\n[training]\nsteps = 30\nglobal_batch = \"auto\"\n[checkpoint]\ninterval_seconds = 60\n";
    let base = edit(EXPERTS, &[("size = \"tiny\"", "size = \"tiny\"\nnum_layers = 3")]);
    let texts = [("/recipes/base.toml", &*base)];
    let set = ["training.seed=7", "data.sources=[{ path = \"/x/data.txt\", weight = 2 }]"];
    let result = load_from(Purpose::Plan, child, &set, &Shelf { texts: &texts });
    assert_eq!(said(&result), "");
    let keys = [
        "version",
        "name",
        "model.family",
        "model.num_layers",
        "model.num_experts",
        "model.head_dim",
        "model.norm_eps",
        "model.init",
        "hardware.topology",
        "hardware.devices",
        "parallelism.replicate",
        "parallelism.shard",
        "training.steps",
        "training.seed",
        "training.global_batch",
        "training.sequence_length",
        "optimizer.momentum",
        "schedule.decay_steps",
        "data.sources[0].path",
        "data.sources[0].weight",
        "checkpoint.interval_seconds",
        "checkpoint.interval",
        "checkpoint.directory",
        "checkpoint.local_directory",
        "elastic.min_slices",
    ];
    expect![[r#"
        version = 1 from base.toml:1
        name = "experts" from base.toml:2
        model.family = "qwen3-moe" from base.toml:5
        model.num_layers = 3 from base.toml:7
        model.num_experts = 8 from preset qwen3-moe tiny
        model.head_dim = 64 from preset qwen3-moe tiny
        model.norm_eps = 1e-6 from default
        model.init = "random" from default
        hardware.topology = "4x4" from base.toml:11
        hardware.devices = "auto" from default
        parallelism.replicate = 1 from default
        parallelism.shard = 16 from default, worked out
        training.steps = 30 from r.toml:4
        training.seed = 7 from --set #1
        training.global_batch = 32 from r.toml:5, worked out
        training.sequence_length = 64 from base.toml:15
        optimizer.momentum = 0.0 from default
        schedule.decay_steps = not set
        data.sources[0].path = "/x/data.txt" from --set #2
        data.sources[0].weight = 2.0 from --set #2
        checkpoint.interval_seconds = 60 from r.toml:7
        checkpoint.interval = not set
        checkpoint.directory = "checkpoints" from default
        checkpoint.local_directory = not set
        elastic.min_slices = not set
    "#]]
    .assert_eq(&shown(&result.unwrap(), &keys));
}

#[test]
fn the_length_of_a_sequence_follows_from_the_image() {
    let keys =
        ["training.sequence_length", "flux.image_size", "flux.text_length", "flux.prompt_dropout"];
    expect![[r#"
        training.sequence_length = 24 from tokens of image and text
        flux.image_size = 64 from r.toml:13
        flux.text_length = 8 from preset flux tiny
        flux.prompt_dropout = 0.1 from default
    "#]]
    .assert_eq(&shown(&clean(IMAGES), &keys));
    let size = edit(
        IMAGES,
        &[("size = \"tiny\"", "size = \"schnell\""), ("[flux]\nimage_size = 64\n", "")],
    );
    expect![[r#"
        training.sequence_length = 512 from tokens of image and text
        flux.image_size = 256 from preset flux schnell
        flux.text_length = 256 from preset flux schnell
        flux.prompt_dropout = 0.1 from default
    "#]]
    .assert_eq(&shown(&clean(&size), &keys));
}

#[test]
fn a_name_comes_from_the_file_when_it_is_not_written() {
    let loaded = clean(&edit(EXPERTS, &[("name = \"experts\"\n", "")]));
    expect![[r#"
        name = "r" from the name of the file
    "#]]
    .assert_eq(&shown(&loaded, &["name"]));
}

#[test]
fn every_setting_has_an_origin() {
    for text in [EXPERTS, IMAGES, crate::support::SOUND] {
        let loaded = clean(text);
        let names: Vec<String> =
            loaded.settings().unwrap().into_iter().map(|setting| setting.name).collect();
        let without = names.iter().filter(|name| !loaded.origins.contains_key(*name));
        let without: Vec<&String> = without.collect();
        assert!(without.is_empty(), "{without:?}");
    }
}

#[test]
fn variables_of_the_environment_have_a_place() {
    let text = crate::support::with("env", "TOKEN = \"hush\"\nOTHER = { from = \"HOME\" }");
    expect![[r#"
        env.TOKEN = "********" from r.toml:30
        env.OTHER = { from = "HOME" } from r.toml:31
    "#]]
    .assert_eq(&shown(&clean(&text), &["env.TOKEN", "env.OTHER"]));
}
