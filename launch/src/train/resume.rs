//! What a start of a run goes on from.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::atomic::AtomicBool;

use serde::Serialize;
use serde_json::Value;
use titan_checkpoint::{Error, Found, Manifest, list, verify};
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
    pub(super) found: Found,
    pub(super) manifest: Manifest,
}

/// What a checkpoint must agree with.
pub(super) struct Expected<'a> {
    /// Settings by name, in words: those that say what the tensors are.
    pub(super) settings: &'a Value,
    /// What the order of the data depends on.
    pub(super) order: &'a OrderIdentity,
}

/// Looks at the checkpoints in a folder from the newest on.
///
/// # Errors
/// None can be used although one is needed, or the one that can be used is of another run.
pub(super) fn decide(
    folder: &Path,
    policy: Policy,
    stop: &AtomicBool,
) -> Result<Decision, Failure> {
    let mut decision = Decision { chosen: None, skipped: Vec::new() };
    if policy == Policy::Never {
        return Ok(decision);
    }
    let unreadable = |error: Error| Failure::new(Exit::NoCheckpoint, error.to_string());
    let mut found = list(folder).map_err(unreadable)?;
    if let Policy::Step(step) = policy {
        found.retain(|found| found.step == step);
    }
    for found in found.into_iter().rev() {
        match check(&found.path, stop)? {
            Ok(manifest) => {
                decision.chosen = Some(Chosen { found, manifest });
                return Ok(decision);
            }
            Err(why) => decision.skipped.push((found.step, why)),
        }
    }
    match policy {
        Policy::Auto | Policy::Never => Ok(decision),
        Policy::Required | Policy::Step(_) => Err(nothing(folder, policy, &decision.skipped)),
    }
}

/// The manifest of a checkpoint that is sound, or what is wrong with it.
fn check(folder: &Path, stop: &AtomicBool) -> Result<Result<Manifest, String>, Failure> {
    let checkpoint = match titan_checkpoint::open(folder) {
        Ok(checkpoint) => checkpoint,
        Err(error) => return Ok(Err(error.to_string())),
    };
    match verify(folder, cores(), stop, &|_| {}) {
        Ok(findings) => Ok(match findings.bad.first() {
            None => Ok(checkpoint.manifest().clone()),
            Some(bad) => Err(format!("{}: {}", bad.path.display(), bad.what)),
        }),
        Err(_) => Err(Failure::new(Exit::Stopped, "stopped while a checkpoint was being checked")),
    }
}

fn nothing(folder: &Path, policy: Policy, skipped: &[(u64, String)]) -> Failure {
    let what = match policy {
        Policy::Step(step) => format!("no usable checkpoint of step {step}"),
        _ => "no usable checkpoint".to_owned(),
    };
    let quoted = skipped.iter().map(|(step, why)| format!("step {step}: {why}")).collect();
    Failure::new(Exit::NoCheckpoint, format!("there is {what} in {}", folder.display()))
        .quoting(quoted)
        .help("titan-tpu checkpoint ls lists what is there; with --resume auto the run begins anew without one")
}

/// A line of `train --json`.
#[derive(Serialize)]
pub(super) struct ResumeEvent<'a> {
    event: &'static str,
    step: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<std::borrow::Cow<'a, str>>,
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
            step: chosen.map_or(0, |chosen| chosen.found.step),
            path: chosen.map(|chosen| chosen.found.path.to_string_lossy()),
            skipped: self
                .skipped
                .iter()
                .map(|(step, why)| SkippedEvent { step: *step, why })
                .collect(),
        }
    }

    /// What happened, in a paragraph.
    pub(super) fn in_words(&self, folder: &Path) -> Option<String> {
        let mut lines: Vec<String> = self
            .skipped
            .iter()
            .map(|(step, why)| format!("the checkpoint of step {step} cannot be used: {why}"))
            .collect();
        match &self.chosen {
            Some(Chosen { found, manifest }) => {
                let size = words::count(manifest.bytes() as f64);
                lines.push(format!(
                    "going on after step {} ({}, {size} bytes, every one checked)",
                    found.step,
                    found.path.display()
                ));
            }
            None if self.skipped.is_empty() => return None,
            None => lines.push(format!(
                "no checkpoint in {} can be used: the run begins with step 1",
                folder.display()
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
        let path = self.found.path.display();
        let refuse = |lines: Vec<String>, help: &str| {
            let text = format!("the checkpoint {path} is of another run");
            Err(Failure::new(Exit::Usage, text).quoting(lines).help(help))
        };
        let run = &self.manifest.run;
        let differing = differences(&run["settings"], expected.settings);
        if !differing.is_empty() {
            let help =
                "put these settings back, or choose another --run-dir or checkpoint.directory";
            return refuse(differing, help);
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
        let folder: PathBuf = self.found.path.clone();
        Ok(Resume { folder, step: self.manifest.step, samples: cursor.samples })
    }
}

/// `model.hidden_size: 64 there, 128 here`, for each setting.
fn differences(there: &Value, here: &Value) -> Vec<String> {
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
