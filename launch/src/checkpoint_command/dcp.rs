//! `titan-tpu checkpoint export` and `import` with the format of torch.distributed.checkpoint.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;
use serde_json::{Value, json};
use titan_checkpoint::{Checkpoint, Found, NewFolder, Place, open, verify};
use titan_recipes::{Loaded, Purpose, load};
use titan_trainer::spec::{DataSpec, RunSpec};

use super::args::{ExportArgs, ImportWeightsArgs};
use super::export::unwritable;
use super::helper::{Answer, Helper, stopped, unexpected};
use super::import::about;
use super::intake::{Intake, take_in};
use super::{new_place, require_folder, some_at, unchecked, unusable};
use crate::console::{Console, Style};
use crate::data::cores;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::train::{settings_identity, signals};
use crate::{recipe_command, setup_command, words};

/// The file that makes a folder one of torch.distributed.checkpoint.
const METADATA: &str = ".metadata";

/// The last JSON line.
#[derive(Serialize)]
struct Done<'a> {
    event: &'static str,
    format: &'static str,
    from: &'a Path,
    path: String,
    step: u64,
    tensors: usize,
    bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    not_taken: Option<&'a [String]>,
}

pub(super) fn export(args: &ExportArgs) -> Result<Exit, Failure> {
    if args.asks_for_form() {
        let text = "--dtype, --experts and --shard-bytes are for --format hugging-face: dcp has the state as it is";
        return Err(Failure::new(Exit::Usage, text).help("leave them out"));
    }
    let stop = signals::cancellation()?;
    let console = Console::new(Style::choose(args.json));
    let all = some_at(&args.path)?;
    require_folder(&args.to)?;
    let new = NewFolder::begin(&args.to).map_err(|error| unwritable(&error))?;
    let to = new.path().to_owned();
    let (from, checkpoint) = newest_sound(all, &console, &stop)?;
    let environment = setup_command::ensure(&console, &stop, false)?;
    let mut helper = Helper::start(&environment, &stop)?;
    helper.order(&export_order(&checkpoint, new.hidden()))?;
    let total = checkpoint.manifest().bytes();
    loop {
        match helper.answer().map_err(|failure| naming(&to, advise(failure, &to)))? {
            Answer::Progress(done) => {
                console.progress("writing".to_owned(), Some(done as f64 / total.max(1) as f64));
            }
            Answer::Done {} => break,
            other => return Err(unexpected(&format!("{other:?}"))),
        }
    }
    if stop.load(Ordering::Relaxed) {
        return Err(stopped());
    }
    new.finish().map_err(|error| unwritable(&error))?;
    console.clear();
    let (step, tensors) = (checkpoint.manifest().step, checkpoint.manifest().tensors.len());
    let (event, format) = ("exported", "dcp");
    let shown = (args.to.as_path(), from.as_path());
    console.json(&Done {
        event,
        format,
        from: shown.1,
        path: to.display().to_string(),
        step,
        tensors,
        bytes: total,
        not_taken: None,
    });
    console.line(format!(
        "{}: step {step}, {} and {} of {}",
        shown.0.display(),
        words::plural(tensors as u64, "tensor"),
        words::bytes(total),
        shown.1.display()
    ));
    Ok(Exit::Done)
}

/// What the engine is told to write.
fn export_order(checkpoint: &Checkpoint, to: &Path) -> Value {
    let manifest = checkpoint.manifest();
    let files: Vec<&str> = manifest.files.iter().map(|file| file.name.as_str()).collect();
    json!({
        "order": "export", "folder": checkpoint.place(), "files": files, "step": manifest.step,
        "run": manifest.run.to_string(), "to": to,
    })
}

/// The newest of some checkpoints that is sound; those that are not are named.
fn newest_sound(
    mut all: Vec<Found>,
    console: &Console,
    stop: &AtomicBool,
) -> Result<(PathBuf, Checkpoint), Failure> {
    loop {
        let Some(found) = all.pop() else {
            return Err(Failure::new(Exit::NoCheckpoint, "there is no checkpoint to export"));
        };
        let Some(path) = found.place.folder() else {
            let text = format!(
                "{}: only a checkpoint of this machine can be exported to dcp",
                found.place
            );
            return Err(Failure::new(Exit::Usage, text).help("copy its folder here first"));
        };
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        match sound(&path, console, stop) {
            Err(failure) if failure.exit == Exit::NoCheckpoint && !all.is_empty() => {
                let (step, why) = (found.step, failure.summary());
                console.warning(&format!("the checkpoint of step {step} cannot be used: {why}"));
            }
            result => return Ok((path, result?)),
        }
    }
}

