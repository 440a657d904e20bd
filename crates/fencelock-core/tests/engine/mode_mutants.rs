//! Servers, drivers and engines that drop a rule of shared locks or permits.

use crate::modes;
use crate::mutants::{Mutant, found};
use crate::scenario::{Budget, NO_BUDGET, Scenario};

#[test]
fn each_mutant_of_a_shared_lock_or_of_permits_is_found() {
    assert!(found(Mutant::CountsNoPermits, &modes::PERMITS, 3).contains("valid at once"));
    found(Mutant::TellsOneReader, &modes::LOST_READERS, 1);
    found(Mutant::ReleasesForAll, &modes::READERS, 2);
    let scenario = Scenario { budget: Budget { time: 1, ..NO_BUDGET }, ..modes::DOWNGRADE };
    assert!(found(Mutant::WritesUntilTheReply, &scenario, 7).contains("valid at once"));
}
