//! What can be said about a run before anything runs: parameters, FLOPs, MFU.
//!
//! Architecture invariant: everything here is a pure function; no I/O, no clock, no Python.

mod flops;
mod mfu;
mod parameters;
mod plan;

pub use flops::{Convention, flops_per_token};
pub use mfu::{Mfu, MfuError, mfu};
pub use parameters::{Parameters, parameters};
pub use plan::{MemoryPerDevice, MeshDegrees, Plan, plan};
