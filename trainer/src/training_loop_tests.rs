use std::cell::Cell;
use std::path::Path;
use std::rc::Rc;

use titan_checkpoint::{Dtype, Part, TensorFacts, staging_place};
use titan_recipes::tables::schedule::ScheduleKind;

use super::*;
use crate::engine::{Evaluation, ExpertLoad, StatePart, StateWork, StepOutput};
use crate::save_plan::{SaveInterval, SavePlan};
use crate::saver::SaveSpec;

/// An engine without mathematics: the loss falls by one per step, and so does that of a validation. Reading a step
/// takes it one second of its own clock, an evaluation ten.
struct FakeEngine {
    asynchronous: bool,
    started: u64,
    read: u64,
    nan_at: Option<u64>,
    broken_at: Option<u64>,
    clock: Rc<Cell<Duration>>,
    /// The whole state: the steps that were done.
    state: [u8; 8],
}

impl FakeEngine {
    fn new(asynchronous: bool) -> Self {
        let clock = Rc::default();
        Self {
            asynchronous,
            started: 0,
            read: 0,
            nan_at: None,
            broken_at: None,
            clock,
            state: [0; 8],
        }
    }

    fn work(&self, seconds: u64) {
        self.clock.set(self.clock.get() + Duration::from_secs(seconds));
    }
}

impl Engine for FakeEngine {
    type Pending = (u64, Wish);

    fn asynchronous(&self) -> bool {
        self.asynchronous
    }

    fn step(&mut self, input: StepInput) -> Result<Self::Pending, Failure> {
        self.started += 1;
        if self.broken_at == Some(self.started) {
            return Err(Failure::new(FailureClass::Engine, "RuntimeError: broken"));
        }
        assert_eq!(input.tokens, vec![self.started as i32 - 1]);
        Ok((self.started, input.wish))
    }

    fn read(&mut self, (step, wish): Self::Pending) -> Result<StepOutput, Failure> {
        self.work(1);
        self.read += 1;
        let loss = if self.nan_at == Some(step) { f64::NAN } else { 100.0 - step as f64 };
        let experts = Some(load(step));
        Ok(StepOutput { loss, grad_norm: 1.0, wish, targets: Some(10 * step), experts })
    }

    /// One target per token, of which those that are 0 say that there is none, and a 9 is infinitely unlikely.
    fn evaluate(&mut self, tokens: Vec<i32>, stop: bool) -> Result<Evaluation, Failure> {
        assert_eq!(self.read, self.started, "a step is still under way");
        self.work(10);
        let targets = tokens.iter().filter(|&&token| token != 0).count() as u64;
        let loss = if tokens.contains(&9) { f64::INFINITY } else { 50.0 - self.started as f64 };
        Ok(Evaluation { cross_entropy: loss * targets as f64, targets, stop })
    }

    fn state(&mut self, work: &mut StateWork<'_>) -> Result<(), Failure> {
        assert_eq!(self.read, self.started, "a step is still under way");
        self.state = self.started.to_le_bytes();
        let tensor = TensorFacts { dtype: Dtype::I64, shape: vec![1] };
        let region = tensor.whole().unwrap();
        let part = Part { name: "steps".to_owned(), tensor, region };
        work(vec![StatePart { part, is_saved_here: true, memory: &mut self.state }])
    }

