//! Work that some threads share.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use crate::{Error, Result};

/// Does each of `tasks` once, on some threads; the memory that `work` is given is that of its thread.
///
/// # Errors
/// The first that a task has, or [`Error::Stopped`] once `stop` is set: then not all of them are done.
pub(super) fn share<T: Send>(
    tasks: Vec<T>,
    threads: usize,
    stop: &AtomicBool,
    work: impl Fn(T, &mut Vec<u8>) -> Result<()> + Sync,
) -> Result<()> {
    let threads = threads.clamp(1, tasks.len().max(1));
    let todo = Mutex::new(tasks.into_iter());
    let failure = Mutex::new(None);
    let lock = || failure.lock().unwrap_or_else(PoisonError::into_inner);
    let one = || {
        let mut memory = Vec::new();
        loop {
            let next = todo.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some(task) = next else { return };
            let is_stopped = stop.load(Ordering::Relaxed);
            let done = if is_stopped { Err(Error::Stopped) } else { work(task, &mut memory) };
            if let Err(error) = done {
                lock().get_or_insert(error);
            }
            if lock().is_some() {
                return;
            }
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(one);
        }
        one();
    });
    failure.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
}
