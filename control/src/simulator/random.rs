//! Numbers drawn from a seed.

use std::time::Duration;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// A stream of numbers.
#[derive(Clone, Debug)]
pub(super) struct Random(ChaCha8Rng);

impl Random {
    /// One of the streams of a seed, each independent of the others.
    pub(super) fn new(seed: u64, stream: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(stream);
        Self(rng)
    }

    /// From 0 to below 1.
    pub(super) fn unit(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Exponentially distributed: the time to the next of events that come at random.
    pub(super) fn exponential(&mut self, mean: Duration) -> Duration {
        // A century is no different from never.
        const LONGEST: f64 = 3e9;
        let seconds = -mean.as_secs_f64() * (1.0 - self.unit()).ln();
        Duration::from_secs_f64(seconds.clamp(0.0, LONGEST))
    }

    /// Up to `most`.
    pub(super) fn up_to(&mut self, most: Duration) -> Duration {
        if most.is_zero() { most } else { most.mul_f64(self.unit()) }
    }
}

/// The index that a share from 0 to below 1 falls on.
pub(super) fn pick(share: f64, count: usize) -> Option<usize> {
    (count > 0).then(|| ((share * count as f64) as usize).min(count - 1))
}
