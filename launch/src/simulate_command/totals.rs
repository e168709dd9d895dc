//! One history or several of a policy, added up.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use titan_control::Verdict;
use titan_control::simulator::{Category, Entry, FaultKind, Outcome};

use super::args::PolicyArg;

/// What came of a policy.
pub(super) struct Totals {
    pub(super) policy: PolicyArg,
    pub(super) wall: f64,
    categories: BTreeMap<Category, f64>,
    pub(super) faults: BTreeMap<FaultKind, u64>,
    pub(super) restarts: u64,
    pub(super) shrinks: u64,
    pub(super) grows: u64,
    pub(super) steps: u64,
    goodputs: Vec<f64>,
    /// How the first run ended that did not go on to the end, and when.
    pub(super) ended: Option<(Duration, String)>,
    pub(super) violations: Vec<String>,
    /// Of the first history.
    pub(super) history: Vec<Entry>,
}

impl Totals {
    /// Adds up outcomes, of which there is at least one.
    pub(super) fn new(policy: PolicyArg, outcomes: Vec<Outcome>) -> Self {
        let mut totals = Self {
            policy,
            wall: 0.0,
            categories: BTreeMap::new(),
            faults: BTreeMap::new(),
            restarts: 0,
            shrinks: 0,
            grows: 0,
            steps: 0,
            goodputs: Vec::new(),
            ended: None,
            violations: Vec::new(),
            history: Vec::new(),
        };
        for outcome in outcomes {
            totals.add(outcome);
        }
        totals
    }

    fn add(&mut self, outcome: Outcome) {
        self.wall += outcome.wall.as_secs_f64();
        for category in Category::ALL {
            let seconds = outcome.categories.of(category).as_secs_f64();
            *self.categories.entry(category).or_default() += seconds;
        }
        for (kind, count) in &outcome.faults {
            *self.faults.entry(*kind).or_default() += count;
        }
        self.restarts += outcome.restarts;
        self.shrinks += outcome.shrinks;
        self.grows += outcome.grows;
        self.steps += outcome.steps;
        if let Some(verdict) = &outcome.verdict {
            self.ended.get_or_insert_with(|| (outcome.wall, in_words(verdict)));
        }
        if self.goodputs.is_empty() {
            self.history.clone_from(&outcome.history);
        }
        self.goodputs.push(outcome.goodput());
        self.violations.extend(outcome.violations);
    }

    pub(super) fn goodput(&self) -> f64 {
        self.share(Category::Productive)
    }

    /// The share of the time that went into a category.
    pub(super) fn share(&self, category: Category) -> f64 {
        self.seconds(category) / self.wall.max(f64::MIN_POSITIVE)
    }

    fn seconds(&self, category: Category) -> f64 {
        self.categories.get(&category).copied().unwrap_or_default()
    }

    pub(super) fn steps_per_day(&self) -> f64 {
        self.steps as f64 / self.wall.max(f64::MIN_POSITIVE) * 86_400.0
    }

    /// The worst and the best history.
    pub(super) fn range(&self) -> (f64, f64) {
        let least = self.goodputs.iter().copied().fold(f64::INFINITY, f64::min);
        (least, self.goodputs.iter().copied().fold(0.0, f64::max))
    }

    /// What cost most, if anything did.
    pub(super) fn worst(&self) -> Option<Category> {
        let costs = Category::ALL.into_iter().filter(|c| *c != Category::Productive);
        let worst = costs.max_by(|a, b| self.seconds(*a).total_cmp(&self.seconds(*b)))?;
        (self.seconds(worst) > 0.0).then_some(worst)
    }

    /// As `--json` has it.
    pub(super) fn json(&self, seed: u64, tokens_per_step: u64) -> Value {
        let categories: BTreeMap<&str, f64> =
            self.categories.iter().map(|(c, seconds)| (c.name(), *seconds)).collect();
        let failures: BTreeMap<&str, u64> =
            self.faults.iter().map(|(kind, count)| (kind.name(), *count)).collect();
        let ended =
            self.ended.as_ref().map(|(at, why)| json!({ "seconds": at.as_secs_f64(), "why": why }));
        json!({
            "policy": self.policy.name(),
            "seed": seed,
            "goodput": self.goodput(),
            "goodputs": self.goodputs,
            "wall_seconds": self.wall,
            "categories": categories,
            "failures": failures,
            "restarts": self.restarts,
            "shrinks": self.shrinks,
            "grows": self.grows,
            "steps": self.steps,
            "tokens_per_day": self.steps_per_day() * tokens_per_step as f64,
            "ended": ended,
        })
    }
}

fn in_words(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Completed => "all steps are done".to_owned(),
        Verdict::Stopped { by, .. } => format!("{by} asked it to stop"),
        Verdict::Failed { failures, cause, why } => match failures.get(*cause) {
            Some(failure) => format!("{failure}; {why}"),
            None => why.clone(),
        },
        Verdict::Absent { seats, waited } => {
            format!("{} hosts were not there after {} s", seats.len(), waited.as_secs())
        }
    }
}
