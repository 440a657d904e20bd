//! Scenarios of readers, downgrades and permits, searched to the end: as they are, or with fewer users or less that may happen.

use crate::coverage::Coverage;
use crate::hand_off::holds_within;
use crate::scenario::{Budget, NO_BUDGET, Scenario};
use crate::{modes, permits};

/// Above what any search here needs by default.
const LIMIT: usize = 300_000;

/// The users with these numbers, and this budget.
fn search(scenario: &Scenario, users: &[usize], budget: Budget, covers: &'static [Coverage]) {
    search_within(scenario, users, budget, covers, LIMIT);
}

fn search_within(scenario: &Scenario, users: &[usize], budget: Budget, covers: &'static [Coverage], limit: usize) {
    let users: Vec<_> = users.iter().map(|number| scenario.users[*number]).collect();
    let scenario = Scenario { users: Box::leak(users.into_boxed_slice()), budget, covers, ..*scenario };
    holds_within(&scenario, limit);
}

const DELETED: Budget = Budget { deletes: 1, ..NO_BUDGET };
const LOST: Budget = Budget { lost: 1, ..NO_BUDGET };
const TIME: Budget = Budget { time: 1, ..NO_BUDGET };
const TWICE: Budget = Budget { duplicates: 1, ..NO_BUDGET };

#[test]
fn every_state_of_readers_and_writers() {
    holds_within(&modes::READERS_AND_WRITERS, LIMIT);
}

#[test]
fn every_state_of_readers() {
    holds_within(&modes::READERS, LIMIT);
    let covers = &[Coverage::LostTogether, Coverage::Deleted];
    search(&modes::LOST_READERS, &[0, 1, 2], Budget { time: 3, ..DELETED }, covers);
    search(&modes::LOST_READERS, &[0, 1, 2], Budget { time: 1, long: 1, ..DELETED }, covers);
}

#[test]
fn every_state_of_a_downgrade() {
    const LATER: &[Coverage] = &[Coverage::Downgraded, Coverage::DowngradeGivenUp, Coverage::HandedOff];
    const COVERS: &[Coverage] = &[Coverage::Downgraded, Coverage::DowngradeLost];
    search(&modes::DOWNGRADE, &[0, 1, 2], LOST, modes::DOWNGRADE.covers);
    search(&modes::DOWNGRADE, &[0, 1, 2], TIME, LATER);
    search(&modes::LOST_DOWNGRADE, &[0, 1], Budget { time: 1, broken: 1, ..DELETED }, COVERS);
}

#[test]
fn every_state_of_permits_of_different_weights() {
    holds_within(&modes::PERMITS, LIMIT);
    holds_within(&modes::PERMITS_AND_WRITER, LIMIT);
}

#[test]
fn every_state_of_permits_that_are_passed_on() {
    search(&permits::PASSED, &[0, 2, 4], NO_BUDGET, &[Coverage::HandedOff, Coverage::Inherited]);
    search(&permits::PASSED, &[0, 1, 4], NO_BUDGET, &[Coverage::HandedOff, Coverage::Released]);
    search(&permits::BOUNDED, &[0, 1, 2], NO_BUDGET, &[Coverage::Shared]);
    search(&permits::UNLIKE, &[0, 1, 2], NO_BUDGET, &[Coverage::HandedOff, Coverage::Together]);
}

#[test]
fn every_state_of_permits_beside_another_client() {
    holds_within(&permits::BESIDE_ANOTHER, LIMIT);
}

#[test]
fn every_state_of_permits_beside_a_large_claim() {
    const COVERS: &[Coverage] = &[Coverage::Shared, Coverage::HandedOff, Coverage::Together];
    search(&permits::BESIDE_A_LARGE_CLAIM, &[0, 1, 2, 3], NO_BUDGET, COVERS);
    search(&permits::BESIDE_A_LARGE_CLAIM, &[0, 1, 2], TWICE, &[Coverage::Shared, Coverage::Duplicated]);
    search(&permits::BESIDE_A_LARGE_CLAIM, &[0, 2, 3], TWICE, &[Coverage::HandedOff, Coverage::Duplicated]);
}

#[test]
fn every_state_of_permits_that_are_lost() {
    search(&permits::LOST, &[0, 1, 2, 3], DELETED, &[Coverage::Deleted, Coverage::Shared, Coverage::Together]);
}

#[test]
fn every_state_of_permits_that_are_given_away() {
    search(&permits::DETACHED, &[0, 1, 2, 3, 4], NO_BUDGET, permits::DETACHED.covers);
}

#[test]
fn every_state_of_permits_where_the_backend_has_no_queue() {
    search(&permits::POLLED, &[0, 1, 3], NO_BUDGET, &[Coverage::Together]);
}

/// `scripts/search` runs these.
mod larger {
    use super::*;

    #[test]
    #[ignore = "2 million states: a minute"]
    fn every_state_of_a_downgrade_whose_lease_ends() {
        const COVERS: &[Coverage] = &[Coverage::Downgraded, Coverage::DowngradeLost, Coverage::Deleted];
        let budget = Budget { time: 1, long: 1, ..DELETED };
        search_within(&modes::LOST_DOWNGRADE, &[0, 1], budget, COVERS, 3_000_000);
    }

    #[test]
    #[ignore = "a million states: a minute"]
    fn every_state_of_readers_whose_lease_ends() {
        search_within(
            &modes::LOST_READERS,
            &[0, 1, 2],
            Budget { long: 3, ..DELETED },
            modes::LOST_READERS.covers,
            3_000_000,
        );
    }
}
