//! `titan-tpu data show` of a recipe for reinforcement learning: its data are prompts, one by one.

use serde::Serialize;
use titan_datasets::shards::Document;
use titan_datasets::{Cursor, OrderIdentity, PromptId, Prompts, SourceConfig};
use titan_recipes::Recipe;

use super::cursor;
use super::show::{Output, documents, push_json, steps_of, text_of};
use crate::cli::ShowDataArgs;
use crate::data::{Prepared, failure};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::words;

#[derive(Serialize)]
struct SourceLine<'a> {
    event: &'static str,
    source: &'a str,
    prompts: u64,
}

#[derive(Serialize)]
struct StepLine {
    event: &'static str,
    step: u64,
    first_prompt: u64,
    prompts: Vec<PromptLine>,
}

#[derive(Serialize)]
struct PromptLine {
    #[serde(flatten)]
    id: PromptId,
    tokens: Vec<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    extra: Option<String>,
}

/// Prints prompts, and the steps that take `per_step` of them.
pub(super) fn show(
    args: &ShowDataArgs,
    recipe: &Recipe,
    prepared: &Prepared,
    per_step: u64,
    output: &Output<'_>,
) -> Result<Exit, Failure> {
    let (sources, seed) = (prepared.sources(), *recipe.training.seed);
    let prompts = Prompts::open(&sources, seed, per_step).map_err(|error| failure(&error))?;
    let contents = prepared.fingerprints().into_iter().enumerate();
    let parts = contents.map(|(source, fingerprint)| (fingerprint, prompts.parts_of(source)));
    // Prompts are not cut, so there is no length that the order depends on.
    let identity = OrderIdentity::new(seed, 0, parts.collect());
    let start = cursor::place_of(args, &identity, per_step)?;
    if args.steps.is_none() {
        let mut out = String::new();
        for (number, SourceConfig { name, .. }) in sources.iter().enumerate() {
            let count = prompts.prompts_of(number);
            if args.json {
                let line = SourceLine { event: "source", source: name, prompts: count };
                push_json(&mut out, &line)?;
            } else {
                out.push_str(&format!("{name}: {}\n", words::plural(count, "prompt")));
            }
        }
        output.print(&out)?;
        if !documents(args, prepared, output)? {
            return output.end();
        }
    }
    let (first, last) = steps_of(args, (u64::MAX - start) / per_step)?;
    if args.steps.is_some() || !args.json {
        output.steps(first..=last, |number| {
            step(args, &prompts, number, start + (number - 1) * per_step, per_step, prepared)
        })?;
    }
    output.end_at(args, Cursor { samples: start + last * per_step, order: identity })
}

/// The prompts of a step.
fn step(
    args: &ShowDataArgs,
    prompts: &Prompts,
    step: u64,
    first_prompt: u64,
    per_step: u64,
    prepared: &Prepared,
) -> Result<String, Failure> {
    let mut out = String::new();
    let taken = (first_prompt..first_prompt + per_step).map(|place| read(prompts, place));
    let taken: Vec<PromptLine> = taken.collect::<Result<_, _>>()?;
    if args.json {
        push_json(&mut out, &StepLine { event: "step", step, first_prompt, prompts: taken })?;
        return Ok(out);
    }
    out.push_str(&format!("\nstep {step}: {}\n", words::plural(per_step, "prompt")));
    for PromptLine { id, tokens, extra } in &taken {
        let PromptId { source, epoch, document } = id;
        out.push_str(&format!("prompt {document} of source {}, epoch {}\n", source + 1, epoch + 1));
        out.push_str(&text_of(tokens, Some(&prepared.tokenizer))?);
        out.push_str(&format!("  {}\n", extra.as_deref().unwrap_or("{}")));
    }
    Ok(out)
}

fn read(prompts: &Prompts, place: u64) -> Result<PromptLine, Failure> {
    let id = prompts.locate(place);
    let Document { tokens, extra } = prompts.read(id).map_err(|error| failure(&error))?;
    Ok(PromptLine { id, tokens, extra })
}
