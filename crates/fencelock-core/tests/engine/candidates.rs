//! Candidates of an election: tasks that share no lease.

use crate::coverage::Coverage;
use crate::scenario::{Budget, LIMITS, NO_BUDGET, PLAIN, Plan, Scenario, USER};
use crate::scenarios::READY;
use crate::sizes::explore;
use fencelock_core::engine::{LeaseSharing, SharingLimits};
use std::time::Duration;

/// Candidates of an election, and a task of the same client that shares its leases.
pub(crate) const CANDIDATES: Scenario = Scenario {
    name: "candidates",
    users: &[
        Plan { drops: true, lease_sharing: LeaseSharing::Never, ..READY },
        Plan { cancels: true, drops: true, lease_sharing: LeaseSharing::Never, ..USER },
        Plan { drops: true, ..USER },
        Plan { client: 1, drops: true, lease_sharing: LeaseSharing::Never, ..USER },
    ],
    budget: Budget { time: 1, haste: 1, ..NO_BUDGET },
    covers: &[Coverage::HandedOff, Coverage::CancelledBeforeHandOff],
    ..PLAIN
};

/// A candidate waits for the key whose idle lease its own client keeps: no message reports that to the client.
pub(crate) const STICKY_CANDIDATE: Scenario = Scenario {
    name: "sticky-candidate",
    users: &[
        Plan { drops: true, ..READY },
        Plan { drops: true, lease_sharing: LeaseSharing::Never, ..USER },
        Plan { client: 1, cancels: true, drops: true, ..USER },
    ],
    sharing: Some(SharingLimits { idle_timeout: Duration::from_secs(30), ..LIMITS }),
    announces_waiters: true,
    budget: Budget { time: 3, ..NO_BUDGET },
    covers: &[Coverage::KeptIdle, Coverage::HandedOff],
    ..PLAIN
};

#[test]
fn a_lease_that_is_kept_goes_to_a_candidate_of_its_own_client() {
    explore(&STICKY_CANDIDATE);
}

#[test]
fn candidates_of_one_client_share_no_lease() {
    explore(&CANDIDATES);
}
