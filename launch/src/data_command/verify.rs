//! `titan-tpu data verify`.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use serde::Serialize;
use titan_datasets::shards::{Findings, verify_shards};
use titan_datasets::source::{Compression, Format, Input, Position, Reader, SourceSpec, find};
use titan_recipes::tables::validation::Validation;
use titan_recipes::{Overrides, Purpose, shipped};

use super::spec;
use crate::cli::{SourceArgs, VerifyDataArgs};
use crate::console::{Console, Style, print_document, print_failure};
use crate::data::{self, failure};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::train::signals;
use crate::words;

/// Faults that are listed of one source; all are counted.
const LISTED: usize = 20;

/// What was found in one source.
#[derive(Serialize)]
struct Verified {
    path: String,
    kind: &'static str,
    ok: bool,
    documents: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    tokens: Option<u64>,
    files: u64,
    bytes: u64,
    empty_documents: u64,
    bad: BTreeMap<&'static str, u64>,
    faults: Vec<Fault>,
    seconds: f64,
}

#[derive(Serialize)]
struct Fault {
    file: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    record: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    offset: Option<u64>,
    what: String,
}

pub(super) fn command(args: &VerifyDataArgs) -> Result<Exit, Failure> {
    refuse_flags_of_recipes(args)?;
    let stop = signals::cancellation()?;
    let console = Console::new(Style::choose(args.json));
    let (mut failed, mut all_good) = (None, true);
    for path in &args.paths {
        for verified in all_of(path, &args.source, &console, &stop) {
            console.clear();
            console.flush();
            match verified {
                Ok(verified) => {
                    all_good &= verified.ok;
                    print(args, &verified)?;
                }
                Err(failure) if failure.exit == Exit::Stopped => return Err(failure),
                // The others may be good, and whoever asks wants to know.
                Err(failure) => {
                    print_failure(&failure);
                    failed.get_or_insert(failure.exit);
                }
            }
        }
    }
    Ok(failed.unwrap_or(if all_good { Exit::Done } else { Exit::BadData }))
}

fn print(args: &VerifyDataArgs, verified: &Verified) -> Result<Exit, Failure> {
    let text = if args.json {
        serde_json::to_string(verified)
            .map_err(|error| Failure::new(Exit::Bug, error.to_string()))?
    } else {
        in_words(verified)
    };
    print_document(&format!("{text}\n"))
}

/// A recipe says itself what its fields are.
fn refuse_flags_of_recipes(args: &VerifyDataArgs) -> Result<(), Failure> {
    let recipe = args.paths.iter().find(|path| is_recipe(path));
    let (Some(recipe), Some(flag)) = (recipe, args.source.any_given()) else { return Ok(()) };
    let text =
        format!("{flag} is for files, and {} is a recipe, which says it itself", recipe.display());
    Err(Failure::new(Exit::Usage, text).help("name the files in a command of their own"))
}

/// What `data show` takes for a recipe, unless it must be the name of something else.
fn is_recipe(path: &Path) -> bool {
    let is_shipped = || shipped::ALL.iter().any(|shipped| path == Path::new(shipped.name));
    path.extension().is_some_and(|extension| extension == "toml") || is_shipped() && !path.exists()
}

/// Each source of a recipe; of anything else the one that it is.
fn all_of<'a>(
    path: &'a Path,
    args: &'a SourceArgs,
    console: &'a Console,
    stop: &'a AtomicBool,
) -> Box<dyn Iterator<Item = Result<Verified, Failure>> + 'a> {
    if !is_recipe(path) {
        let verify = move || source(&spec(&path.to_string_lossy(), args), console, stop);
        return Box::new(std::iter::once_with(verify));
    }
    let loaded = match titan_recipes::load(path, &Overrides::default(), Purpose::Check) {
        Ok(loaded) => loaded,
        Err(report) => return Box::new(std::iter::once(Err(report.into()))),
    };
    let validation = loaded.recipe.validation.as_ref().and_then(Validation::sources);
    let sources = loaded.recipe.data.sources.iter().chain(validation.unwrap_or_default());
    let addressed: Vec<_> =
        sources.map(|entry| data::address(&entry.path).map(|()| data::spec(entry))).collect();
    Box::new(addressed.into_iter().map(|spec| source(&spec?, console, stop)))
}

/// Shards, or files of records.
fn source(spec: &SourceSpec, console: &Console, stop: &AtomicBool) -> Result<Verified, Failure> {
    match data::shards_at(&spec.path, console, stop)? {
        Some(folder) => shards(&folder, console, stop),
        None => records(spec, console, stop),
    }
}

