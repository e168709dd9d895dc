//! `titan-tpu checkpoint`: what is there, what is in it, and whether it is sound.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use serde::Serialize;
use titan_checkpoint::{
    Error, Findings, Found, MANIFEST, Manifest, StepName, TensorFacts, list, open, verify,
};

use crate::cli::{CheckpointCommand, CheckpointPathArgs};
use crate::console::{Console, Style, print_document};
use crate::data::cores;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::train::signals;
use crate::words;

/// Runs the command.
pub(crate) fn run(command: &CheckpointCommand) -> Result<Exit, Failure> {
    match command {
        CheckpointCommand::Ls(args) => ls(args),
        CheckpointCommand::Show(args) => show(args),
        CheckpointCommand::Verify(args) => verify_all(args),
    }
}

/// The checkpoints that a path stands for: one, those in a folder, or those of a run.
fn found_at(path: &Path) -> Result<Vec<Found>, Failure> {
    let failed = |error: Error| Failure::new(Exit::Usage, error.to_string());
    let name = path.file_name().unwrap_or_default();
    if path.join(MANIFEST).is_file() || (path.is_dir() && StepName::parse(name).is_some()) {
        let step = StepName::parse(name).map_or(0, |name| name.0);
        return Ok(vec![Found { step, path: path.to_owned() }]);
    }
    if !path.is_dir() {
        return Err(Failure::new(
            Exit::Usage,
            format!("{}: there is no such folder", path.display()),
        )
        .help("name a checkpoint, a folder of checkpoints, or a run directory"));
    }
    let own = list(path).map_err(failed)?;
    if own.is_empty() { list(&path.join("checkpoints")).map_err(failed) } else { Ok(own) }
}

/// The same, where there must be one.
fn some_at(path: &Path) -> Result<Vec<Found>, Failure> {
    let found = found_at(path)?;
    if found.is_empty() {
        let text = format!("{}: there is no checkpoint in this folder", path.display());
        return Err(Failure::new(Exit::NoCheckpoint, text)
            .help("name a checkpoint, a folder of checkpoints, or a run directory"));
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
    tier: &'static str,
    bytes: u64,
    path: PathBuf,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

impl Listed {
    fn of(found: Found) -> Self {
        let Found { step, path } = found;
        let (bytes, why) = match open(&path) {
            Ok(checkpoint) => (checkpoint.manifest().bytes(), None),
            Err(error) => (0, Some(error.to_string())),
        };
        let committed = why.is_none();
        Self { step, committed, verified: false, tier: "persistent", bytes, path, why }
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
            "step {:>10}  {:>12} MB  {}\n",
            listed.step,
            words::grouped(listed.bytes.div_ceil(1_000_000)),
            listed.path.display()
        ),
        Some(why) => format!("step {:>10}  unusable: {why}\n", listed.step),
    };
    print_document(&all.iter().map(line).collect::<String>())
}

/// What `show --json` prints.
#[derive(Serialize)]
struct Shown<'a> {
    path: &'a Path,
    #[serde(flatten)]
    manifest: &'a Manifest,
    parameters: u64,
}

fn show(args: &CheckpointPathArgs) -> Result<Exit, Failure> {
    for path in &args.paths {
        // Of several, the newest.
        let Some(found) = some_at(path)?.pop() else { continue };
        let checkpoint = open(&found.path).map_err(|error| unusable(&error))?;
        let manifest = checkpoint.manifest();
        let is_weight = |(name, _): &(&String, &TensorFacts)| !is_memory(name);
        let elements = |(_, facts): (&String, &TensorFacts)| facts.shape.iter().product::<u64>();
        let parameters = manifest.tensors.iter().filter(is_weight).map(elements).sum();
        if args.json {
            print_json(&Shown { path: &found.path, manifest, parameters })?;
            continue;
        }
        print_document(&in_words(&found.path, manifest, parameters))?;
    }
    Ok(Exit::Done)
}

/// Whether a tensor is what the training remembers, and not a weight.
fn is_memory(name: &str) -> bool {
    name.starts_with("optimizer.") || name == "experts.balance"
}

fn in_words(path: &Path, manifest: &Manifest, parameters: u64) -> String {
    let run = &manifest.run;
    let text = |value: &serde_json::Value| match value {
        serde_json::Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let mut out = format!(
        "{}\n  step {} of the run {} (start {}), written by titan-tpu {} on {}\n  {} in {}, {} MB, {} parameters\n",
        path.display(),
        manifest.step,
        text(&run["id"]),
        text(&run["attempt"]),
        text(&run["titan"]),
        words::plural(run["world"].as_u64().unwrap_or_default(), "device"),
        words::plural(manifest.tensors.len() as u64, "tensor"),
        words::plural(manifest.files.len() as u64, "file"),
        words::grouped(manifest.bytes().div_ceil(1_000_000)),
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
    path: &'a Path,
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
    let name = found.path.display();
    let progress = |bytes: u64| {
        console.progress(format!("{name}: {} MB read", words::grouped(bytes / 1_000_000)), None);
    };
    let findings = verify(&found.path, cores(), stop, &progress)
        .map_err(|_| Failure::new(Exit::Stopped, "stopped before everything was checked"))?;
    console.clear();
    console.flush();
    let ok = findings.bad.is_empty();
    if json {
        print_json(&Verified { path: &found.path, step: found.step, ok, findings })?;
        return Ok(ok);
    }
    let faults = words::plural(findings.bad.len() as u64, "fault");
    let mut out = format!(
        "{name}: {} MB in {}, {}\n",
        words::grouped(findings.bytes.div_ceil(1_000_000)),
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

fn unusable(error: &Error) -> Failure {
    Failure::new(Exit::NoCheckpoint, error.to_string())
}

fn print_json(value: &impl Serialize) -> Result<Exit, Failure> {
    let text =
        serde_json::to_string(value).map_err(|error| Failure::new(Exit::Bug, error.to_string()))?;
    print_document(&format!("{text}\n"))
}
