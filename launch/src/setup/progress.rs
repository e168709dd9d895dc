//! How a set-up tells what it is doing. The caller renders it: as a bar, as plain lines or as JSON.

use std::time::{Duration, Instant};

/// Receives what happens. Called from the thread that runs the set-up.
pub(crate) trait Progress {
    /// A new phase begins, named by what is being done: `downloading packages`.
    fn phase(&self, name: &str);
    /// How far the phase is; `fraction` is between 0 and 1 where the end is known.
    fn update(&self, message: &str, fraction: Option<f64>);
    /// Something the user should see even after the phase is over, such as a warning.
    fn note(&self, text: &str);
}

/// Lets an action pass at most once in an interval, so that progress costs nothing and does not flicker.
pub(super) struct Throttle {
    interval: Duration,
    last: Option<Instant>,
}

impl Throttle {
    pub(super) fn new(interval: Duration) -> Self {
        Self { interval, last: None }
    }

    /// Whether the action is due now; the first time it always is.
    pub(super) fn due(&mut self) -> bool {
        self.due_at(Instant::now())
    }

    fn due_at(&mut self, now: Instant) -> bool {
        let due = self.last.is_none_or(|last| now.duration_since(last) >= self.interval);
        if due {
            self.last = Some(now);
        }
        due
    }

    /// Makes the interval at least this long.
    pub(super) fn slow_down(&mut self, interval: Duration) {
        self.interval = self.interval.max(interval);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_action_passes_once_in_an_interval() {
        let mut throttle = Throttle::new(Duration::from_millis(250));
        let start = Instant::now();
        let passed: Vec<u64> = (0..1_000)
            .step_by(100)
            .filter(|ms| throttle.due_at(start + Duration::from_millis(*ms)))
            .collect();
        assert_eq!(passed, [0, 300, 600, 900]);
    }
}
