//! Black-box tests of the importer of TorchTitan configurations.
//!
//! After a deliberate change of what it writes, run the tests with `UPDATE_EXPECT=1` to rewrite the expected texts,
//! and read the difference.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that panics has failed")]

mod keys;
mod mistakes;
mod older;
mod properties;
mod realistic;
mod support;
mod targets;
mod translation;
