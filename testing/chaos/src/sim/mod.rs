//! The production core in a simulated world: clients, nodes, network and clocks, derived from one seed.
//!
//! A client runs production code: `KeyEngine` for its key, the calls of `fencelock_core::quorum` to its nodes,
//! `Releases` for background releases, and `FenceGate` at the resource. A node is the model of the scripts in
//! `fencelock_model`, behind a quarantine. Messages are delayed, lost, duplicated and reordered; processes
//! are paused and crash; nodes lose data; clocks have offsets, drift and jump. The history of each seed is checked by the
//! same [checker](crate::checker) as that of a run with real servers.
//!
//! In a world with readers, or with permits on one node, clients also claim these modes and downgrade. In a world with a queue, the
//! one node hands the key from waiter to waiter and sends messages, locks are evicted, and the tasks of a client share leases.
//!
//! There is one thread and one event queue; no clock is read, and all random numbers come from the seed. So a seed always
//! gives the same history, byte for byte, and each failure can be reproduced.

mod batch;
mod calls;
mod client;
mod clock;
mod command;
mod coverage;
mod events;
mod machines;
mod message;
mod mix;
mod mode_mutants;
mod mutant;
mod node;
mod queue;
mod running;
mod scenario;
mod user;
mod world;

pub use batch::{Batch, BrokenSeed, batch};
pub use command::{Arguments, command};
pub use coverage::{Coverage, CoverageCounts};
pub use mix::Mix;
pub use mutant::Mutant;
pub use scenario::Scenario;

use crate::history::History;

/// The results of one seed.
#[derive(Debug)]
pub struct Simulated {
    /// The history, for the checker.
    pub history: History,
    /// Coverage counters.
    pub covered: CoverageCounts,
    /// Number of events handled.
    pub events: u64,
    /// The trace of all events, if requested.
    pub trace: Vec<String>,
}

/// Whether to record a trace of all events, which is slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trace {
    /// No.
    Off,
    /// Yes.
    On,
}

/// Runs one world until its last event.
pub fn simulate(scenario: &Scenario, trace: Trace) -> Simulated {
    world::World::new(scenario, trace).run()
}
