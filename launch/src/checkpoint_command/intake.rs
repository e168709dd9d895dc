//! A checkpoint of ours, made from the tensors of others.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Deserialize;
use serde_json::{Value, json};
use titan_checkpoint::{
    Dtype, Error, FileFacts, Place, ShardPlan, Staged, TensorFacts, cut, shard_name, write_whole,
};

use super::helper::{Answer, Described, Helper, Listing, stopped, unexpected};
use super::names::{NotFound, find, first_few};
use crate::console::Console;
use crate::data::cores;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::train::differences;

/// Bytes of one file, if no row of a tensor has more: they are in memory twice.
const FILE_BYTES: u64 = 256 << 20;

/// Tells the folder of a checkpoint that is being taken in from those of runs.
const WRITER: &str = "import";

/// The same in the names of its files in an object store.
const MARK: &str = "import-1";

/// A tensor that is taken in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Taken {
    /// What others call it.
    pub(super) there: String,
    /// What we call it.
    pub(super) name: String,
    pub(super) facts: TensorFacts,
}

/// What a checkpoint will be made of.
#[derive(Debug)]
pub(super) struct Intake {
    pub(super) step: u64,
    run: Value,
    pub(super) tensors: Vec<Taken>,
    /// Names of what is left where it is.
    pub(super) not_taken: Vec<String>,
}

impl Intake {
    /// Decides what is taken: all, of an export of ours, else the weights of the model.
    pub(super) fn new(
        listing: &Listing,
        settings: &Value,
        run: Value,
        prefix: Option<&str>,
    ) -> Result<Self, Failure> {
        match (listing.step, &listing.run) {
            (Some(step), Some(text)) => Self::of_ours(listing, step, text, settings),
            _ => Self::of_weights(listing, run, prefix),
        }
    }

    fn of_ours(listing: &Listing, step: u64, run: &str, settings: &Value) -> Result<Self, Failure> {
        let damaged = |what: String| Failure::new(Exit::NoCheckpoint, what);
        let run: Value = serde_json::from_str(run)
            .map_err(|error| damaged(format!("its entry titan_run is no JSON: {error}")))?;
        let differing = differences(&run["settings"], settings);
        if !differing.is_empty() {
            let text = "it is of a run with other settings than the recipe";
            return Err(Failure::new(Exit::Usage, text)
                .quoting(differing)
                .help("name the recipe of that run with --recipe"));
        }
        let mut tensors = Vec::new();
        for (name, described) in listing.tensors.iter().filter(|(name, _)| *name != "step") {
            let dtype = dtype(&described.dtype).ok_or_else(|| {
                damaged(format!("its tensor {name} has the number format {}", described.dtype))
            })?;
            let facts = TensorFacts { dtype, shape: described.shape.clone() };
            tensors.push(Taken { there: name.clone(), name: name.clone(), facts });
        }
        check_weights(listing, &tensors)?;
        Ok(Self { step, run, tensors, not_taken: Vec::new() })
    }

    fn of_weights(listing: &Listing, run: Value, prefix: Option<&str>) -> Result<Self, Failure> {
        let wanted: Vec<&str> = listing.model.keys().map(String::as_str).collect();
        let found = find(&wanted, listing.tensors.keys().map(String::as_str), prefix);
        let found = found.map_err(|why| not_found(why, listing))?;
        let mut tensors = Vec::new();
        for (name, there) in found.names {
            let Some(described) = listing.tensors.get(&there) else { continue };
            let facts = TensorFacts { dtype: Dtype::F32, shape: described.shape.clone() };
            tensors.push(Taken { there, name, facts });
        }
        check_weights(listing, &tensors)?;
        let is_left = |there: &&String| !tensors.iter().any(|taken| taken.there == **there);
        let not_taken =
            listing.tensors.keys().chain(&listing.others).filter(is_left).cloned().collect();
        Ok(Self { step: 0, run, tensors, not_taken })
    }

    /// Bytes of the tensors.
    pub(super) fn bytes(&self) -> u64 {
        let bytes = |taken: &Taken| {
            taken.facts.whole().map_or(0, |whole| whole.elements() * taken.facts.dtype.bytes())
        };
        self.tensors.iter().map(bytes).fold(0, u64::saturating_add)
    }
}

/// A number format by its name.
fn dtype(name: &str) -> Option<Dtype> {
    Dtype::deserialize(Value::from(name)).ok()
}

