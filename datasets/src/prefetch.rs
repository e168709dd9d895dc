//! Reading ahead, so that a step does not wait for the disk.

use std::ops::Range;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use crate::{Error, Loader, Result};

/// The tokens of one step.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    /// The step, from 0.
    pub step: u64,
    /// In shape `[A, B, T + 1]`, see [`Loader::fill`].
    pub tokens: Vec<i32>,
    /// The time the caller waited for it; near 0 while reading is faster than training.
    pub wait_seconds: f64,
}

/// Gives the batches of a range of steps in order, read by a thread of its own.
///
/// It is an iterator that ends after the last step or after the first error.
/// Dropping it stops the thread and waits until the read in progress has ended.
#[derive(Debug)]
pub struct Prefetcher {
    /// `None` only while dropping: the thread ends when its channel closes.
    batches: Option<Receiver<Result<Vec<i32>>>>,
    thread: Option<JoinHandle<()>>,
    /// Still to be given.
    steps: Range<u64>,
}

impl Prefetcher {
    /// Begins to read the batches of `rank` in `steps`, and keeps up to `depth` of them ready (at
    /// least 1).
    pub fn start(loader: Loader, rank: u64, steps: Range<u64>, depth: usize) -> Result<Self> {
        // The thread holds one more batch, finished, while the channel is full.
        let (sender, batches) = sync_channel(depth.saturating_sub(1));
        let range = steps.clone();
        let thread = thread::Builder::new()
            .name("titan-data".to_owned())
            .spawn(move || read_ahead(&loader, rank, range, &sender))
            .map_err(Error::PrefetchStart)?;
        Ok(Self { batches: Some(batches), thread: Some(thread), steps })
    }
}

impl Iterator for Prefetcher {
    type Item = Result<Batch>;

    fn next(&mut self) -> Option<Self::Item> {
        let step = self.steps.next()?;
        let start = Instant::now();
        let received = self.batches.as_ref()?.recv();
        let wait_seconds = start.elapsed().as_secs_f64();
        // A closed channel here is a panic of the thread: without this it would look like the end
        // of the run.
        let result = received.unwrap_or(Err(Error::PrefetchStopped { step }));
        if result.is_err() {
            self.steps = 0..0;
        }
        Some(result.map(|tokens| Batch { step, tokens, wait_seconds }))
    }
}

impl Drop for Prefetcher {
    fn drop(&mut self) {
        self.batches = None;
        if let Some(thread) = self.thread.take() {
            // A panic in the thread was reported by `next`, or nobody waits for its batches any
            // more.
            let _ = thread.join();
        }
    }
}

fn read_ahead(
    loader: &Loader,
    rank: u64,
    steps: Range<u64>,
    sender: &SyncSender<Result<Vec<i32>>>,
) {
    for step in steps {
        let mut tokens = vec![0; loader.batch_len()];
        let result = loader.fill(step, rank, &mut tokens).map(|()| tokens);
        let failed = result.is_err();
        // A closed channel means that no more batches are wanted.
        if sender.send(result).is_err() || failed {
            return;
        }
    }
}

#[cfg(test)]
#[cfg(feature = "prepare")]
mod tests {
    use super::*;
    use crate::testing::Shards;
    use crate::{BatchPlan, LoaderConfig};

    fn shards() -> Shards {
        Shards::of_text(
            40,
            &["Now is the winter of our discontent", "Made glorious summer by this sun of York"],
        )
    }

    fn loader(shards: &Shards) -> Loader {
        let plan = BatchPlan {
            global_batch: 4,
            accumulation: 1,
            data_parallel_degree: 2,
            local_batch: 2,
            first_step: 0,
            first_sample: 0,
        };
        let sources = vec![shards.source(1.0)];
        Loader::open(&LoaderConfig { sources, sequence_length: 5, seed: 1, plan }).unwrap()
    }

    #[test]
    fn batches_come_in_order_and_end() {
        let folder = shards();
        let direct = loader(&folder);
        for depth in [0, 1, 2, 100] {
            let mut steps = 3..40;
            for batch in Prefetcher::start(loader(&folder), 1, steps.clone(), depth).unwrap() {
                let batch = batch.unwrap();
                assert_eq!(Some(batch.step), steps.next());
                assert!(batch.wait_seconds >= 0.0);
                let mut tokens = vec![0; direct.batch_len()];
                direct.fill(batch.step, 1, &mut tokens).unwrap();
                assert_eq!(batch.tokens, tokens);
            }
            assert!(steps.is_empty());
        }
    }

    #[test]
    fn an_empty_range_has_no_batches() {
        assert!(Prefetcher::start(loader(&shards()), 0, 7..7, 2).unwrap().next().is_none());
    }

    #[test]
    fn dropping_ends_the_thread() {
        // Without reading, and with the channel full: a thread that is not told to stop would hang
        // the test.
        let folder = shards();
        let prefetcher = Prefetcher::start(loader(&folder), 0, 0..u64::MAX, 2).unwrap();
        drop(prefetcher);
        let mut prefetcher = Prefetcher::start(loader(&folder), 0, 0..1_000_000, 2).unwrap();
        prefetcher.next().unwrap().unwrap();
        drop(prefetcher);
    }

    #[test]
    fn an_error_comes_after_the_good_batches_and_is_the_end() {
        let folder = shards();
        let mut prefetcher = Prefetcher::start(loader(&folder), 0, 0..1_000_000, 1).unwrap();
        prefetcher.next().unwrap().unwrap();
        // The stream keeps the file open, so that it sees the change.
        let tokens = folder.file("train-00000.tokens");
        std::fs::File::options().write(true).open(tokens).unwrap().set_len(1).unwrap();
        let mut steps = 1;
        let error = loop {
            match prefetcher.next().unwrap() {
                Ok(batch) => assert_eq!(batch.step, steps),
                Err(error) => break error,
            }
            steps += 1;
        };
        assert!(
            matches!(&error, Error::Changed { path, found: 1, .. } if path.starts_with(folder.path())),
            "{error}"
        );
        assert!(steps < 100);
        assert!(prefetcher.next().is_none());
    }

    #[test]
    fn a_wrong_rank_is_the_first_result() {
        let mut prefetcher = Prefetcher::start(loader(&shards()), 2, 0..3, 2).unwrap();
        assert!(matches!(prefetcher.next(), Some(Err(Error::Misuse { value: 2, .. }))));
        assert!(prefetcher.next().is_none());
    }

    #[test]
    fn a_thread_that_dies_is_an_error_and_not_the_end() {
        let (sender, batches) = sync_channel(1);
        sender.send(Ok(vec![1])).unwrap();
        drop(sender);
        let mut prefetcher = Prefetcher { batches: Some(batches), thread: None, steps: 5..9 };
        assert_eq!(prefetcher.next().unwrap().unwrap().step, 5);
        assert!(matches!(prefetcher.next(), Some(Err(Error::PrefetchStopped { step: 6 }))));
        assert!(prefetcher.next().is_none());
    }
}
