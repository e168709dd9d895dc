//! `titan_tpu._native`: the Rust side of a worker process.
//!
//! A worker host imports torch once and then calls [`serve`]: it forks a rank whenever the launcher orders one.
//! A rank runs the training loop of `titan-trainer` on the Python engine. This is the only crate that knows
//! PyO3.

mod host;
mod python_engine;
mod rank;
mod state;
mod tokens;

use pyo3::prelude::*;

#[pymodule]
mod _native {
    use pyo3::prelude::*;

    /// Ties this process to the launcher: it is killed when the launcher ends, however that happens.
    #[pyfunction]
    fn bind_to_parent() -> PyResult<()> {
        super::host::bind_to_launcher()
    }

    /// Serves the launcher's orders until it closes the channel on stdin; returns the exit code.
    #[pyfunction]
    fn serve(py: Python<'_>, import_seconds: f64) -> PyResult<i32> {
        super::host::serve(py, import_seconds)
    }
}
