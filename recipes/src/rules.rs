//! Rules between settings. One function per rule; a rule is skipped when a setting that it reads is already
//! known to be wrong, so that one mistake gives one message.

use crate::diagnostic::Diagnostic;
use crate::layout::{nearest_global_batches, shard_degree};
use crate::reader::Context;
use crate::recipe::Recipe;
use crate::source::Item;
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
        check: rotary_positions_pair_up,
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
    Rule { reads: &["name"], check: name_is_a_folder_name },
];

/// Runs every rule whose settings are sound.
pub(crate) fn check(cx: &mut Context<'_>, recipe: &Recipe) {
    for rule in RULES {
        if rule.reads.iter().any(|key| cx.broken.contains(*key)) {
            continue;
        }
        cx.diagnostics.extend((rule.check)(recipe));
    }
}

/// A value as messages show it: marked when nobody wrote it.
fn shown<T: std::fmt::Display>(item: &Item<T>) -> String {
    match item.at {
        Some(_) => item.value.to_string(),
        None => format!("{} (default)", item.value),
    }
}

fn heads_divide_hidden(r: &Recipe) -> Option<Diagnostic> {
    let (hidden, heads) = (*r.model.hidden_size, *r.model.num_heads);
    // A written head_dim frees the width of the heads from the width of the model.
    if r.model.head_dim.at.is_some() || hidden % heads == 0 {
        return None;
    }
    let mut near: Vec<u64> = (1..=hidden.min(65_536)).filter(|n| hidden % n == 0).collect();
    near.sort_by_key(|n| n.abs_diff(heads));
    near.truncate(3);
    near.sort_unstable();
    let near: Vec<String> = near.iter().map(u64::to_string).collect();
    Some(
        Diagnostic::error(format!(
            "`model.hidden_size` = {} is not a multiple of `model.num_heads` = {}",
            shown(&r.model.hidden_size),
            shown(&r.model.num_heads)
        ))
        .at(r.model.num_heads.at.clone().or(r.model.hidden_size.at.clone()))
        .label(format!("must divide hidden_size {hidden}"))
        .context(r.model.num_heads.at.as_ref().and(r.model.hidden_size.at.clone()), "not a multiple")
        .help(format!(
            "nearest values of num_heads: {}; or give head_dim, which frees the two from each other",
            near.join(", ")
        )),
    )
}

fn kv_heads_divide_heads(r: &Recipe) -> Option<Diagnostic> {
    let (heads, kv) = (*r.model.num_heads, *r.model.num_kv_heads);
    if heads % kv == 0 {
        return None;
    }
    let mut near: Vec<u64> = (1..=heads).filter(|n| heads % n == 0).collect();
    near.sort_by_key(|n| n.abs_diff(kv));
    near.truncate(3);
    near.sort_unstable();
    let near: Vec<String> = near.iter().map(u64::to_string).collect();
    Some(
        Diagnostic::error(format!(
            "`model.num_heads` = {} is not a multiple of `model.num_kv_heads` = {}",
            shown(&r.model.num_heads),
            shown(&r.model.num_kv_heads)
        ))
        .at(r.model.num_kv_heads.at.clone().or(r.model.num_heads.at.clone()))
        .label(format!("query heads share key/value heads in equal groups: must divide {heads}"))
        .help(format!("nearest values of num_kv_heads: {}", near.join(", "))),
    )
}

fn rotary_positions_pair_up(r: &Recipe) -> Option<Diagnostic> {
    let head_dim = *r.model.head_dim;
    if head_dim.is_multiple_of(2) || heads_divide_hidden(r).is_some() {
        return None;
    }
    let written = r.model.head_dim.at.clone();
    Some(
        Diagnostic::error(format!("the head dimension {head_dim} is odd"))
            .at(written.or(r.model.num_heads.at.clone()).or(r.model.hidden_size.at.clone()))
            .label("rotary positions turn pairs of channels, so it must be even")
            .help(format!("nearest values: {}, {}", head_dim - 1, head_dim + 1)),
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
        .context(r.data.tokenizer.at.clone(), "this tokenizer"),
    )
}

