//! Rules about models of images.

use super::{Rule, divisors_near, either, nearest_values, shown};
use crate::diagnostic::Diagnostic;
use crate::recipe::Recipe;
use crate::shown::list;
use crate::tables::flux::PIXELS_PER_TOKEN;

pub(super) const RULES: &[Rule] = &[
    Rule { reads: &["model.hidden_size", "model.num_heads"], check: heads_divide_hidden },
    Rule {
        reads: &["model.hidden_size", "model.num_heads", "model.rope_axes"],
        check: axes_fill_the_head,
    },
    Rule { reads: &["flux.image_size"], check: images_are_whole_tokens },
    Rule {
        reads: &["model.size", "flux.image_size", "flux.text_length", "training.sequence_length"],
        check: sequences_are_text_and_image,
    },
];

fn heads_divide_hidden(r: &Recipe) -> Option<Diagnostic> {
    let model = r.model.flux()?;
    let (hidden, heads) = (&model.hidden_size, &model.num_heads);
    if hidden.is_multiple_of(**heads) {
        return None;
    }
    // Heads as wide as the axes that turn them, if there are such; else of any even width.
    let turned: u64 = model.rope_axes.iter().sum();
    let mut near = divisors_near(**hidden, **heads, |n| **hidden / n == turned);
    if near.is_empty() {
        near = divisors_near(**hidden, **heads, |n| (**hidden / n).is_multiple_of(2));
    }
    Some(
        Diagnostic::error(format!(
            "`model.hidden_size` = {} is not a multiple of `model.num_heads` = {}",
            shown(r, hidden),
            shown(r, heads)
        ))
        .at(heads.at.clone().or(hidden.at.clone()))
        .label(format!("must divide hidden_size {}", **hidden))
        .help_if(either(&[nearest_values("num_heads", &near)])),
    )
}

fn axes_fill_the_head(r: &Recipe) -> Option<Diagnostic> {
    let model = r.model.flux()?;
    let (axes, head_dim) = (&model.rope_axes, model.head_dim());
    let sum: u64 = axes.iter().sum();
    let is_even = axes.iter().all(|axis| axis.is_multiple_of(2));
    if sum == head_dim && is_even {
        return None;
    }
    let what = match is_even {
        true if head_dim.is_multiple_of(2) => format!(
            "the `model.rope_axes` {} add up to {sum}, not to the head dimension {head_dim}",
            list(&**axes)
        ),
        true => format!("the head dimension hidden_size / num_heads = {head_dim} is odd"),
        false => format!("one of the `model.rope_axes` {} is odd", list(&**axes)),
    };
    // An eighth for the index and the rest in halves, as in the released models.
    let index = (head_dim / 8).next_multiple_of(2);
    let half = head_dim.saturating_sub(index) / 2;
    let example = (half.is_multiple_of(2) && 2 * half + index == head_dim)
        .then(|| format!("for example: rope_axes = [{index}, {half}, {half}]"));
    let at = axes.at.clone().or(model.num_heads.at.clone()).or(model.hidden_size.at.clone());
    Some(
        Diagnostic::error(what)
            .at(at)
            .label("index, row and column each turn an even part of every head")
            .help_if(either(&[example])),
    )
}

fn images_are_whole_tokens(r: &Recipe) -> Option<Diagnostic> {
    let size = &r.flux.as_ref()?.image_size;
    if size.is_multiple_of(PIXELS_PER_TOKEN) {
        return None;
    }
    let below = **size / PIXELS_PER_TOKEN * PIXELS_PER_TOKEN;
    Some(
        Diagnostic::error(format!(
            "`flux.image_size` = {} is not a multiple of {PIXELS_PER_TOKEN} pixels",
            **size
        ))
        .at(size.at.clone())
        .label(format!("one token is a square of {PIXELS_PER_TOKEN} x {PIXELS_PER_TOKEN} pixels"))
        .help_if(either(&[nearest_values("image_size", &[below, below + PIXELS_PER_TOKEN])])),
    )
}

fn sequences_are_text_and_image(r: &Recipe) -> Option<Diagnostic> {
    let flux = r.flux.as_ref()?;
    let (written, tokens) = (&r.training.sequence_length, flux.tokens());
    if **written == tokens {
        return None;
    }
    Some(
        Diagnostic::error(format!(
            "`training.sequence_length` = {} is not the {tokens} tokens of one sample",
            **written
        ))
        .at(written.at.clone())
        .label(format!(
            "{} of the image and {} of the text",
            flux.image_tokens(),
            *flux.text_length
        ))
        .help("leave sequence_length out: it follows from [flux]"),
    )
}
