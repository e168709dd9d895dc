//! The loop of one rank.

use std::collections::VecDeque;
use std::time::Instant;

use titan_datasets::Batch;

use crate::engine::{Engine, StepInput};
use crate::failure::{Failure, FailureClass};
use crate::protocol::{Ending, RankStep};
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
/// one where the device has no queue), report it.
///
/// `stop_wanted` is asked before every step; the wish travels with the loss, so all ranks end after the same
/// step. `batches` must give one batch per step.
///
/// # Errors
/// The first failure of data or engine, with the step that was under way; a loss or a gradient norm that is not
/// finite is one, since the update that follows from it spoils the model.
pub fn run<E: Engine>(
    engine: &mut E,
    plan: &LoopPlan,
    batches: &mut dyn Iterator<Item = titan_datasets::Result<Batch>>,
    stop_wanted: &dyn Fn() -> bool,
    report: &mut dyn FnMut(RankStep),
) -> Result<Outcome, (u64, Failure)> {
    let lag = usize::from(engine.asynchronous());
    let mut launched: VecDeque<Launched<E::Pending>> = VecDeque::with_capacity(lag + 1);
    let mut clock = Instant::now();
    let mut done = plan.first_step - 1;
    let mut stop = false;

    for step in plan.first_step..=plan.last_step {
        let at = |failure| (step, failure);
        let batch = match batches.next() {
            Some(batch) => batch.map_err(|error| at(error.into()))?,
            None => {
                return Err(at(Failure::new(
                    FailureClass::Internal,
                    "the data ended before the run",
                )));
            }
        };
        let lr = plan.learning_rate.at(step);
        let input = StepInput { tokens: batch.tokens, learning_rate: lr, stop: stop_wanted() };
        let pending = engine.step(input).map_err(at)?;
        launched.push_back(Launched { step, lr, data_seconds: batch.wait_seconds, pending });
        while launched.len() > lag {
            stop |= finish(engine, &mut launched, &mut clock, &mut done, report)?;
        }
        if stop {
            break;
        }
    }
    while !launched.is_empty() {
        stop |= finish(engine, &mut launched, &mut clock, &mut done, report)?;
    }
    // A stop that arrives with the last step changes nothing: all that was asked for is done.
    let ending = if stop && done < plan.last_step { Ending::Stopped } else { Ending::Completed };
    Ok(Outcome { ending, step: done })
}

/// Reads the oldest step under way, reports it, and says whether the ranks have agreed to stop.
fn finish<E: Engine>(
    engine: &mut E,
    launched: &mut VecDeque<Launched<E::Pending>>,
    clock: &mut Instant,
    done: &mut u64,
    report: &mut dyn FnMut(RankStep),
) -> Result<bool, (u64, Failure)> {
    let Some(Launched { step, lr, data_seconds, pending }) = launched.pop_front() else {
        return Ok(false);
    };
    let output = engine.read(pending).map_err(|failure| (step, failure))?;
    let now = Instant::now();
    let step_seconds = now.duration_since(*clock).as_secs_f64();
    *clock = now;
    report(RankStep {
        step,
        loss: output.loss,
        grad_norm: output.grad_norm,
        lr,
        step_seconds,
        data_seconds,
        experts: output.experts,
    });
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

#[cfg(test)]
#[path = "training_loop_tests.rs"]
mod tests;
