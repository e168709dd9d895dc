//! `titan-tpu recipe`, `plan` and `mfu`: what a user can do with recipes without running them.

mod bad;
mod degrees;
mod import;
mod rates;
mod rows;
mod secrets;
mod shown;

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use crate::support::{Bench, Done, repository};

/// Every recipe that comes with titan-tpu.
fn shipped() -> Vec<PathBuf> {
    let folder = fs::read_dir(repository().join("recipes")).unwrap();
    let paths = folder.map(|entry| entry.unwrap().path());
    let mut recipes: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|ext| ext == "toml")).collect();
    recipes.sort();
    recipes
}

/// The path of the shipped recipe `name`.
fn recipe(name: &str) -> String {
    repository().join(format!("recipes/{name}.toml")).to_str().unwrap().to_owned()
}

/// Writes the small recipe of the bench with more text at its end.
fn append(bench: &Bench, name: &str, more: &str) {
    let text = fs::read_to_string(bench.path("r.toml")).unwrap();
    bench.write(name, &format!("{text}{more}"));
}

/// The one JSON value on stdout.
fn json(done: &Done) -> Value {
    serde_json::from_str(&done.stdout).unwrap_or_else(|e| panic!("{e}: {}", done.stdout))
}

/// Fails unless stdout says all of this.
#[track_caller]
fn prints(done: &Done, texts: &[&str]) {
    for text in texts {
        assert!(done.stdout.contains(text), "stdout does not say {text:?}:\n{}", done.stdout);
    }
}
