//! Rules between settings. One function per rule; a rule is skipped when a setting that it reads is already
//! known to be wrong, so that one mistake gives one message. Values that a message suggests satisfy every rule
//! that they take part in, as far as such values exist.

mod batch;
mod documents;
mod experts;
mod flux;
mod mesh;
mod model;
mod names;
mod resilience;
mod schedule;
mod sequence;
mod slices;

use std::fmt::Display;

use crate::diagnostic::Diagnostic;
use crate::reader::Context;
use crate::recipe::Recipe;
use crate::shown::list;
use crate::source::Item;

/// Among what a rule reads: whatever decides the number of devices and the degrees of the axes.
const WORLD: &str = "the world";

/// The settings that [`WORLD`] stands for.
const WORLD_SETTINGS: [&str; 9] = [
    "hardware.accelerator",
    "hardware.topology",
    "hardware.slices",
    "hardware.devices",
    "parallelism.replicate",
    "parallelism.shard",
    "parallelism.expert",
    "parallelism.tensor",
    "parallelism.context",
];

/// A rule with the settings that it reads.
struct Rule {
    reads: &'static [&'static str],
    check: fn(&Recipe) -> Option<Diagnostic>,
}

/// The rules of each module, in the order that they are checked: what a rule needs comes before it.
const RULES: &[&[Rule]] = &[
    model::RULES,
    documents::RULES,
    experts::RULES,
    flux::RULES,
    slices::RULES,
    mesh::RULES,
    sequence::RULES,
    batch::RULES,
    schedule::RULES,
    resilience::RULES,
    names::RULES,
];

/// Runs every rule whose settings are sound. What a broken rule reads is not sound any more.
pub(crate) fn check(cx: &mut Context<'_>, recipe: &Recipe) {
    for rule in RULES.iter().copied().flatten() {
        let reads: Vec<&str> = rule.reads.iter().flat_map(settings_of).copied().collect();
        if reads.iter().any(|key| cx.is_broken(key)) {
            continue;
        }
        if let Some(problem) = (rule.check)(recipe) {
            if problem.severity == crate::Severity::Error {
                cx.broken.extend(reads.into_iter().map(str::to_owned));
            }
            cx.diagnostics.push(problem);
        }
    }
}

fn settings_of(read: &'static &'static str) -> &'static [&'static str] {
    if *read == WORLD { &WORLD_SETTINGS } else { std::slice::from_ref(read) }
}

/// A dimension of the model as messages show it: marked when nobody wrote it.
fn shown<T: Display>(r: &Recipe, item: &Item<T>) -> String {
    match (&item.at, &r.model.size) {
        (Some(_), _) => item.value.to_string(),
        (None, Some(size)) => format!("{} (of size \"{}\")", item.value, **size),
        (None, None) => format!("{} (default)", item.value),
    }
}

/// The divisors of `n` that are nearest to `wanted` among those that `fit`, in ascending order.
pub(super) fn divisors_near(n: u64, wanted: u64, fit: impl Fn(u64) -> bool) -> Vec<u64> {
    const SHOWN: usize = 3;
    let small = (1..).take_while(|d| d * d <= n).filter(|d| n.is_multiple_of(*d));
    let mut near: Vec<u64> = small.flat_map(|d| [d, n / d]).filter(|d| fit(*d)).collect();
    near.sort_by_key(|d| d.abs_diff(wanted));
    near.dedup();
    near.truncate(SHOWN);
    near.sort_unstable();
    near
}

/// Joins the suggestions that there are.
fn either(suggestions: &[Option<String>]) -> Option<String> {
    let suggestions: Vec<&str> = suggestions.iter().flatten().map(String::as_str).collect();
    (!suggestions.is_empty()).then(|| suggestions.join("; or "))
}

/// `nearest values of num_heads: 4, 6`, if there are any.
pub(super) fn nearest_values(key: &str, values: &[u64]) -> Option<String> {
    match values {
        [] => None,
        [value] => Some(format!("write {key} = {value}")),
        values => Some(format!("nearest values of {key}: {}", list(values))),
    }
}
