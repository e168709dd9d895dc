//! Panics of libraries that read what others wrote, as errors.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    static CONTAINED: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work`; if it panics, gives what the panic said.
pub(crate) fn contain<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    let before = CONTAINED.replace(true);
    let result = catch_unwind(AssertUnwindSafe(work));
    CONTAINED.set(before);
    result.map_err(|panic| {
        let said = panic.downcast_ref::<String>().map(String::as_str);
        let said = said.or_else(|| panic.downcast_ref::<&str>().copied());
        said.unwrap_or("it gave up").to_owned()
    })
}

/// Whether a panic of this thread, now, becomes an error of this crate: then the panic hook should not report it.
pub fn is_contained() -> bool {
    CONTAINED.get()
}