/// The checkpoint at a path, every byte of which was compared with its hash.
fn sound(path: &Path, console: &Console, stop: &AtomicBool) -> Result<Checkpoint, Failure> {
    let checkpoint = open(path).map_err(|error| unusable(&error))?;
    let progress = |bytes: u64| {
        console.progress(format!("{} checked", words::bytes(bytes)), None);
    };
    let findings = verify(&path.into(), cores(), stop, &progress).map_err(|e| unchecked(&e))?;
    console.clear();
    let Some(bad) = findings.bad.first() else { return Ok(checkpoint) };
    let text = format!("{}: {}", bad.path.display(), bad.what);
    Err(Failure::new(Exit::NoCheckpoint, text)
        .help("name a checkpoint that is sound: titan-tpu checkpoint verify"))
}

/// What to do about a disk that is full.
fn advise(failure: Failure, to: &Path) -> Failure {
    let free = to.parent().and_then(|folder| rustix::fs::statvfs(folder).ok());
    match (failure.exit, free) {
        (Exit::NoSpace, Some(disk)) => failure.help(format!(
            "nothing is left of it; the disk of {} has {} free",
            to.display(),
            words::bytes(disk.f_bavail.saturating_mul(disk.f_frsize))
        )),
        _ => failure,
    }
}

pub(super) fn import(args: &ImportWeightsArgs) -> Result<Exit, Failure> {
    let stop = signals::cancellation()?;
    let console = Console::new(Style::choose(args.json));
    let changes = recipe_command::overrides(&args.set, Vec::new());
    let loaded = load(&args.recipe, &changes, Purpose::Plan)?;
    let settings = loaded.settings().map(|settings| settings_identity(&settings));
    let settings = settings.map_err(|error| Failure::new(Exit::Bug, error.to_string()))?;
    let folder = metadata_in(&args.path)?;
    let model = model(&loaded)?;
    let environment = setup_command::ensure(&console, &stop, false)?;
    let mut helper = Helper::start(&environment, &stop)?;
    helper.order(&json!({ "order": "import", "folder": folder, "model": model }))?;
    let Answer::Listing(listing) = helper.answer()? else {
        return Err(unexpected("no listing"));
    };
    let run = about(&loaded, settings.clone(), "dcp", &folder);
    let intake = Intake::new(&listing, &settings, run, args.prefix.as_deref())
        .map_err(|failure| naming(&folder, failure))?;
    let to = new_place(&args.to)?;
    let path = take_in(&mut helper, &intake, &to, &console, &stop)
        .map_err(|failure| advise(failure, &args.to))?;
    console.clear();
    report(args, &folder, &path, &intake, &console);
    Ok(Exit::Done)
}

fn report(args: &ImportWeightsArgs, from: &Path, path: &Place, intake: &Intake, console: &Console) {
    let (event, format, step) = ("imported", "dcp", intake.step);
    let (tensors, bytes) = (intake.tensors.len(), intake.bytes());
    let not_taken = Some(&intake.not_taken[..]);
    let (place, path) = (path, path.to_string());
    console.json(&Done { event, format, from, path, step, tensors, bytes, not_taken });
    console.line(format!(
        "{}: step {step}, {} and {} of {}",
        place,
        words::plural(tensors as u64, "tensor"),
        words::bytes(bytes),
        args.path.display()
    ));
    if !intake.not_taken.is_empty() {
        let few = super::names::first_few(&intake.not_taken).join(", ");
        console.note(&format!("not taken, for the model has nothing of these names: {few}"));
    }
}

/// The same failure, whose text begins with the folder.
fn naming(folder: &Path, failure: Failure) -> Failure {
    match failure.what {
        crate::failure::What::Message { text, quoted } => {
            let text = format!("{}: {text}", folder.display());
            Failure { what: crate::failure::What::Message { text, quoted }, ..failure }
        }
        what @ crate::failure::What::Recipe(_) => Failure { what, ..failure },
    }
}

/// The folder, absolute, if it is one of torch.distributed.checkpoint.
fn metadata_in(folder: &Path) -> Result<PathBuf, Failure> {
    if folder.join(METADATA).is_file() {
        return std::path::absolute(folder).map_err(|error| {
            Failure::io(Exit::Usage, format!("cannot use {}", folder.display()), &error)
        });
    }
    let what = match folder.metadata() {
        Ok(kind) if kind.is_dir() => "it has no file .metadata",
        Ok(_) => "it is no folder",
        Err(_) => "there is no such folder",
    };
    let text = format!(
        "{}: this is no checkpoint of torch.distributed.checkpoint: {what}",
        folder.display()
    );
    Err(Failure::new(Exit::Usage, text)
        .help("name the folder that was given to torch.distributed.checkpoint.save: it has .metadata and .distcp files"))
}

/// The model of a recipe, as the engine takes it.
fn model(loaded: &Loaded) -> Result<Value, Failure> {
    let spec = RunSpec::new(&loaded.recipe, loaded.layout, DataSpec::default(), 1);
    let spec = spec.map_err(|key| {
        let text = format!("the engine has no model for `{key}` of this recipe");
        Failure::new(Exit::Usage, text).help("titan-tpu trains llama3, qwen3 and qwen3-moe")
    })?;
    serde_json::to_value(spec.engine.model)
        .map_err(|error| Failure::new(Exit::Bug, error.to_string()))
}
