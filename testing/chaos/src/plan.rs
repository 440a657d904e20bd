use crate::fault::Fault;
use crate::rng_ext::RngExt as _;
use crate::topology::Topology;
use fastrand::Rng;
use std::time::Duration;

/// The number of sentinels.
const SENTINELS: usize = 3;
/// Enough values to choose a key and a node.
const SLOT_MOVES: usize = 1 << 16;

/// A step of the schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScheduledFault {
    /// The fault.
    pub fault: Fault,
    /// The node or worker.
    pub victim: usize,
    /// The duration.
    pub lasts: Duration,
    /// The time without faults before it.
    pub peace: Duration,
}

/// The schedule of a run. It depends only on the seed, the topology and the number of workers.
///
/// Each round contains every fault of the topology once, in random order.
#[derive(Debug)]
pub struct Plan {
    rng: Rng,
    topology: Topology,
    workers: usize,
    faults: Vec<Fault>,
    left: Vec<Fault>,
}

impl Plan {
    /// The schedule of this seed.
    pub fn new(seed: u64, topology: Topology, workers: usize) -> Self {
        Self { rng: Rng::with_seed(seed), topology, workers, faults: topology.faults(), left: Vec::new() }
    }

    /// Contains only these faults.
    #[must_use]
    pub fn only(self, faults: Vec<Fault>) -> Self {
        Self { faults, ..self }
    }

    fn refill(&mut self) {
        self.left.clone_from(&self.faults);
        self.rng.shuffle(&mut self.left);
    }
}

impl Iterator for Plan {
    type Item = ScheduledFault;

    /// The schedule never ends.
    fn next(&mut self) -> Option<ScheduledFault> {
        if self.left.is_empty() {
            self.refill();
        }
        let fault = self.left.pop()?;
        let lasts = match fault {
            Fault::RestartEmpty
            | Fault::RestartFromDisk
            | Fault::Failover
            | Fault::SentinelFailover
            | Fault::ClusterFailover
            | Fault::PromoteStandby
            | Fault::ForeignDelete
            | Fault::KillClient => Duration::ZERO,
            // Shorter and longer than the time in which sentinels demote a replaced master, and than the window of a quarantine.
            Fault::KillMaster | Fault::WipeMaster | Fault::FreezeMaster | Fault::PartitionMaster => {
                self.rng.millis(100, 7000)
            }
            Fault::FreezeSentinel => self.rng.millis(100, 3000),
            // Shorter than the time after which a silent waiter leaves the queue.
            Fault::HalfMoveSlot => self.rng.millis(50, 1000),
            // Longer than the timeout of the client.
            Fault::FreezeServer | Fault::PauseServer | Fault::Cut | Fault::BlackHole => self.rng.millis(500, 900),
            // About as long as a lease.
            Fault::ClockFast | Fault::ClockSlow => self.rng.millis(900, 1200),
            // In addition to the lease.
            Fault::FreezeClient | Fault::FreezeClientInFailover => self.rng.millis(100, 400),
            _ => self.rng.millis(400, 900),
        };
        let peace = self.rng.millis(100, 400);
        let victims = match fault {
            Fault::FreezeSentinel => SENTINELS,
            fault if fault.moves_a_slot() => SLOT_MOVES,
            fault if fault.is_for_clients() => self.workers,
            _ => self.topology.nodes(),
        };
        let victim = self.rng.usize(..victims);
        Some(ScheduledFault { fault, victim, lasts, peace })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(seed: u64, topology: Topology, count: usize) -> Vec<ScheduledFault> {
        Plan::new(seed, topology, 3).take(count).collect()
    }

    #[test]
    fn the_same_seed_gives_the_same_schedule() {
        let topology = Topology::Quorum(3);
        assert_eq!(steps(7, topology, 100), steps(7, topology, 100));
        assert_ne!(steps(7, topology, 100), steps(8, topology, 100));
    }
}
