//! The loop of one rank.

use std::collections::VecDeque;
use std::time::Duration;

use titan_datasets::Batch;

use crate::engine::{Engine, StepInput, Wish};
use crate::failure::{Failure, FailureClass};
use crate::protocol::{Doing, Ending, RankMessage, RankStep, RankValidation};
use crate::save_plan::SavePlan;
use crate::saver::{SaveOutcome, Saver, Tier};
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
    /// How often the state is saved; also after the last step that is done. `None` for never.
    pub save: Option<SavePlan>,
    /// Whether this rank is the one that looks at the clock for the others.
    pub watches_time: bool,
}

impl LoopPlan {
    fn saves_after(&self, step: u64) -> Vec<Tier> {
        self.save.map_or_else(Vec::new, |save| save.due_after(step, step == self.last_step))
    }

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
    /// Saves the state, if the plan does.
    pub saver: Option<&'a mut Saver>,
    /// Whether this rank has been asked to stop.
    pub stop_wanted: &'a dyn Fn() -> bool,
    /// The time since some fixed moment.
    pub now: &'a dyn Fn() -> Duration,
    /// Takes a message for each step, validation and save, in their order.
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
/// `stop_wanted` is asked before every step and every batch of a validation; the wish travels with the loss, so all ranks
/// end after the same step, and with no more of a validation. In the same way a checkpoint that is due for the time is saved after the same step.
/// However the loop ends, a save that is under way is waited for.
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
    let result = run_steps(engine, plan, &mut around);
    if result.is_err()
        && let Some(saver) = around.saver
        // The failure of the loop is the one to tell.
        && let Ok(news) = saver.finish()
    {
        news.into_iter().for_each(|outcome| (around.report)(RankMessage::Saved(outcome)));
    }
    result
}

fn run_steps<E: Engine>(
    engine: &mut E,
    plan: &LoopPlan,
    around: &mut Surroundings<'_>,
) -> Result<Outcome, (u64, Failure)> {
    if let Some(saver) = &mut around.saver {
        saver.prepare(engine).map_err(|failure| (plan.first_step, failure))?;
    }
    let mut saves = Saves::new((around.now)());
    let lag = usize::from(engine.asynchronous());
    let mut launched: VecDeque<Launched<E::Pending>> = VecDeque::with_capacity(lag + 1);
    let mut since = (around.now)();
    let mut done = plan.first_step - 1;
    let mut wish = Wish::default();

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
        let stop = (around.stop_wanted)();
        let save = saves.are_due(plan, (around.now)());
        let wish_now = Wish { stop, save };
        let input = StepInput { tokens: batch.tokens, learning_rate: lr, wish: wish_now };
        let pending = engine.step(input).map_err(at)?;
        launched.push_back(Launched { step, lr, data_seconds: batch.wait_seconds, pending });
        let validates = plan.validates_after(step);
        let mut tiers = plan.saves_after(step);
        let under_way = if validates || !tiers.is_empty() { 0 } else { lag };
        while launched.len() > under_way {
            wish |= finish(engine, &mut launched, &mut since, &mut done, around)?;
        }
        saves.poll(around).map_err(at)?;
        if wish.stop {
            break;
        }
        if wish.save && !tiers.contains(&Tier::Persistent) {
            tiers.push(Tier::Persistent);
        }
        if !tiers.is_empty() {
            while !launched.is_empty() {
                wish |= finish(engine, &mut launched, &mut since, &mut done, around)?;
            }
            wish.save = false;
            saves.save(engine, step, &tiers, around).map_err(at)?;
            since = (around.now)();
        }
        if validates {
            wish.stop = validate(engine, step, around).map_err(at)?;
            since = (around.now)();
            if wish.stop {
                break;
            }
        }
    }
    while !launched.is_empty() {
        wish |= finish(engine, &mut launched, &mut since, &mut done, around)?;
    }
    saves.end(engine, done, around).map_err(|failure| (done, failure))?;
    // A stop that arrives with the last step changes nothing: all that was asked for is done.
    let ending =
        if wish.stop && done < plan.last_step { Ending::Stopped } else { Ending::Completed };
    Ok(Outcome { ending, step: done })
}

