//! Black-box tests: the real binary in a fresh directory; stdout, stderr, exit code, files and processes.
//!
//! The engine runs for real. The first run on a machine installs its Python environment, unless TITAN_PYTHON
//! names one. Every command has a time limit: a hang is a failure.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod axes;
mod bad_input;
mod checkpoints;
mod data;
mod ends;
mod equivalence;
mod python;
mod recipes;
mod restarts;
mod run_directory;
mod simulate;
mod support;
mod train;
