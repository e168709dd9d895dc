//! `titan-tpu checkpoint import`: a checkpoint of the weights of another program.

use std::path::Path;

use serde::Serialize;
use serde_json::{Value, json};
use titan_checkpoint::hugging_face::{Imported, import as make};
use titan_checkpoint::{Error, Place, list};
use titan_recipes::{Loaded, Purpose};

use super::args::ImportWeightsArgs;
use super::export::unwritable;
use super::{new_place, print_json};
use crate::console::{Console, Style, print_document};
use crate::data::cores;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::train::{keeping, signals};
use crate::{hugging_face, recipe_command, words};

/// What `import --json` prints.
#[derive(Serialize)]
struct Made<'a> {
    path: &'a Place,
    step: u64,
    files: u64,
    tensors: u64,
    parameters: u64,
    bytes: u64,
}

/// Runs the command.
pub(super) fn import(args: &ImportWeightsArgs) -> Result<Exit, Failure> {
    if args.prefix.is_some() {
        let text = "--prefix is for --format dcp: the names of hugging-face have none";
        return Err(Failure::new(Exit::Usage, text).help("leave it out"));
    }
    let stop = signals::cancellation()?;
    let console = Console::new(Style::choose(args.json));
    let overrides = recipe_command::overrides(&args.set, Vec::new());
    let loaded = titan_recipes::load(&args.recipe, &overrides, Purpose::Plan)?;
    recipe_command::print_warnings(&loaded);
    let settings = loaded.settings().map(|settings| keeping::identity(&settings));
    let settings = settings.map_err(|error| Failure::new(Exit::Bug, error.to_string()))?;
    let (folder, model) = hugging_face::check(&args.path, &settings)?;
    let to = new_place(&args.to)?;
    refuse_later_ones(&to)?;
    let tensors = model.tensors();
    let run = about(&loaded, settings, "hugging-face", &args.path);
    let name = args.to.display();
    let progress = |written: u64, all: u64| {
        let text = format!("{name}: {} of {} written", words::bytes(written), words::bytes(all));
        console.progress(text, Some(written as f64 / all.max(1) as f64));
    };
    let made = make(&folder, &tensors, &to, run, cores(), &stop, &progress);
    console.clear();
    console.flush();
    let Imported { place: path, files, bytes } = made.map_err(|error| match error {
        Error::Stopped => Failure::new(
            Exit::Stopped,
            "stopped before the checkpoint was written; it is not there",
        ),
        error => unwritable(&error),
    })?;
    let parameters = tensors.values().map(|facts| facts.shape.iter().product::<u64>()).sum();
    let tensors = tensors.len() as u64;
    if args.json {
        return print_json(&Made { path: &path, step: 0, files, tensors, parameters, bytes });
    }
    print_document(&format!(
        "{}: the weights of {} ({}, {} in {})\n",
        path,
        args.path.display(),
        words::count(parameters as f64),
        words::bytes(bytes),
        words::plural(files, "file"),
    ))
}

/// A run would go on from the newest, which would not be this one.
fn refuse_later_ones(folder: &Place) -> Result<(), Failure> {
    let failed = |error: Error| Failure::new(Exit::Usage, error.to_string());
    let Some(newest) = list(folder).map_err(failed)?.pop() else { return Ok(()) };
    let text = format!(
        "there is a checkpoint of step {} in {}, and a run would go on from that",
        newest.step, folder
    );
    Err(Failure::new(Exit::Usage, text).help("name a folder without checkpoints"))
}

/// What the checkpoint says about itself. It has no place in the data: the run that goes on from it begins with the first
/// sample.
pub(super) fn about(loaded: &Loaded, mut settings: Value, format: &str, from: &Path) -> Value {
    if let Some(settings) = settings.as_object_mut() {
        // The optimizer may be any.
        settings.retain(|name, _| name.starts_with("model."));
    }
    let folder = std::path::absolute(from).unwrap_or_else(|_| from.to_owned());
    json!({
        "id": "import", "name": *loaded.recipe.name, "attempt": 1,
        "titan": env!("CARGO_PKG_VERSION"), "world": 1, "mesh": null,
        "settings": settings, "cursor": null,
        "source": { "format": format, "folder": folder },
        "sequence_length": loaded.layout.sequence_length,
    })
}
