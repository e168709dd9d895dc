//! What earlier starts of a run have recorded, as far as this one goes on from it.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use titan_trainer::metrics::{StepRecord, ValidationRecord};

/// The records that stay.
#[derive(Debug, Default)]
pub(super) struct History {
    pub(super) steps: Vec<StepRecord>,
    pub(super) validations: Vec<ValidationRecord>,
}

/// Keeps in `metrics.jsonl` and `validation.jsonl` what was recorded up to step `steps_done`, and moves what came
/// afterwards to `metrics.superseded.jsonl` and `validation.superseded.jsonl`: those steps will be done again, and there
/// is one value for each step.
pub(super) fn rewind(run: &Path, steps_done: u64) -> io::Result<History> {
    Ok(History {
        steps: rewind_file(run, "metrics", steps_done)?,
        validations: rewind_file(run, "validation", steps_done)?,
    })
}

#[derive(Deserialize)]
struct Step {
    step: u64,
}

fn rewind_file<T: DeserializeOwned>(run: &Path, name: &str, steps_done: u64) -> io::Result<Vec<T>> {
    let path = run.join(format!("{name}.jsonl"));
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let (mut kept, mut records, mut superseded) = (String::new(), Vec::new(), String::new());
    for line in BufReader::new(file).lines() {
        let line = line? + "\n";
        match serde_json::from_str::<Step>(&line) {
            Ok(Step { step }) if step <= steps_done => {
                // Of another version, a record may lack what charts need.
                records.extend(serde_json::from_str(&line));
                kept.push_str(&line);
            }
            Ok(_) => superseded.push_str(&line),
            // The last line of an earlier start, cut off by a kill.
            Err(_) => {}
        }
    }
    if !superseded.is_empty() {
        let old = run.join(format!("{name}.superseded.jsonl"));
        let mut file = File::options().create(true).append(true).open(old)?;
        file.write_all(superseded.as_bytes())?;
    }
    let staged = run.join(format!(".{name}.jsonl.new"));
    fs::write(&staged, kept)?;
    fs::rename(staged, path)?;
    Ok(records)
}
