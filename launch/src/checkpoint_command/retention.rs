//! `titan-tpu checkpoint pin` and `prune`: which checkpoints stay.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;
use titan_checkpoint::{
    Error, Fate, Found, MANIFEST, Pin, Place, Retention, Standing, list, open, remove_checkpoint,
    verify,
};

use titan_trainer::saver::Tier;

use super::args::{PinArgs, PruneArgs};
use super::{Listing, found_at, place_of, print_json, unchecked, unusable};
use crate::console::{Console, Style, print_document};
use crate::data::cores;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::train::{hold_unused, signals};
use crate::words;

pub(super) fn pin(args: &PinArgs) -> Result<Exit, Failure> {
    let refused = |error: Error| {
        let exit = if error.is_no_space() { Exit::NoSpace } else { Exit::WorkersFailed };
        Failure::new(exit, error.to_string())
    };
    let place = place_of(&args.path)?;
    let unreadable = |error: Error| Failure::new(Exit::Usage, error.to_string());
    if !place.has(MANIFEST).map_err(unreadable)? {
        let failure = Failure::new(Exit::Usage, format!("{place}: this is no checkpoint"));
        return Err(match found_at(&args.path).ok().and_then(|mut found| found.pop()) {
            Some(newest) => failure.help(format!("name one, for example {}", newest.found.place)),
            None => failure.help("name the folder of a checkpoint: DIR/checkpoints/step-00000100"),
        });
    }
    if args.remove {
        let was_pinned = Pin::remove(&place).map_err(refused)?;
        let what = if was_pinned { "is pinned no longer" } else { "was not pinned" };
        return print_document(&format!("{place} {what}\n"));
    }
    open(&place).map_err(|error| unusable(&error))?;
    let made = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    Pin { note: args.note.clone(), made }.put(&place).map_err(refused)?;
    print_document(&format!("{place} is kept until its pin is removed\n"))
}

/// A checkpoint, and what is known about it.
struct Candidate {
    found: Found,
    standing: Standing,
    bytes: u64,
    /// What is wrong with it.
    why: Option<String>,
}

impl Candidate {
    fn of(found: Found) -> Self {
        let (bytes, why) = match open(&found.place) {
            Ok(checkpoint) => (checkpoint.manifest().bytes(), None),
            Err(error) => (0, Some(error.to_string())),
        };
        let pinned = Pin::of(&found.place).is_some();
        let standing = Standing { step: found.step, usable: why.is_none(), pinned };
        Self { found, standing, bytes, why }
    }
}

/// What `prune --json` prints.
#[derive(Serialize)]
struct Pruned<'a> {
    dry_run: bool,
    freed_bytes: u64,
    checkpoints: Vec<Line<'a>>,
}

#[derive(Serialize)]
struct Line<'a> {
    step: u64,
    path: &'a Place,
    removed: bool,
    why: &'a str,
    bytes: u64,
}

pub(super) fn prune(args: &PruneArgs) -> Result<Exit, Failure> {
    let stop = signals::cancellation()?;
    let folder = root_of(&args.path)?;
    // Held until the end: no run begins meanwhile.
    let _locks = locks(&args.path, &folder)?;
    let rule = Retention { keep_last: args.keep_last, keep_every_steps: args.keep_every };
    let found = list(&folder).map_err(|error| Failure::new(Exit::Usage, error.to_string()))?;
    if found.is_empty() {
        let text = format!("{}: there is no checkpoint in this folder", folder);
        return Err(Failure::new(Exit::NoCheckpoint, text)
            .help("name a folder of checkpoints, or a run directory"));
    }
    let mut all: Vec<Candidate> = found.into_iter().map(Candidate::of).collect();
    let console = Console::new(Style::choose(args.json));
    let fates = settle(&rule, &mut all, &folder, &console, &stop)?;
    let mut removed = Vec::new();
    let mut refused = None;
    for (one, fate) in all.iter().zip(&fates) {
        if *fate == Fate::Surplus && refused.is_none() {
            match remove(one, args.dry_run) {
                Ok(true) => removed.push(one.found.step),
                Ok(false) => {}
                Err(failure) => refused = Some(failure),
            }
        }
    }
    report(args, &all, &fates, &removed)?;
    refused.map_or(Ok(Exit::Done), Err)
}

/// Removes a checkpoint, unless it has been pinned meanwhile.
fn remove(one: &Candidate, dry_run: bool) -> Result<bool, Failure> {
    if Pin::of(&one.found.place).is_some() {
        return Ok(false);
    }
    if !dry_run {
        remove_checkpoint(&one.found.place)
            .map_err(|error| Failure::new(Exit::WorkersFailed, error.to_string()))?;
    }
    Ok(true)
}