fn shards(folder: &Path, console: &Console, stop: &AtomicBool) -> Result<Verified, Failure> {
    let start = Instant::now();
    let name = folder.display().to_string();
    let mut read = 0;
    let mut report = |bytes| {
        read += bytes;
        console.progress(format!("{name}: {} read", words::bytes(read)), None);
    };
    let (index, findings) =
        verify_shards(folder, stop, &mut report).map_err(|error| match error {
            titan_datasets::Error::Stopped => stopped(),
            error => failure(&error),
        })?;
    let Findings { files, bytes, bad } = findings;
    let faults = bad.iter().take(LISTED).map(|block| Fault {
        file: block.path.display().to_string(),
        record: None,
        offset: block.offset,
        what: block.what.clone(),
    });
    Ok(Verified {
        path: name.clone(),
        kind: "shards",
        ok: bad.is_empty(),
        documents: index.splits.values().map(|split| split.documents).sum(),
        tokens: Some(index.splits.values().map(|split| split.tokens).sum()),
        files,
        bytes,
        empty_documents: index.account.empty_documents,
        bad: if bad.is_empty() {
            BTreeMap::new()
        } else {
            BTreeMap::from([("changed", bad.len() as u64)])
        },
        faults: faults.collect(),
        seconds: start.elapsed().as_secs_f64(),
    })
}

fn stopped() -> Failure {
    Failure::new(Exit::Stopped, "stopped before everything was checked")
}

/// Every record of the files of a source.
fn records(spec: &SourceSpec, console: &Console, stop: &AtomicBool) -> Result<Verified, Failure> {
    let start = Instant::now();
    let inputs = find(spec).map_err(|error| failure(&error.into()))?;
    let mut verified = Verified {
        path: spec.path.clone(),
        kind: "records",
        ok: true,
        documents: 0,
        tokens: None,
        files: inputs.len() as u64,
        bytes: inputs.iter().map(|input| input.bytes).sum(),
        empty_documents: 0,
        bad: BTreeMap::new(),
        faults: Vec::new(),
        seconds: 0.0,
    };
    for input in &inputs {
        let reader = Reader::open(input, &spec.fields, spec.documents, Position::default())
            .map_err(|error| failure(&error.into()))?;
        for batch in reader {
            let batch = batch.map_err(|error| failure(&error.into()))?;
            batch.documents(|document| verified.add(input, document));
            if stop.load(Ordering::Relaxed) {
                return Err(stopped());
            }
            let documents = words::count(verified.documents as f64);
            console.progress(format!("{}: {documents} documents", input.name), None);
        }
    }
    verified.ok = verified.bad.is_empty();
    verified.seconds = start.elapsed().as_secs_f64();
    Ok(verified)
}

impl Verified {
    fn add(
        &mut self,
        input: &Input,
        document: Result<titan_datasets::source::Document<'_>, titan_datasets::source::BadRecord>,
    ) {
        use titan_datasets::source::Content;
        match document {
            Ok(document) => match document.content {
                Content::Part { first, .. } => self.documents += u64::from(first),
                Content::Text(text) if text.is_empty() => self.empty_documents += 1,
                _ => self.documents += 1,
            },
            Err(bad) => {
                *self.bad.entry(bad.reason.word()).or_default() += 1;
                if self.faults.len() < LISTED {
                    let is_text = matches!(input.format, Format::Text | Format::JsonLines);
                    let of =
                        if input.compression == Compression::None { "" } else { " (decompressed)" };
                    self.faults.push(Fault {
                        file: format!("{}{of}", input.name),
                        record: Some(bad.place.record),
                        offset: is_text.then_some(bad.place.offset),
                        what: bad.detail,
                    });
                }
            }
        }
    }
}

fn in_words(verified: &Verified) -> String {
    let faults: u64 = verified.bad.values().sum();
    let mut lines = vec![format!(
        "{}: {} in {}{}, {}",
        verified.path,
        words::plural(verified.documents, "document"),
        words::plural(verified.files, "file"),
        verified
            .tokens
            .map_or_else(String::new, |tokens| format!(" ({})", words::plural(tokens, "token"))),
        if verified.ok { "all good".to_owned() } else { words::plural(faults, "fault") },
    )];
    if verified.empty_documents > 0 {
        lines.push(format!("  {}", words::plural(verified.empty_documents, "empty document")));
    }
    for Fault { file, record, offset, what } in &verified.faults {
        let record = record.map_or_else(String::new, |record| format!(":{record}"));
        let offset = offset.map_or_else(String::new, |offset| format!(" (byte {offset})"));
        lines.push(format!("  {file}{record}: {what}{offset}"));
    }
    let unlisted = faults.saturating_sub(verified.faults.len() as u64);
    if unlisted > 0 {
        lines.push(format!("  and {unlisted} more"));
    }
    lines.join("\n")
}
