//! Rules about the length of sequences.

use super::{Rule, either, nearest_values};
use crate::diagnostic::Diagnostic;
use crate::recipe::Recipe;
use crate::tables::training::MOST_SEQUENCE;

pub(super) const RULES: &[Rule] = &[
    Rule {
        reads: &["training.sequence_length", "parallelism.context", "parallelism.tensor"],
        check: axes_divide_the_sequence,
    },
    Rule { reads: &["model.family", "rl"], check: answers_are_text },
    Rule {
        reads: &["training.sequence_length", "rl.max_prompt_length", "rl.max_response_length"],
        check: answers_fit_the_sequence,
    },
];

/// A sequence is cut into two pieces for each context rank, an early and a late one, so that the causal mask leaves
/// each the same work; with tensor parallelism the norms work on further parts of them.
fn axes_divide_the_sequence(r: &Recipe) -> Option<Diagnostic> {
    let (context, tensor) = (*r.parallelism.context, *r.parallelism.tensor);
    let pieces = if context > 1 { 2 * context } else { 1 } * tensor;
    let length = &r.training.sequence_length;
    if length.is_multiple_of(pieces) {
        return None;
    }
    let cut = match (context, tensor) {
        (1, _) => format!("tensor {tensor}"),
        (_, 1) => format!("2 x context {context} = {pieces}"),
        _ => format!("2 x context {context} x tensor {tensor} = {pieces}"),
    };
    let near = [**length / pieces * pieces, length.next_multiple_of(pieces)];
    let near: Vec<u64> = near.into_iter().filter(|n| (1..=MOST_SEQUENCE).contains(n)).collect();
    let (at, axis) = match context {
        1 => (&r.parallelism.tensor.at, "tensor"),
        _ => (&r.parallelism.context.at, "context"),
    };
    let follows = r.flux.is_some();
    let help = match follows {
        true => Some("choose another image_size or text_length in [flux]".to_owned()),
        false => either(&[nearest_values("sequence_length", &near)]),
    };
    Some(
        Diagnostic::error(format!(
            "`training.sequence_length` = {} is not a multiple of {cut}",
            **length
        ))
        .at(length.at.clone().or(at.clone()))
        .label("each rank works on equal pieces of a sequence")
        .context(length.at.as_ref().and(at.clone()), format!("the {axis} degree"))
        .help_if(help),
    )
}

fn answers_are_text(r: &Recipe) -> Option<Diagnostic> {
    let (rl, family) = (r.rl.as_ref()?, &r.model.family);
    r.model.flux()?;
    Some(
        Diagnostic::error(format!("the table [rl] means nothing for family \"{}\"", **family))
            .at(rl.at.clone())
            .label("answers are text")
            .context(family.at.clone(), "a model of images")
            .help("remove the table, or choose a language model"),
    )
}

fn answers_fit_the_sequence(r: &Recipe) -> Option<Diagnostic> {
    let (rl, length) = (r.rl.as_ref()?, &r.training.sequence_length);
    let longest = *rl.max_prompt_length + *rl.max_response_length;
    if longest <= **length {
        return None;
    }
    let at = rl.max_response_length.at.clone().or(rl.max_prompt_length.at.clone());
    Some(
        Diagnostic::error(format!(
            "a prompt of {} and an answer of {} tokens do not fit a sequence of {}",
            *rl.max_prompt_length, *rl.max_response_length, **length
        ))
        .at(at.or(rl.at.clone()))
        .label(format!("together {longest} tokens"))
        .context(length.at.clone(), "the longest sequence")
        .help(format!("write sequence_length = {longest}, or allow shorter answers")),
    )
}
