//! What will happen, in the order of virtual time.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::time::Duration;

/// What will happen; of two things at one instant, first the one that was planned first.
#[derive(Debug)]
pub(super) struct Queue<T> {
    heap: BinaryHeap<Reverse<Planned<T>>>,
    next: u64,
}

#[derive(Debug)]
struct Planned<T> {
    at: Duration,
    number: u64,
    what: T,
}

impl<T> Queue<T> {
    pub(super) fn new() -> Self {
        Self { heap: BinaryHeap::new(), next: 0 }
    }

    pub(super) fn push(&mut self, at: Duration, what: T) {
        self.heap.push(Reverse(Planned { at, number: self.next, what }));
        self.next += 1;
    }

    /// When the next thing happens.
    pub(super) fn next_at(&self) -> Option<Duration> {
        self.heap.peek().map(|Reverse(planned)| planned.at)
    }

    pub(super) fn pop(&mut self) -> Option<T> {
        self.heap.pop().map(|Reverse(planned)| planned.what)
    }
}

impl<T> Planned<T> {
    fn key(&self) -> (Duration, u64) {
        (self.at, self.number)
    }
}

impl<T> PartialEq for Planned<T> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<T> Eq for Planned<T> {}

impl<T> PartialOrd for Planned<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Planned<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}
