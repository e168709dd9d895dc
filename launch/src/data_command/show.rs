//! `titan-tpu data show`.

use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;
use titan_datasets::shards::{Document, ShardIndex, SplitReader};
use titan_datasets::{
    BatchPlan, Cursor, SampleId, Samples, SourceConfig, SplitPath, TokenAccount, Tokenizer,
};
use titan_recipes::{Layout, Loaded, Overrides, Purpose};

use super::{cursor, prompts};
use crate::cli::ShowDataArgs;
use crate::console::{Console, Style, print_part};
use crate::data::{self, Prepared, failure};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::{recipe_command, words};

/// Characters of a document or row that are shown to people.
const SHOWN: usize = 600;

/// Rows of a batch that are shown to people.
const ROWS: usize = 4;

pub(super) fn command(args: &ShowDataArgs) -> Result<Exit, Failure> {
    let stop = crate::train::signals::cancellation()?;
    let console = Console::new(Style::choose(args.json));
    let output = Output { stop: &stop };
    if let Some(folder) = data::shards_at(&args.what.to_string_lossy(), &console, &stop)? {
        console.flush();
        return of_shards(args, &folder, &output);
    }
    if args.tokenizer.is_some() {
        let text = "--tokenizer is for a folder of shards; a recipe names its tokenizer itself";
        return Err(
            Failure::new(Exit::Usage, text).help("write --set data.tokenizer=tokenizer.json")
        );
    }
    cursor::check(args)?;
    let devices = args.devices.map(|devices| ("--devices", format!("hardware.devices={devices}")));
    let overrides: Overrides = recipe_command::overrides(&args.set, devices.into_iter().collect());
    let loaded = titan_recipes::load(&args.what, &overrides, Purpose::Check)?;
    let Loaded { recipe, layout, .. } = loaded;
    let prepared = data::prepare(&recipe, &console, &stop)?;
    console.flush();
    if let Some(rl) = &recipe.rl {
        return prompts::show(args, &recipe, &prepared, *rl.prompts_per_step, &output);
    }
    let sources = prepared.sources();
    let samples = open(&sources, &layout, *recipe.training.seed)?;
    let identity = data::identity(&prepared, &samples, &recipe, &layout);
    if args.steps.is_none() {
        let mut out = String::new();
        summary(args, &prepared, &samples, &sources, &mut out)?;
        output.print(&out)?;
        if !documents(args, &prepared, &output)? {
            return output.end();
        }
    }
    let start = cursor::place_of(args, &identity, layout.global_batch)?;
    let plan = BatchPlan { first_sample: start, ..plan(&layout) };
    let (first, last) = steps_of(args, plan.last_step().saturating_add(1))?;
    if args.steps.is_some() || !args.json {
        output
            .steps(first..=last, |step| batch(args, &samples, &plan, step, &prepared.tokenizer))?;
    }
    output.end_at(args, Cursor { samples: plan.samples_before(last), order: identity })
}

/// The steps to show, from 1; the first one where none are asked for.
pub(super) fn steps_of(args: &ShowDataArgs, most: u64) -> Result<(u64, u64), Failure> {
    let (first, last) = args.steps.unwrap_or((1, 1));
    if last <= most {
        return Ok((first, last));
    }
    Err(Failure::new(
        Exit::Usage,
        format!("--steps {first}..{last}: no run has more than {most} steps"),
    ))
}

/// Where steps are printed, one by one: there can be any number of them.
pub(super) struct Output<'a> {
    stop: &'a AtomicBool,
}

