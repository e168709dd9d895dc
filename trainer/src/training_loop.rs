//! The loop of one rank.

use std::collections::VecDeque;
use std::time::Duration;

use titan_datasets::Batch;

use crate::engine::{Engine, StepInput};
use crate::failure::{Failure, FailureClass};
use crate::protocol::{Ending, RankMessage, RankStep, RankValidation};
use crate::schedule::LearningRate;

/// Which steps to run.
#[derive(Clone, Debug)]
pub struct LoopPlan {
    /// The first step, from 1.
    pub first_step: u64,
    /// The last step.
    pub last_step: u64,
    /// The learning rate of each step.
    pub learning_rate: LearningRate,
    /// The model is validated after each step that this divides, and after the last step; `None` for never.
    pub validate_every: Option<u64>,
}

impl LoopPlan {
    fn validates_after(&self, step: u64) -> bool {
        self.validate_every
            .is_some_and(|every| step.is_multiple_of(every) || step == self.last_step)
    }
}

/// The batches of one validation, each of shape `[local_batch, sequence_length + 1]`; see [`Engine::evaluate`].
pub type ValidationBatches = Box<dyn Iterator<Item = titan_datasets::Result<Vec<i32>>> + Send>;

/// What a loop has around it.
pub struct Surroundings<'a> {
    /// One batch for each step.
    pub batches: &'a mut dyn Iterator<Item = titan_datasets::Result<Batch>>,
    /// Begins a pass over the validation data; on every rank it must have equally many batches. Called only if the
    /// plan validates.
    pub validation: &'a mut dyn FnMut() -> titan_datasets::Result<ValidationBatches>,
    /// Whether this rank has been asked to stop.
    pub stop_wanted: &'a dyn Fn() -> bool,
    /// The time since some fixed moment.
    pub now: &'a dyn Fn() -> Duration,
    /// Takes a message for each step and for each validation, in their order.
    pub report: &'a mut dyn FnMut(RankMessage),
}

/// How a loop ended well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Why it ended.
    pub ending: Ending,
    /// The last step that is done.
    pub step: u64,
}

/// A step that the engine has started and whose result is not read yet.
struct Launched<P> {
    step: u64,
    lr: f64,
    data_seconds: f64,
    pending: P,
}

/// Runs the steps of `plan`: take a batch, start the step, read the result of the step before (or of the same
/// one where the device has no queue), report it. Before a validation all steps that are under way are read.
///
/// `stop_wanted` is asked before every step; the wish travels with the loss, so all ranks end after the same
/// step, and without a validation.
///
/// # Errors
/// The first failure of data or engine, with the step that was under way or was validated; a loss or a gradient
/// norm that is not finite is one, since the update that follows from it spoils the model. That of a validation is
/// reported as it is: the step before it has the better message.
pub fn run<E: Engine>(
    engine: &mut E,
    plan: &LoopPlan,
    mut around: Surroundings<'_>,
) -> Result<Outcome, (u64, Failure)> {
    let lag = usize::from(engine.asynchronous());
    let mut launched: VecDeque<Launched<E::Pending>> = VecDeque::with_capacity(lag + 1);
    let mut since = (around.now)();
    let mut done = plan.first_step - 1;
    let mut stop = false;

    for step in plan.first_step..=plan.last_step {
        let at = |failure| (step, failure);
        let batch = match around.batches.next() {
            Some(batch) => batch.map_err(|error| at(error.into()))?,
            None => {
                return Err(at(Failure::new(
                    FailureClass::Internal,
                    "the data ended before the run",
                )));
            }
        };
        let lr = plan.learning_rate.at(step);
        let stop_wanted = (around.stop_wanted)();
        let input = StepInput { tokens: batch.tokens, learning_rate: lr, stop: stop_wanted };
        let pending = engine.step(input).map_err(at)?;
        launched.push_back(Launched { step, lr, data_seconds: batch.wait_seconds, pending });
        let validates = plan.validates_after(step);
        let under_way = if validates { 0 } else { lag };
        while launched.len() > under_way {
            stop |= finish(engine, &mut launched, &mut since, &mut done, &mut around)?;
        }
        if stop {
            break;
        }
        if validates {
            validate(engine, step, &mut around).map_err(at)?;
            since = (around.now)();
        }
    }
    while !launched.is_empty() {
        stop |= finish(engine, &mut launched, &mut since, &mut done, &mut around)?;
    }
    // A stop that arrives with the last step changes nothing: all that was asked for is done.
    let ending = if stop && done < plan.last_step { Ending::Stopped } else { Ending::Completed };
    Ok(Outcome { ending, step: done })
}

/// Reads the oldest step under way, reports it, and says whether the ranks have agreed to stop.
fn finish<E: Engine>(
    engine: &mut E,
    launched: &mut VecDeque<Launched<E::Pending>>,
    since: &mut Duration,
    done: &mut u64,
    around: &mut Surroundings<'_>,
) -> Result<bool, (u64, Failure)> {
    let Some(Launched { step, lr, data_seconds, pending }) = launched.pop_front() else {
        return Ok(false);
    };
    let output = engine.read(pending).map_err(|failure| (step, failure))?;
    let now = (around.now)();
    let step_seconds = now.saturating_sub(*since).as_secs_f64();
    *since = now;
    (around.report)(RankMessage::Step(RankStep {
        step,
        loss: output.loss,
        grad_norm: output.grad_norm,
        lr,
        step_seconds,
        data_seconds,
        targets: output.targets,
        experts: output.experts,
    }));
    if !output.loss.is_finite() || !output.grad_norm.is_finite() {
        let message = format!(
            "the loss of step {step} is {} and its gradient norm {}, at learning rate {lr:e}",
            output.loss, output.grad_norm
        );
        return Err((step, Failure::new(FailureClass::NonFiniteLoss, message)));
    }
    *done = step;
    Ok(output.stop)
}

/// Runs one pass over the validation data, and reports the loss of the model as it is after `step`.
fn validate<E: Engine>(
    engine: &mut E,
    step: u64,
    around: &mut Surroundings<'_>,
) -> Result<(), Failure> {
    let start = (around.now)();
    let (mut cross_entropy, mut targets) = (0.0, 0);
    for batch in (around.validation)()? {
        let sums = engine.evaluate(batch?)?;
        cross_entropy += sums.cross_entropy;
        targets += sums.targets;
    }
    if targets == 0 {
        let message = format!("the validation after step {step} has no targets");
        return Err(Failure::new(FailureClass::Internal, message));
    }
    let seconds = (around.now)().saturating_sub(start).as_secs_f64();
    let loss = cross_entropy / targets as f64;
    (around.report)(RankMessage::Validation(RankValidation { step, loss, targets, seconds }));
    Ok(())
}

#[cfg(test)]
#[path = "training_loop_tests.rs"]
mod tests;
