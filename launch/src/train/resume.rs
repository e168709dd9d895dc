//! What a start of a run goes on from.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::atomic::AtomicBool;

use serde::Serialize;
use serde_json::Value;
use titan_checkpoint::{Checkpoint, Error, Manifest, Place, are_enough, list, verify};
use titan_datasets::{Cursor, OrderIdentity};
use titan_trainer::spec::Resume;

use crate::data::cores;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::words;

/// Which checkpoint to go on from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    /// The newest that is sound; without one the run begins.
    Auto,
    /// The newest that is sound; without one the run does not begin.
    Required,
    /// None.
    Never,
    /// That of a step.
    Step(u64),
}

impl FromStr for Policy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "required" => Ok(Self::Required),
            "never" => Ok(Self::Never),
            _ => text
                .parse()
                .map(Self::Step)
                .map_err(|_| "write auto, required, never, or the number of a step".to_owned()),
        }
    }
}

/// What was found, and what will be done.
#[derive(Debug)]
pub(super) struct Decision {
    /// The checkpoint to go on from.
    pub(super) chosen: Option<Chosen>,
    /// Newer ones that cannot be used, and why.
    pub(super) skipped: Vec<(u64, String)>,
}

/// A checkpoint whose every byte was checked.
#[derive(Debug)]
pub(super) struct Chosen {
    pub(super) step: u64,
    /// All of it, in one place or between them. The nearest is the first.
    pub(super) copies: Vec<Place>,
    /// Where there is a checkpoint of this step, sound or not.
    known: Vec<Place>,
    pub(super) manifest: Manifest,
}

/// What a checkpoint must agree with.
pub(super) struct Expected<'a> {
    /// Where checkpoints last.
    pub(super) persistent: Option<&'a Place>,
    /// Settings by name, in words: those that say what the tensors are.
    pub(super) settings: &'a Value,
    /// What the order of the data depends on.
    pub(super) order: &'a OrderIdentity,
}

/// What need not be read before it is loaded: ranks compare what they read with its hashes in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trust {
    /// Nothing.
    Nothing,
    /// The checkpoint of a step, which this process has made.
    Step(u64),
}

/// The same after a failure: a run that is to go on at once does not read what it has just written.
///
/// # Errors
/// A place cannot be read.
pub(super) fn decide_again<'a>(
    places: impl Iterator<Item = &'a Place>,
    trust: Trust,
    stop: &AtomicBool,
) -> Result<Decision, Failure> {
    let places: Vec<Place> = places.cloned().collect();
    if let Trust::Step(step) = trust {
        let unreadable = |error: Error| Failure::new(Exit::Usage, error.to_string());
        let mut known = Vec::new();
        let mut is_newest = true;
        for place in &places {
            for found in list(place).map_err(unreadable)? {
                is_newest &= found.step <= step;
                known.extend((found.step == step).then_some(found.place));
            }
        }
        let opened = known.iter().map(titan_checkpoint::open).find_map(Result::ok);
        if let Some(checkpoint) = opened.filter(|_| is_newest) {
            let manifest = checkpoint.manifest().clone();
            let chosen = Chosen { step, copies: known.clone(), known, manifest };
            return Ok(Decision { chosen: Some(chosen), skipped: Vec::new() });
        }
    }
    decide(&places, Policy::Auto, stop)
}

