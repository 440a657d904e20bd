//! The production client in a simulated world: processes, nodes, network and clocks, derived from one seed.
//!
//! The workers of a run with real servers use the client here too, with its driver, its renewals and its background
//! releases, on one server with a queue, or on a quorum of nodes. A node is a `KeyTable`, the specification of all backends, behind
//! a quarantine. Requests, replies and events are delayed, lost, duplicated and reordered; processes are paused and crash; nodes
//! lose data; clocks have offsets, drift and jump; locks are evicted. The history of each seed is checked by the same
//! [checker](crate::checker).
//!
//! There is one thread, whose clock is paused: it advances when every task waits. So a seed always gives the same history, byte
//! for byte, and each failure can be reproduced.

mod batch;
mod clock;
mod command;
mod link;
mod node;
mod scenario;
mod world;

pub use batch::{Batch, BrokenSeed, batch};
pub use command::{Arguments, command};
pub use scenario::{Mutant, Scenario};

use crate::Failure;
use crate::history::History;

/// The results of one seed.
#[derive(Debug)]
pub struct Simulated {
    /// The history, for the checker.
    pub history: History,
    /// The requests and their replies, if requested.
    pub trace: Vec<String>,
}

/// Whether to record a trace of all requests, which is slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trace {
    /// No.
    Off,
    /// Yes.
    On,
}

/// Runs one world until its last event.
///
/// # Errors
/// The number of nodes is not valid for a quorum, or there is no thread for the runtime.
pub fn simulate(scenario: &Scenario, trace: Trace) -> Result<Simulated, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
    runtime.block_on(async { world::World::new(scenario, trace).run().await })
}
