//! How long idle OpenMP threads of a worker spin for their next work, in place of sleeping.
//!
//! A training step is thousands of short parallel sections. On a quiet machine spinning as long as OpenMP does by
//! default makes a step of a second 6 to 15 % faster than sleeping does; beside one other busy process it makes it
//! half as fast, and among several ten times slower. Spinning for a fifteenth of that costs a tenth beside another
//! process, and gains half of what there is to gain on a quiet machine. (Measured on two cores, a model of 34 M.)

use std::fs;
use std::time::Duration;

/// The short spin, in the units of `GOMP_SPINCOUNT`.
const SHORT: &str = "20000";

/// Share of the machine above which it counts as busy.
const BUSY: f64 = 0.1;

/// Long enough to see ten ticks of the kernel's clock on each core.
const LOOK: Duration = Duration::from_millis(100);

/// The value of `GOMP_SPINCOUNT` for a worker with so many threads; `None` leaves OpenMP's own.
pub(super) fn count(threads: u64) -> Option<&'static str> {
    // A single thread waits for nobody.
    if threads < 2 { None } else { decide(others_busy()) }
}

/// `busy` is the share of the machine that is at work before there is a worker, if it is known.
fn decide(busy: Option<f64>) -> Option<&'static str> {
    if busy.is_some_and(|busy| busy < BUSY) { None } else { Some(SHORT) }
}

/// The busy share of all cores over a moment in which this process sleeps.
fn others_busy() -> Option<f64> {
    let before = ticks(&fs::read_to_string("/proc/stat").ok()?)?;
    std::thread::sleep(LOOK);
    let after = ticks(&fs::read_to_string("/proc/stat").ok()?)?;
    let (busy, all) = (after.0.checked_sub(before.0)?, after.1.checked_sub(before.1)?);
    (all > 0).then(|| busy as f64 / all as f64)
}

/// Busy and all ticks of all cores since the machine started: `cpu user nice system idle iowait irq softirq steal ..`.
fn ticks(stat: &str) -> Option<(u64, u64)> {
    let fields = stat.lines().next()?.strip_prefix("cpu ")?.split_whitespace().take(8);
    let fields: Vec<u64> = fields.map(str::parse).collect::<Result<_, _>>().ok()?;
    let all: u64 = fields.iter().sum();
    Some((all.checked_sub(fields.get(3)? + fields.get(4)?)?, all))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod tests {
    use super::*;

    #[test]
    fn threads_spin_long_only_where_nothing_else_computes() {
        assert_eq!(decide(Some(0.02)), None);
        assert_eq!(decide(Some(0.5)), Some(SHORT));
        assert_eq!(decide(None), Some(SHORT), "what is not known is not hoped for");
        assert_eq!(count(1), None);
    }

    #[test]
    fn idle_and_waiting_ticks_are_not_busy() {
        let stat = "cpu  10 1 5 100 20 2 3 4 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n";
        assert_eq!(ticks(stat), Some((25, 145)));
        assert_eq!(ticks("intr 1 2 3"), None);
        let busy = others_busy().unwrap();
        assert!((0.0..=1.0).contains(&busy), "{busy}");
    }
}
