//! What becomes of the files that ranks have saved: checkpoints, and fewer of the old ones.
//!
//! A thread of its own does it, one checkpoint after the other, for disks can be slow: the launcher watches its workers
//! meanwhile.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use serde_json::Value;
use titan_checkpoint::{
    Error, Fate, Found, Pin, Place, Retention, Staged, Standing, list, remove_abandoned_step,
    remove_checkpoint, verify,
};
use titan_trainer::saver::{RankSaved, SaveSpec, Tier};

use crate::exit::Exit;

/// What became of a save.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Kept {
    /// Where it went.
    pub(crate) tier: Tier,
    /// Optimizer steps that were done.
    pub(crate) step: u64,
    /// The checkpoint, or why there is none.
    pub(crate) result: Result<Committed, NotKept>,
}

/// A new checkpoint.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Committed {
    /// Where it is.
    pub(crate) place: Place,
    /// Bytes of its files.
    pub(crate) bytes: u64,
    /// Seconds that training waited: the slowest rank.
    pub(crate) blocked_seconds: f64,
    /// Seconds from the copy of the state until all files were on the disk: the slowest rank.
    pub(crate) write_seconds: f64,
    /// Seconds that it took to make a checkpoint of the files, and to check it where an older one was to go.
    pub(crate) commit_seconds: f64,
    /// Steps whose checkpoints were removed.
    pub(crate) removed: Vec<u64>,
    /// What was not removed although it is old, and why.
    pub(crate) kept_back: Option<String>,
}

/// Why there is no checkpoint.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NotKept {
    pub(crate) exit: Exit,
    pub(crate) text: String,
}

/// All files of a step.
struct Work {
    tier: Tier,
    step: u64,
    files: Vec<RankSaved>,
    run: Value,
}

/// What the thread is to do.
enum Order {
    /// To make a checkpoint.
    Keep(Work),
    /// To make room: ranks have left out some of the files of a step, which never will be one.
    Remove(Tier, u64),
}

/// Makes checkpoints of what ranks save.
pub(crate) struct Keeper {
    world: usize,
    /// Set once nothing that can wait is to be done any more.
    stop: Arc<AtomicBool>,
    waiting: BTreeMap<(Tier, u64), BTreeMap<String, RankSaved>>,
    /// What a run says about itself in the checkpoint after a step.
    describe: Box<dyn Fn(u64) -> Value>,
    work: Option<Sender<Order>>,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    /// Starts the thread; `report` is told what became of each save.
    pub(crate) fn start(
        to: SaveSpec,
        retention: Retention,
        world: usize,
        describe: Box<dyn Fn(u64) -> Value>,
        report: impl Fn(Kept) + Send + 'static,
    ) -> io::Result<Self> {
        let (work, orders) = channel::<Order>();
        let stop = Arc::new(AtomicBool::new(false));
        let maker = Maker { to, retention, stop: Arc::clone(&stop) };
        let name = "titan-checkpoint".to_owned();
        let thread = thread::Builder::new().name(name).spawn(move || {
            let mut next = orders.recv().ok();
            while let Some(order) = next.take() {
                match order {
                    Order::Keep(work) => {
                        let (tier, step) = (work.tier, work.step);
                        let committed = maker.commit(work);
                        // What is waiting comes first: old checkpoints cost nothing but room.
                        next = orders.try_recv().ok();
                        let is_idle = next.is_none();
                        report(Kept {
                            tier,
                            step,
                            result: committed.map(|new| maker.finish(new, is_idle)),
                        });
                    }
                    Order::Remove(tier, step) => maker.remove(tier, step),
                }
                next = next.or_else(|| orders.recv().ok());
            }
        })?;
        let waiting = BTreeMap::new();
        Ok(Self { world, stop, waiting, describe, work: Some(work), thread: Some(thread) })
    }

    /// Takes note that a rank has no file of a step in the local tier, and gives back what others have taken.
    pub(crate) fn lost(&mut self, step: u64) {
        self.waiting.remove(&(Tier::Local, step));
        self.order(Order::Remove(Tier::Local, step));
    }

    /// Takes one rank's report.
    pub(crate) fn add(&mut self, saved: &RankSaved) {
        let (tier, step) = (saved.tier, saved.step);
        let files = self.waiting.entry((tier, step)).or_default();
        files.insert(saved.file.name.clone(), saved.clone());
        if files.len() < self.world {
            return;
        }
        let files = self.waiting.remove(&(tier, step)).unwrap_or_default().into_values().collect();
        let is_older = |key: &&(Tier, u64)| key.0 == tier && key.1 < step;
        let older: Vec<(Tier, u64)> = self.waiting.keys().filter(is_older).copied().collect();
        self.order(Order::Keep(Work { tier, step, files, run: (self.describe)(step) }));
        for (tier, step) in older {
            // Each rank is past them.
            self.waiting.remove(&(tier, step));
            self.order(Order::Remove(tier, step));
        }
    }

    fn order(&self, order: Order) {
        if let Some(work) = &self.work {
            // The thread ends with this keeper, not before.
            let _ = work.send(order);
        }
    }

    /// Takes no more. Where somebody waits for the end, nothing is done that can wait.
    pub(crate) fn close(&mut self, is_in_a_hurry: bool) {
        self.work = None;
        if is_in_a_hurry {
            self.stop.store(true, Ordering::Relaxed);
        }
    }

