//! What is simulated.

use std::time::Duration;

use super::faults::Faults;
use crate::{Limits, Settings};

/// What is simulated.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// What the state machine is told.
    pub settings: Settings,
    /// Slices beyond those of the run, which are there and wait.
    pub spares: u32,
    /// How many of all these slices have to boot when the run begins; the others are there.
    pub late: u32,
    /// Ranks of each host.
    pub ranks_per_host: u64,
    /// How long things take.
    pub model: Model,
    /// What goes wrong.
    pub faults: Faults,
    /// When somebody asks the run to stop.
    pub stop_at: Option<Duration>,
    /// When the simulation ends, whatever the run does.
    pub horizon: Duration,
}

/// How long things take.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// A step on all slices. On n of N it takes N/n times as long: the global batch stays the same.
    pub step: Duration,
    /// Steps until the run is done; `None` if it goes on for ever.
    pub steps: Option<u64>,
    /// How the run saves; `None` if it does not.
    pub saves: Option<Saves>,
    /// From the order to start until ranks have a runtime and a compiled program.
    pub start: Duration,
    /// Then, until they have loaded a checkpoint of the persistent tier.
    pub load: Duration,
    /// Or one of the local tier.
    pub load_local: Duration,
    /// From the order to kill until no rank of the host is left.
    pub kill: Duration,
    /// Until an agent notices that its rank has died.
    pub notice: Duration,
    /// A message, at least.
    pub latency: Duration,
    /// What messages and starts may take longer, at random.
    pub jitter: Duration,
    /// Until the machines of a slice that vanished are back.
    pub boot: Duration,
    /// Between two beats of an agent.
    pub beat: Duration,
    /// How long before its lease is over an agent ends its ranks: more than [`Model::kill`].
    pub fence_margin: Duration,
    /// Whether beats are sent.
    pub beats: Beats,
}

/// Whether beats are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beats {
    /// Only what they bring about: the same decisions for a thousandth of the time.
    Implied,
    /// Each of them is an event.
    Sent,
}

/// How a run saves.
#[derive(Clone, Debug, PartialEq)]
pub struct Saves {
    /// How often to the persistent tier.
    pub interval: Interval,
    /// Every so many steps to the local tier of each slice.
    pub local_steps: Option<u64>,
    /// How long training waits for a save.
    pub blocked: Duration,
    /// From there until the persistent tier has it.
    pub commit: Duration,
    /// From there until the local tier has it.
    pub local_commit: Duration,
}

/// How often a run saves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Interval {
    /// After each step that this divides.
    Steps(u64),
    /// After the first step that ends so long after the last save.
    Time(Duration),
}

impl Default for Model {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        let millis = Duration::from_millis;
        Self {
            step: seconds(10),
            steps: None,
            saves: Some(Saves::default()),
            start: seconds(45),
            load: seconds(60),
            load_local: seconds(15),
            kill: millis(200),
            notice: millis(20),
            latency: millis(1),
            jitter: Duration::ZERO,
            boot: seconds(12 * 60),
            beat: millis(500),
            fence_margin: millis(500),
            beats: Beats::Implied,
        }
    }
}

impl Default for Saves {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            interval: Interval::Time(seconds(600)),
            local_steps: None,
            blocked: seconds(1),
            commit: seconds(30),
            local_commit: seconds(5),
        }
    }
}

impl Scenario {
    /// Slices of some hosts that run for a while, and whose batch can be spread over any number of them.
    pub fn new(slices: u32, hosts_per_slice: u32, horizon: Duration) -> Self {
        let settings = Settings {
            slices,
            hosts_per_slice,
            usable: (1..=slices).collect(),
            limits: Limits::default(),
            saves: true,
            ..Settings::one_host()
        };
        Self {
            settings,
            spares: 0,
            late: 0,
            ranks_per_host: 4,
            model: Model::default(),
            faults: Faults::default(),
            stop_at: None,
            horizon,
        }
    }

    /// How long a step takes on some of the slices.
    pub(super) fn step_on(&self, slices: usize) -> Duration {
        let all = self.settings.slices;
        match u32::try_from(slices) {
            Ok(slices) if slices > 0 && slices < all => self.model.step * all / slices,
            _ => self.model.step,
        }
    }
}