/// What becomes of each, once the newest that is kept was read and found sound. One that is not does not count.
fn settle(
    rule: &Retention,
    all: &mut [Candidate],
    folder: &Place,
    console: &Console,
    stop: &AtomicBool,
) -> Result<Vec<Fate>, Failure> {
    let mut is_first = true;
    loop {
        let standings: Vec<Standing> = all.iter().map(|one| one.standing).collect();
        let fates = rule.sort_out(&standings);
        let Some(newest) = fates.iter().position(|fate| *fate == Fate::Newest) else {
            let why = all
                .iter()
                .filter_map(|one| Some(format!("step {}: {}", one.found.step, one.why.as_ref()?)));
            let text = format!("{}: no checkpoint is sound, so none is removed", folder);
            return Err(Failure::new(Exit::NoCheckpoint, text).quoting(why.collect()));
        };
        if is_first && !fates.contains(&Fate::Surplus) {
            return Ok(fates);
        }
        let newest = &mut all[newest];
        let name = &newest.found.place;
        let progress = |bytes: u64| {
            console.progress(format!("{name}: {} read", words::bytes(bytes)), None);
        };
        let findings = verify(
            &newest.found.place,
            newest.found.place.reading_threads(cores()),
            stop,
            &progress,
        )
        .map_err(|error| unchecked(&error))?;
        console.clear();
        match findings.bad.first() {
            None => return Ok(fates),
            Some(bad) => {
                newest.standing.usable = false;
                newest.why = Some(format!("{}: {}", bad.path.display(), bad.what));
            }
        }
        is_first = false;
    }
}

/// The place that has the checkpoints.
fn root_of(path: &Path) -> Result<Place, Failure> {
    let place = place_of(path)?;
    let failed = |error: Error| Failure::new(Exit::Usage, error.to_string());
    if place.has(MANIFEST).map_err(failed)? {
        let text = format!("{place}: this is one checkpoint, and not a folder of some");
        return Err(Failure::new(Exit::Usage, text).help("name the folder that it is in"));
    }
    // Of a run, those that last: it takes care of the others itself.
    let is_persistent = |listing: &Listing| listing.tier == Tier::Persistent;
    let first = found_at(path)?.into_iter().find(is_persistent);
    let root = first.and_then(|listing| listing.found.place.parent()).unwrap_or(place);
    let Some(folder) = root.folder() else { return Ok(root) };
    let folder = std::path::absolute(folder)
        .map_err(|error| Failure::io(Exit::Usage, format!("cannot use {root}"), &error))?;
    Ok(folder.into())
}

/// The locks of the run directories that the path or the folder is, or is in.
fn locks(path: &Path, root: &Place) -> Result<Vec<std::fs::File>, Failure> {
    let named = std::path::absolute(path).ok().filter(|path| path.is_dir());
    let folder = root.folder().map(Path::to_owned);
    let known = named.into_iter().chain(folder);
    let real = |folder: PathBuf| folder.canonicalize().unwrap_or(folder);
    let mut places: Vec<PathBuf> = known
        .map(real)
        .flat_map(|folder| [folder.parent().map(Path::to_owned), Some(folder)])
        .flatten()
        .collect();
    places.sort_unstable();
    places.dedup();
    let held =
        places.iter().map(|place| hold_unused(place)).collect::<Result<Vec<_>, Failure>>()?;
    Ok(held.into_iter().flatten().collect())
}

fn report(
    args: &PruneArgs,
    all: &[Candidate],
    fates: &[Fate],
    gone: &[u64],
) -> Result<(), Failure> {
    let every = args.keep_every.unwrap_or_default();
    let reason = |one: &Candidate, fate: Fate| match fate {
        Fate::Newest => "the newest that is sound".to_owned(),
        Fate::Last => format!("among the last {}", args.keep_last),
        Fate::Multiple => format!("its step is a multiple of {every}"),
        Fate::Unusable => {
            format!("not touched, for it is damaged: {}", one.why.as_deref().unwrap_or_default())
        }
        Fate::Surplus if gone.contains(&one.found.step) => "older, and nothing keeps it".to_owned(),
        Fate::Surplus if Pin::of(&one.found.place).is_none() => {
            "it could not be removed".to_owned()
        }
        Fate::Pinned | Fate::Surplus => match Pin::of(&one.found.place).and_then(|pin| pin.note) {
            Some(note) => format!("pinned: {note}"),
            None => "pinned".to_owned(),
        },
    };
    let reasons: Vec<String> =
        all.iter().zip(fates).map(|(one, fate)| reason(one, *fate)).collect();
    let lines = all.iter().zip(&reasons).map(|(one, why)| {
        let (step, removed) = (one.found.step, gone.contains(&one.found.step));
        Line { step, path: &one.found.place, removed, why, bytes: one.bytes }
    });
    let lines: Vec<Line<'_>> = lines.collect();
    let freed_bytes = lines.iter().filter(|line| line.removed).map(|line| line.bytes).sum();
    if args.json {
        print_json(&Pruned { dry_run: args.dry_run, freed_bytes, checkpoints: lines })?;
        return Ok(());
    }
    let verb = if args.dry_run { "would go" } else { "removed" };
    let mut text = String::new();
    for line in &lines {
        let what = if line.removed { verb } else { "kept" };
        text.push_str(&format!("step {:>10}  {what:<8}  {}\n", line.step, line.why));
    }
    let count = words::plural(gone.len() as u64, "checkpoint");
    text.push_str(&format!("{count} {verb}, {}\n", words::bytes(freed_bytes)));
    print_document(&text)?;
    Ok(())
}
