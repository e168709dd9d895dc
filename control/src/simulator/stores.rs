//! What has been saved, and where.

use std::collections::BTreeMap;
use std::time::Duration;

/// The copies of a run's state.
#[derive(Debug, Default)]
pub(super) struct Stores {
    /// The last step that the persistent tier has.
    persistent: u64,
    /// The last step that the local tier of a slice has.
    local: BTreeMap<u32, u64>,
    /// Until when the persistent tier takes and gives nothing.
    away_until: Duration,
}

/// Which copy a generation loads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Copy {
    pub(super) step: u64,
    pub(super) is_local: bool,
}

impl Stores {
    pub(super) fn persistent(&self) -> u64 {
        self.persistent
    }

    /// Whether the persistent tier has taken it: it never goes back.
    pub(super) fn commit(&mut self, step: u64) -> bool {
        let is_news = step > self.persistent;
        self.persistent = self.persistent.max(step);
        is_news
    }

    pub(super) fn commit_locally(&mut self, slices: &[u32], step: u64) {
        self.local.extend(slices.iter().map(|slice| (*slice, step)));
    }

    /// The memory of a slice is gone.
    pub(super) fn forget(&mut self, slice: u32) {
        self.local.remove(&slice);
    }

    /// The newest copy that some of these slices have, or the persistent tier.
    pub(super) fn newest(&self, slices: &[u32]) -> Copy {
        let local = slices.iter().filter_map(|slice| self.local.get(slice)).max();
        match local {
            Some(step) if *step >= self.persistent && *step > 0 => {
                Copy { step: *step, is_local: true }
            }
            _ => Copy { step: self.persistent, is_local: false },
        }
    }

    pub(super) fn go_away(&mut self, until: Duration) {
        self.away_until = self.away_until.max(until);
    }

    pub(super) fn is_away(&self, now: Duration) -> bool {
        now < self.away_until
    }
}
