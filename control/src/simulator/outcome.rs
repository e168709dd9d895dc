//! What came of a simulation.

use std::collections::BTreeMap;
use std::time::Duration;

use super::account::{Categories, Category};
use super::faults::FaultKind;
use crate::{Decision, Reason, Verdict};

/// What came of a simulation.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Outcome {
    /// How long it went on: to the end of the run or to the horizon.
    pub wall: Duration,
    /// What that time was spent on.
    pub categories: Categories,
    /// Faults that came, by kind.
    pub faults: BTreeMap<FaultKind, u64>,
    /// Generations after the first.
    pub restarts: u64,
    /// How often the run went on with fewer slices.
    pub shrinks: u64,
    /// How often it stopped to go on with more.
    pub grows: u64,
    /// Steps that count at the end.
    pub steps: u64,
    /// The last step that the persistent tier has.
    pub committed: u64,
    /// How the run ended, if it did.
    pub verdict: Option<Verdict>,
    /// What happened.
    pub history: Vec<Entry>,
    /// Laws of the control plane that were broken: mistakes of it, or of the simulator.
    pub violations: Vec<String>,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// When.
    pub at: Duration,
    /// What.
    pub text: String,
    /// How many more like it followed.
    pub more: u64,
    /// What kind of decision it was; `None` for a fault.
    pub decision: Option<Decision>,
}

impl Outcome {
    /// The share of the time that became progress, at the speed of all slices.
    pub fn goodput(&self) -> f64 {
        match self.wall.as_secs_f64() {
            0.0 => 0.0,
            wall => self.categories.of(Category::Productive).as_secs_f64() / wall,
        }
    }

    /// How many faults there were.
    pub fn fault_count(&self) -> u64 {
        self.faults.values().sum()
    }

    pub(super) fn note(&mut self, at: Duration, text: impl Into<String>) {
        self.history.push(Entry { at, text: text.into(), more: 0, decision: None });
    }

    pub(super) fn decided(&mut self, at: Duration, reason: Reason) {
        let Reason { decision, text } = reason;
        match decision {
            Decision::Shrink => self.shrinks += 1,
            Decision::Grow => self.grows += 1,
            _ => {}
        }
        // Hundreds of hosts come and go within a second, and a run that waits says so every minute.
        const AT_ONCE: Duration = Duration::from_secs(1);
        if let Some(last) = self.history.last_mut()
            && last.decision == Some(decision)
            && (last.text == text || decision == Decision::Membership && at < last.at + AT_ONCE)
        {
            last.more += 1;
            return;
        }
        self.history.push(Entry { at, text, more: 0, decision: Some(decision) });
    }

    pub(super) fn violate(&mut self, at: Duration, text: impl Into<String>) {
        // One is enough to go by.
        const MOST: usize = 10;
        if self.violations.len() < MOST {
            self.violations.push(format!("{:.3} s: {}", at.as_secs_f64(), text.into()));
        }
    }
}

impl std::fmt::Display for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let seconds = self.at.as_secs();
        let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
        let rest = self.at.as_secs_f64() - (seconds - seconds % 60) as f64;
        write!(f, "{hours:>4}:{minutes:02}:{rest:06.3}  ")?;
        if self.decision.is_none() {
            f.write_str("FAULT ")?;
        }
        f.write_str(&self.text)?;
        if self.more > 0 {
            write!(f, " (and {} more)", self.more)?;
        }
        Ok(())
    }
}
