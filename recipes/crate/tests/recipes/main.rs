//! Black-box tests of recipes: what a user reads when a recipe is wrong, and laws that hold for all of them.
//!
//! A test gives a recipe and the whole report that it must cause. After a deliberate change of a message, run the
//! tests with `UPDATE_EXPECT=1` to rewrite the expected texts, and read the difference.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that panics has failed")]

mod absurd;
mod axes;
mod bad_bases;
mod bases;
mod choices;
mod clusters;
mod course;
mod documents;
mod extends;
mod families;
mod files;
mod keys;
mod kinds;
mod language;
mod locations;
mod missing;
mod origins;
mod overrides;
mod properties;
mod ranges;
mod reported;
mod rules;
mod saving;
mod shapes;
mod slices;
mod sources;
mod support;
mod syntax;
mod tables;
mod text;