    /// Whether everything is done.
    pub(crate) fn is_done(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

/// What the thread makes checkpoints with.
struct Maker {
    to: SaveSpec,
    retention: Retention,
    stop: Arc<AtomicBool>,
}

/// A checkpoint that is there, and what is still to be done for it.
struct New {
    committed: Committed,
    tier: Tier,
    run: Value,
    began: Instant,
}

impl Maker {
    fn root(&self, tier: Tier) -> &Place {
        self.to.place(tier).unwrap_or(&self.to.persistent)
    }

    fn commit(&self, work: Work) -> Result<New, NotKept> {
        let began = Instant::now();
        let Work { tier, step, files, run } = work;
        let slowest = |of: fn(&RankSaved) -> f64| files.iter().map(of).fold(0.0, f64::max);
        let blocked_seconds = slowest(|saved| saved.blocked_seconds);
        let write_seconds = slowest(|saved| saved.write_seconds);
        let bytes = files.iter().map(|saved| saved.file.bytes).sum();
        let id = run["id"].clone();
        let files = files.into_iter().map(|saved| saved.file).collect();
        let staged = Staged::adopt(self.root(tier), step, &self.to.writer);
        let place =
            staged.and_then(|staged| staged.commit(run, files)).map_err(|error| NotKept {
                exit: if error.is_no_space() { Exit::NoSpace } else { Exit::WorkersFailed },
                text: format!("no checkpoint could be made of step {step}: {error}"),
            })?;
        let (commit_seconds, removed, kept_back) = (0.0, Vec::new(), None);
        let committed = Committed {
            place,
            bytes,
            blocked_seconds,
            write_seconds,
            commit_seconds,
            removed,
            kept_back,
        };
        Ok(New { committed, tier, run: id, began })
    }

    /// Removes what the new checkpoint makes superfluous, if there is time for that.
    fn finish(&self, new: New, is_idle: bool) -> Committed {
        let New { mut committed, tier, run, began } = new;
        let root = self.root(tier);
        let retention = match tier {
            Tier::Persistent => self.retention,
            // One in memory is enough: there are others where they last.
            Tier::Local => Retention { keep_last: 1, keep_every_steps: None },
        };
        if is_idle {
            match thin_out(root, &run, retention, &committed.place, &self.stop) {
                Ok(removed) => committed.removed = removed,
                Err(_) if self.stop.load(Ordering::Relaxed) => {}
                Err(why) => committed.kept_back = Some(why),
            }
        }
        committed.commit_seconds = began.elapsed().as_secs_f64();
        committed
    }

    fn remove(&self, tier: Tier, step: u64) {
        // What stays is in nobody's way but for its size, and tried again by the next start.
        let _ = remove_abandoned_step(self.root(tier), step, &self.to.writer);
    }
}

/// Removes the checkpoints of this run that are too many, once the newest, at `newest`, has been read back and found
/// sound. What other runs have made is not touched, nor what somebody wants to keep.
fn thin_out(
    root: &Place,
    run: &Value,
    retention: Retention,
    newest: &Place,
    stop: &AtomicBool,
) -> Result<Vec<u64>, String> {
    let found = list(root).map_err(|error| error.to_string())?;
    if found.len() as u64 <= retention.keep_last {
        return Ok(Vec::new());
    }
    // The manifest of one that cannot be opened does not say whose it is.
    let is_ours = |found: &Found| {
        titan_checkpoint::open(&found.place)
            .is_ok_and(|checkpoint| checkpoint.manifest().run["id"] == *run)
    };
    let own: Vec<Found> = found.into_iter().filter(is_ours).collect();
    let old = old(&own, retention, newest, |found| Pin::of(&found.place).is_some());
    if old.is_empty() {
        return Ok(Vec::new());
    }
    let findings = verify(newest, newest.reading_threads(1), stop, &|_| {});
    let bad = findings.map_err(|error| error.to_string())?.bad;
    if let Some(bad) = bad.first() {
        return Err(format!(
            "the newest checkpoint is damaged, so no older one is removed: {}: {}",
            bad.path.display(),
            bad.what
        ));
    }
    let remove = |found: &&Found| remove_checkpoint(&found.place).map(|()| found.step);
    let removed: Result<Vec<u64>, Error> = old.iter().map(remove).collect();
    removed.map_err(|error| error.to_string())
}

/// The checkpoints of a run, by step, that are too many of those up to the newest. Later ones are of a future that was
/// given up: they are not counted.
fn old<'a>(
    own: &'a [Found],
    retention: Retention,
    newest: &Place,
    is_pinned: impl Fn(&Found) -> bool,
) -> Vec<&'a Found> {
    let Some(last) = own.iter().position(|found| found.place == *newest) else { return Vec::new() };
    let own = &own[..=last];
    let standing =
        |found: &Found| Standing { step: found.step, usable: true, pinned: is_pinned(found) };
    let fates = retention.sort_out(&own.iter().map(standing).collect::<Vec<_>>());
    own.iter()
        .zip(fates)
        .rev()
        .filter(|(_, fate)| *fate == Fate::Surplus)
        .map(|(found, _)| found)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_is_never_old_and_nor_is_what_is_to_be_kept() {
        let found = |step: u64| Found { step, place: step.to_string().into() };
        let own: Vec<Found> = [2, 4, 9, 10, 20].map(found).into();
        let steps_of = |keep_last, keep_every_steps, newest: &str| -> Vec<u64> {
            let retention = Retention { keep_last, keep_every_steps };
            let old = old(&own, retention, &newest.into(), |found| found.step == 9);
            old.iter().map(|found| found.step).collect()
        };
        let steps = |keep_last, newest| steps_of(keep_last, None, newest);
        assert_eq!(steps(2, "20"), [4, 2]);
        assert_eq!(steps_of(2, Some(4), "20"), [2]);
        assert_eq!(steps(1, "20"), [10, 4, 2]);
        assert_eq!(steps(3, "10"), [2]);
        assert_eq!(steps(0, "2"), [0_u64; 0]);
        assert_eq!(steps(9, "20"), [0_u64; 0]);
        assert_eq!(steps(1, "21"), [0_u64; 0]);
    }
}
