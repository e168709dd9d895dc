//! The one thread that drives all connections, and how other threads wait for it.

use std::future::{Future, pending};
use std::io;
use std::sync::{Mutex, PoisonError};
use std::thread;

use tokio::runtime::{Builder, Handle};

static HANDLE: Mutex<Option<Handle>> = Mutex::new(None);

/// The runtime, started if it was not yet. It goes on until the process ends, so that connections are kept.
///
/// # Errors
/// There is no memory for a thread.
pub fn handle() -> io::Result<Handle> {
    let mut handle = HANDLE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(handle) = &*handle {
        return Ok(handle.clone());
    }
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let new = runtime.handle().clone();
    thread::Builder::new()
        .name("object-store".to_owned())
        .spawn(move || runtime.block_on(pending::<()>()))?;
    Ok(handle.insert(new).clone())
}

/// Waits for something that the runtime does.
///
/// # Errors
/// As [`handle`].
pub fn wait<F: Future>(future: F) -> io::Result<F::Output> {
    Ok(handle()?.block_on(future))
}
