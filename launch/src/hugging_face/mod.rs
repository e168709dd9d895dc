//! Models in Hugging Face's format, and what they have in common with recipes.

mod architecture;
mod config;

use std::path::Path;

use serde_json::Value;
use titan_checkpoint::Error;
use titan_checkpoint::MANIFEST;
use titan_checkpoint::hugging_face::{CONFIG, Folder};

pub(crate) use architecture::Architecture;
pub(crate) use config::{Details, to_config};

use crate::exit::Exit;
use crate::failure::Failure;
use crate::words;

/// Lines that are shown of many.
const SHOWN: usize = 12;

/// A folder with the weights of the model that these settings describe: all are there, and all as they should be. They are
/// those that a checkpoint has (see [`Architecture::of_settings`]).
///
/// # Errors
/// What differs, or what is wrong with the folder.
pub(crate) fn check(path: &Path, settings: &Value) -> Result<(Folder, Architecture), Failure> {
    let failed = |error: Error| Failure::new(Exit::Usage, error.to_string());
    let ours = Architecture::of_settings(settings).map_err(|what| {
        Failure::new(Exit::Usage, format!("the model of the recipe cannot be compared: {what}"))
    })?;
    if !path.is_dir() {
        let what = if path.exists() { "it is no folder" } else { "there is no such folder" };
        let text = format!("{}: {what}", path.display());
        return Err(Failure::new(Exit::Usage, text)
            .help("name a folder with a model in Hugging Face's format"));
    }
    if let Some(help) = another_format(path) {
        let text = format!("{}: it has no config.json", path.display());
        return Err(Failure::new(Exit::Usage, text).help(help));
    }
    let config = Folder::config(path).map_err(failed)?;
    let differing = config::differences(&config, &ours);
    if !differing.is_empty() {
        let text = format!("the model in {} is another than that of the recipe", path.display());
        return Err(Failure::new(Exit::Usage, text)
            .quoting(differing)
            .help("change [model] of the recipe, or name another folder"));
    }
    let folder = Folder::open(path).map_err(failed)?;
    let differing = folder.differences(&ours.tensors());
    if !differing.is_empty() {
        let text = format!("the weights in {} are not those of this model", path.display());
        return Err(Failure::new(Exit::Usage, text).quoting(shortened(differing)));
    }
    Ok((folder, ours))
}

/// What to do with a folder that has no description of a model; `None` where it has one.
fn another_format(path: &Path) -> Option<&'static str> {
    let has = |name: &str| path.join(name).symlink_metadata().is_ok();
    if has(CONFIG) {
        return None;
    }
    Some(if has(".metadata") {
        "it is a checkpoint of torch.distributed.checkpoint: titan-tpu checkpoint import --format dcp"
    } else if has(MANIFEST) {
        "it is a checkpoint of titan-tpu: a run goes on from it with checkpoint.directory, and \
         titan-tpu checkpoint export makes a model of it"
    } else {
        "name a folder with a model in Hugging Face's format"
    })
}

fn shortened(mut lines: Vec<String>) -> Vec<String> {
    let more = lines.len().saturating_sub(SHOWN);
    if more > 0 {
        lines.truncate(SHOWN);
        lines.push(format!("and {} more", words::grouped(more as u64)));
    }
    lines
}
