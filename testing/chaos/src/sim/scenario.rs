use crate::topology::Topology;
use crate::workload;
use clap::ValueEnum;
use fastrand::Rng;
use fencelock::{Drift, Invalid, Ttl};
use fencelock_core::{Quorum, quarantine};
use std::time::Duration;

/// A protection that is removed: the simulation must find the violation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "PascalCase")]
pub enum Mutant {
    /// Fences are counters and do not follow a clock.
    CounterOnly,
    /// A node that may have lost data grants at once.
    NoQuarantine,
    /// A node that restarts after a crash grants at once; one that was flushed does not.
    ImmediateRestart,
    /// The client does not subtract the clock drift from a lease.
    NoDrift,
}

/// The parameters of one world: its size, the errors of its clocks, and its faults.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fault of its own")]
pub struct Scenario {
    /// The seed of all random numbers.
    pub seed: u64,
    /// Number of nodes; one has a queue and permits, several are a quorum.
    pub nodes: usize,
    /// Number of processes, each with a client.
    pub processes: usize,
    /// Number of tasks of each process, beside its candidate.
    pub tasks: usize,
    /// The keys of the tasks: for exclusive locks, readers and permits.
    pub keys: Vec<String>,
    /// The TTL of all claims.
    pub ttl: Ttl,
    /// How long clients run.
    pub length: Duration,
    /// No faults are injected after this time.
    pub calm: Duration,
    /// Maximum initial offset of a node's wall clock, in microseconds.
    pub node_skew_us: u64,
    /// Maximum offset of a client's wall clock, which is used only for proposals, in microseconds.
    pub client_skew_us: u64,
    /// Maximum error of a clock's rate, in parts per million.
    pub rate_ppm: u64,
    /// Whether all nodes run fast and all clients slow by the maximum, instead of random rates.
    pub apart: bool,
    /// Share of messages that are lost, in parts per million.
    pub loss_ppm: u64,
    /// Share of requests that arrive twice, in parts per million.
    pub twice_ppm: u64,
    /// Share of messages that take up to 420 ms, in parts per million.
    pub tail_ppm: u64,
    /// Whether nodes crash and lose all, some or none of their data.
    pub crashes: bool,
    /// Whether processes and nodes are paused, and processes crash.
    pub pauses: bool,
    /// Whether nodes are disconnected.
    pub cuts: bool,
    /// Maximum step of a node's wall clock, in microseconds; 0 for no steps.
    pub jump_us: u64,
    /// Minimum time limit for requests to a node.
    pub node_timeout: Duration,
    /// The protection that is removed.
    pub mutant: Option<Mutant>,
}

impl Scenario {
    /// The world of a seed. It runs for 10 s, the last 4 without faults.
    ///
    /// If nodes lose data, their clocks stay within 1 s of true time; otherwise they may be further off.
    ///
    /// # Errors
    /// [`Invalid`] if the number of nodes is not valid for a quorum.
    pub fn of(seed: u64, nodes: usize) -> Result<Self, Invalid> {
        Quorum::new(nodes)?;
        let mut rng = Rng::with_seed(seed ^ 0x51_u64.rotate_left(40));
        let ttl = [150, 200, 300, 300, 600, 600, 2000, 5000][rng.usize(..8)];
        let crashes = rng.usize(..4) > 0;
        let jump_us = match (rng.usize(..4), crashes) {
            (0, true) => 450_000,
            (0, false) => 3_000_000,
            _ => 0,
        };
        // With one for readers and, on one server, one for permits.
        let mut keys = workload::keys(if nodes == 1 { 3 } else { 2 }, Topology::of(nodes));
        if rng.bool() {
            keys = vec![keys.swap_remove(rng.usize(..keys.len()))];
        }
        Ok(Self {
            seed,
            nodes,
            processes: 2 + rng.usize(..2),
            // Every key is wanted all the time.
            tasks: if keys.len() == 1 { 1 + rng.usize(..2) } else { keys.len() },
            keys,
            ttl: Ttl::new(Duration::from_millis(ttl))?,
            length: Duration::from_secs(10),
            calm: Duration::from_secs(6),
            node_skew_us: [500, 20_000, 400_000][rng.usize(..3)],
            client_skew_us: [2000, 80_000, 5_000_000, 3_600_000_000][rng.usize(..4)],
            rate_ppm: [0, 200, 4000][rng.usize(..3)],
            apart: false,
            loss_ppm: 15_000,
            twice_ppm: 20_000,
            tail_ppm: 15_000,
            crashes,
            pauses: rng.usize(..4) > 0,
            cuts: rng.bool(),
            jump_us,
            node_timeout: Duration::from_millis([5, 20, 100][rng.usize(..3)]),
            mutant: None,
        })
    }

    /// The same world with a protection removed.
    #[must_use]
    pub fn without(mut self, mutant: Option<Mutant>) -> Self {
        self.mutant = mutant;
        self
    }

    /// How much earlier than its TTL a lease ends for its holder.
    pub(super) fn drift(&self) -> Drift {
        if self.mutant == Some(Mutant::NoDrift) { Drift { ppm: 0, fixed: Duration::ZERO } } else { Drift::default() }
    }

    /// How long a node that may have lost data refuses to grant.
    pub(super) fn quarantine(&self) -> Duration {
        quarantine(self.ttl.get(), Drift::default())
    }
}
