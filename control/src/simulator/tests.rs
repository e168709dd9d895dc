use std::time::Duration;

use super::*;
use crate::{Policy, Verdict};

const HOUR: Duration = Duration::from_secs(3600);

/// Four slices of four hosts for a day, with a fault every hour.
fn a_bad_day() -> Scenario {
    let mut scenario = Scenario::new(4, 4, 24 * HOUR);
    scenario.settings.policy = Policy::Shrink;
    scenario.settings.budgets.infrastructure = 100;
    scenario.faults.mtbf = HOUR;
    scenario
}

/// One that loses slices only.
fn losing_slices(policy: Policy, spares: u32) -> Outcome {
    let mut scenario = a_bad_day();
    scenario.settings.policy = policy;
    scenario.spares = spares;
    scenario.faults.weights = Weights::NONE.with(FaultKind::LoseSlice, 1.0);
    simulate(&scenario, 3)
}

fn sound(outcome: Outcome) -> Outcome {
    assert_eq!(outcome.violations, Vec::<String>::new());
    assert_eq!(outcome.categories.total(), outcome.wall);
    outcome
}

#[test]
fn a_seed_is_a_history() {
    let scenario = a_bad_day();
    let first = sound(simulate(&scenario, 7));
    assert_eq!(first, simulate(&scenario, 7));
    assert_ne!(first.history, simulate(&scenario, 8).history);
    assert!(first.fault_count() > 10 && first.restarts > 10, "{first:?}");
}

#[test]
fn the_first_histories_stay_what_they_are() {
    // Written down: whoever reports a seed reports a history.
    let faults: Vec<String> = sound(simulate(&a_bad_day(), 0))
        .history
        .iter()
        .filter(|entry| entry.decision.is_none())
        .take(3)
        .map(ToString::to_string)
        .collect();
    assert_eq!(faults, FIRST_FAULTS);
}

const FIRST_FAULTS: [&str; 3] = [
    "   1:14:04.888  FAULT host 0 of slice 2 is slow for 1800.0 s",
    "   3:00:02.492  FAULT slice 3 will be preempted in 60.0 s",
    "   3:44:35.323  FAULT rank 56 on host 2 of slice 3 stands still",
];

#[test]
fn without_faults_time_goes_into_steps_and_saves() {
    let mut scenario = a_bad_day();
    scenario.faults.weights = Weights::NONE;
    let outcome = sound(simulate(&scenario, 0));
    let spent = |category| outcome.categories.of(category);
    assert_eq!(outcome.restarts, 0);
    // Start and messages; then a second every ten minutes.
    let start = spent(Category::Restart).as_secs_f64();
    assert!((45.0..45.1).contains(&start), "{start}");
    let saves = spent(Category::Checkpoint).as_secs();
    assert!((140..=144).contains(&saves), "{saves}");
    let rest = spent(Category::Waiting) + spent(Category::Detection);
    assert!(rest < Duration::from_millis(10), "{rest:?}");
    let (wall, others) = (outcome.wall.as_secs_f64(), start + saves as f64);
    assert!((outcome.goodput() - (1.0 - others / wall)).abs() < 1e-4);
}

#[test]
fn a_run_that_reaches_its_last_step_is_complete_and_saved() {
    let mut scenario = a_bad_day();
    scenario.model.steps = Some(1000);
    let outcome = sound(simulate(&scenario, 1));
    assert_eq!(outcome.verdict, Some(Verdict::Completed));
    assert_eq!((outcome.steps, outcome.committed), (1000, 1000));
}

#[test]
fn where_slices_take_long_to_boot_it_is_better_to_shrink_than_to_wait_and_best_to_have_a_spare() {
    let wait = sound(losing_slices(Policy::Wait, 0));
    let shrink = sound(losing_slices(Policy::Shrink, 0));
    let spare = sound(losing_slices(Policy::Shrink, 1));
    let goodput = [wait.goodput(), shrink.goodput(), spare.goodput()];
    assert!(goodput.is_sorted() && goodput[0] + 0.02 < goodput[1], "{goodput:?}");
    assert_eq!((wait.shrinks, shrink.grows > 5), (0, true));
    let waited = wait.categories.of(Category::Waiting).as_secs();
    let lost = wait.faults[&FaultKind::LoseSlice];
    assert!(waited > 600 * (lost - 1), "{waited} s for {lost} slices");
}

#[test]
fn beats_that_are_not_sent_change_nothing() {
    for seed in 0..15 {
        let mut scenario = a_bad_day();
        scenario.horizon = 2 * HOUR;
        scenario.faults.mtbf = Duration::from_secs(120);
        scenario.faults.cut_for = Duration::from_secs(3);
        scenario.model.boot = Duration::from_secs(100);
        scenario.faults.weights = Weights::default().with(FaultKind::CutHost, 50.0);
        let implied = sound(simulate(&scenario, seed));
        scenario.model.beats = Beats::Sent;
        let sent = sound(simulate(&scenario, seed));
        for (implied, sent) in implied.history.iter().zip(&sent.history) {
            assert_eq!(implied, sent, "seed {seed}");
        }
        assert_eq!(implied, sent, "seed {seed}");
    }
}

#[test]
fn a_hang_is_found_by_the_progress_that_is_missing() {
    let mut scenario = a_bad_day();
    scenario.faults.weights = Weights::NONE.with(FaultKind::HangRank, 1.0);
    // A hang in a save, or in the step after it, has a limit of its own.
    (scenario.model.saves, scenario.settings.saves) = (None, false);
    let outcome = sound(simulate(&scenario, 5));
    let hangs = outcome.faults[&FaultKind::HangRank];
    let detection = outcome.categories.of(Category::Detection).as_secs_f64() / hangs as f64;
    // Ten times the usual ten seconds, of which a part is the step that was under way.
    assert!((80.0..110.0).contains(&detection), "{detection} s");
    assert!(outcome.history.iter().any(|entry| entry.text.contains("its process is stopped")));
}

#[test]
fn thousands_of_hosts_are_cut_off_and_come_back() {
    let mut scenario = Scenario::new(4, 256, 12 * HOUR);
    scenario.settings.policy = Policy::Shrink;
    scenario.settings.budgets.infrastructure = 100;
    scenario.faults.weights = Weights::NONE.with(FaultKind::CutSlice, 1.0);
    scenario.faults.mtbf = HOUR;
    let outcome = sound(simulate(&scenario, 2));
    assert!(outcome.restarts >= 4, "{outcome:?}");
}
