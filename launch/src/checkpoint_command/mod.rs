//! `titan-tpu checkpoint`: what is there, what is in it, whether it is sound, and how long it stays; and the formats of
//! others.

pub(crate) mod args;
mod dcp;
mod export;
mod helper;
mod import;
mod intake;
mod names;
mod retention;

use std::path::Path;
use std::sync::atomic::AtomicBool;

use serde::Serialize;
use titan_checkpoint::{
    Error, Findings, Found, MANIFEST, Manifest, Pin, Place, StepName, TensorFacts, list, open,
    verify,
};

use titan_recipes::{Overrides, Purpose};
use titan_trainer::saver::Tier;

use args::Format;

use crate::cli::{CheckpointCommand, CheckpointPathArgs};
use crate::console::{Console, Style, print_document};
use crate::data::cores;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::train::run_dir::{History, RunDir};
use crate::train::{keeping, signals};
use crate::words;

/// Runs the command.
pub(crate) fn run(command: &CheckpointCommand) -> Result<Exit, Failure> {
    match command {
        CheckpointCommand::Ls(args) => ls(args),
        CheckpointCommand::Show(args) => show(args),
        CheckpointCommand::Verify(args) => verify_all(args),
        CheckpointCommand::Export(args) => match args.format {
            Format::HuggingFace => export::export(args),
            Format::Dcp => dcp::export(args),
        },
        CheckpointCommand::Import(args) => match args.format {
            Format::HuggingFace => import::import(args),
            Format::Dcp => dcp::import(args),
        },
        CheckpointCommand::Pin(args) => retention::pin(args),
        CheckpointCommand::Prune(args) => retention::prune(args),
    }
}

/// A checkpoint, and the tier that it is in.
struct Listing {
    tier: Tier,
    found: Found,
}

/// The checkpoints that a path stands for: one, those in a folder or below an address, or those of a run, in all tiers.
fn found_at(path: &Path) -> Result<Vec<Listing>, Failure> {
    let failed = |error: Error| Failure::new(Exit::Usage, error.to_string());
    let place = place_of(path)?;
    let persistent = |found| Listing { tier: Tier::Persistent, found };
    let name = StepName::parse(place.name().as_ref());
    let is_folder = path.is_dir();
    if place.has(MANIFEST).map_err(failed)? || (is_folder && name.is_some()) {
        let step = name.map_or(0, |name| name.0);
        return Ok(vec![persistent(Found { step, place })]);
    }
    if place.folder().is_some() && !is_folder {
        let what = if path.exists() { "it is no folder" } else { "there is no such folder" };
        let text = format!("{}: {what}", path.display());
        return Err(Failure::new(Exit::Usage, text).help(NAMES));
    }
    if let Some(of_run) = of_run(path)? {
        return Ok(of_run);
    }
    let own = list(&place).map_err(failed)?;
    let own = if own.is_empty() { list(&place.join("checkpoints")).map_err(failed)? } else { own };
    Ok(own.into_iter().map(persistent).collect())
}

/// The place that a path, or an address, names.
fn place_of(path: &Path) -> Result<Place, Failure> {
    let failed = |error: Error| Failure::new(Exit::Usage, error.to_string());
    path.to_str().map_or_else(|| Ok(path.into()), |text| Place::parse(text).map_err(failed))
}

/// Refuses the path of a folder that is to be made, if it is an address or cannot be told as text.
fn require_folder(path: &Path) -> Result<(), Failure> {
    let (what, help) = match path.to_str() {
        None => ("is no UTF-8", "name a folder in UTF-8"),
        Some(text) if text.contains("://") => (
            "is an address, and this is written to a folder here",
            "name a folder of this machine, and copy it from there",
        ),
        Some(_) => return Ok(()),
    };
    Err(Failure::new(Exit::Usage, format!("--to {} {what}", path.display())).help(help))
}

/// The place of what is to be made: a folder is absolute.
fn new_place(path: &Path) -> Result<Place, Failure> {
    let place = place_of(path)?;
    if place.folder().is_some() {
        require_folder(path)?;
    }
    let Some(folder) = place.folder() else { return Ok(place) };
    let absolute = std::path::absolute(folder);
    absolute.map(Place::from).map_err(|error| {
        Failure::io(Exit::Usage, format!("cannot use {}", folder.display()), &error)
    })
}

