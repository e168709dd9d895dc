//! Laws of the loader: whatever the number of ranks, the same samples in the same steps.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::batch::tests::any_plan;
use crate::shards::DataKind;
use crate::testing::Shards;
use crate::{Cursor, OrderIdentity, SampleId};

fn plan(accumulation: u64, data_parallel_degree: u64, local_batch: u64) -> BatchPlan {
    BatchPlan {
        global_batch: accumulation * data_parallel_degree * local_batch,
        accumulation,
        data_parallel_degree,
        local_batch,
        first_step: 0,
        first_sample: 0,
    }
}

fn config(shards: &[&Shards], weights: &[f64], length: u64, plan: BatchPlan) -> LoaderConfig {
    let sources =
        shards.iter().zip(weights).map(|(shards, weight)| shards.source(*weight)).collect();
    LoaderConfig { sources, sequence_length: length, seed: 7, plan }
}

/// The rows of a step over all ranks, in the order of their places.
fn rows(config: &LoaderConfig, step: u64) -> Vec<Vec<i32>> {
    let loader = Loader::open(config).unwrap();
    let plan = config.plan;
    let ranks: Vec<Vec<i32>> = (0..plan.data_parallel_degree)
        .map(|rank| {
            let mut tokens = vec![0; loader.batch_len()];
            loader.fill(step, rank, &mut tokens).unwrap();
            tokens
        })
        .collect();
    let row = config.sequence_length as usize + 1;
    let per_micro = plan.local_batch as usize * row;
    let mut rows = Vec::new();
    for micro in 0..plan.accumulation as usize {
        for tokens in &ranks {
            let part = &tokens[micro * per_micro..(micro + 1) * per_micro];
            rows.extend(part.chunks(row).map(<[i32]>::to_vec));
        }
    }
    rows
}

#[test]
fn rows_are_the_samples_of_the_order() {
    let shards = Shards::counting(1001);
    let config = config(&[&shards], &[1.0], 10, plan(2, 2, 5));
    let loader = Loader::open(&config).unwrap();
    let order = crate::Order::new(7, std::num::NonZeroU64::new(100).unwrap());
    for step in 0..12 {
        for (place, row) in rows(&config, step).into_iter().enumerate() {
            let global = step * 20 + place as u64;
            let sample = order.sample(global / 100, global % 100);
            let first = sample as i32 * 10;
            assert_eq!(row, Vec::from_iter(first..=first + 10));
            assert_eq!(
                loader.samples().locate(global),
                SampleId { source: 0, epoch: global / 100, sample }
            );
        }
    }
}

#[test]
fn splits_of_one_source_are_one_stream() {
    let parts = [Shards::of_text(4, &["0123", "45", "6"]), Shards::of_text(100, &["789abc"])];
    let mut config = config(&[&parts[0]], &[1.0], 3, plan(1, 1, 1));
    config.sources[0].splits.push(parts[1].split());
    let loader = Loader::open(&config).unwrap();
    let text: Vec<u8> = (0..4)
        .flat_map(|sample| {
            let mut row = [0; 4];
            loader.samples().read(SampleId { source: 0, epoch: 0, sample }, &mut row).unwrap();
            row[..3].iter().map(|token| *token as u8).collect::<Vec<u8>>()
        })
        .collect();
    assert_eq!(text, b"0123456789ab");
    let account = loader.samples().account();
    assert_eq!(
        (account.documents, account.tokens_in, account.trained_per_epoch, account.remainder),
        (4, 13, 12, 1)
    );
}

#[test]
fn tokens_that_are_not_learned_are_marked_across_bytes_and_shards() {
    let documents: Vec<(Vec<u32>, Vec<u32>)> =
        (0..40).map(|n| ((0..n % 7).collect(), (100..100 + n % 5 + 1).collect())).collect();
    for shard_tokens in [1, 9, 1000] {
        let shards = Shards::new(DataKind::Instruction, 300, shard_tokens, &documents);
        let loader = Loader::open(&config(&[&shards], &[1.0], 8, plan(1, 1, 1))).unwrap();
        assert!(loader.samples().is_masked());
        let expected: Vec<i32> = documents
            .iter()
            .flat_map(|(prompt, response)| {
                let prompt = prompt.iter().map(|id| !(*id as i32));
                prompt.chain(response.iter().map(|id| *id as i32))
            })
            .collect();
        for sample in 0..loader.samples().samples_of(0) {
            let mut row = [0; 9];
            loader.samples().read(SampleId { source: 0, epoch: 0, sample }, &mut row).unwrap();
            assert_eq!(row, expected[sample as usize * 8..][..9]);
        }
    }
}

#[test]
fn too_little_of_one_source_is_said_with_its_name() {
    let (large, small) = (Shards::counting(1000), Shards::counting(20));
    let config = config(&[&large, &small], &[1.0, 1.0], 10, plan(1, 1, 8));
    let error = Loader::open(&config).unwrap_err().to_string();
    assert!(error.contains(&small.path().display().to_string()), "{error}");
    assert!(error.contains("one step takes from it 4 different samples"), "{error}");
    let error = Loader::open(&LoaderConfig { sources: vec![], ..config }).unwrap_err();
    assert!(matches!(error, Error::NoFiles));
}

