//! What goes wrong, and how often.

use std::time::Duration;

use serde::Serialize;

use super::random::Random;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// A rank is killed.
    KillRank,
    /// A rank stands still, as after SIGSTOP.
    HangRank,
    /// A host is slow for a while.
    SlowHost,
    /// A host is cut off for a while: no message reaches or leaves it.
    CutHost,
    /// A slice is cut off for a while.
    CutSlice,
    /// The machines of a slice vanish, and come back when they have booted.
    LoseSlice,
    /// The machines of a slice say that they will be gone, and are after the notice.
    Preemption,
    /// The disk of a host is full: the next save fails.
    FullDisk,
    /// The store takes and gives nothing for a while.
    StorageOutage,
}

impl FaultKind {
    /// All.
    pub const ALL: [Self; 9] = [
        Self::KillRank,
        Self::HangRank,
        Self::SlowHost,
        Self::CutHost,
        Self::CutSlice,
        Self::LoseSlice,
        Self::Preemption,
        Self::FullDisk,
        Self::StorageOutage,
    ];

    /// The name, as in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::KillRank => "kill_rank",
            Self::HangRank => "hang_rank",
            Self::SlowHost => "slow_host",
            Self::CutHost => "cut_host",
            Self::CutSlice => "cut_slice",
            Self::LoseSlice => "lose_slice",
            Self::Preemption => "preemption",
            Self::FullDisk => "full_disk",
            Self::StorageOutage => "storage_outage",
        }
    }
}

/// How often each kind comes, in parts of their sum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Weights([f64; 9]);

impl Weights {
    /// None at all.
    pub const NONE: Self = Self([0.0; 9]);

    /// With this weight of one kind.
    #[must_use]
    pub fn with(mut self, kind: FaultKind, weight: f64) -> Self {
        self.0[kind as usize] = weight;
        self
    }

    /// The weight of a kind.
    pub fn of(&self, kind: FaultKind) -> f64 {
        self.0[kind as usize]
    }

    /// The sum.
    pub fn total(&self) -> f64 {
        self.0.iter().sum()
    }

    fn pick(&self, share: f64) -> Option<FaultKind> {
        let mut rest = share * self.total();
        let weighted = FaultKind::ALL.into_iter().filter(|kind| self.of(*kind) > 0.0);
        let mut last = None;
        for kind in weighted {
            last = Some(kind);
            rest -= self.of(kind);
            if rest < 0.0 {
                break;
            }
        }
        last
    }
}

impl Default for Weights {
    /// Of 419 unexpected interruptions of Llama 3's training on 16,384 GPUs (arXiv 2407.21783, table 5) about four in five
    /// were hardware, one in eight software and one in twelve network. On a TPU, hardware that fails takes its slice along.
    /// A full disk ends a run, which says more of its disks than of its policy: it is left out.
    fn default() -> Self {
        Self::NONE
            .with(FaultKind::KillRank, 35.0)
            .with(FaultKind::LoseSlice, 30.0)
            .with(FaultKind::HangRank, 10.0)
            .with(FaultKind::SlowHost, 8.0)
            .with(FaultKind::CutHost, 6.0)
            .with(FaultKind::CutSlice, 2.0)
            .with(FaultKind::Preemption, 6.0)
            .with(FaultKind::StorageOutage, 3.0)
    }
}

/// What goes wrong, and how often.
#[derive(Clone, Debug, PartialEq)]
pub struct Faults {
    /// Mean time between faults of the whole run; they come at random (exponentially distributed).
    pub mtbf: Duration,
    /// The mix.
    pub weights: Weights,
    /// None come later.
    pub until: Duration,
    /// How many times as long a step takes with a slow host.
    pub slow_factor: f64,
    /// How long a host is slow.
    pub slow_for: Duration,
    /// How long somebody is cut off, on average.
    pub cut_for: Duration,
    /// How long a store is away.
    pub outage: Duration,
    /// The notice before machines are preempted.
    pub notice: Duration,
}

impl Default for Faults {
    fn default() -> Self {
        let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
        Self {
            mtbf: minutes(180),
            weights: Weights::default(),
            until: Duration::MAX,
            slow_factor: 1.5,
            slow_for: minutes(30),
            cut_for: minutes(1),
            outage: minutes(10),
            notice: minutes(1),
        }
    }
}

/// A fault, before it is known whom it strikes: the same for all policies.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fault {
    pub(super) kind: FaultKind,
    /// Shares that the slice, the host and the rank are chosen by.
    pub(super) slice: f64,
    pub(super) host: f64,
    pub(super) rank: f64,
    /// How long it lasts, if it does.
    pub(super) lasts: Duration,
}

/// Draws the next fault and how long it is until then.
pub(super) fn draw(faults: &Faults, random: &mut Random) -> Option<(Duration, Fault)> {
    let after = random.exponential(faults.mtbf);
    let kind = faults.weights.pick(random.unit());
    let (slice, host, rank) = (random.unit(), random.unit(), random.unit());
    // Drawn in any case, so that a fault never changes those after it.
    let cut_for = random.exponential(faults.cut_for);
    let kind = kind?;
    let lasts = match kind {
        FaultKind::SlowHost => faults.slow_for,
        FaultKind::CutHost | FaultKind::CutSlice => cut_for,
        FaultKind::StorageOutage => faults.outage,
        FaultKind::Preemption => faults.notice,
        _ => Duration::ZERO,
    };
    Some((after, Fault { kind, slice, host, rank, lasts }))
}
