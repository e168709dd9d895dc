//! Rules about the learning rate over the run.

use super::Rule;
use crate::diagnostic::Diagnostic;
use crate::recipe::Recipe;
use crate::shown::count;

pub(super) const RULES: &[Rule] = &[
    Rule { reads: &["training.steps", "schedule.warmup_steps"], check: warmup_fits_the_run },
    Rule {
        reads: &["training.steps", "schedule.warmup_steps", "schedule.decay_steps"],
        check: decay_fits_the_run,
    },
];

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

fn decay_fits_the_run(r: &Recipe) -> Option<Diagnostic> {
    let decay = r.schedule.decay_steps.as_ref()?;
    let (warmup, steps) = (*r.schedule.warmup_steps, *r.training.steps);
    let left = steps - warmup;
    if **decay <= left {
        return None;
    }
    let rest = match warmup {
        0 => format!("the run of {}", count(steps, "step")),
        _ => format!("the {} that warm-up leaves", count(left, "step")),
    };
    Some(
        Diagnostic::error(format!("`schedule.decay_steps` = {} is longer than {rest}", **decay))
            .at(decay.at.clone())
            .label(format!("must be at most {left}"))
            .context(r.schedule.warmup_steps.at.clone(), "the warm-up")
            .context(r.training.steps.at.clone(), "the length of the run")
            .help(match left / 5 {
                0 => "leave room for a decay: fewer warmup_steps, or more steps".to_owned(),
                usual => format!("a usual decay for this run: decay_steps = {usual}"),
            }),
    )
}
