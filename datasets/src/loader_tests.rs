use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::batch::tests::any_plan;
use crate::testing::Folder;

/// A folder whose stream has the numbers 0, 1, 2, .. in it, two bytes each, so that a sample says
/// where it is from. The files end in the middle of samples.
fn numbered(samples: u64) -> Folder {
    let text: Vec<u8> = (0..samples as u16).flat_map(u16::to_be_bytes).chain([0]).collect();
    let (first, second) = text.split_at(text.len() / 2);
    Folder::new(&[first, second])
}

fn open(folder: &Folder, seed: u64, plan: BatchPlan) -> Loader {
    Loader::open(&LoaderConfig { files: folder.sources(), sequence_length: 2, seed, plan }).unwrap()
}

fn one_rank(global_batch: u64) -> BatchPlan {
    BatchPlan { global_batch, accumulation: 1, data_parallel_degree: 1, local_batch: global_batch }
}

/// The numbers of the samples of a rank in a step, with the shared token checked.
fn samples(loader: &Loader, step: u64, rank: u64, total: u64) -> Vec<u64> {
    let mut tokens = vec![-1; loader.batch_len()];
    loader.fill(step, rank, &mut tokens).unwrap();
    let number = |row: &[i32]| {
        let sample = (row[0] * 256 + row[1]) as u64;
        let next = if sample + 1 == total { 0 } else { (sample as i32 + 1) / 256 };
        assert_eq!(row[2], next, "the last token of sample {sample} is the first of the next one");
        sample
    };
    tokens.chunks(3).map(number).collect()
}

fn step_of_all_ranks(loader: &Loader, step: u64, total: u64) -> Vec<u64> {
    let ranks = 0..loader.plan().data_parallel_degree;
    let mut all: Vec<u64> = ranks.flat_map(|rank| samples(loader, step, rank, total)).collect();
    all.sort_unstable();
    all
}

#[test]
fn a_batch_is_micro_steps_of_rows_of_tokens() {
    let text: Vec<u8> = (0..=120).collect();
    let folder = Folder::new(&[&text[..50], &text[50..51], &text[51..]]);
    let plan =
        BatchPlan { global_batch: 12, accumulation: 2, data_parallel_degree: 2, local_batch: 3 };
    let config = LoaderConfig { files: folder.sources(), sequence_length: 10, seed: 9, plan };
    let loader = Loader::open(&config).unwrap();
    assert_eq!(loader.batch_len(), 2 * 3 * 11);
    let mut tokens = vec![-1; loader.batch_len()];
    loader.fill(4, 1, &mut tokens).unwrap();

    let order = Order::new(9, loader.packing().enough_for(12).unwrap());
    // Step 4 begins at place 48; rank 1 has the second half of each micro-step of 6.
    let expected: Vec<i32> = [51, 52, 53, 57, 58, 59]
        .into_iter()
        .flat_map(|place| {
            let start = order.global_sample(place) as i32 * 10;
            start..=start + 10
        })
        .collect();
    assert_eq!(tokens, expected);
}

#[test]
fn misuse_is_an_error() {
    let folder = numbered(24);
    let loader = open(&folder, 0, one_rank(4));
    let mut tokens = vec![0; loader.batch_len()];
    let expect = |result: Result<()>, text: &str| assert_eq!(result.unwrap_err().to_string(), text);
    expect(
        loader.fill(0, 1, &mut tokens),
        "the data-parallel rank is 1, expected below the data-parallel degree, 1",
    );
    expect(
        loader.fill(0, 0, &mut tokens[1..]),
        "the number of tokens in the buffer of a batch is 11, expected 1 x 4 x 3 = 12",
    );
    assert!(matches!(
        loader.fill(u64::MAX, 0, &mut tokens),
        Err(Error::Misuse { what: "the step", .. })
    ));
    loader.fill(loader.plan().last_step(), 0, &mut tokens).unwrap();
}

#[test]
fn small_data_is_refused() {
    let config = LoaderConfig {
        files: numbered(24).sources(),
        sequence_length: 2,
        seed: 0,
        plan: one_rank(25),
    };
    // The folder is gone already.
    assert!(matches!(Loader::open(&config), Err(Error::Io { action: "find", .. })));
    let folder = numbered(24);
    let config = LoaderConfig { files: folder.sources(), ..config };
    let error = Loader::open(&config).unwrap_err();
    assert!(
        matches!(
            error,
            Error::TooSmall { tokens: 49, sequence_length: 2, samples: 24, global_batch: 25 }
        ),
        "{error}"
    );
    Loader::open(&LoaderConfig { plan: one_rank(24), ..config }).unwrap();
}

#[test]
fn a_lost_file_is_an_error_of_the_step_that_needs_it() {
    let folder = numbered(300);
    let loader = open(&folder, 0, one_rank(300));
    std::fs::File::options().write(true).open(folder.path(1)).unwrap().set_len(10).unwrap();
    let error = loader.fill(0, 0, &mut vec![0; loader.batch_len()]).unwrap_err();
    assert!(matches!(&error, Error::Changed { path, .. } if *path == folder.path(1)), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The samples of a step are those of one rank that takes all of them, whatever the world and
    /// accumulation.
    #[test]
    fn every_world_trains_on_the_same_samples(
        plan in any_plan(),
        more in 0u64..40,
        seed: u64,
        step in 0u64..1000,
    ) {
        let total = plan.global_batch + more;
        let folder = numbered(total);
        let all = step_of_all_ranks(&open(&folder, seed, plan), step, total);
        let mut alone = samples(&open(&folder, seed, one_rank(plan.global_batch)), step, 0, total);
        alone.sort_unstable();
        prop_assert_eq!(all, alone);
    }

    /// Over whole epochs every sample is given once per epoch, even if epochs end within steps.
    #[test]
    fn an_epoch_has_every_sample_once(plan in any_plan(), more in 0u64..40, seed: u64) {
        let total = plan.global_batch + more;
        let folder = numbered(total);
        let loader = open(&folder, seed, plan);
        // As many steps as there are samples are exactly `global_batch` epochs.
        let mut counts = BTreeMap::new();
        for step in 0..total {
            for sample in step_of_all_ranks(&loader, step, total) {
                *counts.entry(sample).or_insert(0) += 1;
            }
        }
        prop_assert!(counts.into_iter().eq((0..total).map(|sample| (sample, plan.global_batch))));
    }

    /// A loader opened at a step, perhaps in another world, continues the one that ran from the
    /// beginning.
    #[test]
    fn there_is_no_state(before in any_plan(), cut in 0u64..8, seed: u64) {
        let total = before.global_batch + 7;
        let folder = numbered(total);
        let after = one_rank(before.global_batch);
        // Each step of the run in one piece has a loader of its own.
        let whole: Vec<_> = (0..8)
            .map(|step| step_of_all_ranks(&open(&folder, seed, after), step, total))
            .collect();
        let (first, second) = (open(&folder, seed, before), open(&folder, seed, after));
        let resumed: Vec<_> = (0..8)
            .map(|step| step_of_all_ranks(if step < cut { &first } else { &second }, step, total))
            .collect();
        prop_assert_eq!(whole, resumed);
    }
}
