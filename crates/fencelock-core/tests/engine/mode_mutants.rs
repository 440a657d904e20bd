//! Servers, drivers and engines that drop a rule of shared locks or permits.

use crate::modes;
use crate::mutants::{Mutant, found};
use crate::scenario::{Budget, NO_BUDGET, Scenario};

#[test]
fn permits_that_are_not_counted_are_found() {
    assert!(found(Mutant::CountsNoPermits, &modes::PERMITS, 3).contains("valid at once"));
}

#[test]
fn a_reader_that_is_not_notified_of_its_loss_is_found() {
    found(Mutant::TellsOneReader, &modes::LOST_READERS, 1);
}

#[test]
fn a_reader_that_releases_the_hold_of_others_is_found() {
    found(Mutant::ReleasesForAll, &modes::READERS, 2);
}

#[test]
fn a_writer_that_writes_until_the_reply_to_its_downgrade_is_found() {
    let scenario = Scenario { budget: Budget { time: 1, ..NO_BUDGET }, ..modes::DOWNGRADE };
    assert!(found(Mutant::WritesUntilTheReply, &scenario, 7).contains("valid at once"));
}
