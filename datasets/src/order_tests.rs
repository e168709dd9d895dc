use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

fn order(seed: u64, samples: u64) -> Order {
    Order::new(seed, NonZeroU64::new(samples).unwrap())
}

fn epoch(order: &Order, epoch: u64) -> Vec<u64> {
    (0..order.samples()).map(|index| order.sample(epoch, index)).collect()
}

/// The order is a contract with every run that may be resumed. If this test fails, do not change
/// the values: undo the change, or raise `ORDER_VERSION` and refuse to resume runs of the old one.
#[test]
fn golden_orders() {
    assert_eq!(ORDER_VERSION, 1);
    let first = |seed, samples, epoch, count: u64| -> Vec<u64> {
        (0..count).map(|index| order(seed, samples).sample(epoch, index)).collect()
    };
    assert_eq!(first(0, 1, 0, 1), [0]);
    assert_eq!(first(0, 8, 0, 8), [1, 2, 6, 7, 3, 4, 0, 5]);
    assert_eq!(first(0, 8, 1, 8), [7, 5, 1, 6, 4, 2, 3, 0]);
    assert_eq!(first(1, 8, 0, 8), [1, 3, 2, 6, 0, 4, 7, 5]);
    assert_eq!(first(0, 4373, 0, 8), [245, 3711, 3383, 3475, 3978, 2859, 118, 3659]);
    assert_eq!(
        first(42, 1_000_000_007, 3, 6),
        [283303641, 970965364, 552666297, 164767396, 831487838, 350568573]
    );
    assert_eq!(
        first(u64::MAX, u64::MAX, u64::MAX, 3),
        [8168569254461372840, 11841113973148210452, 3955746058117731067]
    );
}

/// How far counts are from equal chances, in standard deviations (about; from a chi-squared test).
///
/// Each of `trials` hits each of the `cells` with the given chance; cells that were never hit may
/// be left out of `counts`.
fn deviation(counts: impl Iterator<Item = u64>, cells: u64, trials: u64, chance: f64) -> f64 {
    let expected = trials as f64 * chance;
    let mut hit = 0;
    let squares = counts.inspect(|_| hit += 1).map(|n| (n as f64 - expected).powi(2));
    let sum = squares.sum::<f64>() / expected + (cells - hit) as f64 * expected;
    let mean = cells as f64 * (1.0 - chance);
    (sum - mean) / (2.0 * mean).sqrt()
}

#[test]
fn small_orders_are_uniform() {
    for samples in [2, 3, 4, 5] {
        let orders = (1..=samples).product::<u64>();
        let trials = 6_000;
        // Over epochs of one seed, and over seeds in one epoch: both are neighbouring numbers.
        for by_seed in [false, true] {
            let mut counts: HashMap<Vec<u64>, u64> = HashMap::new();
            for number in 0..trials {
                let (seed, epoch_number) = if by_seed { (number, 0) } else { (0, number) };
                *counts.entry(epoch(&order(seed, samples), epoch_number)).or_default() += 1;
            }
            let found = deviation(counts.into_values(), orders, trials, 1.0 / orders as f64);
            assert!(found.abs() < 4.0, "n {samples}, by seed {by_seed}: {found:.2}");
        }
    }
}

#[test]
fn places_and_neighbours_are_uniform() {
    for samples in [7, 8, 16, 17, 64, 65, 130] {
        let trials = 20 * samples;
        let mut places: HashMap<(usize, u64), u64> = HashMap::new();
        let mut neighbours: HashMap<(u64, u64), u64> = HashMap::new();
        for number in 0..trials {
            let order = epoch(&order(3, samples), number);
            for (place, &sample) in order.iter().enumerate() {
                *places.entry((place, sample)).or_default() += 1;
                *neighbours.entry((sample, order[(place + 1) % order.len()])).or_default() += 1;
            }
        }
        let n = samples as f64;
        let found = deviation(places.into_values(), samples * samples, trials, 1.0 / n);
        assert!(found.abs() < 4.0, "places, n {samples}: {found:.2}");
        let pairs = samples * (samples - 1);
        let found = deviation(neighbours.into_values(), pairs, trials, 1.0 / (n - 1.0));
        assert!(found.abs() < 4.0, "neighbours, n {samples}: {found:.2}");
    }
}

#[test]
fn neighbouring_seeds_and_epochs_have_unrelated_orders() {
    let samples = 1000;
    let base = epoch(&order(5, samples), 5);
    // Two random orders agree in one place on average.
    let agree = |other: Vec<u64>| base.iter().zip(other).filter(|(a, b)| **a == *b).count();
    for distance in 1..=5 {
        for (seed, number) in [(5, 5 + distance), (5 + distance, 5), (5 + distance, 5 + distance)] {
            assert!(agree(epoch(&order(seed, samples), number)) < 8);
        }
        // Sums of seed and epoch that are equal must not be the same order.
        assert!(agree(epoch(&order(5 + distance, samples), 5 - distance)) < 8);
    }
}

/// Walking must end soon even where the network is widest for its n.
#[test]
fn one_above_a_power_of_four_is_not_slow() {
    let samples = (1 << 40) + 1;
    let order = order(1, samples);
    let sum: u64 = (0..10_000).map(|index| order.sample(0, index * 104_857) >> 30).sum();
    // The mean of random samples is half of the number of samples.
    assert!((sum as f64 / 10_000.0 - 512.0).abs() < 15.0);
}

proptest! {
    #[test]
    fn an_epoch_has_every_sample_once(seed: u64, number: u64, samples in 1u64..600) {
        let mut found = epoch(&order(seed, samples), number);
        found.sort_unstable();
        prop_assert!(found.into_iter().eq(0..samples));
    }

    #[test]
    fn large_orders_stay_inside_and_do_not_collide(
        seed: u64,
        number: u64,
        samples in 1u64..,
        place: u64,
    ) {
        let order = order(seed, samples);
        let (a, b) = (place % samples, (place ^ 1) % samples);
        let (sample_a, sample_b) = (order.sample(number, a), order.sample(number, b));
        prop_assert!(sample_a < samples && sample_b < samples);
        prop_assert_eq!(sample_a == sample_b, a == b);
    }

    #[test]
    fn seeds_and_epochs_differ(seed: u64, number: u64, bit in 0u32..64, samples in 40u64..200) {
        let base = epoch(&order(seed, samples), number);
        prop_assert_ne!(&base, &epoch(&order(seed ^ (1 << bit), samples), number));
        prop_assert_ne!(&base, &epoch(&order(seed, samples), number ^ (1 << bit)));
    }
}
