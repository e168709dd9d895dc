//! Rules between settings. One function per rule; a rule is skipped when a setting that it reads is already
//! known to be wrong, so that one mistake gives one message. Values that a message suggests satisfy every rule
//! that they take part in, as far as such values exist.

use std::fmt::Display;

use crate::diagnostic::Diagnostic;
use crate::layout::{batch_step, nearest_global_batches, shard_degree};
use crate::reader::Context;
use crate::recipe::Recipe;
use crate::shown::{count, list};
use crate::source::Item;
use crate::tables::hardware::MOST_DEVICES;
use crate::tables::model::{MOST_HEAD_DIM, MOST_HIDDEN};
use crate::tables::training::{MOST_GLOBAL_BATCH, MOST_LOCAL_BATCH};
use crate::words::Auto;

struct Rule {
    reads: &'static [&'static str],
    check: fn(&Recipe) -> Option<Diagnostic>,
}

const RULES: &[Rule] = &[
    Rule {
        reads: &["model.hidden_size", "model.num_heads", "model.head_dim"],
        check: heads_divide_hidden,
    },
    Rule { reads: &["model.num_heads", "model.num_kv_heads"], check: kv_heads_divide_heads },
    Rule {
        reads: &["model.hidden_size", "model.num_heads", "model.head_dim"],
        check: head_dim_is_usable,
    },
    Rule { reads: &["model.vocab_size", "data.tokenizer"], check: vocabulary_holds_the_tokenizer },
    Rule {
        reads: &["hardware.devices", "parallelism.replicate", "parallelism.shard"],
        check: axes_multiply_to_the_world,
    },
    Rule {
        reads: &[
            "hardware.devices",
            "parallelism.replicate",
            "parallelism.shard",
            "training.local_batch",
            "training.global_batch",
        ],
        check: batches_divide,
    },
    Rule { reads: &["training.steps", "schedule.warmup_steps"], check: warmup_fits_the_run },
    Rule {
        reads: &[
            "hardware.devices",
            "training.steps",
            "training.sequence_length",
            "training.local_batch",
            "training.global_batch",
        ],
        check: tokens_can_be_counted,
    },
];

/// Runs every rule whose settings are sound. What a broken rule reads is not sound any more.
pub(crate) fn check(cx: &mut Context<'_>, recipe: &Recipe) {
    for rule in RULES {
        let is_broken = |key: &&str| {
            let table = key.split('.').next().unwrap_or_default();
            cx.broken.contains(*key) || cx.broken.contains(table)
        };
        if rule.reads.iter().any(is_broken) {
            continue;
        }
        if let Some(problem) = (rule.check)(recipe) {
            cx.diagnostics.push(problem);
            cx.broken.extend(rule.reads.iter().map(|key| (*key).to_owned()));
        }
    }
}

/// A value as messages show it: marked when nobody wrote it.
fn shown<T: Display>(item: &Item<T>) -> String {
    match item.at {
        Some(_) => item.value.to_string(),
        None => format!("{} (default)", item.value),
    }
}

/// The divisors of `n` that are nearest to `wanted` among those that `fit`, in ascending order.
fn divisors_near(n: u64, wanted: u64, fit: impl Fn(u64) -> bool) -> Vec<u64> {
    const SHOWN: usize = 3;
    let small = (1..).take_while(|d| d * d <= n).filter(|d| n.is_multiple_of(*d));
    let mut near: Vec<u64> = small.flat_map(|d| [d, n / d]).filter(|d| fit(*d)).collect();
    near.sort_by_key(|d| d.abs_diff(wanted));
    near.dedup();
    near.truncate(SHOWN);
    near.sort_unstable();
    near
}

/// Values of `num_heads` that suit the key/value heads and the width of the model.
fn fitting_heads(r: &Recipe) -> Vec<u64> {
    let (hidden, heads, kv) = (*r.model.hidden_size, *r.model.num_heads, *r.model.num_kv_heads);
    divisors_near(hidden, heads, |n| n.is_multiple_of(kv) && is_usable(hidden / n))
}

/// Values of `hidden_size` that give each head an even width.
fn fitting_hidden(r: &Recipe) -> Vec<u64> {
    let (hidden, pairs) = (*r.model.hidden_size, 2 * *r.model.num_heads);
    let near = [hidden / pairs * pairs, hidden.next_multiple_of(pairs)];
    near.into_iter().filter(|n| (1..=MOST_HIDDEN).contains(n) && is_usable(n / pairs * 2)).collect()
}

