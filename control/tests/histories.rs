//! Ten thousand failure histories: whatever happens to a run, some things never do.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::time::Duration;

use titan_control::simulator::{
    FaultKind, Faults, Interval, Model, Outcome, Saves, Scenario, Weights, simulate,
};
use titan_control::{Backoff, Budgets, Limits, Policy, Settings, StepLimit, Verdict};

/// How many.
const HISTORIES: u64 = 10_000;

fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

/// Small numbers from a seed: a multiplicative generator is enough to choose scenarios.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }

    fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }
}

/// A small run in a bad world, until an hour and then in a good one.
fn scenario(seed: u64) -> Scenario {
    let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0xD1CE);
    for _ in 0..4 {
        dice.below(2);
    }
    let slices = dice.one_of(&[1, 2, 2, 3, 4, 6, 16]);
    let hosts_per_slice = if slices == 16 { 1 } else { dice.one_of(&[1, 1, 2, 3]) };
    let usable = match dice.below(3) {
        0 => vec![slices],
        1 => (1..=slices).collect(),
        _ => (1..=slices).filter(|n: &u32| slices.is_multiple_of(*n)).collect(),
    };
    let step = seconds(dice.one_of(&[0.5, 3.0, 3.0, 8.0, 90.0]));
    let limits = Limits {
        lease: Some(seconds(dice.one_of(&[1.5, 3.0]))),
        boot: seconds(300.0),
        absence: seconds(600.0),
        start: seconds(120.0),
        first_step: seconds(1800.0),
        step: StepLimit::Usual { times: 10, least: seconds(60.0) },
        save: seconds(120.0),
        drain: seconds(dice.one_of(&[10.0, 30.0])),
        regroup: seconds(dice.one_of(&[5.0, 60.0])),
        ..Limits::default()
    };
    let settings = Settings {
        slices,
        hosts_per_slice,
        usable,
        policy: dice.one_of(&[Policy::Wait, Policy::Shrink]),
        limits,
        budgets: Budgets { infrastructure: dice.one_of(&[0, 3, 20, 1000]), application: 2 },
        backoff: Backoff::default(),
        saves: true,
        ..Settings::one_host()
    };
    let interval = match dice.below(2) {
        0 => Interval::Steps(dice.one_of(&[1, 4, 20])),
        _ => Interval::Time(seconds(60.0)),
    };
    let saves = Saves {
        interval,
        local_steps: dice.one_of(&[None, Some(1), Some(3)]),
        blocked: seconds(0.5),
        commit: seconds(dice.one_of(&[2.0, 8.0])),
        local_commit: seconds(1.0),
    };
    let model = Model {
        step,
        steps: Some(dice.one_of(&[5, 40, 200]).min((1800.0 / step.as_secs_f64()) as u64)),
        saves: (dice.below(20) > 0).then_some(saves),
        start: seconds(2.0),
        load: seconds(3.0),
        load_local: seconds(1.0),
        jitter: seconds(dice.one_of(&[0.0, 0.02, 0.4])),
        boot: seconds(dice.one_of(&[1.0, 60.0, 250.0, 900.0])),
        ..Model::default()
    };
    let mut weights = Weights::NONE;
    for kind in FaultKind::ALL {
        weights = weights.with(kind, dice.one_of(&[0.0, 1.0, 1.0, 4.0]));
    }
    weights = weights.with(FaultKind::FullDisk, dice.one_of(&[0.0, 0.0, 0.3]));
    let faults = Faults {
        mtbf: seconds(dice.one_of(&[10.0, 40.0, 200.0])),
        weights,
        until: seconds(3600.0),
        slow_factor: dice.one_of(&[1.5, 4.0]),
        slow_for: seconds(60.0),
        cut_for: seconds(dice.one_of(&[2.0, 10.0])),
        outage: seconds(40.0),
        notice: seconds(dice.one_of(&[5.0, 60.0])),
    };
    Scenario {
        spares: dice.one_of(&[0, 0, 1]),
        late: dice.one_of(&[0, 0, 0, 1, 2]),
        ranks_per_host: dice.one_of(&[1, 2]),
        stop_at: (dice.below(10) == 0).then(|| seconds(dice.below(3600) as f64)),
        settings,
        model,
        faults,
        // Without faults every run is over long before.
        horizon: seconds(3600.0 * 24.0),
    }
}

/// What is wrong with a history.
fn complaints(outcome: &Outcome) -> Vec<String> {
    let mut complaints = outcome.violations.clone();
    if outcome.verdict.is_none() {
        complaints.push("it never came to an end".to_owned());
    }
    if outcome.categories.total() != outcome.wall {
        complaints.push("the categories are not the wall time".to_owned());
    }
    if let Some(Verdict::Failed { failures, cause, why }) = &outcome.verdict
        && (failures.get(*cause).is_none() || why.is_empty())
    {
        complaints.push("it failed without a reason".to_owned());
    }
    complaints
}

#[test]
fn no_history_breaks_a_law() {
    let mut ends = [0_u64; 4];
    for seed in 0..HISTORIES {
        let scenario = scenario(seed);
        let outcome = simulate(&scenario, seed);
        let complaints = complaints(&outcome);
        if !complaints.is_empty() {
            let from = outcome.history.len().saturating_sub(60);
            let history: Vec<String> =
                outcome.history[from..].iter().map(ToString::to_string).collect();
            panic!("seed {seed}: {complaints:#?}\n{}\n{scenario:#?}", history.join("\n"));
        }
        let end = match outcome.verdict.unwrap() {
            Verdict::Completed => 0,
            Verdict::Stopped { .. } => 1,
            Verdict::Failed { .. } => 2,
            Verdict::Absent { .. } => 3,
        };
        ends[end] += 1;
    }
    // The scenarios are bad enough, and not too bad.
    assert!(ends.iter().all(|count| *count > HISTORIES / 200), "{ends:?}");
}
