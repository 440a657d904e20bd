use fencelock_core::{Invalid, Span};
use std::time::Duration;

/// How long tasks of one client share a lease before others get it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Grants to tasks of this client from when somebody else is known to wait, and how long they may go on.
    pub(crate) batch: Option<(u32, Duration)>,
    /// Where nobody is known to wait: how long leases may be shared before the key is left free,
    pub(crate) stretch: Duration,
    /// and for how long.
    pub(crate) pause: Duration,
    /// How long a free lease is kept for the next task of this client.
    pub(crate) linger: Duration,
}

/// Where the place tells who waits: a few trips' worth of grants.
const BATCH: (u32, Duration) = (64, Duration::from_millis(10));
/// Where nobody can tell whether others wait, it is assumed that they do: a lease is shared this long.
const BLIND_BATCH: (u32, Duration) = (u32::MAX, Duration::from_millis(50));
/// Where a lease that is shared went back because others may wait without a line, they get this long to notice: they are
/// woken, which takes a trip or two.
pub(crate) const GIVING_WAY: Duration = Duration::from_millis(4);
/// How often the server is asked whether anybody else waits.
pub(crate) const QUESTION: Duration = Duration::from_millis(5);
/// A lease that lingers is of no use for longer than this, and stands in the way of others.
pub(crate) const LONGEST_LINGER: Duration = Duration::from_millis(10);
/// Fencing tokens asked for where a lease may be shared, and where more are used up, at most: a tenth of a second of
/// microseconds. Whoever is alone asks for one.
pub(crate) const FIRST_BLOCK: u32 = 128;
pub(crate) const LARGEST_BLOCK: u32 = 100_000;

impl Limits {
    pub(crate) fn check(self) -> Result<Self, Invalid> {
        if self.batch.is_some_and(|(grants, _)| grants == 0) {
            return Err(Invalid::new("a batch of grants has at least one"));
        }
        if self.linger > LONGEST_LINGER {
            return Err(Invalid::new(format!(
                "a free lease lingers for at most {}, not {}",
                Span(LONGEST_LINGER),
                Span(self.linger)
            )));
        }
        Ok(self)
    }

    /// The batch, where the place has a line or where it has none.
    pub(crate) fn batch(self, queues: bool) -> (u32, Duration) {
        self.batch.unwrap_or(if queues { BATCH } else { BLIND_BATCH })
    }
}

impl Default for Limits {
    fn default() -> Self {
        // A fiftieth of the time is what strangers cost; one that asks ten times a second gets its turn in five on average.
        let (stretch, pause) = (Duration::from_secs(1), Duration::from_millis(20));
        Self { batch: None, stretch, pause, linger: Duration::ZERO }
    }
}