/// What can be named.
const NAMES: &str = "name a checkpoint, a folder of checkpoints, their address, or a run directory";

/// The checkpoints of the run that a directory belongs to, if it belongs to one, by step.
fn of_run(path: &Path) -> Result<Option<Vec<Listing>>, Failure> {
    let Some(recipe) = RunDir::recipe(path) else { return Ok(None) };
    let Ok(loaded) = titan_recipes::load(&recipe, &Overrides::default(), Purpose::Plan) else {
        return Ok(None);
    };
    let Some(checkpoint) = &loaded.recipe.checkpoint else { return Ok(None) };
    let local = History::read(path).and_then(|run| keeping::local_place(checkpoint, path, &run.id));
    let persistent = keeping::place(checkpoint, Some(path))?;
    let places = local.map(|place| (Tier::Local, place)).into_iter();
    let mut all = Vec::new();
    for (tier, place) in places.chain(persistent.map(|place| (Tier::Persistent, place))) {
        let found = list(&place).map_err(|error| Failure::new(Exit::Usage, error.to_string()))?;
        all.extend(found.into_iter().map(|found| Listing { tier, found }));
    }
    all.sort_by_key(|listing| listing.found.step);
    Ok(Some(all))
}

/// The same, where there must be one.
fn some_at(path: &Path) -> Result<Vec<Found>, Failure> {
    let found: Vec<Found> = found_at(path)?.into_iter().map(|listing| listing.found).collect();
    if found.is_empty() {
        let text = format!("{}: there is no checkpoint in this folder", path.display());
        return Err(Failure::new(Exit::NoCheckpoint, text).help(NAMES));
    }
    Ok(found)
}

/// A line of `ls`.
#[derive(Serialize)]
struct Listed {
    step: u64,
    /// Whether its manifest and the headers of its files are whole.
    committed: bool,
    /// Whether every byte was checked: by this command, it never is.
    verified: bool,
    tier: Tier,
    bytes: u64,
    path: Place,
    /// Who keeps it, and why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pin: Option<Pin>,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

impl Listed {
    fn of(Listing { tier, found: Found { step, place: path } }: Listing) -> Self {
        let (bytes, why) = match open(&path) {
            Ok(checkpoint) => (checkpoint.manifest().bytes(), None),
            Err(error) => (0, Some(error.to_string())),
        };
        let committed = why.is_none();
        let pin = Pin::of(&path);
        Self { step, committed, verified: false, tier, bytes, path, pin, why }
    }
}

fn ls(args: &CheckpointPathArgs) -> Result<Exit, Failure> {
    let mut all = Vec::new();
    for path in &args.paths {
        all.extend(found_at(path)?.into_iter().map(Listed::of));
    }
    if args.json {
        return print_json(&all);
    }
    if all.is_empty() {
        return print_document("no checkpoints\n");
    }
    let line = |listed: &Listed| match &listed.why {
        None => format!(
            "step {:>10}  {:>10}  {}{}{}\n",
            listed.step,
            words::bytes(listed.bytes),
            if listed.tier == Tier::Local { "(local) " } else { "" },
            listed.path,
            pinned(listed.pin.as_ref())
        ),
        Some(why) => format!("step {:>10}  unusable: {why}\n", listed.step),
    };
    print_document(&all.iter().map(line).collect::<String>())
}

/// What is said behind a checkpoint that is pinned.
fn pinned(pin: Option<&Pin>) -> String {
    match pin {
        None => String::new(),
        Some(Pin { note: None, .. }) => "  (pinned)".to_owned(),
        Some(Pin { note: Some(note), .. }) => format!("  (pinned: {note})"),
    }
}

/// What `show --json` prints.
#[derive(Serialize)]
struct Shown<'a> {
    path: &'a Place,
    #[serde(flatten)]
    manifest: &'a Manifest,
    parameters: u64,
}

fn show(args: &CheckpointPathArgs) -> Result<Exit, Failure> {
    for path in &args.paths {
        // Of several, the newest.
        let Some(found) = some_at(path)?.pop() else { continue };
        let checkpoint = open(&found.place).map_err(|error| unusable(&error))?;
        let manifest = checkpoint.manifest();
        let is_weight = |(name, _): &(&String, &TensorFacts)| !is_memory(name);
        let elements = |(_, facts): (&String, &TensorFacts)| facts.shape.iter().product::<u64>();
        let parameters = manifest.tensors.iter().filter(is_weight).map(elements).sum();
        if args.json {
            print_json(&Shown { path: &found.place, manifest, parameters })?;
            continue;
        }
        print_document(&in_words(&found.place, manifest, parameters))?;
    }
    Ok(Exit::Done)
}

