//! Where the time goes: categories that partition it exactly.

use std::collections::VecDeque;
use std::time::Duration;

use serde::Serialize;

/// What time is spent on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Category {
    /// Steps that counted, as long as they take on all slices.
    Productive,
    /// What these steps took longer on fewer slices.
    Shrunk,
    /// What these steps took longer because of a slow host.
    Straggler,
    /// Steps that were done again, or never counted.
    LostSteps,
    /// Training waited for a save.
    Checkpoint,
    /// Nothing went on, and the run did not know why yet.
    Detection,
    /// Ranks were killed, started, and loaded a checkpoint.
    Restart,
    /// The run waited for slices.
    Waiting,
    /// The run waited before it tried again.
    Backoff,
}

/// How many there are.
const COUNT: usize = 9;

impl Category {
    /// All, in the order in which they are shown.
    pub const ALL: [Self; COUNT] = [
        Self::Productive,
        Self::Shrunk,
        Self::Straggler,
        Self::LostSteps,
        Self::Checkpoint,
        Self::Detection,
        Self::Restart,
        Self::Waiting,
        Self::Backoff,
    ];

    /// The name, as in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Productive => "productive",
            Self::Shrunk => "shrunk",
            Self::Straggler => "straggler",
            Self::LostSteps => "lost_steps",
            Self::Checkpoint => "checkpoint",
            Self::Detection => "detection",
            Self::Restart => "restart",
            Self::Waiting => "waiting",
            Self::Backoff => "backoff",
        }
    }
}

/// Time by category.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Categories([Duration; COUNT]);

impl Categories {
    /// The time of one.
    pub fn of(&self, category: Category) -> Duration {
        self.0[category as usize]
    }

    /// All of them.
    pub fn total(&self) -> Duration {
        self.0.iter().sum()
    }

    fn add(&mut self, category: Category, time: Duration) {
        self.0[category as usize] += time;
    }
}

/// What goes on: something of a category, or a step, whose category is known later.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Going {
    Step,
    On(Category),
}

/// A step that may still be lost.
#[derive(Clone, Copy, Debug)]
struct Pending {
    step: u64,
    productive: Duration,
    shrunk: Duration,
    straggler: Duration,
}

/// Keeps the account.
#[derive(Debug)]
pub(super) struct Account {
    since: Duration,
    going: Going,
    /// Of the step under way.
    step: Duration,
    pending: VecDeque<Pending>,
    categories: Categories,
}

impl Account {
    pub(super) fn new() -> Self {
        Self {
            since: Duration::ZERO,
            going: Going::On(Category::Waiting),
            step: Duration::ZERO,
            pending: VecDeque::new(),
            categories: Categories::default(),
        }
    }

    /// From now on something goes on.
    pub(super) fn enter(&mut self, now: Duration, going: Going) {
        let time = now.saturating_sub(self.since);
        self.since = now;
        match self.going {
            Going::Step => self.step += time,
            Going::On(category) => self.categories.add(category, time),
        }
        self.going = going;
    }

    /// A step is done that takes `full` on all slices and `here` on those of this generation.
    pub(super) fn step_done(&mut self, now: Duration, step: u64, full: Duration, here: Duration) {
        self.enter(now, self.going);
        let pending = split(step, std::mem::take(&mut self.step), full, here);
        self.pending.push_back(pending);
    }

    /// All steps up to this one can never be lost.
    pub(super) fn keep(&mut self, step: u64) {
        while self.pending.front().is_some_and(|pending| pending.step <= step) {
            if let Some(pending) = self.pending.pop_front() {
                self.count(pending);
            }
        }
    }

    /// The run goes on from a step: what came after it is lost. What came before may still be: the copy of it may be one of
    /// the local tier, which can go with its slice.
    pub(super) fn go_on_from(&mut self, now: Duration, step: u64) {
        self.enter(now, self.going);
        let mut lost = std::mem::take(&mut self.step);
        while let Some(pending) = self.pending.pop_back_if(|pending| pending.step > step) {
            lost += pending.productive + pending.shrunk + pending.straggler;
        }
        self.categories.add(Category::LostSteps, lost);
    }

    /// The end of a run whose steps all count, the one under way too.
    pub(super) fn close(mut self, now: Duration, full: Duration, here: Duration) -> Categories {
        self.enter(now, self.going);
        self.keep(u64::MAX);
        let last = split(0, self.step, full, here);
        self.count(last);
        self.categories
    }

    fn count(&mut self, pending: Pending) {
        self.categories.add(Category::Productive, pending.productive);
        self.categories.add(Category::Shrunk, pending.shrunk);
        self.categories.add(Category::Straggler, pending.straggler);
    }
}

fn split(step: u64, took: Duration, full: Duration, here: Duration) -> Pending {
    let productive = took.min(full);
    let shrunk = (took - productive).min(here.saturating_sub(full));
    Pending { step, productive, shrunk, straggler: took - productive - shrunk }
}