/// Looks at the checkpoints in some places, the nearest being the first, from the newest on.
///
/// # Errors
/// None can be used although one is needed, or a place cannot be read.
pub(super) fn decide(
    places: &[Place],
    policy: Policy,
    stop: &AtomicBool,
) -> Result<Decision, Failure> {
    let mut decision = Decision { chosen: None, skipped: Vec::new() };
    if policy == Policy::Never {
        return Ok(decision);
    }
    let unreadable = |error: Error| Failure::new(Exit::Usage, error.to_string());
    let mut steps: BTreeMap<u64, Vec<Place>> = BTreeMap::new();
    for place in places {
        for found in list(place).map_err(unreadable)? {
            steps.entry(found.step).or_default().push(found.place);
        }
    }
    if let Policy::Step(step) = policy {
        steps.retain(|found, _| *found == step);
    }
    for (step, known) in steps.into_iter().rev() {
        match check(&known, stop)? {
            Ok((copies, manifest)) => {
                decision.chosen = Some(Chosen { step, copies, known, manifest });
                return Ok(decision);
            }
            Err(why) => decision.skipped.push((step, why)),
        }
    }
    match policy {
        Policy::Auto | Policy::Never => Ok(decision),
        Policy::Required | Policy::Step(_) => Err(nothing(places, policy, &decision.skipped)),
    }
}

/// The copies of a checkpoint that are one whole, the first that is sound alone being enough, or what is wrong with them.
fn check(
    copies: &[Place],
    stop: &AtomicBool,
) -> Result<Result<(Vec<Place>, Manifest), String>, Failure> {
    // What cannot be read now may be sound: nothing older may take its place.
    let unchecked = |error: &Error| match error {
        Error::Stopped => {
            Failure::new(Exit::Stopped, "stopped while a checkpoint was being checked")
        }
        error => Failure::new(Exit::Usage, error.to_string()),
    };
    let (mut opened, mut faults): (Vec<Checkpoint>, Vec<String>) = (Vec::new(), Vec::new());
    for place in copies {
        let checkpoint = match titan_checkpoint::open(place) {
            Ok(checkpoint) => checkpoint,
            Err(error @ Error::Store(_)) => return Err(unchecked(&error)),
            Err(error) => {
                faults.push(error.to_string());
                continue;
            }
        };
        let findings = verify(place, place.reading_threads(cores()), stop, &|_| {})
            .map_err(|error| unchecked(&error))?;
        match findings.bad.first() {
            None => return Ok(Ok((vec![place.clone()], checkpoint.manifest().clone()))),
            Some(bad) => faults.push(format!("{}: {}", bad.path.display(), bad.what)),
        }
        opened.push(checkpoint);
    }
    // Two that are damaged in different places are one that is not, if they are of the same save.
    let first = opened.first().map(|copy| copy.manifest().clone());
    let (Some(manifest), true) = (first, opened.len() > 1) else {
        return Ok(Err(faults.join("; ")));
    };
    let is_same = |copy: &Checkpoint| {
        let other = copy.manifest();
        other.run == manifest.run && other.tensors == manifest.tensors
    };
    opened.retain(is_same);
    match are_enough(&opened, cores(), stop) {
        Ok(()) => {
            let copies = opened.iter().map(|copy| copy.place().clone()).collect();
            Ok(Ok((copies, manifest)))
        }
        Err(error @ (Error::Stopped | Error::Store(_))) => Err(unchecked(&error)),
        Err(_) => Ok(Err(faults.join("; "))),
    }
}

/// Where was looked, in words.
fn in_places(places: &[Place]) -> String {
    let names: Vec<String> = places.iter().map(ToString::to_string).collect();
    names.join(" and ")
}

fn nothing(places: &[Place], policy: Policy, skipped: &[(u64, String)]) -> Failure {
    let what = match policy {
        Policy::Step(step) => format!("no usable checkpoint of step {step}"),
        _ => "no usable checkpoint".to_owned(),
    };
    let quoted = skipped.iter().map(|(step, why)| format!("step {step}: {why}")).collect();
    Failure::new(Exit::NoCheckpoint, format!("there is {what} in {}", in_places(places)))
        .quoting(quoted)
        .help("titan-tpu checkpoint ls lists what is there; with --resume auto the run begins anew without one")
}

/// A line of `train --json`.
#[derive(Serialize)]
pub(super) struct ResumeEvent<'a> {
    event: &'static str,
    step: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    skipped: Vec<SkippedEvent<'a>>,
}

#[derive(Serialize)]
struct SkippedEvent<'a> {
    step: u64,
    why: &'a str,
}

