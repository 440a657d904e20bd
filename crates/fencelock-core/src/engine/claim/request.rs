use crate::{Mode, Moment, Owner, Ttl};
use std::panic::Location;
use std::time::Duration;

/// When its wait ends, a task waits this long for a reply that is in flight, and inspects the key once more: a healthy server needs
/// less.
pub const LAST_ANSWER: Duration = Duration::from_millis(50);

/// A number of tries at regular intervals, instead of waiting in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Retry {
    /// The number of tries.
    pub times: u32,
    /// The pause between two tries.
    pub pause: Duration,
}

/// Whether tasks of one client may share the lease.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum LeaseSharing {
    /// It may be shared, within the limits of the client.
    #[default]
    Allowed,
    /// The task claims for itself, as a separate client would. Candidates of an election do this.
    Never,
}

/// What a task requests.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct AcquireRequest {
    /// The mode.
    pub mode: Mode,
    /// The owner of the claim, for display.
    pub owner: Owner,
    /// The TTL of the lease.
    pub ttl: Ttl,
    /// How long to wait; zero tries once. `None` has no limit, and ends when the backend has not answered for the TTL.
    pub wait: Option<Duration>,
    /// Tries at regular intervals, instead of waiting in the queue.
    pub retry: Option<Retry>,
    /// When the hold ends even if its lease could be renewed.
    pub max_hold: Option<Duration>,
    /// Whether its lease may be shared.
    pub lease_sharing: LeaseSharing,
    /// Whether the caller wants to know from time to time who holds the key: [`crate::engine::ClaimReport`].
    pub reports: bool,
    /// Where the program requests it, for a warning; `None` if a long wait for another task of this client is as intended.
    pub requested_at: Option<&'static Location<'static>>,
}

impl AcquireRequest {
    /// Whether it waits for a release, rather than trying once or at intervals. If the backend has no queue, the claim
    /// subscribes this client to releases.
    pub fn queues(&self) -> bool {
        self.retry.is_none() && self.wait != Some(Duration::ZERO)
    }

    /// When the wait of a task ends that arrived at this moment.
    pub(crate) fn deadline(&self, arrived: Moment) -> Moment {
        self.wait.map_or(Moment::NEVER, |wait| arrived + wait)
    }

    /// When the wait ends, a pending reply is only awaited for [`LAST_ANSWER`]. For a task that does not wait, or has no limit, the timeout
    /// of the backend applies.
    pub(crate) fn limit(&self, arrived: Moment, now: Moment) -> Moment {
        let wait = self.wait.filter(|wait| !wait.is_zero());
        wait.map_or(Moment::NEVER, |wait| (arrived + wait).max(now + LAST_ANSWER))
    }

    /// When its wait ends if the backend has not answered since this moment. `None` with a limit: then only the limit counts.
    pub(crate) fn gives_up_at(&self, last_answer: Moment) -> Option<Moment> {
        self.wait.is_none().then(|| last_answer + self.ttl.get())
    }

    /// Whether it may take a lease from another task, or pass one on.
    pub(crate) fn shares(&self) -> bool {
        let alike = match self.mode {
            Mode::Exclusive | Mode::Permits { .. } => true,
            // A hold that readers share has one end, so it cannot have a `max_hold` for one of them.
            Mode::Shared => self.max_hold.is_none(),
        };
        alike && self.lease_sharing == LeaseSharing::Allowed
    }

    /// Whether it requests permits of a semaphore.
    pub(crate) const fn has_permits(&self) -> bool {
        matches!(self.mode, Mode::Permits { .. })
    }

    /// Whether this request would claim a lease with this TTL and owner.
    pub(crate) fn matches(&self, ttl: Ttl, owner: &Owner) -> bool {
        self.ttl == ttl && self.owner == *owner
    }
}
