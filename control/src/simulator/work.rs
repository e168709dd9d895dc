//! What the ranks of a generation do together.

use std::time::Duration;

use super::stores::Copy;
use crate::Generation;

/// A stretch of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Task {
    Step,
    /// Training waits until the state is copied.
    Save,
    /// Ranks wait at their end until the persistent tier has their state.
    LastCommit,
}

/// What the ranks of a generation do together.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) generation: Generation,
    pub(super) slices: Vec<u32>,
    /// Hosts whose ranks are not ready yet.
    pub(super) missing: usize,
    /// What they have begun with.
    pub(super) copy: Copy,
    /// The last step that is done.
    pub(super) step: u64,
    /// When the last save to the persistent tier began.
    pub(super) saved_at: Duration,
    pub(super) is_asked_to_stop: bool,
    /// Its ranks are being killed.
    pub(super) is_over: bool,
    /// What they do: how long it takes from `since` on, or, where they stand still, how much of it is left.
    task: Option<(Task, Duration)>,
    since: Option<Duration>,
    /// How long the task takes without an interruption.
    took: Duration,
    /// Counts interruptions: what was planned before is void.
    epoch: u64,
}

impl Work {
    /// No generation.
    pub(super) fn none() -> Self {
        Self {
            generation: 0,
            slices: Vec::new(),
            missing: 0,
            copy: Copy { step: 0, is_local: false },
            step: 0,
            saved_at: Duration::ZERO,
            is_asked_to_stop: false,
            is_over: false,
            task: None,
            since: None,
            took: Duration::ZERO,
            epoch: 0,
        }
    }

    /// A new generation, whose ranks are being started.
    pub(super) fn begin(
        &mut self,
        now: Duration,
        generation: Generation,
        slices: Vec<u32>,
        hosts: usize,
        copy: Copy,
    ) {
        let epoch = self.epoch + 1;
        let (missing, step) = (hosts, copy.step);
        let none = Self::none();
        *self = Self { generation, slices, missing, copy, step, saved_at: now, epoch, ..none };
    }

    pub(super) fn task(&self) -> Option<Task> {
        self.task.map(|(task, _)| task)
    }

    pub(super) fn is_stalled(&self) -> bool {
        self.task.is_some() && self.since.is_none()
    }

    pub(super) fn epoch(&self) -> u64 {
        self.epoch
    }

    pub(super) fn took(&self) -> Duration {
        self.took
    }

    /// Begins with something; gives when it is done.
    pub(super) fn set(&mut self, now: Duration, task: Task, takes: Duration) -> Duration {
        self.epoch += 1;
        (self.task, self.since, self.took) = (Some((task, takes)), Some(now), takes);
        now + takes
    }

    /// Stands still.
    pub(super) fn pause(&mut self, now: Duration) {
        if let (Some((_, left)), Some(since)) = (&mut self.task, self.since.take()) {
            *left = left.saturating_sub(now.saturating_sub(since));
            self.epoch += 1;
        }
    }

    /// Goes on; gives when it is done.
    pub(super) fn resume(&mut self, now: Duration) -> Option<Duration> {
        let (_, left) = self.task?;
        if self.since.is_some() {
            return None;
        }
        self.epoch += 1;
        self.since = Some(now);
        Some(now + left)
    }

    /// Is done with what it did.
    pub(super) fn abandon(&mut self) {
        self.epoch += 1;
        (self.task, self.since) = (None, None);
    }
}
