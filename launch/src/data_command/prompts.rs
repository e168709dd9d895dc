//! `titan-tpu data show` of a recipe for reinforcement learning: its data are prompts, one by one.

use serde::Serialize;
use titan_datasets::shards::Document;
use titan_datasets::{Cursor, OrderIdentity, PromptId, Prompts};
use titan_recipes::Recipe;

use super::show::{place_of, push_json, show_documents, text_of, write_cursor};
use crate::cli::ShowDataArgs;
use crate::console::print_document;
use crate::data::{Prepared, failure};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::words;

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
) -> Result<Exit, Failure> {
    let (sources, seed) = (prepared.sources(), *recipe.training.seed);
    let prompts = Prompts::open(&sources, seed, per_step).map_err(|error| failure(&error))?;
    let contents = prepared.fingerprints().into_iter().enumerate();
    let parts = contents.map(|(source, fingerprint)| (fingerprint, prompts.parts_of(source)));
    // Prompts are not cut, so there is no length that the order depends on.
    let identity = OrderIdentity::new(seed, 0, parts.collect());
    let start = place_of(args, &identity)?;
    let mut out = String::new();
    if args.steps.is_none() {
        for (number, source) in sources.iter().enumerate() {
            if !args.json {
                let count = words::plural(prompts.prompts_of(number), "prompt");
                out.push_str(&format!("{}: {count}\n", source.name));
            }
        }
        for ready in &prepared.training {
            show_documents(args, &ready.folder, Some(&prepared.tokenizer), &mut out)?;
        }
    }
    let (first, last) = args.steps.unwrap_or((1, 1));
    for step in first..=last {
        let first_prompt = start + (step - 1) * per_step;
        let taken = (first_prompt..first_prompt + per_step).map(|place| read(&prompts, place));
        let taken: Vec<PromptLine> = taken.collect::<Result<_, _>>()?;
        if args.json {
            if args.steps.is_some() {
                push_json(
                    &mut out,
                    &StepLine { event: "step", step, first_prompt, prompts: taken },
                )?;
            }
            continue;
        }
        out.push_str(&format!("\nstep {step}: {}\n", words::plural(per_step, "prompt")));
        for PromptLine { id, tokens, extra } in &taken {
            let PromptId { source, epoch, document } = id;
            out.push_str(&format!(
                "prompt {document} of source {}, epoch {}\n",
                source + 1,
                epoch + 1
            ));
            out.push_str(&text_of(tokens, Some(&prepared.tokenizer))?);
            out.push_str(&format!("  {}\n", extra.as_deref().unwrap_or("{}")));
        }
    }
    print_document(&out)?;
    if let Some(path) = &args.write_cursor {
        let samples = args.steps.map_or(start, |(_, last)| start + last * per_step);
        write_cursor(path, &Cursor { samples, order: identity })?;
    }
    Ok(Exit::Done)
}

fn read(prompts: &Prompts, place: u64) -> Result<PromptLine, Failure> {
    let id = prompts.locate(place);
    let Document { tokens, extra } = prompts.read(id).map_err(|error| failure(&error))?;
    Ok(PromptLine { id, tokens, extra })
}
