//! Rules about checkpoints, restarts and lost slices.

use super::{Rule, WORLD, either, nearest_values};
use crate::diagnostic::Diagnostic;
use crate::layout::{mesh, per_slice, slices_for_the_batch};
use crate::recipe::Recipe;
use crate::source::Loc;
use crate::tables::checkpoint::Interval;
use crate::tables::data::DataSource;
use crate::tables::elastic::USUAL_RESTARTS;
use crate::words::Auto;

pub(super) const RULES: &[Rule] = &[
    Rule {
        reads: &["checkpoint.local_directory", "checkpoint.local_interval_steps"],
        check: the_fast_tier_is_whole,
    },
    Rule {
        reads: &[
            "checkpoint.interval",
            "checkpoint.interval_steps",
            "checkpoint.local_interval_steps",
        ],
        check: the_fast_tier_is_the_frequent_one,
    },
    Rule { reads: &["elastic.min_slices", "hardware.slices"], check: min_slices_are_there },
    Rule {
        reads: &["elastic.min_slices", WORLD, "training.local_batch", "training.global_batch"],
        check: the_batch_survives_lost_slices,
    },
    Rule { reads: &["elastic.max_restarts", "checkpoint"], check: restarts_have_checkpoints },
    Rule { reads: &["elastic.preemption_notice"], check: a_notice_can_be_looked_at },
    Rule {
        reads: &["checkpoint.interval", "checkpoint.interval_steps", "training.steps"],
        check: something_is_saved_before_the_end,
    },
    Rule {
        reads: &["validation.interval_steps", "training.steps"],
        check: something_is_validated_before_the_end,
    },
    Rule { reads: &["data.sources", "validation.sources"], check: validation_has_data_of_its_own },
];

fn the_fast_tier_is_whole(r: &Recipe) -> Option<Diagnostic> {
    let checkpoint = r.checkpoint.as_ref()?;
    let (directory, interval) = (&checkpoint.local_directory, &checkpoint.local_interval_steps);
    let (there, missing, example) = match (directory, interval) {
        (Some(directory), None) => {
            let steps = match *checkpoint.interval {
                Interval::Steps(persistent) => (persistent / 10).max(1),
                _ => 50,
            };
            (("local_directory", &directory.at), "local_interval_steps", steps.to_string())
        }
        (None, Some(interval)) => {
            let example = "\"/dev/shm/titan\"".to_owned();
            (("local_interval_steps", &interval.at), "local_directory", example)
        }
        _ => return None,
    };
    Some(
        Diagnostic::error(format!("`checkpoint.{}` without `{missing}`", there.0))
            .at(there.1.clone())
            .label("the local tier needs both")
            .help(format!("add {missing} = {example}")),
    )
}

fn the_fast_tier_is_the_frequent_one(r: &Recipe) -> Option<Diagnostic> {
    let checkpoint = r.checkpoint.as_ref()?;
    let local = checkpoint.local_interval_steps.as_ref()?;
    let Interval::Steps(persistent) = *checkpoint.interval else { return None };
    if **local <= persistent {
        return None;
    }
    Some(
        Diagnostic::error(format!(
            "`checkpoint.local_interval_steps` = {} is longer than interval_steps = {persistent}",
            **local
        ))
        .at(local.at.clone())
        .label("the local tier is there to be saved to more often")
        .context(checkpoint.interval.at.clone(), "the persistent tier")
        .help(format!("for example: local_interval_steps = {}", (persistent / 10).max(1))),
    )
}

fn min_slices_are_there(r: &Recipe) -> Option<Diagnostic> {
    let (least, slices) = (r.elastic.min_slices.as_ref()?, *r.hardware.slices);
    if **least <= slices {
        return None;
    }
    Some(
        Diagnostic::error(format!(
            "`elastic.min_slices` = {} is more than the {slices} of `hardware.slices`",
            **least
        ))
        .at(least.at.clone())
        .label(format!("must be at most {slices}"))
        .context(r.hardware.slices.at.clone(), "the slices")
        .help(format!("write min_slices = {slices}, or less")),
    )
}

