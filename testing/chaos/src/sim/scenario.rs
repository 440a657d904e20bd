use super::{Mix, Mutant};
use fastrand::Rng;
use fencelock_core::{Drift, Invalid, Quorum, Ttl, quarantine};
use std::time::Duration;

/// The parameters of one world: its size, the errors of its clocks, and its faults.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fault of its own")]
pub struct Scenario {
    /// The seed of all random numbers.
    pub seed: u64,
    /// Number of nodes.
    pub nodes: usize,
    /// Number of clients; client `c` uses key `c % keys`.
    pub clients: usize,
    /// Number of keys.
    pub keys: usize,
    /// The TTL of all claims.
    pub ttl: Ttl,
    /// How long clients run, in microseconds.
    pub length_us: u64,
    /// No faults are injected after this time, in microseconds.
    pub calm_us: u64,
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
    /// Whether clients and nodes are paused, and clients crash.
    pub pauses: bool,
    /// Whether nodes are disconnected.
    pub cuts: bool,
    /// Maximum step of a node's wall clock, in microseconds; 0 for no steps.
    pub jump_us: u64,
    /// Share of holds that are not renewed and used beyond their end, in parts per million.
    pub overrun_ppm: u64,
    /// Minimum time limit for requests to a node.
    pub node_timeout: Duration,
    /// The kinds of locks that clients claim.
    pub mix: Mix,
    /// The protection that is removed.
    pub mutant: Option<Mutant>,
}

impl Scenario {
    /// The world of a seed. It runs for 20 s, the last 10 without faults.
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
        Ok(Self {
            seed,
            nodes,
            clients: 2 + rng.usize(..4),
            keys: [1, 1, 1, 2][rng.usize(..4)],
            ttl: Ttl::new(Duration::from_millis(ttl))?,
            length_us: 20_000_000,
            calm_us: 10_000_000,
            node_skew_us: [500, 20_000, 400_000][rng.usize(..3)],
            client_skew_us: [2000, 80_000, 5_000_000, 3_600_000_000][rng.usize(..4)],
            rate_ppm: [0, 200, 4000][rng.usize(..3)],
            apart: false,
            loss_ppm: 15_000,
            twice_ppm: 20_000,
            tail_ppm: 15_000,
            crashes,
            pauses: rng.usize(..4) > 0,
            cuts: rng.usize(..2) > 0,
            jump_us,
            overrun_ppm: 100_000,
            node_timeout: Duration::from_millis([5, 20, 100][rng.usize(..3)]),
            mix: Mix::Exclusive,
            mutant: None,
        })
    }

    /// The same world with another mix. Readers and permits need more clients, so that some hold together.
    #[must_use]
    pub const fn with(mut self, mix: Mix) -> Self {
        self.mix = mix;
        if matches!(mix, Mix::Readers | Mix::Permits) {
            self.clients += 3;
        }
        self
    }

    /// The same world with a protection removed.
    #[must_use]
    pub const fn without(mut self, mutant: Option<Mutant>) -> Self {
        self.mutant = mutant;
        self
    }

    pub(super) fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    /// How much earlier than its TTL a lease ends for its holder.
    pub(super) fn drift(&self) -> Drift {
        if self.is(Mutant::NoDrift) { Drift { ppm: 0, fixed: Duration::ZERO } } else { Drift::default() }
    }

    /// How long a node that may have lost data refuses to grant.
    pub(super) fn quarantine(&self) -> Duration {
        quarantine(self.ttl.get(), Drift::default())
    }
}
