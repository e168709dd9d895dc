//! Rules about mixtures of experts.

use super::{Rule, divisors_near, either, nearest_values, shown};
use crate::diagnostic::Diagnostic;
use crate::layout::mesh;
use crate::recipe::Recipe;

pub(super) const RULES: &[Rule] = &[
    Rule {
        reads: &["model.num_experts", "model.experts_per_token"],
        check: a_token_meets_at_most_all_experts,
    },
    Rule {
        reads: &[
            "model.hidden_size",
            "model.num_layers",
            "model.num_experts",
            "model.expert_intermediate_size",
        ],
        check: weights_can_be_counted,
    },
    Rule {
        reads: &["model.hidden_size", "model.expert_intermediate_size"],
        check: widths_of_experts_are_whole_rows,
    },
    Rule { reads: &["model.family", "parallelism.expert"], check: only_experts_are_spread },
    Rule { reads: &["model.num_experts", "parallelism.expert"], check: expert_divides_experts },
];

fn a_token_meets_at_most_all_experts(r: &Recipe) -> Option<Diagnostic> {
    let experts = r.model.decoder()?.experts()?;
    let (all, per_token) = (&experts.num_experts, &experts.experts_per_token);
    if **per_token <= **all {
        return None;
    }
    Some(
        Diagnostic::error(format!(
            "`model.experts_per_token` = {} is more than `model.num_experts` = {}",
            shown(r, per_token),
            shown(r, all)
        ))
        .at(per_token.at.clone().or(all.at.clone()))
        .label("a token is sent to different experts")
        .context(per_token.at.as_ref().and(all.at.clone()), "all experts")
        .help(format!("write experts_per_token = {}, or less", **all)),
    )
}

/// FLOPs per token go on from here in 64 bits.
fn weights_can_be_counted(r: &Recipe) -> Option<Diagnostic> {
    const MOST: u128 = 1_000_000_000_000_000_000;
    let decoder = r.model.decoder()?;
    let experts = decoder.experts()?;
    let factors = [
        &decoder.num_layers,
        &experts.num_experts,
        &decoder.hidden_size,
        &experts.expert_intermediate_size,
    ];
    let weights = 3 * factors.iter().map(|factor| u128::from(***factor)).product::<u128>();
    if weights <= MOST {
        return None;
    }
    Some(
        Diagnostic::error(format!("the experts have {weights} weights, more than can be counted"))
            .at(experts.num_experts.at.clone())
            .label("experts x layers x hidden_size x expert_intermediate_size x 3")
            .help("the largest published models have 1e12 weights: check these dimensions"),
    )
}

/// Grouped products of matrices read rows of 16 bytes, which are 8 numbers in bfloat16.
fn widths_of_experts_are_whole_rows(r: &Recipe) -> Option<Diagnostic> {
    const NUMBERS: u64 = 8;
    let decoder = r.model.decoder()?;
    let widths = [
        ("hidden_size", &decoder.hidden_size),
        ("expert_intermediate_size", &decoder.experts()?.expert_intermediate_size),
    ];
    let (key, width) = widths.into_iter().find(|(_, width)| !width.is_multiple_of(NUMBERS))?;
    let below = **width / NUMBERS * NUMBERS;
    let near = [below, below + NUMBERS].into_iter().filter(|near| *near > 0).collect::<Vec<_>>();
    Some(
        Diagnostic::error(format!(
            "`model.{key}` = {} is not a multiple of {NUMBERS}",
            shown(r, width)
        ))
        .at(width.at.clone())
        .label("experts are multiplied in groups, by rows of 16 bytes")
        .help_if(nearest_values(key, &near)),
    )
}

fn only_experts_are_spread(r: &Recipe) -> Option<Diagnostic> {
    let expert = &r.parallelism.expert;
    let has_experts = r.model.decoder().is_some_and(|decoder| decoder.experts().is_some());
    if **expert == 1 || has_experts {
        return None;
    }
    let (kind, help) = match r.model.flux() {
        Some(_) => ("a model of images", "leave expert out"),
        None => ("a dense model", "leave expert out, or choose family = \"qwen3-moe\""),
    };
    Some(
        Diagnostic::error(format!(
            "`parallelism.expert` = {} with family \"{}\", which has no experts",
            **expert, *r.model.family
        ))
        .at(expert.at.clone())
        .label("nothing to spread")
        .context(r.model.family.at.clone(), kind)
        .help(help),
    )
}

fn expert_divides_experts(r: &Recipe) -> Option<Diagnostic> {
    let all = &r.model.decoder()?.experts()?.num_experts;
    let expert = &r.parallelism.expert;
    if all.is_multiple_of(**expert) {
        return None;
    }
    let carriers = mesh(r).map_or(0, |mesh| mesh.carriers());
    let fits = |n: u64| carriers == 0 || carriers.is_multiple_of(n);
    let near = divisors_near(**all, **expert, fits);
    Some(
        Diagnostic::error(format!(
            "`parallelism.expert` = {} does not divide `model.num_experts` = {}",
            **expert,
            shown(r, all)
        ))
        .at(expert.at.clone())
        .label("each rank holds the same number of experts")
        .context(all.at.clone(), "the experts")
        .help_if(either(&[nearest_values("expert", &near)])),
    )
}
