//! Rules between the dimensions of a model, and with its tokenizer.

use super::{Rule, divisors_near, either, nearest_values, shown};
use crate::diagnostic::Diagnostic;
use crate::recipe::Recipe;
use crate::tables::data::Tokenizer;
use crate::tables::model::{Decoder, MOST_HEAD_DIM, MOST_HIDDEN};

pub(super) const RULES: &[Rule] = &[
    Rule {
        reads: &["model.hidden_size", "model.num_heads", "model.head_dim"],
        check: heads_divide_hidden,
    },
    Rule { reads: &["model.num_heads", "model.num_kv_heads"], check: kv_heads_divide_heads },
    Rule {
        reads: &["model.hidden_size", "model.num_heads", "model.head_dim"],
        check: head_dim_is_usable,
    },
    Rule {
        reads: &["model.rope_low_frequency_factor", "model.rope_high_frequency_factor"],
        check: frequency_factors_are_in_order,
    },
    Rule { reads: &["model.vocab_size", "data.tokenizer"], check: vocabulary_holds_the_tokenizer },
];

/// Values of `num_heads` that suit the key/value heads and the width of the model.
fn fitting_heads(d: &Decoder) -> Vec<u64> {
    let (hidden, heads, kv) = (*d.hidden_size, *d.num_heads, *d.num_kv_heads);
    divisors_near(hidden, heads, |n| n.is_multiple_of(kv) && is_usable(hidden / n))
}

/// Values of `hidden_size` that give each head an even width.
fn fitting_hidden(d: &Decoder) -> Vec<u64> {
    let (hidden, pairs) = (*d.hidden_size, 2 * *d.num_heads);
    let near = [hidden / pairs * pairs, hidden.next_multiple_of(pairs)];
    near.into_iter().filter(|n| (1..=MOST_HIDDEN).contains(n) && is_usable(n / pairs * 2)).collect()
}

/// What to change in a model whose heads do not fit its width. If no number of heads fits the key/value heads
/// too, those are another problem.
fn heads_or_hidden(d: &Decoder) -> Option<String> {
    let (hidden, heads) = (*d.hidden_size, *d.num_heads);
    let mut near = fitting_heads(d);
    if near.is_empty() {
        near = divisors_near(hidden, heads, |n| is_usable(hidden / n));
    }
    let near = nearest_values("num_heads", &near);
    near.or_else(|| nearest_values("hidden_size", &fitting_hidden(d)))
}

fn is_usable(head_dim: u64) -> bool {
    head_dim.is_multiple_of(2) && (2..=MOST_HEAD_DIM).contains(&head_dim)
}

fn heads_divide_hidden(r: &Recipe) -> Option<Diagnostic> {
    let d = r.model.decoder()?;
    let (hidden, heads) = (*d.hidden_size, *d.num_heads);
    // A head_dim of its own frees the width of the heads from the width of the model.
    let is_free = d.head_dim.at.is_some() || (d.has_qk_norm && r.model.size.is_some());
    if is_free || hidden % heads == 0 {
        return None;
    }
    let free = heads.is_multiple_of(*d.num_kv_heads).then(|| {
        let near = (hidden / heads).next_multiple_of(2).clamp(2, MOST_HEAD_DIM);
        format!("add head_dim = {near}, which frees the two from each other")
    });
    Some(
        Diagnostic::error(format!(
            "`model.hidden_size` = {} is not a multiple of `model.num_heads` = {}",
            shown(r, &d.hidden_size),
            shown(r, &d.num_heads)
        ))
        .at(d.num_heads.at.clone().or(d.hidden_size.at.clone()))
        .label(format!("must divide hidden_size {hidden}"))
        .context(d.num_heads.at.as_ref().and(d.hidden_size.at.clone()), "not a multiple")
        .help_if(either(&[heads_or_hidden(d), free])),
    )
}