impl Decision {
    pub(super) fn json_event(&self) -> ResumeEvent<'_> {
        let chosen = self.chosen.as_ref();
        ResumeEvent {
            event: "resume",
            step: chosen.map_or(0, |chosen| chosen.step),
            path: chosen.map(|chosen| in_places(&chosen.copies)),
            skipped: self
                .skipped
                .iter()
                .map(|(step, why)| SkippedEvent { step: *step, why })
                .collect(),
        }
    }

    /// What happened, in a paragraph.
    pub(super) fn in_words(&self, places: &[Place]) -> Option<String> {
        let mut lines: Vec<String> = self
            .skipped
            .iter()
            .map(|(step, why)| format!("the checkpoint of step {step} cannot be used: {why}"))
            .collect();
        match &self.chosen {
            Some(Chosen { step, copies, manifest, .. }) => {
                let size = words::count(manifest.bytes() as f64);
                let what = match copies.len() {
                    1 => "every one checked".to_owned(),
                    many => format!("put together of {many} damaged copies"),
                };
                lines.push(format!(
                    "going on after step {step} ({}, {size} bytes, {what})",
                    in_places(copies)
                ));
            }
            None if self.skipped.is_empty() => return None,
            None => lines.push(format!(
                "no checkpoint in {} can be used: the run begins with step 1",
                in_places(places)
            )),
        }
        Some(lines.join("\n"))
    }
}

impl Chosen {
    /// What ranks are told, if the checkpoint is of this run's model and data.
    ///
    /// # Errors
    /// What differs.
    pub(super) fn resume(&self, expected: &Expected<'_>) -> Result<Resume, Failure> {
        let path = in_places(&self.copies);
        let refuse = |lines: Vec<String>, help: &str| {
            let text = format!("the checkpoint {path} is of another run");
            Err(Failure::new(Exit::Usage, text).quoting(lines).help(help))
        };
        let run = &self.manifest.run;
        // Weights alone, of which no data has been seen and no optimizer knows.
        let is_imported = self.manifest.step == 0 && run["cursor"].is_null();
        let mut differing = differences(&run["settings"], expected.settings);
        if is_imported {
            differing.retain(|line| line.starts_with("model."));
        }
        if !differing.is_empty() {
            let help =
                "put these settings back, or choose another --run-dir or checkpoint.directory";
            return refuse(differing, help);
        }
        if is_imported {
            return Ok(self.found(0, expected));
        }
        let cursor: Cursor = serde_json::from_value(run["cursor"].clone()).map_err(|error| {
            let text =
                format!("the checkpoint {path} does not say where in the data it is: {error}");
            Failure::new(Exit::NoCheckpoint, text)
        })?;
        let differing = cursor.order.differences(expected.order);
        if !differing.is_empty() {
            return refuse(differing, "its place means nothing in other data: put these back");
        }
        Ok(self.found(cursor.samples, expected))
    }
}

impl Chosen {
    fn found(&self, samples: u64, expected: &Expected<'_>) -> Resume {
        let is_there = |place: &Place| place.parent().as_ref() == expected.persistent;
        let is_persistent = self.known.iter().any(is_there);
        Resume { copies: self.copies.clone(), is_persistent, step: self.manifest.step, samples }
    }
}

/// `model.hidden_size: 64 there, 128 here`, for each setting.
pub(crate) fn differences(there: &Value, here: &Value) -> Vec<String> {
    let empty = serde_json::Map::new();
    let (there, here) = (there.as_object().unwrap_or(&empty), here.as_object().unwrap_or(&empty));
    let mut names: Vec<&String> = there.keys().chain(here.keys()).collect();
    names.sort();
    names.dedup();
    let text = |value: Option<&Value>| match value {
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
        None => "not set".to_owned(),
    };
    names
        .into_iter()
        .filter(|name| there.get(*name) != here.get(*name))
        .map(|name| {
            format!("{name}: {} there, {} here", text(there.get(name)), text(here.get(name)))
        })
        .collect()
}
