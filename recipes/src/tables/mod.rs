//! One module per table of a recipe: its settings, their ranges and their defaults.

pub mod data;
pub mod elastic;
pub mod hardware;
pub mod metrics;
pub mod model;
pub mod optimizer;
pub mod parallelism;
pub mod precision;
pub mod schedule;
pub mod training;