/// When saves were, and what they cost.
struct Saves {
    last: Duration,
    cost_seconds: f64,
    /// Whether a wish of this rank is on its way.
    is_wished: bool,
}

impl Saves {
    fn new(now: Duration) -> Self {
        Self { last: now, cost_seconds: 0.0, is_wished: false }
    }

    /// Whether this rank wishes a save, for the time.
    fn are_due(&mut self, plan: &LoopPlan, now: Duration) -> bool {
        let since = now.saturating_sub(self.last);
        let is_due =
            plan.save.is_some_and(|save| save.interval.is_overdue(since, self.cost_seconds));
        let is_due = plan.watches_time && is_due && !self.is_wished;
        self.is_wished |= is_due;
        is_due
    }

    fn save<E: Engine>(
        &mut self,
        engine: &mut E,
        step: u64,
        tiers: &[Tier],
        around: &mut Surroundings<'_>,
    ) -> Result<(), Failure> {
        let Some(saver) = &mut around.saver else { return Ok(()) };
        if saver.is_writing() {
            // It may have to wait for the one before.
            (around.report)(RankMessage::Doing { doing: Doing::Saving });
        }
        let news = saver.save(engine, step, tiers)?;
        if tiers.contains(&Tier::Persistent) {
            self.last = (around.now)();
            self.is_wished = false;
        }
        self.report(news, around);
        Ok(())
    }

    /// Reports the save that has ended meanwhile.
    fn poll(&mut self, around: &mut Surroundings<'_>) -> Result<(), Failure> {
        let Some(saver) = &mut around.saver else { return Ok(()) };
        let news = saver.poll()?;
        self.report(news, around);
        Ok(())
    }

    /// Saves what is done, if that has not been, and waits for it.
    fn end<E: Engine>(
        &mut self,
        engine: &mut E,
        done: u64,
        around: &mut Surroundings<'_>,
    ) -> Result<(), Failure> {
        if done > 0 {
            // One that is there is not saved again.
            self.save(engine, done, &[Tier::Persistent], around)?;
        }
        let Some(saver) = &mut around.saver else { return Ok(()) };
        if saver.is_writing() {
            (around.report)(RankMessage::Doing { doing: Doing::Saving });
        }
        let news = saver.finish()?;
        self.report(news, around);
        Ok(())
    }

    fn report(&mut self, news: Vec<SaveOutcome>, around: &mut Surroundings<'_>) {
        for outcome in news {
            if let SaveOutcome::Saved(saved) = &outcome
                && saved.tier == Tier::Persistent
            {
                self.cost_seconds = saved.blocked_seconds;
            }
            (around.report)(RankMessage::Saved(outcome));
        }
    }
}

/// Reads the oldest step under way, reports it, and says what the ranks have agreed on.
fn finish<E: Engine>(
    engine: &mut E,
    launched: &mut VecDeque<Launched<E::Pending>>,
    since: &mut Duration,
    done: &mut u64,
    around: &mut Surroundings<'_>,
) -> Result<Wish, (u64, Failure)> {
    let Some(Launched { step, lr, data_seconds, pending }) = launched.pop_front() else {
        return Ok(Wish::default());
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
    Ok(output.wish)
}

/// How often a validation says that it goes on.
const SIGN_OF_LIFE: Duration = Duration::from_secs(1);

/// Runs one pass over the validation data, and reports the loss of the model as it is after `step`; unless some rank is
/// asked to stop meanwhile, which is then known to all.
fn validate<E: Engine>(
    engine: &mut E,
    step: u64,
    around: &mut Surroundings<'_>,
) -> Result<bool, Failure> {
    let start = (around.now)();
    let (mut cross_entropy, mut targets) = (0.0, 0);
    let mut told = None;
    for batch in (around.validation)()? {
        let now = (around.now)();
        if told.is_none_or(|told| now.saturating_sub(told) >= SIGN_OF_LIFE) {
            told = Some(now);
            (around.report)(RankMessage::Doing { doing: Doing::Validating });
        }
        let sums = engine.evaluate(batch?, (around.stop_wanted)())?;
        if sums.stop {
            return Ok(true);
        }
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
    Ok(false)
}

#[cfg(test)]
#[path = "training_loop_tests.rs"]
mod tests;