/// What to change in a model whose heads do not fit its width. If no number of heads fits the key/value heads
/// too, those are another problem.
fn heads_or_hidden(r: &Recipe) -> Option<String> {
    let (hidden, heads) = (*r.model.hidden_size, *r.model.num_heads);
    let mut near = fitting_heads(r);
    if near.is_empty() {
        near = divisors_near(hidden, heads, |n| is_usable(hidden / n));
    }
    let near = nearest_values("num_heads", &near);
    near.or_else(|| nearest_values("hidden_size", &fitting_hidden(r)))
}

fn is_usable(head_dim: u64) -> bool {
    head_dim.is_multiple_of(2) && (2..=MOST_HEAD_DIM).contains(&head_dim)
}

/// Joins the suggestions that there are.
fn either(suggestions: &[Option<String>]) -> String {
    let suggestions: Vec<&str> = suggestions.iter().flatten().map(String::as_str).collect();
    suggestions.join("; or ")
}

/// `nearest values of num_heads: 4, 6`, if there are any.
fn nearest_values(key: &str, values: &[u64]) -> Option<String> {
    match values {
        [] => None,
        [value] => Some(format!("write {key} = {value}")),
        values => Some(format!("nearest values of {key}: {}", list(values))),
    }
}

fn heads_divide_hidden(r: &Recipe) -> Option<Diagnostic> {
    let (hidden, heads) = (*r.model.hidden_size, *r.model.num_heads);
    // A written head_dim frees the width of the heads from the width of the model.
    if r.model.head_dim.at.is_some() || hidden % heads == 0 {
        return None;
    }
    let free = heads.is_multiple_of(*r.model.num_kv_heads).then(|| {
        let near = (hidden / heads).next_multiple_of(2).clamp(2, MOST_HEAD_DIM);
        format!("add head_dim = {near}, which frees the two from each other")
    });
    Some(
        Diagnostic::error(format!(
            "`model.hidden_size` = {} is not a multiple of `model.num_heads` = {}",
            shown(&r.model.hidden_size),
            shown(&r.model.num_heads)
        ))
        .at(r.model.num_heads.at.clone().or(r.model.hidden_size.at.clone()))
        .label(format!("must divide hidden_size {hidden}"))
        .context(
            r.model.num_heads.at.as_ref().and(r.model.hidden_size.at.clone()),
            "not a multiple",
        )
        .help(either(&[heads_or_hidden(r), free])),
    )
}

fn kv_heads_divide_heads(r: &Recipe) -> Option<Diagnostic> {
    let (heads, kv) = (*r.model.num_heads, *r.model.num_kv_heads);
    if heads % kv == 0 {
        return None;
    }
    let of_kv = nearest_values("num_kv_heads", &divisors_near(heads, kv, |_| true));
    let of_heads = nearest_values("num_heads", &fitting_heads(r));
    // The value that was written is the one to change.
    let (at, suggestions) = match &r.model.num_kv_heads.at {
        Some(at) => (Some(at.clone()), [of_kv, None]),
        None => (r.model.num_heads.at.clone(), [of_heads, of_kv]),
    };
    Some(
        Diagnostic::error(format!(
            "`model.num_heads` = {} is not a multiple of `model.num_kv_heads` = {}",
            shown(&r.model.num_heads),
            shown(&r.model.num_kv_heads)
        ))
        .at(at)
        .label("query heads share key/value heads in equal groups")
        .context(
            r.model.num_kv_heads.at.as_ref().and(r.model.num_heads.at.clone()),
            "the query heads",
        )
        .help(either(&suggestions)),
    )
}

