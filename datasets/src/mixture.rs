//! Which source a sample comes from: a pure function of its place in the run.
//!
//! Sources are the leaves of a binary tree, and each node deals out the places that reach it between its two sides, in
//! the proportion of their weights: of the first `n` places, `round(n * left / (left + right))` go to the left. So a
//! place goes left if that number grows with it, its place on that side is the number itself, and nothing has to be
//! counted or kept. The places of a source come in order and without a gap, and after any number of samples the part of
//! each source is within one sample per level of the tree of its exact share.

use crate::{Error, Result};

/// Weights are taken as whole parts of this.
pub const PARTS: u64 = 1 << 32;

/// Sources by weight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mixture {
    /// Parts of all sources before each, and [`PARTS`] at the end.
    before: Vec<u64>,
}

impl Mixture {
    /// A mixture of one source for each weight.
    ///
    /// # Errors
    /// There is no weight, or one is so small that no run would ever see its source.
    pub fn new(weights: &[f64]) -> Result<Self> {
        if weights.is_empty() {
            return Err(Error::NoFiles);
        }
        let total: f64 = weights.iter().sum();
        let exact: Vec<f64> = weights.iter().map(|w| w / total * PARTS as f64).collect();
        let mut parts: Vec<u64> = exact.iter().map(|share| share.floor() as u64).collect();
        // The parts that rounding down has left go to those that lost most by it; the earlier one wins a tie.
        let mut by_loss: Vec<usize> = (0..exact.len()).collect();
        by_loss.sort_by(|a, b| exact[*b].fract().total_cmp(&exact[*a].fract()));
        let left = PARTS.saturating_sub(parts.iter().sum());
        for source in by_loss.into_iter().cycle().take(left as usize) {
            parts[source] += 1;
        }
        if let Some(source) = parts.iter().position(|parts| *parts == 0) {
            let (source_number, weight) = (source + 1, weights[source]);
            return Err(Error::SmallWeight { source_number, weight, total });
        }
        let mut before = vec![0];
        before.extend(parts.iter().scan(0, |sum, parts| {
            *sum += parts;
            Some(*sum)
        }));
        Ok(Self { before })
    }

    /// The number of sources.
    pub fn sources(&self) -> usize {
        self.before.len() - 1
    }

    /// The share of a source, in parts of [`PARTS`].
    pub fn parts(&self, source: usize) -> u64 {
        self.before[source + 1] - self.before[source]
    }

    /// The share of a source, from 0 to 1.
    pub fn share(&self, source: usize) -> f64 {
        self.parts(source) as f64 / PARTS as f64
    }

    /// The source of place `global` of the run, and the place in that source.
    pub fn locate(&self, global: u64) -> (usize, u64) {
        let (mut first, mut end, mut place) = (0, self.sources(), global);
        while end - first > 1 {
            let middle = first.midpoint(end);
            let left = self.before[middle] - self.before[first];
            let all = self.before[end] - self.before[first];
            let to_the_left = dealt(place, left, all);
            if dealt(place + 1, left, all) > to_the_left {
                (end, place) = (middle, to_the_left);
            } else {
                (first, place) = (middle, place - to_the_left);
            }
        }
        (first, place)
    }
}

/// `round(places * left / all)`, with halves rounded up. It grows by 0 or 1 with each place, since `left <= all`.
fn dealt(places: u64, left: u64, all: u64) -> u64 {
    let (left, all) = (u128::from(left), u128::from(all));
    // Below `places + 1`, so it fits.
    ((2 * u128::from(places) * left + all) / (2 * all)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sources(weights: &[f64], count: u64) -> Vec<usize> {
        let mixture = Mixture::new(weights).unwrap();
        (0..count).map(|global| mixture.locate(global).0).collect()
    }

    #[test]
    fn a_weight_that_no_sample_would_follow_is_refused() {
        let error = Mixture::new(&[1.0, 1e-12]).unwrap_err().to_string();
        assert!(error.contains("source 2"), "{error}");
        assert!(Mixture::new(&[1.0, 1e-9]).is_ok());
        assert!(matches!(Mixture::new(&[]), Err(Error::NoFiles)));
    }

    #[test]
    fn golden_mixtures() {
        // A resumed run relies on these: a change of them is a new version of the order.
        assert_eq!(sources(&[2.0], 3), [0, 0, 0]);
        assert_eq!(sources(&[1.0, 1.0], 6), [0, 1, 0, 1, 0, 1]);
        assert_eq!(sources(&[3.0, 1.0], 8), [0, 0, 1, 0, 0, 0, 1, 0]);
        assert_eq!(sources(&[0.5, 0.3, 0.2], 10), [0, 1, 0, 2, 0, 1, 0, 2, 0, 1]);
        let mixture = Mixture::new(&[0.7, 0.2, 0.1]).unwrap();
        assert_eq!(mixture.locate(u64::MAX - 1), (1, 3_689_348_813_882_916_863));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100))]

        /// Every place of every source is visited once and in order, and shares are met all the time.
        #[test]
        fn each_source_is_visited_in_order_and_in_its_share(
            weights in prop::collection::vec(0.001f64..10.0, 1..9),
            count in 1u64..5_000,
        ) {
            let mixture = Mixture::new(&weights).unwrap();
            let levels = (weights.len() as f64).log2().ceil() + 1.0;
            let mut seen = vec![0; weights.len()];
            for global in 0..count {
                let (source, place) = mixture.locate(global);
                prop_assert_eq!(place, seen[source]);
                seen[source] += 1;
                for (source, seen) in seen.iter().enumerate() {
                    let exact = (global + 1) as f64 * mixture.share(source);
                    prop_assert!((*seen as f64 - exact).abs() <= levels, "{} of {}", seen, exact);
                }
            }
            let parts: u64 = (0..weights.len()).map(|source| mixture.parts(source)).sum();
            prop_assert_eq!(parts, PARTS);
        }

        #[test]
        fn places_anywhere_are_where_their_neighbours_leave_them(
            weights in prop::collection::vec(0.001f64..10.0, 1..9),
            start in 0..u64::MAX - 100,
        ) {
            let mixture = Mixture::new(&weights).unwrap();
            let mut next: Vec<Option<u64>> = vec![None; weights.len()];
            for global in start..start + 100 {
                let (source, place) = mixture.locate(global);
                prop_assert!(next[source].is_none_or(|next| next == place));
                next[source] = Some(place + 1);
            }
        }
    }
}
