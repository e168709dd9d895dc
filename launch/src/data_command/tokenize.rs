//! `titan-tpu data tokenize`.

use std::sync::Arc;
use std::time::Instant;

use serde::Serialize;
use titan_datasets::shards::{Account, Split};
use titan_datasets::source::find;
use titan_datasets::{Job, OnBadRecord, Outcome, Progress, tokenize};

use super::spec;
use crate::cli::{BadRecordArg, TokenizeArgs};
use crate::console::{Console, Style, print_warning};
use crate::data::special::Special;
use crate::data::{cores, failure};
use crate::data_command::output;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::train::signals;
use crate::words;

/// What `--json` prints.
#[derive(Serialize)]
struct Made<'a> {
    output: String,
    done_before: bool,
    resumed: bool,
    documents: u64,
    tokens: u64,
    targets: u64,
    token_bytes: u8,
    largest_id: Option<u32>,
    document_start: Option<u32>,
    document_end: Option<u32>,
    account: &'a Account,
    splits: std::collections::BTreeMap<&'a str, SplitFacts<'a>>,
    seconds: f64,
    tokens_per_second: f64,
}

#[derive(Serialize)]
struct SplitFacts<'a> {
    documents: u64,
    tokens: u64,
    shards: usize,
    fingerprint: &'a str,
}

pub(super) fn command(args: &TokenizeArgs) -> Result<Exit, Failure> {
    let start = Instant::now();
    let stop = signals::cancellation()?;
    let console = Console::new(Style::choose(args.json));
    let job = job(args)?;
    let mut shown = Instant::now();
    let mut report = |progress: Progress| {
        if shown.elapsed().as_millis() >= 100 {
            shown = Instant::now();
            console.progress(line(&progress, start), Some(progress.fraction));
        }
    };
    let outcome = tokenize(&job, &stop, &mut report);
    console.clear();
    let outcome = outcome.map_err(|error| {
        let failure = failure(&error);
        match error {
            titan_datasets::Error::BadRecord { .. } => Failure { help: Vec::new(), ..failure }
                .help("correct it, or add --on-bad-record skip to pass over such records"),
            _ => failure,
        }
    })?;
    console.flush();
    let exit = print(args, &job, &outcome, start)?;
    if outcome.index.splits.values().all(|split| split.documents == 0) {
        print_warning("no document was found, so there is nothing to train on");
    }
    Ok(exit)
}

fn job(args: &TokenizeArgs) -> Result<Job, Failure> {
    output::check(args)?;
    let mut inputs = Vec::new();
    let mut fields = None;
    for source in &args.sources {
        let spec = spec(source, &args.source);
        inputs.extend(find(&spec).map_err(|error| failure(&error.into()))?);
        fields = Some((spec.fields, spec.documents));
    }
    let Some((fields, documents)) = fields else {
        return Err(Failure::new(Exit::Usage, "no source is named"));
    };
    let special = Special::read(&args.tokenizer, [&args.document_start, &args.document_end])?;
    let document_start = special.start(&args.document_start)?;
    let document_end = special.end(&args.document_end)?;
    Ok(Job {
        inputs,
        fields,
        documents,
        document_start,
        document_end,
        tokenizer: Arc::new(special.tokenizer),
        validation_fraction: args.validation_fraction,
        on_bad_record: match args.on_bad_record {
            BadRecordArg::Fail => OnBadRecord::Fail,
            BadRecordArg::Skip => OnBadRecord::Skip,
        },
        shard_tokens: args.shard_tokens,
        threads: args.threads.map_or_else(cores, |threads| threads as usize),
        output: args.output.clone(),
        waits: false,
    })
}

fn line(progress: &Progress, start: Instant) -> String {
    let seconds = start.elapsed().as_secs_f64().max(1e-9);
    format!(
        "file {} of {}, {} tokens, {} tokens/s",
        (progress.files_done + 1).min(progress.files),
        progress.files,
        words::count(progress.tokens as f64),
        words::count(progress.tokens as f64 / seconds),
    )
}

fn print(
    args: &TokenizeArgs,
    job: &Job,
    outcome: &Outcome,
    start: Instant,
) -> Result<Exit, Failure> {
    let index = &outcome.index;
    let total = |part: fn(&Split) -> u64| index.splits.values().map(part).sum::<u64>();
    let (documents, tokens) = (total(|split| split.documents), total(|split| split.tokens));
    let seconds = start.elapsed().as_secs_f64();
    let account = &index.account;
    let result = Made {
        output: job.output.display().to_string(),
        done_before: outcome.was_done,
        resumed: outcome.was_resumed,
        documents,
        tokens,
        targets: total(|split| split.targets),
        token_bytes: index.token_bytes,
        largest_id: index.splits.values().filter_map(|split| split.largest_id).max(),
        document_start: index.document_start,
        document_end: index.document_end,
        account,
        splits: index.splits.iter().map(|(name, split)| (name.as_str(), facts(split))).collect(),
        seconds,
        tokens_per_second: tokens as f64 / seconds,
    };
    if args.json {
        let text = serde_json::to_string(&result)
            .map_err(|error| Failure::new(Exit::Bug, error.to_string()))?;
        return crate::console::print_document(&format!("{text}\n"));
    }
    let mut lines = vec![format!(
        "{}: {} in {} from {}, {} each{}",
        job.output.display(),
        words::plural(tokens, "token"),
        words::plural(documents, "document"),
        words::plural(index.inputs.len() as u64, "file"),
        words::plural(index.token_bytes.into(), "byte"),
        if outcome.was_done { " (they were there already)" } else { "" },
    )];
    for (name, split) in &index.splits {
        let shards = words::plural(split.shards.len() as u64, "shard");
        lines.push(format!(
            "  {name}: {} in {}, {shards}",
            words::plural(split.tokens, "token"),
            words::plural(split.documents, "document")
        ));
    }
    lines.extend(words::left_out(account).into_iter().map(|line| format!("  {line}")));
    if !outcome.was_done {
        let rate = words::count(result.tokens_per_second);
        lines.push(format!("  {} ({rate} tokens/s)", words::seconds(seconds)));
    }
    crate::console::print_document(&(lines.join("\n") + "\n"))
}

fn facts(split: &Split) -> SplitFacts<'_> {
    SplitFacts {
        documents: split.documents,
        tokens: split.tokens,
        shards: split.shards.len(),
        fingerprint: &split.fingerprint,
    }
}