fn head_dim_is_usable(r: &Recipe) -> Option<Diagnostic> {
    let (hidden, heads, head_dim) = (*r.model.hidden_size, *r.model.num_heads, *r.model.head_dim);
    if is_usable(head_dim) {
        return None;
    }
    let written = r.model.head_dim.at.clone();
    let near = [head_dim - 1, head_dim + 1].into_iter().filter(|d| is_usable(*d));
    let near = nearest_values("head_dim", &near.collect::<Vec<_>>());
    let (what, suggestions) = match written {
        Some(_) => (format!("`model.head_dim` = {head_dim} is odd"), [near, None]),
        None => {
            let fault = if head_dim > MOST_HEAD_DIM { "too large" } else { "odd" };
            let heads_near = heads_or_hidden(r);
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
            .at(written.or(r.model.num_heads.at.clone()).or(r.model.hidden_size.at.clone()))
            .label(match head_dim > MOST_HEAD_DIM {
                true => format!("a head has at most {MOST_HEAD_DIM} channels"),
                false => "rotary positions turn pairs of channels, so it must be even".to_owned(),
            })
            .help(either(&suggestions)),
    )
}

fn vocabulary_holds_the_tokenizer(r: &Recipe) -> Option<Diagnostic> {
    const BYTE_IDS: u64 = 256;
    if *r.model.vocab_size >= BYTE_IDS {
        return None;
    }
    Some(
        Diagnostic::error(format!(
            "`model.vocab_size` = {} is smaller than the {BYTE_IDS} ids of the tokenizer \"{}\"",
            shown(&r.model.vocab_size),
            *r.data.tokenizer
        ))
        .at(r.model.vocab_size.at.clone())
        .label(format!("must be at least {BYTE_IDS}"))
        .context(r.data.tokenizer.at.clone(), "this tokenizer")
        .help(format!("write vocab_size = {BYTE_IDS}")),
    )
}

fn axes_multiply_to_the_world(r: &Recipe) -> Option<Diagnostic> {
    let world = r.world();
    let (replicate, shard) = (*r.parallelism.replicate, r.parallelism.shard.value);
    let devices = |n: u64| (n <= MOST_DEVICES).then(|| format!("set devices = {n} in [hardware]"));
    let problem = match shard {
        Auto::Auto if world.is_multiple_of(replicate) => return None,
        Auto::Auto => {
            let near = divisors_near(world, replicate, |_| true);
            Diagnostic::error(format!(
                "cannot work out the shard degree: world {world} is not a multiple of replicate {replicate}"
            ))
            .at(r.parallelism.replicate.at.clone())
            .label(format!("must divide the world of {}", count(world, "device")))
            .help(either(&[
                nearest_values("replicate", &near),
                devices(world.next_multiple_of(replicate)),
            ]))
        }
        Auto::Fixed(shard) if replicate * shard == world => return None,
        Auto::Fixed(shard) => {
            let fitting = match world.is_multiple_of(replicate) {
                true => format!("write shard = {} or shard = \"auto\"", world / replicate),
                false => format!("write replicate = 1 and shard = {world}"),
            };
            Diagnostic::error(format!(
                "replicate {replicate} x shard {shard} = {} is not the world of {}",
                replicate * shard,
                count(world, "device")
            ))
            .at(r.parallelism.shard.at.clone().or(r.parallelism.replicate.at.clone()))
            .label("the axes must multiply to the number of devices")
            .help(either(&[Some(fitting), devices(replicate * shard)]))
        }
    };
    Some(problem.context(r.hardware.devices.at.clone(), "the world"))
}

fn batches_divide(r: &Recipe) -> Option<Diagnostic> {
    shard_degree(r)?;
    let Auto::Fixed(global) = r.training.global_batch.value else { return None };
    let (local, world, step) = (*r.training.local_batch, r.world(), batch_step(r));
    if global.is_multiple_of(step) {
        return None;
    }
    let mut near = nearest_global_batches(global, step);
    near.retain(|n| *n <= MOST_GLOBAL_BATCH);
    let locals = match global.is_multiple_of(world) {
        true => divisors_near(global / world, local, |n| n <= MOST_LOCAL_BATCH),
        false => Vec::new(),
    };
    Some(
        Diagnostic::error(format!(
            "`training.global_batch` = {global} is not a multiple of local_batch {local} x {} = {step}",
            count(world, "device")
        ))
        .at(r.training.global_batch.at.clone())
        .label("global batch = local batch x devices x accumulation")
        .context(r.training.local_batch.at.clone(), "the local batch")
        .context(r.hardware.devices.at.clone(), "the devices")
        .help(either(&[
            nearest_values("global_batch", &near),
            nearest_values("local_batch", &locals),
        ])),
    )
}

fn warmup_fits_the_run(r: &Recipe) -> Option<Diagnostic> {
    let (warmup, steps) = (*r.schedule.warmup_steps, *r.training.steps);
    if warmup <= steps {
        return None;
    }
    Some(
        Diagnostic::error(format!(
            "`schedule.warmup_steps` = {warmup} is longer than the run of {}",
            count(steps, "step")
        ))
        .at(r.schedule.warmup_steps.at.clone())
        .label(format!("must be at most {steps}"))
        .context(r.training.steps.at.clone(), "the length of the run")
        .help(format!("a usual warm-up for this run: warmup_steps = {}", (steps / 20).max(1))),
    )
}

/// Token counts go on from here in 64 bits.
fn tokens_can_be_counted(r: &Recipe) -> Option<Diagnostic> {
    const MOST_TOKENS: u128 = 1_000_000_000_000_000_000;
    let batch = r.training.global_batch.fixed().unwrap_or_else(|| batch_step(r));
    let per_step = u128::from(batch) * u128::from(*r.training.sequence_length);
    let tokens = per_step * u128::from(*r.training.steps);
    if tokens <= MOST_TOKENS {
        return None;
    }
    Some(
        Diagnostic::error(format!("the run would read {tokens} tokens, more than can be counted"))
            .at(r.training.steps.at.clone())
            .label(format!("each step reads {per_step} tokens"))
            .help(format!("write steps = {}, or less", MOST_TOKENS / per_step)),
    )
}
