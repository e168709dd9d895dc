//! Which source a sample comes from: a pure function of its place in the run.
//!
//! Places are taken in blocks of [`BLOCK`]. In each block a source has the number of slots that its weight gives it, the
//! same in every block, and the slots are put in the pseudo-random order of an [`Order`] whose epoch is the number of
//! the block. So shares are exact after every block, no counter has to be kept, and the place of a sample in its source
//! follows from the place in the run alone: slot `s` of block `b` is place `b * slots + s - first slot` of its source.

use std::num::NonZeroU64;

use crate::{Error, Order, Result};

/// Places of one block; a share is a multiple of its inverse.
pub const BLOCK: u64 = 1 << 16;

/// Sources by weight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mixture {
    /// The first slot of each source, and [`BLOCK`] at the end.
    first_slots: Vec<u64>,
    order: Order,
}

impl Mixture {
    /// A mixture of one source for each weight.
    ///
    /// # Errors
    /// A weight is so small that its source would have no sample in a block.
    pub fn new(seed: u64, weights: &[f64]) -> Result<Self> {
        let total: f64 = weights.iter().sum();
        let exact: Vec<f64> = weights.iter().map(|w| w / total * BLOCK as f64).collect();
        let mut slots: Vec<u64> = exact.iter().map(|share| share.floor() as u64).collect();
        // The slots that rounding down has left go to those that lost most by it; the earlier one wins a tie.
        let mut by_loss: Vec<usize> = (0..exact.len()).collect();
        by_loss.sort_by(|a, b| exact[*b].fract().total_cmp(&exact[*a].fract()));
        let left = BLOCK.saturating_sub(slots.iter().sum());
        for source in by_loss.into_iter().cycle().take(left as usize) {
            slots[source] += 1;
        }
        if let Some(source) = slots.iter().position(|slots| *slots == 0) {
            return Err(Error::SmallWeight {
                source_number: source + 1,
                weight: weights[source],
                total,
            });
        }
        let mut first_slots = vec![0];
        for slots in slots {
            first_slots.push(first_slots.last().copied().unwrap_or(0) + slots);
        }
        // Unlike the order inside any source, which takes the seed as it is or mixes in the number of the source.
        let seed = crate::order::mix(seed ^ 0x006d_6978_7475_7265);
        let block = NonZeroU64::new(BLOCK).unwrap_or(NonZeroU64::MIN);
        Ok(Self { first_slots, order: Order::new(seed, block) })
    }

    /// The number of sources.
    pub fn sources(&self) -> usize {
        self.first_slots.len() - 1
    }

    /// The share of a source, from 0 to 1.
    pub fn share(&self, source: usize) -> f64 {
        (self.first_slots[source + 1] - self.first_slots[source]) as f64 / BLOCK as f64
    }

    /// The source of place `global` of the run, and the place in that source.
    pub fn locate(&self, global: u64) -> (usize, u64) {
        if self.sources() == 1 {
            return (0, global);
        }
        let block = global / BLOCK;
        let slot = self.order.sample(block, global % BLOCK);
        let source = self.first_slots.partition_point(|first| *first <= slot) - 1;
        let (first, next) = (self.first_slots[source], self.first_slots[source + 1]);
        (source, block * (next - first) + slot - first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_weight_that_no_sample_would_follow_is_refused() {
        let error = Mixture::new(0, &[1.0, 1e-9]).unwrap_err().to_string();
        assert!(error.contains("source 2"), "{error}");
        assert!(Mixture::new(0, &[1.0, 2e-5]).is_ok());
    }

    #[test]
    fn one_source_is_read_as_it_is() {
        let mixture = Mixture::new(3, &[0.25]).unwrap();
        assert_eq!(mixture.locate(12_345_678_901), (0, 12_345_678_901));
    }

    #[test]
    fn another_seed_is_another_order_and_shares_stay() {
        let [a, b] = [1, 2].map(|seed| Mixture::new(seed, &[3.0, 1.0]).unwrap());
        assert_ne!(
            Vec::from_iter((0..100).map(|g| a.locate(g).0)),
            Vec::from_iter((0..100).map(|g| b.locate(g).0))
        );
        for mixture in [a, b] {
            assert_eq!(mixture.share(0), 0.75);
            // Far from a block's end too, no stretch is all of one source.
            let first = (0..1000).filter(|g| mixture.locate(*g).0 == 0).count();
            assert!((680..820).contains(&first), "{first}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(12))]
        /// Every place of every source is visited once, and in the order of blocks.
        #[test]
        fn each_source_is_visited_without_gap_or_repeat(
            seed in any::<u64>(),
            weights in prop::collection::vec(0.01f64..10.0, 1..6),
            blocks in 1u64..3,
        ) {
            let mixture = Mixture::new(seed, &weights).unwrap();
            let mut seen: Vec<Vec<u64>> = vec![Vec::new(); weights.len()];
            for global in 0..blocks * BLOCK {
                let (source, place) = mixture.locate(global);
                seen[source].push(place);
            }
            let total: f64 = weights.iter().sum();
            for (source, mut places) in seen.into_iter().enumerate() {
                let count = places.len() as u64;
                places.sort_unstable();
                prop_assert!(places.into_iter().eq(0..count));
                let share = weights[source] / total;
                prop_assert!((count as f64 / (blocks * BLOCK) as f64 - share).abs() <= 1.0 / BLOCK as f64);
                prop_assert_eq!(count as f64 / (blocks * BLOCK) as f64, mixture.share(source));
            }
        }
    }
}