impl Output<'_> {
    /// Prints a part, and says whether to go on.
    pub(super) fn print(&self, text: &str) -> Result<bool, Failure> {
        Ok(print_part(text)? && !self.stop.load(Ordering::Relaxed))
    }

    /// Prints steps until nobody reads on.
    pub(super) fn steps(
        &self,
        mut steps: RangeInclusive<u64>,
        mut text: impl FnMut(u64) -> Result<String, Failure>,
    ) -> Result<(), Failure> {
        while let Some(step) = steps.next()
            && self.print(&text(step)?)?
        {}
        Ok(())
    }

    /// As [`end`](Self::end), after steps. A reader that goes away does not change what was asked for, a signal does.
    pub(super) fn end_at(&self, args: &ShowDataArgs, after: Cursor) -> Result<Exit, Failure> {
        if let Some(path) = &args.write_cursor
            && !self.stop.load(Ordering::Relaxed)
        {
            cursor::write(path, &after)?;
        }
        self.end()
    }

    /// How a command ends that does not go on: a reader that has seen enough is no failure.
    pub(super) fn end(&self) -> Result<Exit, Failure> {
        Ok(if self.stop.load(Ordering::Relaxed) { Exit::Stopped } else { Exit::Done })
    }
}

fn open(sources: &[SourceConfig], layout: &Layout, seed: u64) -> Result<Samples, Failure> {
    Samples::open(sources, layout.sequence_length, seed, layout.global_batch)
        .map_err(|error| failure(&error))
}

/// The plan of a run from its first step.
fn plan(layout: &Layout) -> BatchPlan {
    BatchPlan {
        global_batch: layout.global_batch,
        accumulation: layout.accumulation,
        data_parallel_degree: layout.data_parallel(),
        local_batch: layout.local_batch,
        first_step: 0,
        first_sample: 0,
    }
}

#[derive(Serialize)]
struct SourceLine<'a> {
    event: &'static str,
    source: &'a str,
    share: f64,
    samples: u64,
    folders: Vec<String>,
    #[serde(flatten)]
    account: TokenAccount,
}

fn summary(
    args: &ShowDataArgs,
    prepared: &Prepared,
    samples: &Samples,
    sources: &[SourceConfig],
    out: &mut String,
) -> Result<(), Failure> {
    for (number, source) in sources.iter().enumerate() {
        let account = samples.account_of(number);
        let line = SourceLine {
            event: "source",
            source: &source.name,
            share: samples.share_of(number),
            samples: samples.samples_of(number),
            folders: source.splits.iter().map(|split| split.folder.display().to_string()).collect(),
            account,
        };
        if args.json {
            push_json(out, &line)?;
            continue;
        }
        out.push_str(&format!(
            "{}: {} in {}, {} of {} tokens and a remainder of {}{}\n",
            line.source,
            words::plural(account.tokens_in, "token"),
            words::plural(account.documents, "document"),
            words::plural(line.samples, "sequence"),
            samples.row_len() - 1,
            words::plural(account.remainder, "token"),
            if sources.len() > 1 {
                format!(", {:.2} % of the samples", 100.0 * line.share)
            } else {
                String::new()
            },
        ));
    }
    if !args.json {
        out.extend(prepared.left_out().into_iter().map(|line| line + "\n"));
    }
    Ok(())
}

#[derive(Serialize)]
struct ShardsLine<'a> {
    event: &'static str,
    #[serde(flatten)]
    index: &'a ShardIndex,
}

#[derive(Serialize)]
struct DocumentLine<'a> {
    event: &'static str,
    /// The entry of the list of sources, of a recipe.
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<usize>,
    document: u64,
    tokens: &'a [i32],
    text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    extra: Option<&'a str>,
}

