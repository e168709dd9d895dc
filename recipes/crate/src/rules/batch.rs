//! Rules about batches: global = local x data-parallel ranks x accumulation, never rounded.

use super::{Rule, WORLD, divisors_near, either, nearest_values};
use crate::diagnostic::Diagnostic;
use crate::layout::{Mesh, batch_step, mesh, nearest_global_batches};
use crate::recipe::Recipe;
use crate::shown::count;
use crate::tables::training::{MOST_GLOBAL_BATCH, MOST_LOCAL_BATCH};
use crate::words::Auto;

const READS: &[&str] = &[WORLD, "training.local_batch", "training.global_batch"];

pub(super) const RULES: &[Rule] = &[
    Rule { reads: READS, check: batches_divide },
    Rule {
        reads: &[
            "hardware.topology",
            "hardware.slices",
            "hardware.devices",
            "training.steps",
            "training.sequence_length",
            "training.local_batch",
            "training.global_batch",
        ],
        check: tokens_can_be_counted,
    },
];

fn batches_divide(r: &Recipe) -> Option<Diagnostic> {
    let mesh = mesh(r)?;
    let Auto::Fixed(global) = *r.training.global_batch else { return None };
    let (local, ranks, step) =
        (*r.training.local_batch, mesh.data_parallel(), batch_step(r, &mesh));
    if global.is_multiple_of(step) {
        return None;
    }
    let mut near = nearest_global_batches(global, step);
    near.retain(|n| *n <= MOST_GLOBAL_BATCH);
    let locals = match global.is_multiple_of(ranks) {
        true => divisors_near(global / ranks, local, |n| n <= MOST_LOCAL_BATCH),
        false => Vec::new(),
    };
    let (rank, rule) = ranks_in_words(&mesh);
    let topology_at = r.hardware.topology.as_ref().and_then(|topology| topology.at.clone());
    Some(
        Diagnostic::error(format!(
            "`training.global_batch` = {global} is not a multiple of local_batch {local} x {} = {step}",
            count(ranks, rank)
        ))
        .at(r.training.global_batch.at.clone())
        .label(rule)
        .context(r.training.local_batch.at.clone(), "the local batch")
        .context(topology_at.or(r.hardware.devices.at.clone()), "the devices")
        .help_if(either(&[
            nearest_values("global_batch", &near),
            nearest_values("local_batch", &locals),
        ])),
    )
}

/// What reads data of its own: each device, unless several share their sequences.
fn ranks_in_words(mesh: &Mesh) -> (&'static str, &'static str) {
    match mesh.context * mesh.tensor {
        1 => ("device", "global batch = local batch x devices x accumulation"),
        _ => {
            ("data-parallel rank", "global batch = local batch x replicate x shard x accumulation")
        }
    }
}

/// Token counts go on from here in 64 bits.
fn tokens_can_be_counted(r: &Recipe) -> Option<Diagnostic> {
    const MOST_TOKENS: u128 = 1_000_000_000_000_000_000;
    let mesh = mesh(r)?;
    let batch = r.training.global_batch.fixed().unwrap_or_else(|| batch_step(r, &mesh));
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