    fn resume(&mut self, _step: u64, work: &mut StateWork<'_>) -> Result<(), Failure> {
        self.state(work)
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
    LoopPlan {
        first_step: 1,
        last_step: steps,
        learning_rate,
        validate_every: None,
        save: None,
        watches_time: true,
    }
}

fn batches(count: u64) -> impl Iterator<Item = titan_datasets::Result<Batch>> {
    (0..count).map(|step| Ok(Batch { step, tokens: vec![step as i32], wait_seconds: 0.25 }))
}

/// What a run has reported.
#[derive(Default)]
struct Seen {
    steps: Vec<RankStep>,
    validations: Vec<RankValidation>,
    saved: Vec<u64>,
    outcomes: Vec<SaveOutcome>,
    /// What was said to be done that is no step.
    doings: Vec<Doing>,
    /// In the order of the reports: a step, or minus the step of a validation.
    order: Vec<i64>,
}

/// One validation: two batches, with three targets.
fn two_batches() -> titan_datasets::Result<ValidationBatches> {
    Ok(Box::new([Ok(vec![1, 2]), Ok(vec![3, 0])].into_iter()))
}

fn run_plan(
    engine: &mut FakeEngine,
    plan: &LoopPlan,
    data: u64,
    validation: &mut dyn FnMut() -> titan_datasets::Result<ValidationBatches>,
    stop_wanted: &dyn Fn() -> bool,
) -> (Result<Outcome, (u64, Failure)>, Seen) {
    run_and_save(engine, plan, data, validation, stop_wanted, None)
}

fn run_and_save(
    engine: &mut FakeEngine,
    plan: &LoopPlan,
    data: u64,
    validation: &mut dyn FnMut() -> titan_datasets::Result<ValidationBatches>,
    stop_wanted: &dyn Fn() -> bool,
    saver: Option<&mut Saver>,
) -> (Result<Outcome, (u64, Failure)>, Seen) {
    let mut seen = Seen::default();
    let clock = Rc::clone(&engine.clock);
    let around = Surroundings {
        batches: &mut batches(data),
        validation,
        saver,
        stop_wanted,
        now: &|| clock.get(),
        report: &mut |message| match message {
            RankMessage::Step(step) => {
                seen.order.push(step.step as i64);
                seen.steps.push(step);
            }
            RankMessage::Validation(validation) => {
                seen.order.push(-(validation.step as i64));
                seen.validations.push(validation);
            }
            RankMessage::Saved(outcome) => {
                if let SaveOutcome::Saved(saved) = &outcome {
                    seen.saved.push(saved.step);
                }
                seen.outcomes.push(outcome);
            }
            RankMessage::Doing { doing } => seen.doings.push(doing),
            other => panic!("{other:?}"),
        },
    };
    let result = run(engine, plan, around);
    (result, seen)
}

fn train(
    mut engine: FakeEngine,
    steps: u64,
    stop_wanted: &dyn Fn() -> bool,
) -> (Result<Outcome, (u64, Failure)>, Vec<RankStep>) {
    let never: &mut dyn FnMut() -> _ = &mut || panic!("the plan has no validation");
    let (result, seen) = run_plan(&mut engine, &plan(steps), steps, never, stop_wanted);
    (result, seen.steps)
}

/// A run that validates.
fn train_and_validate(
    asynchronous: bool,
    steps: u64,
    every: u64,
    stop_wanted: &dyn Fn() -> bool,
) -> (Result<Outcome, (u64, Failure)>, Seen) {
    let plan = LoopPlan { validate_every: Some(every), ..plan(steps) };
    let engine = &mut FakeEngine::new(asynchronous);
    run_plan(engine, &plan, steps, &mut two_batches, stop_wanted)
}

#[test]
fn every_step_is_reported_once_and_in_order_with_and_without_a_queue() {
    for asynchronous in [false, true] {
        let (result, seen) = train(FakeEngine::new(asynchronous), 5, &|| false);
        assert_eq!(result, Ok(Outcome { ending: Ending::Completed, step: 5 }));
        assert_eq!(seen.iter().map(|s| s.step).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
        assert!(seen.iter().all(|s| s.data_seconds == 0.25 && s.step_seconds == 1.0));
        assert!(seen.iter().all(|s| s.experts == Some(load(s.step))));
        assert!(seen.iter().all(|s| s.targets == Some(10 * s.step)));
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
    let (result, _) = run_plan(&mut engine, &plan(5), 2, &mut two_batches, &|| false);
    let (step, failure) = result.unwrap_err();
    assert_eq!((step, failure.class), (3, FailureClass::Internal));
}

#[test]
fn a_validation_follows_every_so_many_steps_and_the_last_one_once() {
    for asynchronous in [false, true] {
        for (steps, every, expected) in [
            (5, 2, vec![1, 2, -2, 3, 4, -4, 5, -5]),
            (4, 2, vec![1, 2, -2, 3, 4, -4]),
            (3, 1, vec![1, -1, 2, -2, 3, -3]),
            (3, 100, vec![1, 2, 3, -3]),
        ] {
            let (result, seen) = train_and_validate(asynchronous, steps, every, &|| false);
            assert_eq!(result, Ok(Outcome { ending: Ending::Completed, step: steps }));
            assert_eq!(seen.order, expected, "{steps} steps, every {every}");
        }
    }
}

#[test]
fn a_long_validation_says_that_it_goes_on() {
    // Each batch takes longer than a second.
    let (_, seen) = train_and_validate(true, 3, 2, &|| false);
    assert_eq!(seen.doings, [Doing::Validating; 4]);
}

#[test]
fn a_validation_is_the_mean_over_all_its_targets() {
    let (_, seen) = train_and_validate(true, 3, 2, &|| false);
    let validation = |step, loss| RankValidation { step, loss, targets: 3, seconds: 20.0 };
    assert_eq!(seen.validations, [validation(2, 48.0), validation(3, 47.0)]);
}

#[test]
fn the_time_of_a_validation_is_not_that_of_a_step() {
    for asynchronous in [false, true] {
        let (_, seen) = train_and_validate(asynchronous, 5, 2, &|| false);
        assert!(seen.steps.iter().all(|step| step.step_seconds == 1.0), "{:?}", seen.steps);
    }
}

#[test]
fn a_run_that_is_stopped_is_not_validated_any_more() {
    for (asynchronous, asked_at, last, expected) in [
        // Before steps 1 and 2, two batches of a validation, and steps 3 and 4.
        (false, 6, 4, vec![1, 2, -2, 3, 4]),
        (true, 6, 4, vec![1, 2, -2, 3, 4]),
        (false, 5, 3, vec![1, 2, -2, 3]),
        // What was wished in step 3 is read together with step 4.
        (true, 5, 4, vec![1, 2, -2, 3, 4]),
        // In the middle of a validation: of that nothing is known.
        (false, 4, 2, vec![1, 2]),
        (true, 3, 2, vec![1, 2]),
    ] {
        let asked = Cell::new(0);
        let wanted = || {
            asked.set(asked.get() + 1);
            asked.get() >= asked_at
        };
        let (result, seen) = train_and_validate(asynchronous, 6, 2, &wanted);
        assert_eq!(result, Ok(Outcome { ending: Ending::Stopped, step: last }));
        assert_eq!(seen.order, expected, "asked the time {asked_at}");
    }
}

#[test]
fn a_validation_that_is_not_finite_is_reported_and_ends_nothing() {
    let plan = LoopPlan { validate_every: Some(1), ..plan(2) };
    let mut unlikely = || Ok(Box::new([Ok(vec![1, 9])].into_iter()) as ValidationBatches);
    let engine = &mut FakeEngine::new(false);
    let (result, seen) = run_plan(engine, &plan, 2, &mut unlikely, &|| false);
    assert_eq!(result, Ok(Outcome { ending: Ending::Completed, step: 2 }));
    assert_eq!(seen.validations.iter().map(|v| v.loss).collect::<Vec<_>>(), [f64::INFINITY; 2]);
}

#[test]
fn a_validation_without_targets_is_a_bug_and_bad_data_is_named() {
    let plan = LoopPlan { validate_every: Some(2), ..plan(5) };
    for batches in [vec![], vec![Ok(vec![0, 0])]] {
        let mut batches = Some(batches);
        let mut empty = || Ok(Box::new(batches.take().unwrap().into_iter()) as ValidationBatches);
        let engine = &mut FakeEngine::new(true);
        let (result, seen) = run_plan(engine, &plan, 5, &mut empty, &|| false);
        let (step, failure) = result.unwrap_err();
        assert_eq!((step, failure.class), (2, FailureClass::Internal));
        assert_eq!(failure.message, "the validation after step 2 has no targets");
        assert_eq!(seen.order, [1, 2]);
    }
    let stopped = || titan_datasets::Error::PrefetchStopped { step: 7 };
    let mut at_once = || Err(stopped());
    let mut later = || Ok(Box::new([Ok(vec![1]), Err(stopped())].into_iter()) as ValidationBatches);
    let sources: [&mut dyn FnMut() -> _; 2] = [&mut at_once, &mut later];
    for source in sources {
        let engine = &mut FakeEngine::new(false);
        let (step, failure) = run_plan(engine, &plan, 5, source, &|| false).0.unwrap_err();
        assert_eq!((step, failure.class), (2, FailureClass::Data));
    }
}

fn save_in(folder: &Path) -> SaveSpec {
    let (persistent, writer) = (folder.into(), "test".to_owned());
    SaveSpec { persistent, local: None, writer, attempt: 1, timeout_seconds: 60 }
}

/// A run that saves, and what of its state is on the disk: the step, and the steps that were done.
fn train_and_save(
    engine: &mut FakeEngine,
    interval: SaveInterval,
    steps: u64,
    stop_wanted: &dyn Fn() -> bool,
) -> (Result<Outcome, (u64, Failure)>, Seen, Vec<u64>) {
    let folder = tempfile::tempdir().unwrap();
    let mut saver = Saver::new(save_in(folder.path()), 0, 1, None);
    let save = SavePlan { interval, local_steps: None };
    let plan = LoopPlan { save: Some(save), ..plan(steps) };
    let (result, seen) =
        run_and_save(engine, &plan, steps, &mut two_batches, stop_wanted, Some(&mut saver));
    let on_disk = |step: &u64| {
        let place = staging_place(&folder.path().into(), *step, "test");
        let content = place.read("rank-00000.safetensors").unwrap();
        content[content.len() - 8..] == step.to_le_bytes()
    };
    let whole = (1..=steps + 1).filter(|step| seen.saved.contains(step) && on_disk(step)).collect();
    (result, seen, whole)
}

#[test]
fn the_state_of_every_so_many_steps_and_of_the_last_one_is_saved_once() {
    for asynchronous in [false, true] {
        for (steps, every, expected) in [(5, 2, vec![2, 4, 5]), (4, 2, vec![2, 4]), (3, 9, vec![3])]
        {
            let engine = &mut FakeEngine::new(asynchronous);
            let (result, seen, whole) =
                train_and_save(engine, SaveInterval::Steps(every), steps, &|| false);
            assert_eq!(result, Ok(Outcome { ending: Ending::Completed, step: steps }));
            assert_eq!((&seen.saved, &whole), (&expected, &expected), "{steps} steps");
            assert!(seen.doings.contains(&Doing::Saving), "nobody knows why the end takes time");
        }
    }
}

#[test]
fn a_save_that_is_due_for_the_time_is_saved_where_all_ranks_know_of_it() {
    // A step takes a second; the wish of a step with a queue is read with the next one.
    for (asynchronous, expected) in [(false, vec![4, 8, 10]), (true, vec![6, 10])] {
        let engine = &mut FakeEngine::new(asynchronous);
        let (_, seen, whole) = train_and_save(engine, SaveInterval::Seconds(3.0), 10, &|| false);
        assert_eq!((&seen.saved, &whole), (&expected, &expected));
    }
}

#[test]
fn a_run_that_is_stopped_or_fails_loses_the_save_under_way() {
    for asynchronous in [false, true] {
        let asked = Cell::new(0);
        let wanted = || {
            asked.set(asked.get() + 1);
            asked.get() >= 3
        };
        let engine = &mut FakeEngine::new(asynchronous);
        let (result, seen, whole) = train_and_save(engine, SaveInterval::Steps(100), 9, &wanted);
        let last = result.unwrap().step;
        assert_eq!((&seen.saved, &whole), (&vec![last], &vec![last]));

        let engine = &mut FakeEngine::new(asynchronous);
        engine.broken_at = Some(3);
        let (result, seen, whole) = train_and_save(engine, SaveInterval::Steps(2), 9, &|| false);
        assert_eq!(result.unwrap_err().0, 3);
        assert_eq!((&seen.saved, &whole), (&vec![2], &vec![2]));

        // What follows from a loss that is not finite is worth nothing.
        let engine = &mut FakeEngine::new(asynchronous);
        engine.nan_at = Some(2);
        let (_, seen, _) = train_and_save(engine, SaveInterval::Steps(1), 9, &|| false);
        assert_eq!(seen.saved, [1]);
    }
}

#[test]
fn a_failed_save_is_a_success() {
    let mut saver = Saver::new(save_in(Path::new("/nowhere/checkpoints")), 0, 1, None);
    let save = SavePlan { interval: SaveInterval::Steps(2), local_steps: None };
    let plan = LoopPlan { save: Some(save), ..plan(2) };
    let engine = &mut FakeEngine::new(false);
    let (result, seen) =
        run_and_save(engine, &plan, 2, &mut two_batches, &|| false, Some(&mut saver));
    let (step, failure) = result.unwrap_err();
    assert_eq!((step, failure.class), (2, FailureClass::Storage));
    assert!(failure.message.contains("the checkpoint of step 2 cannot be saved"), "{failure}");
    assert!(seen.saved.is_empty());
}

#[test]
fn a_local_tier_that_fails_ends_nothing_and_one_that_works_is_saved_first() {
    for (local, expected) in [("local", vec![2, 4]), ("file/local", vec![])] {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("file"), "").unwrap();
        for name in ["local", "persistent"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        let local = Some(folder.path().join(local).into());
        let spec = SaveSpec { local, ..save_in(&folder.path().join("persistent")) };
        let mut saver = Saver::new(spec, 0, 1, None);
        let save = SavePlan { interval: SaveInterval::Steps(4), local_steps: Some(2) };
        let plan = LoopPlan { save: Some(save), ..plan(5) };
        let engine = &mut FakeEngine::new(false);
        let (result, seen) =
            run_and_save(engine, &plan, 5, &mut two_batches, &|| false, Some(&mut saver));
        assert_eq!(result.unwrap().step, 5);
        let of = |tier| {
            let saved = seen.outcomes.iter().filter_map(|outcome| match outcome {
                SaveOutcome::Saved(saved) if saved.tier == tier => Some(saved.step),
                _ => None,
            });
            saved.collect::<Vec<u64>>()
        };
        assert_eq!(of(Tier::Persistent), [4, 5]);
        // One that is due while another is on its way may be left out.
        assert!(of(Tier::Local).iter().all(|step| expected.contains(step)));
        assert_eq!(of(Tier::Local).is_empty(), expected.is_empty());
        let lost =
            seen.outcomes.iter().filter(|outcome| matches!(outcome, SaveOutcome::Lost { .. }));
        assert_eq!(lost.count() > 0, expected.is_empty());
    }
}

#[test]
fn a_save_that_hangs_holds_a_run_forever() {
    let folder = tempfile::tempdir().unwrap();
    let spec = SaveSpec { timeout_seconds: 0, ..save_in(folder.path()) };
    let mut saver = Saver::new(spec, 0, 1, None);
    let save = SavePlan { interval: SaveInterval::Steps(2), local_steps: None };
    let plan = LoopPlan { save: Some(save), ..plan(2) };
    let engine = &mut FakeEngine::new(false);
    let (result, _) = run_and_save(engine, &plan, 2, &mut two_batches, &|| false, Some(&mut saver));
    let (step, failure) = result.unwrap_err();
    assert_eq!((step, failure.class), (2, FailureClass::Storage));
    assert!(failure.message.contains("was not written to"), "{failure}");
}
