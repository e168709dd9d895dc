//! What a run wants, and what it puts up with.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What a run wants, and what it puts up with.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Slices that the run is meant for.
    pub slices: u32,
    /// Hosts of each.
    pub hosts_per_slice: u32,
    /// Numbers of slices that the global batch can be spread over, ascending; `slices` is the last.
    pub usable: Vec<u32>,
    /// What to do when slices are missing.
    pub policy: Policy,
    /// How long things may take.
    pub limits: Limits,
    /// How often the run is started again.
    pub budgets: Budgets,
    /// How long the run waits before it is started again.
    pub backoff: Backoff,
    /// When a machine is not used any more.
    pub quarantine: Quarantine,
    /// Whether the run saves checkpoints: progress is then what has been saved.
    pub saves: bool,
}

/// What to do when slices are missing and no spare is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    /// Wait for them.
    Wait,
    /// Go on with fewer, each of which takes more micro-steps; and with more again when they are back.
    Shrink,
}

/// How long things may take.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// A host that was not heard of for this long is gone. `None` where the agent lives in this process.
    pub lease: Option<Duration>,
    /// How long the first start waits for all slices, if it could do with fewer.
    pub boot: Duration,
    /// How long a run waits for slices that it cannot do without.
    pub absence: Duration,
    /// From the order to start until all ranks are ready.
    pub start: Duration,
    /// Until the first step is done.
    pub first_step: Duration,
    /// Until the next step is done.
    pub step: StepLimit,
    /// A save that training waits for.
    pub save: Duration,
    /// From the order to stop until all ranks have ended: the grace.
    pub drain: Duration,
    /// From the order to kill until the host has confirmed it.
    pub clear: Duration,
    /// After a failure that may be the consequence of another, how long that one is waited for.
    pub settle: Duration,
    /// How long hosts may take to say what their ranks are doing.
    pub evidence: Duration,
    /// How long a generation trains before it is stopped to take slices in that have come back.
    pub regroup: Duration,
}

/// How long a step may take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum StepLimit {
    /// This long.
    Fixed(Duration),
    /// As many times as long as the usual one, but at least this long.
    Usual {
        /// The multiple of the median of recent steps.
        times: u32,
        /// The least.
        least: Duration,
    },
}

/// How often a run is started again before it gives up.
#[derive(Clone, Debug, PartialEq)]
pub struct Budgets {
    /// After failures of machines, processes, the network and storage, counted from the last progress.
    pub infrastructure: u32,
    /// After failures of the program, in all.
    pub application: u32,
}

/// How long a run waits before it is started again: not at all after the first failure since there was progress, then this
/// long, and twice as long each time.
#[derive(Clone, Debug, PartialEq)]
pub struct Backoff {
    /// The first wait.
    pub first: Duration,
    /// The longest.
    pub longest: Duration,
    /// The first where a store or a disk has failed: these rarely mend in a second.
    pub storage: Duration,
}

/// When a machine is not used any more, if the run can go on without it.
#[derive(Clone, Debug, PartialEq)]
pub struct Quarantine {
    /// Failures that began on it.
    pub failures: u32,
    /// The time they must fall into.
    pub within: Duration,
    /// For how long it is not used.
    pub lasts: Duration,
}

impl Settings {
    /// A run on one host, whose agent is in this process.
    pub fn one_host() -> Self {
        Self {
            slices: 1,
            hosts_per_slice: 1,
            usable: vec![1],
            policy: Policy::Wait,
            limits: Limits { lease: None, ..Limits::default() },
            budgets: Budgets::default(),
            backoff: Backoff::default(),
            quarantine: Quarantine::default(),
            saves: false,
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            lease: Some(seconds(3)),
            boot: seconds(20 * 60),
            absence: seconds(60 * 60),
            start: seconds(30 * 60),
            first_step: seconds(30 * 60),
            step: StepLimit::Usual { times: 10, least: seconds(60) },
            save: seconds(30 * 60),
            drain: seconds(30),
            clear: seconds(5),
            settle: Duration::from_millis(700),
            evidence: seconds(3),
            regroup: seconds(60),
        }
    }
}

impl Default for Budgets {
    fn default() -> Self {
        Self { infrastructure: 5, application: 2 }
    }
}

impl Default for Backoff {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { first: seconds(1), longest: seconds(60), storage: seconds(5) }
    }
}

impl Default for Quarantine {
    fn default() -> Self {
        let hour = Duration::from_secs(3600);
        Self { failures: 3, within: hour, lasts: 4 * hour }
    }
}