/// Whether a tensor is what the training remembers, and not a weight.
fn is_memory(name: &str) -> bool {
    name.starts_with("optimizer.") || name == "experts.balance"
}

fn in_words(path: &Place, manifest: &Manifest, parameters: u64) -> String {
    let run = &manifest.run;
    let text = |value: &serde_json::Value| match value {
        serde_json::Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let mut out = format!(
        "{}\n  step {} of the run {} (start {}), written by titan-tpu {} on {}\n  {} in {}, {}, {} parameters\n",
        path,
        manifest.step,
        text(&run["id"]),
        text(&run["attempt"]),
        text(&run["titan"]),
        words::plural(run["world"].as_u64().unwrap_or_default(), "device"),
        words::plural(manifest.tensors.len() as u64, "tensor"),
        words::plural(manifest.files.len() as u64, "file"),
        words::bytes(manifest.bytes()),
        words::count(parameters as f64),
    );
    if let Some(samples) = run["cursor"]["samples"].as_u64() {
        out.push_str(&format!(
            "  {} of the data were trained on\n",
            words::plural(samples, "sample")
        ));
    }
    for (name, TensorFacts { dtype, shape }) in &manifest.tensors {
        out.push_str(&format!("  {name}  {dtype:?} {shape:?}\n"));
    }
    out
}

/// What `verify --json` prints for each checkpoint.
#[derive(Serialize)]
struct Verified<'a> {
    path: &'a Place,
    step: u64,
    ok: bool,
    #[serde(flatten)]
    findings: Findings,
}

fn verify_all(args: &CheckpointPathArgs) -> Result<Exit, Failure> {
    let stop = signals::cancellation()?;
    let console = Console::new(Style::choose(args.json));
    let mut all_good = true;
    for path in &args.paths {
        for found in some_at(path)? {
            all_good &= verify_one(&found, args.json, &console, &stop)?;
        }
    }
    Ok(if all_good { Exit::Done } else { Exit::NoCheckpoint })
}

fn verify_one(
    found: &Found,
    json: bool,
    console: &Console,
    stop: &AtomicBool,
) -> Result<bool, Failure> {
    let name = &found.place;
    let progress = |bytes: u64| {
        console.progress(format!("{name}: {} read", words::bytes(bytes)), None);
    };
    let findings = verify(&found.place, found.place.reading_threads(cores()), stop, &progress)
        .map_err(|error| unchecked(&error))?;
    console.clear();
    console.flush();
    let ok = findings.bad.is_empty();
    if json {
        print_json(&Verified { path: &found.place, step: found.step, ok, findings })?;
        return Ok(ok);
    }
    let faults = words::plural(findings.bad.len() as u64, "fault");
    let mut out = format!(
        "{name}: {} in {}, {}\n",
        words::bytes(findings.bytes),
        words::plural(findings.files, "file"),
        if ok { "all good" } else { &faults },
    );
    for bad in &findings.bad {
        let place = bad.offset.map_or_else(String::new, |offset| format!(" (byte {offset})"));
        out.push_str(&format!("  {}: {}{place}\n", bad.path.display(), bad.what));
    }
    for extra in &findings.extra {
        out.push_str(&format!("  {} is not of the checkpoint\n", extra.display()));
    }
    print_document(&out)?;
    Ok(ok)
}

/// Why it is not known whether a checkpoint is sound.
fn unchecked(error: &Error) -> Failure {
    match error {
        Error::Stopped => Failure::new(Exit::Stopped, "stopped before everything was checked"),
        error => Failure::new(Exit::Usage, error.to_string()),
    }
}

fn unusable(error: &Error) -> Failure {
    Failure::new(Exit::NoCheckpoint, error.to_string())
}

fn print_json(value: &impl Serialize) -> Result<Exit, Failure> {
    let text =
        serde_json::to_string(value).map_err(|error| Failure::new(Exit::Bug, error.to_string()))?;
    print_document(&format!("{text}\n"))
}
