//! `titan-tpu checkpoint export`: the weights of a checkpoint for other programs.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use serde::Serialize;
use serde_json::Value;
use titan_checkpoint::hugging_face::{ExpertForm, Exported, Failed, Form, export as write};
use titan_checkpoint::{Checkpoint, Dtype, Error, Found, Manifest, Place, open};

use super::args::{DtypeArg, ExpertsArg, ExportArgs};
use super::{print_json, require_folder, some_at, unusable};
use crate::console::{Console, Style, print_document};
use crate::data::cores;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::hugging_face::{Architecture, Details, to_config};
use crate::train::signals;
use crate::words;

/// The largest file, if nothing else is asked for: what the Hub has.
const SHARD_BYTES: u64 = 5_000_000_000;

/// What `export --json` prints.
#[derive(Serialize)]
struct Written<'a> {
    path: &'a Path,
    checkpoint: &'a Place,
    step: u64,
    dtype: &'static str,
    files: u64,
    tensors: u64,
    parameters: u64,
    bytes: u64,
}

/// Runs the command.
pub(super) fn export(args: &ExportArgs) -> Result<Exit, Failure> {
    require_folder(&args.to)?;
    let stop = signals::cancellation()?;
    let console = Console::new(Style::choose(args.json));
    let mut found = some_at(&args.path)?;
    // From the newest on; the last that can be tried is the one whose fault is reported.
    while let Some(one) = found.pop() {
        match export_one(&one, args, &console, &stop) {
            Err(Attempt::Damaged(failure)) if !found.is_empty() => {
                console.warning(&format!(
                    "the checkpoint of step {} cannot be used: {}",
                    one.step,
                    failure.summary()
                ));
            }
            Err(Attempt::Damaged(failure) | Attempt::Failed(failure)) => return Err(failure),
            Ok(exported) => return report(&one, &exported, args),
        }
    }
    Ok(Exit::Done)
}

/// Why a checkpoint is not exported.
enum Attempt {
    /// It is damaged: another may not be.
    Damaged(Failure),
    /// No other would do.
    Failed(Failure),
}

fn export_one(
    found: &Found,
    args: &ExportArgs,
    console: &Console,
    stop: &AtomicBool,
) -> Result<Exported, Attempt> {
    let checkpoint = open(&found.place).map_err(|error| Attempt::Damaged(unusable(&error)))?;
    let number = args.dtype.unwrap_or(DtypeArg::Float32);
    let config = config(&checkpoint, number).map_err(Attempt::Failed)?;
    let form = Form {
        dtype: dtype(number).0,
        experts: match args.experts.unwrap_or(ExpertsArg::Separate) {
            ExpertsArg::Separate => ExpertForm::Separate,
            ExpertsArg::Fused => ExpertForm::Fused,
        },
        shard_bytes: args.shard_bytes.unwrap_or(SHARD_BYTES),
    };
    let name = args.to.display();
    let progress = |written: u64, all: u64| {
        let text = format!("{name}: {} of {} written", words::bytes(written), words::bytes(all));
        console.progress(text, Some(written as f64 / all.max(1) as f64));
    };
    let written = write(&checkpoint, &args.to, &form, &config, cores(), stop, &progress);
    console.clear();
    console.flush();
    written.map_err(|failed| attempt(failed, args))
}

fn attempt(failed: Failed, args: &ExportArgs) -> Attempt {
    let text = failed.to_string();
    match failed {
        Failed::Source(_) => Attempt::Damaged(Failure::new(Exit::NoCheckpoint, text)),
        Failed::Target(error) => Attempt::Failed(unwritable(&error)),
        Failed::TooLarge { .. } => {
            let help = "write --dtype bfloat16 or --dtype float32";
            Attempt::Failed(Failure::new(Exit::Usage, text).help(help))
        }
        Failed::Stopped => {
            let text =
                format!("stopped before {} was written; nothing is there", args.to.display());
            Attempt::Failed(Failure::new(Exit::Stopped, text))
        }
    }
}

/// A folder that cannot be written.
pub(super) fn unwritable(error: &Error) -> Failure {
    let exit = if error.is_no_space() { Exit::NoSpace } else { Exit::Usage };
    let failure = Failure::new(exit, error.to_string());
    match error {
        Error::Occupied { .. } => failure.help("name a folder that does not exist yet"),
        _ => failure,
    }
}

/// The number format, and what torch calls it.
fn dtype(arg: DtypeArg) -> (Dtype, &'static str) {
    match arg {
        DtypeArg::Float32 => (Dtype::F32, "float32"),
        DtypeArg::Bfloat16 => (Dtype::BF16, "bfloat16"),
        DtypeArg::Float16 => (Dtype::F16, "float16"),
    }
}

/// The description of the model of a checkpoint.
fn config(checkpoint: &Checkpoint, arg: DtypeArg) -> Result<Value, Failure> {
    let manifest = checkpoint.manifest();
    let failed = |what: String| {
        let path = checkpoint.place();
        let text = format!("{path}: its manifest does not describe a model that is known: {what}");
        Failure::new(Exit::NoCheckpoint, text)
    };
    let model = Architecture::of_settings(&manifest.run["settings"]).map_err(failed)?;
    for (name, facts) in &model.tensors() {
        if manifest.tensors.get(name) != Some(facts) {
            return Err(failed(format!("{name} is not in it, or has another shape")));
        }
    }
    let details = Details { dtype: dtype(arg).1, sequence_length: sequence_length(manifest) };
    Ok(to_config(&model, details))
}

/// Tokens of the sequences that were trained on, or are to be.
fn sequence_length(manifest: &Manifest) -> u64 {
    let run = &manifest.run;
    let known = run["cursor"]["order"]["sequence_length"].as_u64();
    known.or_else(|| run["sequence_length"].as_u64()).unwrap_or_default()
}

fn report(found: &Found, exported: &Exported, args: &ExportArgs) -> Result<Exit, Failure> {
    let Exported { path, files, tensors, parameters, bytes } = exported;
    let dtype = dtype(args.dtype.unwrap_or(DtypeArg::Float32)).1;
    if args.json {
        let (checkpoint, step) = (&found.place, found.step);
        return print_json(&Written {
            path,
            checkpoint,
            step,
            dtype,
            files: *files,
            tensors: *tensors,
            parameters: *parameters,
            bytes: *bytes,
        });
    }
    print_document(&format!(
        "{}: the weights of {} ({} in {dtype}, {} in {})\n",
        path.display(),
        found.place,
        words::count(*parameters as f64),
        words::bytes(*bytes),
        words::plural(*files, "file"),
    ))
}