fn kv_heads_divide_heads(r: &Recipe) -> Option<Diagnostic> {
    let d = r.model.decoder()?;
    let (heads, kv) = (*d.num_heads, *d.num_kv_heads);
    if heads % kv == 0 {
        return None;
    }
    let of_kv = nearest_values("num_kv_heads", &divisors_near(heads, kv, |_| true));
    let of_heads = nearest_values("num_heads", &fitting_heads(d));
    // The value that was written is the one to change.
    let (at, suggestions) = match &d.num_kv_heads.at {
        Some(at) => (Some(at.clone()), [of_kv, None]),
        None => (d.num_heads.at.clone(), [of_heads, of_kv]),
    };
    Some(
        Diagnostic::error(format!(
            "`model.num_heads` = {} is not a multiple of `model.num_kv_heads` = {}",
            shown(r, &d.num_heads),
            shown(r, &d.num_kv_heads)
        ))
        .at(at)
        .label("query heads share key/value heads in equal groups")
        .context(d.num_kv_heads.at.as_ref().and(d.num_heads.at.clone()), "the query heads")
        .help_if(either(&suggestions)),
    )
}

fn head_dim_is_usable(r: &Recipe) -> Option<Diagnostic> {
    let d = r.model.decoder()?;
    let (hidden, heads, head_dim) = (*d.hidden_size, *d.num_heads, *d.head_dim);
    if is_usable(head_dim) {
        return None;
    }
    let written = d.head_dim.at.clone();
    let near = [head_dim - 1, head_dim + 1].into_iter().filter(|d| is_usable(*d));
    let near = nearest_values("head_dim", &near.collect::<Vec<_>>());
    let (what, suggestions) = match written {
        Some(_) => (format!("`model.head_dim` = {head_dim} is odd"), [near, None]),
        None => {
            let fault = if head_dim > MOST_HEAD_DIM { "too large" } else { "odd" };
            let heads_near = heads_or_hidden(d);
            (
                format!(
                    "the head dimension hidden_size {hidden} / num_heads {heads} = {head_dim} is {fault}"
                ),
                [heads_near, near],
            )
        }
    };
    Some(
        Diagnostic::error(what)
            .at(written.or(d.num_heads.at.clone()).or(d.hidden_size.at.clone()))
            .label(match head_dim > MOST_HEAD_DIM {
                true => format!("a head has at most {MOST_HEAD_DIM} channels"),
                false => "rotary positions turn pairs of channels, so it must be even".to_owned(),
            })
            .help_if(either(&suggestions)),
    )
}

fn frequency_factors_are_in_order(r: &Recipe) -> Option<Diagnostic> {
    let scaling = r.model.decoder()?.rope_scaling.as_ref()?.constants.as_ref()?;
    let (low, high) = (*scaling.low_frequency_factor, *scaling.high_frequency_factor);
    if low < high {
        return None;
    }
    let at = scaling.high_frequency_factor.at.clone();
    Some(
        Diagnostic::error(format!(
            "`model.rope_high_frequency_factor` = {high} is not above the low one, {low}"
        ))
        .at(at.or(scaling.low_frequency_factor.at.clone()))
        .label("frequencies between the two factors are blended")
        .help("Llama 3.1 has rope_low_frequency_factor = 1 and rope_high_frequency_factor = 4"),
    )
}

fn vocabulary_holds_the_tokenizer(r: &Recipe) -> Option<Diagnostic> {
    let vocab_size = &r.model.decoder()?.vocab_size;
    let ids = r.data.tokenizer.largest_id()? + 1;
    if **vocab_size >= ids {
        return None;
    }
    let tokenizer = match &*r.data.tokenizer {
        Tokenizer::Bytes => "the tokenizer \"bytes\"".to_owned(),
        Tokenizer::File { location, .. } => {
            format!("the tokenizer `{location}`, added tokens included")
        }
    };
    let at = vocab_size.at.clone().or(r.data.tokenizer.at.clone());
    Some(
        Diagnostic::error(format!(
            "`model.vocab_size` = {} is smaller than the {ids} ids of {tokenizer}",
            shown(r, vocab_size),
        ))
        .at(at)
        .label(match vocab_size.at {
            Some(_) => format!("must be at least {ids}"),
            None => format!("its largest id is {}", ids - 1),
        })
        .context(vocab_size.at.as_ref().and(r.data.tokenizer.at.clone()), "this tokenizer")
        .help(format!("write vocab_size = {ids}, or a rounder number above it")),
    )
}