fn of_shards(args: &ShowDataArgs, folder: &Path, output: &Output<'_>) -> Result<Exit, Failure> {
    let only_of_recipes = [
        ("--steps", args.steps.is_some()),
        ("--cursor", args.cursor.is_some()),
        ("--write-cursor", args.write_cursor.is_some()),
        ("--devices", args.devices.is_some()),
        ("--set", !args.set.is_empty()),
    ];
    if let Some((flag, _)) = only_of_recipes.iter().find(|(_, is_used)| *is_used) {
        let text = format!("{flag} needs a recipe, and {} is a folder of shards", folder.display());
        return Err(Failure::new(Exit::Usage, text).help("name a recipe that has it as a source"));
    }
    let index = ShardIndex::read(folder).map_err(|error| failure(&error))?;
    let tokenizer = match args.tokenizer.as_deref() {
        Some(path) if path != Path::new("bytes") => {
            Tokenizer::read(path, index.tokenizer.largest_id).map_err(|error| failure(&error))?
        }
        _ => Tokenizer::Bytes,
    };
    if args.tokenizer.is_some() && tokenizer.facts().fingerprint != index.tokenizer.fingerprint {
        let text =
            format!("these shards were made with another tokenizer, {}", index.tokenizer.name);
        return Err(Failure::new(Exit::Usage, text).help("name the tokenizer.json that made them"));
    }
    let mut out = String::new();
    if args.json {
        push_json(&mut out, &ShardsLine { event: "shards", index: &index })?;
    } else {
        for (name, split) in &index.splits {
            out.push_str(&format!(
                "{name}: {} in {}, {}, made with {}\n",
                words::plural(split.tokens, "token"),
                words::plural(split.documents, "document"),
                words::plural(split.shards.len() as u64, "shard"),
                index.tokenizer.name
            ));
        }
    }
    let can_decode = args.tokenizer.is_some() || index.tokenizer.fingerprint.is_none();
    let decoder = can_decode.then_some(&tokenizer);
    if output.print(&out)? {
        let documents = Documents { args, source: None, tokenizer: decoder };
        documents.show(folder, &args.split, output)?;
    }
    output.end()
}

