//! `recipe import`: configurations of TorchTitan become recipes.

use std::fs;
use std::path::PathBuf;

use crate::recipes::recipe;
use crate::support::{Bench, repository};

fn configurations() -> Vec<PathBuf> {
    let folder = repository().join("recipes/crate/tests/import/data");
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let is_one = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap();
        name.ends_with(".toml") && !name.ends_with(".recipe.toml")
    };
    let found: Vec<PathBuf> = paths.filter(is_one).collect();
    assert!(found.len() >= 3, "{found:?}");
    found
}

#[test]
fn an_imported_configuration_is_a_sound_recipe() {
    let bench = Bench::new();
    for config in configurations() {
        let config = config.to_str().unwrap();
        let done = bench.run(&["recipe", "import", config, "-o", "new.toml"]).expect(0);
        assert_eq!(done.stdout, "", "the recipe goes to the file alone");
        assert!(!done.stderr.is_empty(), "what was left out is told");
        bench.run(&["recipe", "check", "new.toml"]).expect(0);
        let text = fs::read_to_string(bench.path("new.toml")).unwrap();
        let printed = bench.run(&["recipe", "import", config]).expect(0).stdout;
        assert_eq!(printed, text, "the same recipe on stdout");
        bench.run(&["plan", "new.toml"]).expect(0);
        fs::remove_file(bench.path("new.toml")).unwrap();
    }
}

#[test]
fn an_imported_recipe_for_a_tpu_is_sound_too() {
    let bench = Bench::new();
    let config = repository().join("recipes/crate/tests/import/data/llama3_8b.toml");
    let config = config.to_str().unwrap();
    let target = ["--target", "tpu7x:4x4x4", "-o", "new.toml"];
    bench.run(&[&["recipe", "import", config][..], &target].concat()).expect(0);
    bench.run(&["recipe", "check", "new.toml"]).expect(0);
    let text = fs::read_to_string(bench.path("new.toml")).unwrap();
    assert!(text.contains("\"tpu7x\"") && text.contains("\"4x4x4\""), "{text}");
    for target in [&["--slices", "2"][..], &["--target", "v9"]] {
        bench.run(&[&["recipe", "import", config][..], target].concat()).expect(2);
    }
}

#[test]
fn a_file_that_is_there_is_not_overwritten() {
    let bench = Bench::new();
    let config = repository().join("recipes/crate/tests/import/data/llama3_8b.toml");
    bench.write("new.toml", "mine\n");
    let arguments = ["recipe", "import", config.to_str().unwrap(), "-o", "new.toml"];
    bench.run(&arguments).expect(2).says(&["new.toml is there already", "--output"]);
    assert_eq!(fs::read_to_string(bench.path("new.toml")).unwrap(), "mine\n");
    let arguments = ["recipe", "import", config.to_str().unwrap(), "-o", "none/new.toml"];
    bench.run(&arguments).expect(2).says(&["none/new.toml"]);
}

#[test]
fn what_is_no_configuration_is_refused_and_nothing_written() {
    let bench = Bench::new();
    bench.write("nonsense.toml", "colour = \"green\"\n");
    bench.write("broken.toml", "[job\n");
    bench.write("empty.toml", "");
    fs::write(bench.path("bytes.toml"), [0xff, 0x00]).unwrap();
    let before = bench.names();
    let tiny = recipe("llama3_tiny");
    for name in [
        "nonsense.toml",
        "broken.toml",
        "empty.toml",
        "bytes.toml",
        "no.toml",
        ".",
        "r.toml",
        &tiny,
    ] {
        let done = bench.run(&["recipe", "import", name, "-o", "new.toml"]).expect(2);
        assert_eq!(done.stdout, "");
        assert!(!done.stderr.contains("panicked"), "{}", done.stderr);
        assert_eq!(bench.names(), before, "{name}");
    }
    bench.run(&["recipe", "import", &tiny]).expect(2).says(&["recipe"]);
}

#[test]
fn a_target_that_does_not_exist_is_refused() {
    let bench = Bench::new();
    let config = repository().join("recipes/crate/tests/import/data/llama3_8b.toml");
    let config = config.to_str().unwrap();
    bench.run(&["recipe", "import", config, "--target", "tpu7x:3x3x3"]).expect(2);
}