fn axes_multiply_to_the_world(r: &Recipe) -> Option<Diagnostic> {
    let world = r.world();
    let replicate = *r.parallelism.replicate;
    match r.parallelism.shard.value {
        Auto::Auto if world.is_multiple_of(replicate) => None,
        Auto::Auto => {
            let mut near: Vec<u64> = (1..=world).filter(|n| world.is_multiple_of(*n)).collect();
            near.sort_by_key(|n| n.abs_diff(replicate));
            near.truncate(3);
            near.sort_unstable();
            let near: Vec<String> = near.iter().map(u64::to_string).collect();
            Some(
                Diagnostic::error(format!(
                    "cannot work out the shard degree: world {world} is not a multiple of replicate {replicate}"
                ))
                .at(r.parallelism.replicate.at.clone())
                .label(format!("must divide the world of {world} devices"))
                .context(r.hardware.devices.at.clone(), "the world")
                .help(format!("nearest values of replicate: {}", near.join(", "))),
            )
        }
        Auto::Fixed(shard) if replicate.checked_mul(shard) == Some(world) => None,
        Auto::Fixed(shard) => Some(
            Diagnostic::error(format!(
                "replicate {replicate} x shard {shard} = {} is not the world of {world} device{}",
                replicate.saturating_mul(shard),
                if world == 1 { "" } else { "s" }
            ))
            .at(r.parallelism.shard.at.clone().or(r.parallelism.replicate.at.clone()))
            .label("the axes must multiply to the number of devices")
            .context(r.hardware.devices.at.clone(), "the world")
            .help(if world.is_multiple_of(replicate) {
                format!("write shard = {} or shard = \"auto\"", world / replicate)
            } else {
                format!("set devices = {}, or change the degrees", replicate.saturating_mul(shard))
            }),
        ),
    }
}

fn batches_divide(r: &Recipe) -> Option<Diagnostic> {
    let shard = shard_degree(r)?;
    let Auto::Fixed(global) = r.training.global_batch.value else { return None };
    let local = *r.training.local_batch;
    let data_parallel = *r.parallelism.replicate * shard;
    let step = local.checked_mul(data_parallel)?;
    if global.is_multiple_of(step) {
        return None;
    }
    let near: Vec<String> =
        nearest_global_batches(global, step).iter().map(u64::to_string).collect();
    let mut locals: Vec<u64> = (1..=global / data_parallel.max(1))
        .take(4096)
        .filter(|l| global.is_multiple_of(l * data_parallel))
        .collect();
    locals.sort_by_key(|l| l.abs_diff(local));
    locals.truncate(2);
    locals.sort_unstable();
    let locals: Vec<String> = locals.iter().map(u64::to_string).collect();
    let mut help = format!("nearest values of global_batch: {}", near.join(", "));
    if !locals.is_empty() {
        help = format!("{help}; or of local_batch: {}", locals.join(", "));
    }
    Some(
        Diagnostic::error(format!(
            "`training.global_batch` = {global} is not a multiple of local_batch {local} x {data_parallel} data-parallel devices = {step}"
        ))
        .at(r.training.global_batch.at.clone())
        .label("global batch = local batch x data-parallel devices x accumulation")
        .context(r.hardware.devices.at.clone(), "the devices")
        .help(help),
    )
}

fn warmup_fits_the_run(r: &Recipe) -> Option<Diagnostic> {
    let (warmup, steps) = (*r.schedule.warmup_steps, *r.training.steps);
    if warmup <= steps {
        return None;
    }
    Some(
        Diagnostic::error(format!(
            "`schedule.warmup_steps` = {} is longer than the run of {} step{}",
            shown(&r.schedule.warmup_steps),
            steps,
            if steps == 1 { "" } else { "s" }
        ))
        .at(r.schedule.warmup_steps.at.clone())
        .label(format!("must be at most {steps}"))
        .context(r.training.steps.at.clone(), "the length of the run")
        .help(format!("a usual warm-up for this run: warmup_steps = {}", (steps / 20).max(1))),
    )
}

fn name_is_a_folder_name(r: &Recipe) -> Option<Diagnostic> {
    const LONGEST: usize = 63;
    let name = &*r.name;
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if !name.is_empty()
        && name.len() <= LONGEST
        && name.chars().all(legal)
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
    {
        return None;
    }
    let mut near: String =
        name.chars().map(|c| if legal(c) { c } else { '-' }).take(LONGEST).collect();
    near = near.trim_start_matches(|c: char| !c.is_ascii_alphanumeric()).to_owned();
    if near.is_empty() {
        "my-run".clone_into(&mut near);
    }
    Some(
        Diagnostic::error(format!("`name` = \"{}\" cannot name a run folder", name.escape_debug()))
            .at(r.name.at.clone())
            .label(format!(
                "up to {LONGEST} letters, digits, `-`, `_`, `.`, the first a letter or digit"
            ))
            .help(format!("for example: name = \"{near}\"")),
    )
}
