//! Signals to the launcher.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::Sender;
use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::flag;
use signal_hook::iterator::Signals;

use super::event::Event;
use crate::exit::Exit;
use crate::failure::Failure;

/// A flag that a signal sets from now on: until workers run, there is nothing else to do about one.
pub(crate) fn cancellation() -> Result<Arc<AtomicBool>, Failure> {
    let cancelled = Arc::new(AtomicBool::new(false));
    let registered = watched()
        .into_iter()
        .try_for_each(|signal| flag::register(signal, Arc::clone(&cancelled)).map(drop));
    registered.map_err(|error| Failure::io(Exit::Bug, "cannot watch for signals", &error))?;
    Ok(cancelled)
}

/// A write beyond `ulimit -f` fails, as one to a full disk does, instead of ending the process without a word.
/// (A handler does this, and unlike an ignored signal it is not passed on to children.)
pub(crate) fn let_large_writes_fail() {
    // Without it there is only no message.
    let _ = flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)));
}

/// The signals that end a run. A SIGHUP that the user's shell has set to be ignored (`nohup`) stays ignored.
fn watched() -> Vec<i32> {
    if ignores_hangup() { vec![SIGINT, SIGTERM] } else { vec![SIGINT, SIGTERM, SIGHUP] }
}

/// Turns signals into events, on a thread of its own.
pub(super) fn forward(sender: Sender<Event>) -> io::Result<()> {
    let mut signals = Signals::new(watched())?;
    thread::Builder::new().name("titan-signals".to_owned()).spawn(move || {
        for signal in signals.forever() {
            let name = signal_hook::low_level::signal_name(signal).unwrap_or("a signal");
            if sender.send(Event::Signal(name)).is_err() {
                return;
            }
        }
    })?;
    Ok(())
}

fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    ignored
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask & 1 != 0)
}