/// When slices are lost the global batch stays the same and accumulation rises, which takes a batch that divides.
fn the_batch_survives_lost_slices(r: &Recipe) -> Option<Diagnostic> {
    let least = r.elastic.min_slices.as_ref()?;
    let Auto::Fixed(global) = *r.training.global_batch else { return None };
    let per_slice = per_slice(r, &mesh(r)?);
    let mut near = slices_for_the_batch(r)?;
    // More than there are is a matter of another rule.
    if near.contains(least) || **least > *r.hardware.slices {
        return None;
    }
    near.sort_by_key(|n| n.abs_diff(**least));
    near.truncate(3);
    near.sort_unstable();
    Some(
        Diagnostic::error(format!(
            "with `elastic.min_slices` = {} the global batch of {global} sequences cannot stay the same",
            **least
        ))
        .at(least.at.clone())
        .label(format!("{per_slice} sequences a slice and micro-step x {} slices", **least))
        .context(r.training.global_batch.at.clone(), "not a multiple of that")
        .help_if(either(&[nearest_values("min_slices", &near)])),
    )
}

/// A file, by its path, or a page that needs no certificates: clouds have theirs on `http://`.
fn a_notice_can_be_looked_at(r: &Recipe) -> Option<Diagnostic> {
    let notice = r.elastic.preemption_notice.as_ref()?;
    let is_page = notice.strip_prefix("http://").is_some_and(|rest| {
        let host = rest.split('/').next().unwrap_or_default();
        let (name, port) = host.rsplit_once(':').unwrap_or((host, "80"));
        !name.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0)
    });
    let is_file = !notice.contains("://") && !notice.trim().is_empty();
    if is_page || is_file {
        return None;
    }
    Some(
        Diagnostic::error(format!(
            "`elastic.preemption_notice` = \"{}\" is neither a file nor a page",
            **notice
        ))
        .at(notice.at.clone())
        .label("cannot be watched")
        .help("write the path of a file, or an address that begins with http://"),
    )
}

/// Whoever asks for more restarts than there are by default expects to need them.
fn restarts_have_checkpoints(r: &Recipe) -> Option<Diagnostic> {
    let restarts = &r.elastic.max_restarts;
    if **restarts <= USUAL_RESTARTS || r.checkpoint.is_some() {
        return None;
    }
    Some(
        Diagnostic::warning(format!(
            "`elastic.max_restarts` = {} without checkpoints: each restart begins at step 1",
            **restarts
        ))
        .at(restarts.at.clone())
        .label("nothing to go on from")
        .help("add a table [checkpoint]"),
    )
}

/// A warning about an interval that the run does not reach.
fn longer_than_the_run(
    r: &Recipe,
    key: &str,
    interval: u64,
    at: &Option<Loc>,
) -> Option<Diagnostic> {
    let steps = *r.training.steps;
    if interval <= steps {
        return None;
    }
    Some(
        Diagnostic::warning(format!(
            "`{key}` = {interval} is longer than the run of {steps} steps"
        ))
        .at(at.clone())
        .label("comes once, at the end")
        .context(r.training.steps.at.clone(), "the length of the run"),
    )
}

fn something_is_saved_before_the_end(r: &Recipe) -> Option<Diagnostic> {
    let interval = &r.checkpoint.as_ref()?.interval;
    let Interval::Steps(steps) = **interval else { return None };
    longer_than_the_run(r, "checkpoint.interval_steps", steps, &interval.at)
}

fn something_is_validated_before_the_end(r: &Recipe) -> Option<Diagnostic> {
    let interval = &r.validation.as_ref()?.interval_steps;
    longer_than_the_run(r, "validation.interval_steps", **interval, &interval.at)
}

fn validation_has_data_of_its_own(r: &Recipe) -> Option<Diagnostic> {
    // Another split of the same folder is other data.
    let is_trained_on = |source: &&DataSource| {
        let place = |source: &DataSource| (source.path.value.clone(), source.split.value.clone());
        r.data.sources.iter().any(|trained| place(trained) == place(source))
    };
    let shared = r.validation.as_ref()?.sources()?.iter().find(is_trained_on)?;
    Some(
        Diagnostic::warning("the model is validated on data that it is trained on")
            .at(shared.path.at.clone())
            .label("is in [data] too"),
    )
}
