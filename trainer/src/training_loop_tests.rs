use std::cell::Cell;

use titan_recipes::tables::schedule::ScheduleKind;

use super::*;
use crate::engine::{ExpertLoad, StepOutput};

/// An engine without mathematics: the loss falls by one per step. With `lag`, it refuses to be read before the
/// next step is under way, as a device with a queue would make the loop wait.
struct FakeEngine {
    asynchronous: bool,
    started: u64,
    nan_at: Option<u64>,
    broken_at: Option<u64>,
}

impl FakeEngine {
    fn new(asynchronous: bool) -> Self {
        Self { asynchronous, started: 0, nan_at: None, broken_at: None }
    }
}

impl Engine for FakeEngine {
    type Pending = (u64, bool);

    fn asynchronous(&self) -> bool {
        self.asynchronous
    }

    fn step(&mut self, input: StepInput) -> Result<Self::Pending, Failure> {
        self.started += 1;
        if self.broken_at == Some(self.started) {
            return Err(Failure::new(FailureClass::Engine, "RuntimeError: broken"));
        }
        assert_eq!(input.tokens, vec![self.started as i32 - 1]);
        Ok((self.started, input.stop))
    }

    fn read(&mut self, (step, stop): Self::Pending) -> Result<StepOutput, Failure> {
        let loss = if self.nan_at == Some(step) { f64::NAN } else { 100.0 - step as f64 };
        Ok(StepOutput { loss, grad_norm: 1.0, stop, experts: Some(load(step)) })
    }
}

/// The load of two experts in a step.
fn load(step: u64) -> ExpertLoad {
    ExpertLoad { load: vec![1.5, 0.5], max_load: 1.75, min_load: 0.25, overflow: step }
}

fn plan(steps: u64) -> LoopPlan {
    let learning_rate = LearningRate {
        decay: None,
        peak: 1.0,
        kind: ScheduleKind::Constant,
        warmup_steps: 0,
        total_steps: steps,
        final_fraction: 1.0,
    };
    LoopPlan { first_step: 1, last_step: steps, learning_rate }
}

fn batches(count: u64) -> impl Iterator<Item = titan_datasets::Result<Batch>> {
    (0..count).map(|step| Ok(Batch { step, tokens: vec![step as i32], wait_seconds: 0.25 }))
}

fn train(
    mut engine: FakeEngine,
    steps: u64,
    stop_wanted: &dyn Fn() -> bool,
) -> (Result<Outcome, (u64, Failure)>, Vec<RankStep>) {
    let mut seen = Vec::new();
    let result =
        run(&mut engine, &plan(steps), &mut batches(steps), stop_wanted, &mut |s| seen.push(s));
    (result, seen)
}

#[test]
fn every_step_is_reported_once_and_in_order_with_and_without_a_queue() {
    for asynchronous in [false, true] {
        let (result, seen) = train(FakeEngine::new(asynchronous), 5, &|| false);
        assert_eq!(result, Ok(Outcome { ending: Ending::Completed, step: 5 }));
        assert_eq!(seen.iter().map(|s| s.step).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
        assert!(seen.iter().all(|s| s.data_seconds == 0.25 && s.step_seconds >= 0.0));
        assert!(seen.iter().all(|s| s.experts == Some(load(s.step))));
    }
}

#[test]
fn a_wish_to_stop_ends_the_loop_after_the_step_that_carried_it() {
    for (asynchronous, last) in [(false, 3), (true, 4)] {
        let asked = Cell::new(0);
        let wanted = || {
            asked.set(asked.get() + 1);
            asked.get() >= 3
        };
        let (result, seen) = train(FakeEngine::new(asynchronous), 100, &wanted);
        assert_eq!(result, Ok(Outcome { ending: Ending::Stopped, step: last }));
        assert_eq!(seen.len() as u64, last);
    }
}

#[test]
fn a_stop_that_comes_with_the_last_step_is_a_completed_run() {
    let asked = Cell::new(0);
    let wanted = || {
        asked.set(asked.get() + 1);
        asked.get() == 4
    };
    let (result, _) = train(FakeEngine::new(false), 4, &wanted);
    assert_eq!(result, Ok(Outcome { ending: Ending::Completed, step: 4 }));
}

#[test]
fn a_loss_that_is_not_finite_is_reported_and_ends_the_run() {
    for asynchronous in [false, true] {
        let mut engine = FakeEngine::new(asynchronous);
        engine.nan_at = Some(2);
        let (result, seen) = train(engine, 5, &|| false);
        let (step, failure) = result.unwrap_err();
        assert_eq!((step, failure.class), (2, FailureClass::NonFiniteLoss));
        assert!(failure.message.starts_with("the loss of step 2 is NaN"), "{failure}");
        assert_eq!(seen.len(), 2);
    }
}

#[test]
fn a_failure_names_its_step_and_missing_data_is_a_bug_not_an_end() {
    let mut engine = FakeEngine::new(false);
    engine.broken_at = Some(3);
    let (result, seen) = train(engine, 5, &|| false);
    assert_eq!(result.unwrap_err().0, 3);
    assert_eq!(seen.len(), 2);

    let mut engine = FakeEngine::new(false);
    let result = run(&mut engine, &plan(5), &mut batches(2), &|| false, &mut |_| {});
    let (step, failure) = result.unwrap_err();
    assert_eq!((step, failure.class), (3, FailureClass::Internal));
}
