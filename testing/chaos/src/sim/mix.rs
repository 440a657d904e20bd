use super::Mutant;
use crate::rng_ext::RngExt as _;
use fastrand::Rng;
use fencelock_core::Mode;
use std::fmt;
use std::str::FromStr;

/// The kinds of locks that the clients of a world claim.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Mix {
    /// Exclusive locks.
    #[default]
    Exclusive,
    /// Shared locks, and some writers, some of which downgrade.
    Readers,
    /// Permits of a semaphore, with different weights, and a few exclusive locks.
    Permits,
    /// Exclusive locks of one server with a queue, whose leases the tasks of a client share.
    Queue,
}

impl Mix {
    /// All mixes.
    pub const ALL: [Self; 4] = [Self::Exclusive, Self::Readers, Self::Permits, Self::Queue];
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Exclusive => "exclusive",
            Self::Readers => "readers",
            Self::Permits => "permits",
            Self::Queue => "queue",
        })
    }
}

impl FromStr for Mix {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|mix| mix.to_string() == name);
        found.ok_or_else(|| format!("unknown mix {name:?}; there are exclusive, readers, permits and queue"))
    }
}

/// The parameters of a mix in one world.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Shares {
    mix: Mix,
    /// Share of exclusive claims, in parts per million.
    writers_ppm: u64,
    /// Share of writers that downgrade, in parts per million.
    downgrades_ppm: u64,
    /// The limit of the semaphore.
    limit: u32,
    /// The number of tasks of each client.
    pub(super) tasks: usize,
}

impl Shares {
    pub(super) fn of(mix: Mix, seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed ^ 0x5a_u64.rotate_left(32));
        let writers_ppm = [10_000, 300_000][rng.usize(..2)];
        let (writers_ppm, downgrades_ppm) = match mix {
            Mix::Exclusive | Mix::Queue => (1_000_000, 0),
            Mix::Readers => (writers_ppm, 400_000),
            Mix::Permits => (20_000, 0),
        };
        let limit = 2 + rng.u32(..4);
        let tasks = if mix == Mix::Queue { 1 + rng.usize(..3) } else { 1 };
        Self { mix, writers_ppm, downgrades_ppm, limit, tasks }
    }

    /// Whether the server has a queue.
    pub(super) fn queues(&self) -> bool {
        self.mix == Mix::Queue
    }

    /// Draws a random number only if the world has other locks than exclusive ones.
    pub(super) fn choose(&self, rng: &mut Rng) -> Mode {
        if matches!(self.mix, Mix::Exclusive | Mix::Queue) || rng.chance(self.writers_ppm) {
            return Mode::Exclusive;
        }
        if self.mix == Mix::Readers {
            return Mode::Shared;
        }
        let heavy = rng.chance(300_000);
        let weight = if heavy { 1 + rng.u32(..self.limit) } else { 1 };
        Mode::permits(weight, self.limit).unwrap_or_default()
    }

    /// Whether a holder in this mode is downgraded.
    pub(super) fn downgrades(&self, mode: Mode, mutant: Option<Mutant>, rng: &mut Rng) -> bool {
        let often = mutant == Some(Mutant::DowngradesWithReply);
        mode == Mode::Exclusive && self.downgrades_ppm > 0 && (often || rng.chance(self.downgrades_ppm))
    }
}
