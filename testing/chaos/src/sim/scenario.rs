use super::{Mix, Mutant};
use fastrand::Rng;
use fencelock_core::{Drift, Invalid, Quorum, Ttl, quarantine};
use std::time::Duration;

/// The world of one seed: how many there are, how far off their clocks run, and what befalls them.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fault of its own")]
pub struct Scenario {
    /// Everything that is left to chance follows from it.
    pub seed: u64,
    /// How many nodes.
    pub nodes: usize,
    /// How many clients; client `c` wants key `c % keys`.
    pub clients: usize,
    /// How many keys.
    pub keys: usize,
    /// The lease that all ask for.
    pub ttl: Ttl,
    /// How long clients go on, in microseconds.
    pub length_us: u64,
    /// From here on nothing is broken any more, in microseconds.
    pub calm_us: u64,
    /// How far a node's wall clock is off at the start, at most, in microseconds.
    pub node_skew_us: u64,
    /// The same of a client's, which only makes proposals of it.
    pub client_skew_us: u64,
    /// How far a clock's rate is off, at most, in parts per million.
    pub rate_ppm: u64,
    /// Whether all nodes run fast and all clients slow, by that much, instead of anything between.
    pub apart: bool,
    /// Messages that are lost, in parts per million.
    pub loss_ppm: u64,
    /// Requests that arrive twice, in parts per million.
    pub twice_ppm: u64,
    /// Messages that take up to 420 ms, in parts per million.
    pub tail_ppm: u64,
    /// Nodes crash, and lose all or part of what they knew, or nothing.
    pub crashes: bool,
    /// Clients and nodes are paused, and clients die.
    pub pauses: bool,
    /// Nodes are cut off.
    pub cuts: bool,
    /// How far the wall clock of a node is set forward or back at a time, at most, in microseconds; 0 if it is not.
    pub jump_us: u64,
    /// Holds that stop renewing and go on to their end and beyond, in parts per million.
    pub overrun_ppm: u64,
    /// How long clients wait for any node at least.
    pub node_timeout: Duration,
    /// What the clients ask for.
    pub mix: Mix,
    /// The protection that is left out.
    pub mutant: Option<Mutant>,
}

impl Scenario {
    /// The world of a seed: 20 s, of which the last 10 in peace.
    ///
    /// Clocks of nodes stay within a second of the true time where nodes forget, and within any bounds where they do not.
    ///
    /// # Errors
    /// [`Invalid`] for a number of nodes that is none of a quorum.
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

    /// The same world with clients that ask for other modes. Readers and permits need more clients to meet.
    #[must_use]
    pub const fn with(mut self, mix: Mix) -> Self {
        self.mix = mix;
        if !matches!(mix, Mix::Exclusive) {
            self.clients += 3;
        }
        self
    }

    /// The same world without a protection.
    #[must_use]
    pub const fn without(mut self, mutant: Option<Mutant>) -> Self {
        self.mutant = mutant;
        self
    }

    pub(super) fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    /// How early a holder ends its lease.
    pub(super) fn drift(&self) -> Drift {
        if self.is(Mutant::NoDrift) { Drift { ppm: 0, fixed: Duration::ZERO } } else { Drift::default() }
    }

    /// How long a node that may have forgotten grants nothing.
    pub(super) fn quarantine(&self) -> Duration {
        quarantine(self.ttl.get(), Drift::default())
    }
}
