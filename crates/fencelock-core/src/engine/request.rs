use crate::{Mode, Owner, Ttl};
use std::time::Duration;

/// A number of tries at equal distances, instead of waiting in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Retry {
    /// How many tries.
    pub times: u32,
    /// The pause between two of them.
    pub pause: Duration,
}

/// Whether tasks of one client may pass the lease on among themselves.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum LeaseSharing {
    /// They may, within the limits of the client.
    #[default]
    Allowed,
    /// The task claims for itself, as if it were a client of its own. Candidates of an election do.
    Never,
}

/// What a task asks for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AcquireRequest {
    /// The mode. Only tasks that ask for an exclusive lock pass leases on among themselves.
    pub mode: Mode,
    /// Who asks, for people to read.
    pub owner: Owner,
    /// The TTL of the lease.
    pub ttl: Ttl,
    /// How long to wait; `None` is for ever, zero asks once.
    pub wait: Option<Duration>,
    /// Tries at set times, instead of waiting in the queue.
    pub retry: Option<Retry>,
    /// When the hold ends even if its lease could be renewed.
    pub max_hold: Option<Duration>,
    /// Whether its lease may be shared.
    pub lease_sharing: LeaseSharing,
}

impl AcquireRequest {
    /// Whether it waits for a release, rather than asking once or at set times. Where the place has no queue, the claim
    /// tells it that this client wants to know of releases.
    pub fn queues(&self) -> bool {
        self.retry.is_none() && self.wait != Some(Duration::ZERO)
    }

    /// Whether it may have a lease that another task had, or leave one to it.
    pub(super) fn shares(&self) -> bool {
        self.lease_sharing == LeaseSharing::Allowed && self.mode == Mode::Exclusive
    }

    /// Whether a lease of this TTL and owner is what this request would claim.
    pub(super) fn matches(&self, ttl: Ttl, owner: &Owner) -> bool {
        self.ttl == ttl && self.owner == *owner
    }
}
