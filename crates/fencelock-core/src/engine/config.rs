use super::request::AcquireRequest;
use crate::{Capabilities, Drift, Invalid, Lease, Moment, Span, Ttl};
use std::time::Duration;

/// What the engine of every key of one client knows.
#[derive(Debug, Clone)]
pub struct Config {
    /// The place of the locks, without secrets, for messages.
    pub place: String,
    /// What the place can do.
    pub capabilities: Capabilities,
    /// How far two clocks may part while a lease runs.
    pub drift: Drift,
    /// How tasks of the client share leases; `None` if each of them claims for itself.
    pub sharing: Option<SharingLimits>,
}

impl Config {
    /// Whether a task with this request waits in line for the leases that tasks share. All others claim for themselves.
    pub fn is_in_line(&self, request: &AcquireRequest) -> bool {
        self.sharing.is_some() && request.shares() && request.queues()
    }

    /// The lease of a claim that was sent at `sent` and granted.
    pub fn lease(&self, sent: Moment, ttl: Ttl) -> Lease {
        if self.capabilities.expires { Lease::granted(sent, ttl.get(), self.drift) } else { Lease::endless() }
    }
}

/// How long tasks of one client share a lease before other clients get the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharingLimits {
    /// Grants to tasks of this client from when another client is known to wait, and how long they may go on.
    /// `None` stands for the default of the place: [`SharingLimits::batch`].
    pub batch: Option<(u32, Duration)>,
    /// Where no other client is known to wait: how long leases may be shared before the key is left free,
    pub stretch: Duration,
    /// and for how long it is left free.
    pub pause: Duration,
    /// How long a free lease is kept for the next task of this client.
    pub idle_timeout: Duration,
}

/// Where the place tells who waits: a few trips' worth of grants.
const BATCH: (u32, Duration) = (64, Duration::from_millis(10));
/// Where the place cannot tell whether others wait, the engine assumes that they do: a lease is shared this long.
const BLIND_BATCH: (u32, Duration) = (u32::MAX, Duration::from_millis(50));
/// A free lease that is kept longer than this stands in the way of other clients.
const LONGEST_IDLE: Duration = Duration::from_millis(10);

impl SharingLimits {
    /// The same limits, if they can be used.
    ///
    /// # Errors
    /// [`Invalid`] for a batch without grants, or a lease that would be kept for more than 10 ms.
    pub fn check(self) -> Result<Self, Invalid> {
        if self.batch.is_some_and(|(grants, _)| grants == 0) {
            return Err(Invalid::new("a batch of grants has at least one"));
        }
        if self.idle_timeout > LONGEST_IDLE {
            return Err(Invalid::new(format!(
                "a free lease is kept idle for at most {}, not {}",
                Span(LONGEST_IDLE),
                Span(self.idle_timeout)
            )));
        }
        Ok(self)
    }

    /// The batch, where the place has a queue or where it has none.
    pub fn batch(self, queues: bool) -> (u32, Duration) {
        self.batch.unwrap_or(if queues { BATCH } else { BLIND_BATCH })
    }
}

impl Default for SharingLimits {
    fn default() -> Self {
        // A fiftieth of the time is what clients that only poll cost; one that asks ten times a second gets the key within
        // five seconds on average.
        let (stretch, pause) = (Duration::from_secs(1), Duration::from_millis(20));
        Self { batch: None, stretch, pause, idle_timeout: Duration::ZERO }
    }
}