/// Prints documents of each source, and says whether to go on.
pub(super) fn documents(
    args: &ShowDataArgs,
    prepared: &Prepared,
    output: &Output<'_>,
) -> Result<bool, Failure> {
    let Some(splits) = prepared.splits_of(&args.split) else {
        let text = format!("--split {}: the recipe has no such data", args.split);
        return Err(Failure::new(Exit::Usage, text)
            .help("write train, or validation if the recipe has [validation]"));
    };
    for (number, SplitPath { folder, split }) in splits.iter().enumerate() {
        let tokenizer = Some(&*prepared.tokenizer);
        let documents = Documents { args, source: Some(number), tokenizer };
        if !documents.show(folder, split, output)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Documents of one split.
struct Documents<'a> {
    args: &'a ShowDataArgs,
    source: Option<usize>,
    tokenizer: Option<&'a Tokenizer>,
}

impl Documents<'_> {
    /// Prints documents, and says whether to go on.
    fn show(&self, folder: &Path, split: &str, output: &Output<'_>) -> Result<bool, Failure> {
        let reader = SplitReader::open(folder, split).map_err(|error| failure(&error))?;
        let ShowDataArgs { first, documents, .. } = self.args;
        for number in *first..first.saturating_add(*documents).min(reader.documents()) {
            let document = reader.document(number).map_err(|error| failure(&error))?;
            if !output.print(&self.text(number, &document)?)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn text(&self, number: u64, Document { tokens, extra }: &Document) -> Result<String, Failure> {
        let mut out = String::new();
        if self.args.json {
            let text =
                self.tokenizer.map(|tokenizer| decode(tokenizer, &plain(tokens))).transpose()?;
            let line = DocumentLine {
                event: "document",
                source: self.source,
                document: number,
                tokens,
                text,
                extra: extra.as_deref(),
            };
            push_json(&mut out, &line)?;
            return Ok(out);
        }
        let count = words::plural(tokens.len() as u64, "token");
        out.push_str(&format!("\ndocument {number}, {count}\n"));
        out.push_str(&text_of(tokens, self.tokenizer)?);
        if let Some(extra) = extra {
            out.push_str(&format!("  {extra}\n"));
        }
        Ok(out)
    }
}

/// Ids without the mark of those that are not learned.
fn plain(tokens: &[i32]) -> Vec<u32> {
    tokens.iter().map(|token| if *token < 0 { !*token as u32 } else { *token as u32 }).collect()
}

/// Tokens as indented text. What is not learned is in brackets.
pub(super) fn text_of(tokens: &[i32], tokenizer: Option<&Tokenizer>) -> Result<String, Failure> {
    let mut text = String::new();
    for run in tokens.chunk_by(|a, b| (*a < 0) == (*b < 0)) {
        let ids = plain(run);
        let part = match tokenizer {
            Some(tokenizer) => decode(tokenizer, &ids)?,
            None => ids.iter().map(u32::to_string).collect::<Vec<_>>().join(" "),
        };
        text.push_str(&if run.first().is_some_and(|token| *token < 0) {
            format!("[{part}]")
        } else {
            part
        });
        if text.chars().count() > SHOWN {
            text = text.chars().take(SHOWN).chain(['…']).collect();
            break;
        }
    }
    Ok(text.lines().map(|line| format!("  | {}\n", printable(line))).collect())
}

fn decode(tokenizer: &Tokenizer, ids: &[u32]) -> Result<String, Failure> {
    tokenizer.decode(ids).map_err(|error| failure(&error))
}

/// Control characters of data must not reach a terminal.
fn printable(line: &str) -> String {
    line.chars().map(|c| if c.is_control() && c != '\t' { '\u{fffd}' } else { c }).collect()
}

#[derive(Serialize)]
struct StepLine {
    event: &'static str,
    step: u64,
    first_sample: u64,
    rows: Vec<RowLine>,
}

#[derive(Serialize)]
struct RowLine {
    micro_step: u64,
    rank: u64,
    row: u64,
    #[serde(flatten)]
    id: SampleId,
    tokens: Vec<i32>,
}

impl RowLine {
    /// Whether there are tokens that are not learned.
    fn has_masked(&self) -> bool {
        self.tokens.iter().any(|token| *token < 0)
    }
}

/// The batch of a step, from 1 for that which begins at the first sample of `plan`.
fn batch(
    args: &ShowDataArgs,
    samples: &Samples,
    plan: &BatchPlan,
    step: u64,
    tokenizer: &Tokenizer,
) -> Result<String, Failure> {
    let mut out = String::new();
    let rows = rows(samples, plan, step - 1).map_err(|error| failure(&error))?;
    if args.json {
        let first_sample = plan.samples_before(step - 1);
        push_json(&mut out, &StepLine { event: "step", step, first_sample, rows })?;
        return Ok(out);
    }
    out.push_str(&format!(
        "\nstep {step}: {} of {} tokens, {} for each of {}{}\n",
        words::plural(plan.global_batch, "sequence"),
        samples.row_len() - 1,
        plan.accumulation * plan.local_batch,
        words::plural(plan.data_parallel_degree, "data-parallel rank"),
        if rows.iter().any(RowLine::has_masked) { "; what is in [ ] is not learned" } else { "" },
    ));
    for row in rows.iter().take(ROWS) {
        let SampleId { source, epoch, sample } = row.id;
        out.push_str(&format!(
            "rank {}, micro-step {}, row {}: sample {sample} of source {}, epoch {}\n{}",
            row.rank,
            row.micro_step,
            row.row,
            source + 1,
            epoch + 1,
            text_of(&row.tokens, Some(tokenizer))?,
        ));
    }
    if rows.len() > ROWS {
        out.push_str(&format!("and {} more rows\n", rows.len() - ROWS));
    }
    Ok(out)
}

/// All rows of a step, in the order of their places in the run.
fn rows(samples: &Samples, plan: &BatchPlan, step: u64) -> titan_datasets::Result<Vec<RowLine>> {
    let mut rows = Vec::new();
    for micro_step in 0..plan.accumulation {
        for rank in 0..plan.data_parallel_degree {
            for row in 0..plan.local_batch {
                let id = samples.locate(plan.place(step, micro_step, rank, row));
                let mut tokens = vec![0; samples.row_len()];
                samples.read(id, &mut tokens)?;
                rows.push(RowLine { micro_step, rank, row, id, tokens });
            }
        }
    }
    Ok(rows)
}

pub(super) fn push_json(out: &mut String, value: &impl Serialize) -> Result<(), Failure> {
    let text =
        serde_json::to_string(value).map_err(|error| Failure::new(Exit::Bug, error.to_string()))?;
    out.push_str(&text);
    out.push('\n');
    Ok(())
}