#[test]
fn arguments_outside_the_plan_are_refused() {
    let shards = Shards::counting(1001);
    let late = BatchPlan { first_step: 5, first_sample: 100, ..plan(1, 2, 5) };
    let loader = Loader::open(&config(&[&shards], &[1.0], 10, late)).unwrap();
    let mut tokens = vec![0; loader.batch_len()];
    loader.fill(5, 1, &mut tokens).unwrap();
    for (step, rank, len) in [(4, 0, 55), (5, 2, 55), (5, 0, 54), (u64::MAX, 0, 55)] {
        let error = loader.fill(step, rank, &mut vec![0; len]).unwrap_err();
        assert!(matches!(error, Error::Misuse { .. }), "{error}");
    }
}

#[test]
fn a_cursor_names_what_has_changed() {
    let then = OrderIdentity::new(1, 10, vec![("a".to_owned(), 65536)]);
    let text = serde_json::to_string(&Cursor { samples: 7, order: then.clone() }).unwrap();
    let back: Cursor = serde_json::from_str(&text).unwrap();
    assert_eq!((back.samples, &back.order), (7, &then));
    assert!(then.differences(&then).is_empty());
    let now = OrderIdentity::new(2, 10, vec![("b".to_owned(), 1)]);
    assert_eq!(
        then.differences(&now),
        [
            "training.seed was 1 and is 2",
            "the content of source 1 is another",
            "the weight of source 1 is another"
        ]
    );
}

/// A world of a leg: (accumulation, data-parallel degree) of a global batch of 8 with two rows per rank at most.
fn any_world() -> impl Strategy<Value = (u64, u64, u64)> {
    prop::sample::select(vec![(1, 4, 2), (2, 2, 2), (4, 1, 2), (1, 8, 1), (8, 1, 1), (2, 4, 1)])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Over whole epochs each sample of each source is trained on equally often, whatever the plan.
    #[test]
    fn shares_are_disjoint_and_complete(plan in any_plan(), samples in 1u32..40, epochs in 1u64..4) {
        let samples = samples.max(plan.global_batch as u32);
        let shards = Shards::counting(samples * 3 + 2);
        let config = config(&[&shards], &[1.0], 3, plan);
        let steps = u64::from(samples) * epochs * plan.global_batch / gcd(u64::from(samples), plan.global_batch)
            / plan.global_batch;
        let mut seen: BTreeMap<i32, u64> = BTreeMap::new();
        for step in 0..steps {
            for row in rows(&config, step) {
                *seen.entry(row[0] / 3).or_default() += 1;
            }
        }
        let each = steps * plan.global_batch / u64::from(samples);
        prop_assert_eq!(seen.len(), samples as usize);
        prop_assert!(seen.values().all(|count| *count == each));
    }

    /// Legs on worlds of any size see exactly the samples of one run, in the same order.
    #[test]
    fn legs_of_any_worlds_are_one_run(
        legs in prop::collection::vec((any_world(), 0u64..4), 2..6),
        weights in prop::collection::vec(0.1f64..2.0, 1..4),
    ) {
        let shards: Vec<Shards> = (0..weights.len() as u32).map(|n| Shards::counting(50 + 31 * n)).collect();
        let sources: Vec<&Shards> = shards.iter().collect();
        let total: u64 = legs.iter().map(|(_, steps)| steps).sum();
        let whole = config(&sources, &weights, 3, plan(1, 4, 2));
        let expected: Vec<Vec<i32>> = (0..total).flat_map(|step| rows(&whole, step)).collect();
        let mut found = Vec::new();
        let (mut step, mut samples) = (0, 0);
        for ((accumulation, ranks, local_batch), steps) in legs {
            let plan =
                BatchPlan { first_step: step, first_sample: samples, ..plan(accumulation, ranks, local_batch) };
            let leg = config(&sources, &weights, 3, plan);
            for leg_step in step..step + steps {
                found.extend(rows(&leg, leg_step));
            }
            step += steps;
            samples = plan.samples_before(step);
        }
        prop_assert_eq!(found, expected);
    }

    /// A later leg with another batch goes on with the very next sample.
    #[test]
    fn another_batch_goes_on_with_the_next_sample(first in any_plan(), second in any_plan(), steps in 0u64..4) {
        let shards = Shards::counting(3 * 200 + 1);
        let first = config(&[&shards], &[1.0], 3, first);
        let mut found: Vec<Vec<i32>> = (0..steps).flat_map(|step| rows(&first, step)).collect();
        let plan = BatchPlan { first_step: steps, first_sample: first.plan.samples_before(steps), ..second };
        found.extend(rows(&config(&[&shards], &[1.0], 3, plan), steps));
        let one = config(&[&shards], &[1.0], 3, plan_of_one());
        let expected: Vec<Vec<i32>> = (0..found.len() as u64).flat_map(|step| rows(&one, step)).collect();
        prop_assert_eq!(found, expected);
    }
}

fn plan_of_one() -> BatchPlan {
    plan(1, 1, 1)
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}
