//! The production core in a simulated world: clients, nodes, network and clocks, all out of one seed.
//!
//! A client is what production runs: `KeyEngine` for its key, the calls of `fencelock_core::quorum` to its nodes,
//! `ReleaseQueue` for releases in the background, and `FenceGate` at the resource. Nodes are the model of the scripts that
//! `fencelock_conformance::model` keeps, behind a quarantine. Messages are late, lost, doubled and overtaken; processes
//! sleep and die; nodes forget; clocks are off, run apart, and jump. The history of every seed goes through the same
//! [checker](crate::checker) as that of a run with real servers.
//!
//! In a world with readers, or with permits on one node, clients also claim in these modes and downgrade.
//!
//! One thread, one queue of events, no clock, no random number but the seed's: a seed gives the same history byte for
//! byte, so whatever is found once is found again.

mod acquiring;
mod batch;
mod breakage;
mod calls;
mod client;
mod clock;
mod command;
mod coverage;
mod downgrading;
mod holding;
mod message;
mod mix;
mod mode_mutants;
mod mutant;
mod node;
mod queue;
mod running;
mod scenario;
mod world;

pub use batch::{Batch, BrokenSeed, batch};
pub use command::{Arguments, command};
pub use coverage::{Coverage, CoverageCounts};
pub use mix::Mix;
pub use mutant::Mutant;
pub use scenario::Scenario;

use crate::history::History;

/// What came of one seed.
#[derive(Debug)]
pub struct Simulated {
    /// For the checker.
    pub history: History,
    /// What was come across.
    pub covered: CoverageCounts,
    /// Events that were handled.
    pub events: u64,
    /// Everything that happened, in words, if it was asked for.
    pub trace: Vec<String>,
}

/// Whether to put everything that happens into words, which takes its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trace {
    /// No.
    Off,
    /// Yes.
    On,
}

/// Runs one world to its end.
pub fn simulate(scenario: &Scenario, trace: Trace) -> Simulated {
    world::World::new(scenario, trace).run()
}
