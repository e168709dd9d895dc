//! The one thread that drives connections.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::thread::{self, ThreadId};
use std::time::Duration;

use tokio::runtime::{Builder, Handle};
use tokio::sync::Notify;

/// How long the end of a driver waits for its thread, which may be inside a function of the caller.
const PATIENCE: Duration = Duration::from_secs(1);

/// A thread that drives connections. One is enough for thousands: [`Connection::open`](crate::Connection::open) makes its
/// own, [`Connection::open_on`](crate::Connection::open_on) shares one.
#[derive(Debug)]
pub struct Driver {
    handle: Handle,
    stop: Arc<Notify>,
    thread: ThreadId,
    ended: Mutex<Receiver<()>>,
}

impl Driver {
    /// Starts one.
    ///
    /// # Errors
    /// There is no memory for a thread.
    pub fn start(name: &str) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let stop = Arc::new(Notify::new());
        let stopped = Arc::clone(&stop);
        let (end, ended) = channel::<()>();
        let thread = thread::Builder::new().name(name.to_owned()).spawn(move || {
            runtime.block_on(stopped.notified());
            // Name resolution, on a thread of its own, may still go on for a while.
            runtime.shutdown_background();
            drop(end);
        })?;
        Ok(Self { handle, stop, thread: thread.thread().id(), ended: Mutex::new(ended) })
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.stop.notify_one();
        if thread::current().id() != self.thread {
            // It never sends: the wait is over when the thread is.
            let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
            let _ = ended.recv_timeout(PATIENCE);
        }
    }
}

/// Waits for the first of two; the other is given up.
pub(crate) async fn race<T>(first: impl Future<Output = T>, second: impl Future<Output = T>) -> T {
    let (mut first, mut second) = (pin!(first), pin!(second));
    poll_fn(|context| match Pin::new(&mut first).poll(context) {
        Poll::Ready(done) => Poll::Ready(done),
        Poll::Pending => Pin::new(&mut second).poll(context),
    })
    .await
}
