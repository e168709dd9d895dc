//! The control plane in a world that is made up: virtual time, hosts and ranks that are numbers, and faults drawn from a
//! seed.
//!
//! The real [`State`](crate::State) takes its events from a queue ordered by virtual time and its actions are carried out on
//! simulated hosts, so a month on thousands of hosts takes a second. The same seed gives the same history, on every machine.
//!
//! What is simulated: agents with leases, which end their ranks by themselves when they are cut off; messages that take time,
//! wait while a host is cut off, and are lost with it; ranks that start, step, save and stop together, and that all stand
//! still when one of them does; two tiers of checkpoints, of which the local one is lost with its slice. What is not: the
//! controller never fails, and no process outlives a kill.
//!
//! Beats: a host that can be heard is heard of every half second, which would be billions of events. They are kept back. The
//! state is told that a host will be heard of for ever ([`State::set_heard`](crate::State)), and when it falls silent, when
//! its last beat or message came: leases end at the same instants as if all had been sent. A test sends them all and compares.

mod account;
mod agents;
mod faults;
mod inject;
mod machines;
mod outcome;
mod queue;
mod random;
mod run;
mod scenario;
mod steps;
mod stores;
mod work;

pub use account::{Categories, Category};
pub use faults::{FaultKind, Faults, Weights};
pub use outcome::{Entry, Outcome};
pub use scenario::{Beats, Interval, Model, Saves, Scenario};

/// Runs a scenario to its end or its horizon.
pub fn simulate(scenario: &Scenario, seed: u64) -> Outcome {
    run::Simulation::new(scenario, seed).run()
}

#[cfg(test)]
mod tests;
