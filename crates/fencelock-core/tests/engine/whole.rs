//! Scenarios of readers, downgrades and permits with fewer users or less that may happen, so that every state is searched.

use crate::coverage::Coverage;
use crate::hand_off::holds_within;
use crate::scenario::{Budget, NO_BUDGET, Scenario};
use crate::{modes, permits};

/// Above what any search here needs.
const LIMIT: usize = 250_000;

/// The users with these numbers, and this budget.
fn whole(scenario: &Scenario, users: &[usize], budget: Budget, covers: &'static [Coverage]) {
    let users: Vec<_> = users.iter().map(|number| scenario.users[*number]).collect();
    let scenario = Scenario { users: Box::leak(users.into_boxed_slice()), budget, covers, ..*scenario };
    holds_within(&scenario, LIMIT);
}

const DELETED: Budget = Budget { deletes: 1, ..NO_BUDGET };
const TWICE: Budget = Budget { duplicates: 1, ..NO_BUDGET };

#[test]
fn every_state_of_readers_and_writers() {
    holds_within(&modes::READERS_AND_WRITERS, LIMIT);
}

#[test]
fn every_state_of_readers() {
    whole(&modes::READERS, &[0, 1, 2, 3], NO_BUDGET, modes::READERS.covers);
    let deleted = Budget { deletes: 1, time: 3, ..NO_BUDGET };
    whole(&modes::LOST_READERS, &[0, 1, 2], deleted, &[Coverage::LostTogether, Coverage::Deleted]);
}

#[test]
fn every_state_of_a_downgrade() {
    let lost = Budget { lost: 1, ..NO_BUDGET };
    whole(&modes::DOWNGRADE, &[0, 1, 2], lost, modes::DOWNGRADE.covers);
    whole(&modes::LOST_DOWNGRADE, &[0, 1], DELETED, &[Coverage::Downgraded, Coverage::DowngradeLost]);
}

#[test]
fn every_state_of_permits_of_different_weights() {
    whole(&modes::PERMITS, &[1, 2, 3], NO_BUDGET, modes::PERMITS.covers);
    whole(&modes::PERMITS_AND_WRITER, &[1, 2], TWICE, modes::PERMITS_AND_WRITER.covers);
    whole(&modes::PERMITS_AND_WRITER, &[0, 1, 2], NO_BUDGET, &[Coverage::HandedOff]);
}

#[test]
fn every_state_of_permits_that_are_passed_on() {
    whole(&permits::PASSED, &[0, 2, 4], NO_BUDGET, &[Coverage::HandedOff, Coverage::Inherited]);
    whole(&permits::PASSED, &[0, 1, 4], NO_BUDGET, &[Coverage::HandedOff, Coverage::Released]);
    whole(&permits::BESIDE_ANOTHER, &[0, 1, 2, 3], NO_BUDGET, permits::BESIDE_ANOTHER.covers);
    whole(&permits::BOUNDED, &[0, 1, 2], NO_BUDGET, &[Coverage::Shared]);
    whole(&permits::UNLIKE, &[0, 1, 2], NO_BUDGET, &[Coverage::HandedOff, Coverage::Together]);
}

#[test]
fn every_state_of_permits_beside_a_large_claim() {
    whole(&permits::BESIDE_A_LARGE_CLAIM, &[0, 1, 2], TWICE, permits::BESIDE_A_LARGE_CLAIM.covers);
    whole(&permits::BESIDE_A_LARGE_CLAIM, &[0, 2, 3], TWICE, &[Coverage::HandedOff, Coverage::Duplicated]);
}

#[test]
fn every_state_of_permits_that_are_lost_or_given_away() {
    whole(&permits::LOST, &[0, 1, 2], DELETED, &[Coverage::Deleted, Coverage::Shared, Coverage::Together]);
    whole(&permits::DETACHED, &[0, 1, 3, 4], NO_BUDGET, permits::DETACHED.covers);
}

#[test]
fn every_state_of_permits_where_the_place_has_no_queue() {
    whole(&permits::POLLED, &[0, 1, 3], NO_BUDGET, &[Coverage::Together]);
}
