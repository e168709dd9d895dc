//! One module per table of a recipe: its settings, their ranges and their defaults.

pub mod checkpoint;
pub mod compile;
pub mod data;
pub mod elastic;
pub mod env;
pub mod flux;
pub mod hardware;
pub mod launch;
mod location;
pub mod metrics;
pub mod model;
pub mod optimizer;
pub mod parallelism;
pub mod precision;
pub mod remat;
pub mod rl;
pub mod schedule;
pub mod training;
pub mod validation;
