//! Candidates of an election: tasks that share no lease.

use crate::coverage::Coverage;
use crate::scenario::{Budget, NO_BUDGET, PLAIN, Plan, Scenario, USER};
use crate::scenarios::READY;
use crate::sizes::explore;
use fencelock_core::engine::LeaseSharing;

/// Candidates of an election beside a task of the same client that shares its leases.
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

#[test]
fn candidates_of_one_client_share_no_lease() {
    explore(&CANDIDATES);
}