/// Whether the weights of the model are among the tensors, in their shapes, and of numbers that float32 can hold.
fn check_weights(listing: &Listing, tensors: &[Taken]) -> Result<(), Failure> {
    let taken: BTreeMap<&str, &Taken> =
        tensors.iter().map(|taken| (taken.name.as_str(), taken)).collect();
    let (mut missing, mut wrong) = (Vec::new(), Vec::new());
    for (name, shape) in &listing.model {
        let Some(taken) = taken.get(name.as_str()) else {
            missing.push(name.clone());
            continue;
        };
        let Some(Described { dtype, shape: there }) = listing.tensors.get(&taken.there) else {
            continue;
        };
        if there != shape {
            wrong.push(format!("{}: {there:?} there, {shape:?} in the model", taken.there));
        } else if !["F32", "BF16", "F16"].contains(&dtype.as_str()) {
            wrong.push(format!(
                "{}: numbers of {dtype} there, F32, BF16 or F16 can be taken",
                taken.there
            ));
        }
    }
    if !missing.is_empty() {
        let prefix = String::new();
        return Err(not_found(NotFound::Missing { prefix, missing }, listing));
    }
    if wrong.is_empty() {
        return Ok(());
    }
    let text = "its weights are not those of the recipe's model";
    Err(Failure::new(Exit::Usage, text)
        .quoting(wrong)
        .help("name the recipe of that model with --recipe, or change it with --set"))
}

fn not_found(why: NotFound, listing: &Listing) -> Failure {
    match why {
        NotFound::Missing { prefix, missing } => {
            let behind =
                if prefix.is_empty() { String::new() } else { format!(" behind `{prefix}`") };
            let text = format!(
                "it lacks {} of the {} weights of the recipe's model{behind}",
                missing.len(),
                listing.model.len()
            );
            let names: Vec<String> = listing.tensors.keys().cloned().collect();
            let failure = Failure::new(Exit::Usage, text).quoting(first_few(&missing));
            failure.help(format!("it has: {}", first_few(&names).join(", ")))
        }
        NotFound::Several { prefixes } => {
            let text = "it has the weights of the model more than once";
            let lines = prefixes.iter().map(|prefix| format!("behind `{prefix}`")).collect();
            Failure::new(Exit::Usage, text).quoting(lines).help("choose one of these with --prefix")
        }
    }
}

/// Writes the checkpoint; returns where it is.
pub(super) fn take_in(
    helper: &mut Helper,
    intake: &Intake,
    to: &Place,
    console: &Console,
    stop: &AtomicBool,
) -> Result<Place, Failure> {
    let staged = Staged::begin(to, intake.step, WRITER).map_err(|error| refused(&error))?;
    let written = write(helper, intake, staged.place(), console, stop);
    let made = written.and_then(|files| {
        staged.commit(intake.run.clone(), files).map_err(|error| refused(&error))
    });
    if made.is_err() {
        // What cannot be removed now is none of a checkpoint, and removed by the next import.
        let _ = staged.abandon();
    }
    made
}

fn write(
    helper: &mut Helper,
    intake: &Intake,
    staged: &Place,
    console: &Console,
    stop: &AtomicBool,
) -> Result<Vec<FileFacts>, Failure> {
    let wanted: Vec<Value> = intake
        .tensors
        .iter()
        .map(|taken| json!({ "name": taken.there, "dtype": taken.facts.dtype }))
        .collect();
    helper.order(&json!({ "tensors": wanted }))?;
    let whole = intake.tensors.iter().map(|taken| (taken.name.as_str(), &taken.facts));
    let mut tensors = intake.tensors.iter();
    let (mut files, mut done) = (Vec::new(), 0);
    for (number, parts) in (0..).zip(cut(whole, FILE_BYTES)) {
        let mut contents = Vec::new();
        for part in &parts {
            if part.region.rows[0] == 0 {
                announced(helper, tensors.next())?;
            }
            let mut content = vec![0; part.bytes() as usize];
            helper.read(&mut content)?;
            contents.push(content);
        }
        let contents: Vec<&[u8]> = contents.iter().map(Vec::as_slice).collect();
        let target = (staged.clone(), shard_name(staged, number, MARK));
        let plan = ShardPlan::new(parts).map_err(|error| refused(&error))?;
        done += plan.bytes();
        let file = write_whole(target, plan, &contents, cores(), stop);
        files.push(file.map_err(|error| refused(&error))?);
        console.progress("writing".to_owned(), Some(done as f64 / intake.bytes().max(1) as f64));
    }
    match helper.answer()? {
        Answer::Done {} if !stop.load(Ordering::Relaxed) => Ok(files),
        Answer::Done {} => Err(stopped()),
        other => Err(unexpected(&format!("{other:?}"))),
    }
}

/// Makes sure that what follows is the tensor whose turn it is.
fn announced(helper: &mut Helper, taken: Option<&Taken>) -> Result<(), Failure> {
    match (helper.answer()?, taken) {
        (Answer::Tensor { name, bytes }, Some(taken))
            if name == taken.there
                && taken
                    .facts
                    .whole()
                    .map(|whole| whole.elements() * taken.facts.dtype.bytes())
                    == Some(bytes) =>
        {
            Ok(())
        }
        (other, _) => Err(unexpected(&format!("{other:?}"))),
    }
}

fn refused(error: &Error) -> Failure {
    let exit = match error {
        Error::Exists { .. } => Exit::Usage,
        Error::Stopped => return stopped(),
        Error::Misuse { .. } => Exit::Bug,
        error if error.is_no_space() => Exit::NoSpace,
        _ => Exit::WorkersFailed,
    };
    Failure::new(exit, error.to_string())
}
