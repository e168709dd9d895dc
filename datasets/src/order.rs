//! The order of samples: a permutation that is computed, not stored.
//!
//! An epoch's order must look random, use no memory however large the data, and give the sample at
//! any index without those before it, so that a run can start anywhere. A Feistel network does
//! that: it is a permutation of the numbers of an even count of bits whatever its round function
//! is, and here the round function is a keyed hash. For 0..n, the network is as wide as n needs,
//! and numbers outside 0..n are sent through again until one falls inside (cycle walking); this
//! stays a permutation, and at least a quarter of the numbers is inside for n above 64.
//!
//! Narrow networks are far from random, so the width is never below [`MIN_HALF_BITS`] twice. A
//! small n then walks longer, 10 microseconds at most, and its orders are as good as those
//! of a large one: the tests compare n of 2 to 5 with the uniform distribution over all n! orders,
//! and the places and neighbours of samples for n from 7 on.
//!
//! The round keys come from (seed, epoch) through the finaliser of splitmix64, a bijection of 64
//! bits that flips each output bit with probability close to one half when one input bit changes.
//! So neighbouring seeds and epochs, which are the usual ones, have unrelated orders.

use std::num::NonZeroU64;

/// The version of the order. Resuming is only exact if the order is the one that the run began
/// with: a change of anything in this module that changes an order must raise this number.
pub const ORDER_VERSION: u32 = 1;

/// A Feistel network is close to random after few rounds if it is wide, but needs more if it is
/// narrow.
const ROUNDS: u64 = 12;

/// Half of the narrowest network: 256 numbers.
const MIN_HALF_BITS: u32 = 4;

/// 2^64 divided by the golden ratio, odd: the step of splitmix64.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// The order of the samples of all epochs, a pure function of (seed, epoch, index).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    seed: u64,
    samples: u64,
    half_bits: u32,
}

impl Order {
    /// The order of `samples` samples that `seed` gives.
    pub fn new(seed: u64, samples: NonZeroU64) -> Self {
        let bits = u64::BITS - (samples.get() - 1).leading_zeros();
        Self { seed, samples: samples.get(), half_bits: bits.div_ceil(2).max(MIN_HALF_BITS) }
    }

    /// The number of samples of an epoch.
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// The sample at place `index` of an epoch.
    ///
    /// # Panics
    /// If `index` is not below the number of samples.
    pub fn sample(&self, epoch: u64, index: u64) -> u64 {
        assert!(index < self.samples, "index {index} of {} samples", self.samples);
        let key = mix(mix(self.seed.wrapping_add(GOLDEN)).wrapping_add(epoch.wrapping_mul(GOLDEN)));
        let mut number = index;
        loop {
            number = self.permute(key, number);
            if number < self.samples {
                return number;
            }
        }
    }

    /// One pass through the network, a permutation of the numbers of `2 * half_bits` bits.
    fn permute(&self, key: u64, number: u64) -> u64 {
        let mask = (1 << self.half_bits) - 1;
        let (mut left, mut right) = (number >> self.half_bits, number & mask);
        for round in 1..=ROUNDS {
            let round_key = mix(key.wrapping_add(round.wrapping_mul(GOLDEN)));
            let hash = mix(round_key ^ right);
            // The high bits of a product depend on all bits of its factors.
            (left, right) = (right, left ^ (hash >> (u64::BITS - self.half_bits)));
        }
        left << self.half_bits | right
    }
}

/// The finaliser of splitmix64.
pub(crate) fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
#[path = "order_tests.rs"]
mod tests;
