use super::claim::AcquireRequest;
use crate::{Capabilities, Drift, Invalid, Lease, Moment, Span, Ttl};
use std::time::Duration;

/// The configuration that all engines of one client share.
#[derive(Debug, Clone)]
pub struct Config {
    /// The backend of the locks, without secrets, for messages.
    pub backend: String,
    /// The capabilities of the backend.
    pub capabilities: Capabilities,
    /// The bound for the drift between two clocks while a lease runs.
    pub drift: Drift,
    /// The limits for sharing leases among tasks; `None` if each task claims for itself.
    pub sharing: Option<SharingLimits>,
    /// How long a task may keep others from the key without running, once or twice this; `None` has no limit.
    pub turn_limit: Option<Duration>,
}

impl Config {
    /// Whether a task with this request waits in the queue for task leases. Other tasks claim for themselves.
    pub fn is_in_queue(&self, request: &AcquireRequest) -> bool {
        self.sharing.is_some() && request.shares() && request.queues()
    }

    /// The limits of a lease that tasks share. Without sharing, there is none.
    pub(super) fn limits(&self) -> SharingLimits {
        self.sharing.unwrap_or_default()
    }

    /// The lease of a claim that was sent at `sent` and granted.
    pub fn lease(&self, sent: Moment, ttl: Ttl) -> Lease {
        if self.capabilities.expires { Lease::granted(sent, ttl.get(), self.drift) } else { Lease::endless() }
    }
}

/// How long tasks of one client share a lease before other clients get the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharingLimits {
    /// Maximum grants to tasks of this client once another client is known to wait, and their maximum time. `None` is
    /// the default of the backend: [`SharingLimits::batch`].
    pub batch: Option<(u32, Duration)>,
    /// While no other client is known to wait: how long leases may be shared before the key is left free,
    pub stretch: Duration,
    /// and how long it is left free.
    pub pause: Duration,
    /// How long an idle lease is kept for the next task of this client, within `stretch`.
    pub idle_timeout: Duration,
}

/// Timers stop while the machine is suspended, so no sleep that depends on a lease is longer than this.
pub const LONGEST_SLEEP: Duration = Duration::from_secs(1);
/// The minimum wait of a claim that queues: a claim with a wait of zero would try once and not enter the queue.
pub const SHORTEST_WAIT: Duration = Duration::from_millis(1);
/// For a backend that reports waiters: as many grants as fit into a few round trips.
const BATCH: (u32, Duration) = (64, Duration::from_millis(10));
/// For a backend that does not report waiters: the engine assumes that there are some, and shares a lease for this time.
const BLIND_BATCH: (u32, Duration) = (u32::MAX, Duration::from_millis(50));
/// The maximum time for which an idle lease is kept while the backend does not announce waiters: they would have to wait for it.
pub(super) const LONGEST_IDLE: Duration = Duration::from_millis(10);

impl SharingLimits {
    /// The same limits, if they are valid.
    ///
    /// # Errors
    /// [`Invalid`] for a batch without grants, or an idle lease that would be kept for longer than this backend allows.
    pub fn check(self, capabilities: &Capabilities) -> Result<Self, Invalid> {
        if self.batch.is_some_and(|(grants, _)| grants == 0) {
            return Err(Invalid::new("batch must allow at least one grant"));
        }
        let (longest, why) = if capabilities.queues {
            (Ttl::MAX, "")
        } else {
            (LONGEST_IDLE, ", because this backend has no queue of waiters")
        };
        if self.idle_timeout > longest {
            return Err(Invalid::new(format!(
                "idle_timeout must be at most {}{why}, not {}",
                Span(longest),
                Span(self.idle_timeout)
            )));
        }
        Ok(self)
    }

    /// The batch, for a backend with or without a queue: there, at least as long as the key is left free afterwards.
    pub fn batch(self, capabilities: &Capabilities) -> (u32, Duration) {
        let (grants, span) = BLIND_BATCH;
        let blind = || (grants, span.max(capabilities.polls.yields()));
        self.batch.unwrap_or_else(|| if capabilities.queues { BATCH } else { blind() })
    }
}

impl Default for SharingLimits {
    fn default() -> Self {
        // The key is left free for 2 % of the time. A client that polls ten times a second gets the key within five seconds
        // on average.
        let (stretch, pause) = (Duration::from_secs(1), Duration::from_millis(20));
        Self { batch: None, stretch, pause, idle_timeout: Duration::ZERO }
    }
}
