//! The suite detects a backend whose shared locks, semaphores or downgrades are faulty.
#![allow(missing_docs, clippy::unwrap_used)]

mod backend;

use backend::{Defect, FaultyModes};
use fencelock::backends::{ManualClock, Memory};
use fencelock_conformance::{Fixture, FixtureFactory, broken_facts};
use fencelock_core::{Backend, BoxFuture};
use std::sync::{Arc, Once};
use std::time::Duration;

struct FaultyFixture {
    clock: Arc<ManualClock>,
    backend: Arc<FaultyModes>,
}

impl Fixture for FaultyFixture {
    fn backend(&self) -> BoxFuture<'_, Arc<dyn Backend>> {
        Box::pin(async { Arc::clone(&self.backend) as _ })
    }

    fn let_time_pass(&self, span: Duration) -> BoxFuture<'_, ()> {
        self.clock.advance(span);
        Box::pin(async {})
    }
}

/// The cases that fail with this defect, of those that `wanted` names.
fn broken(defect: Defect, wanted: impl Fn(&str) -> bool) -> Vec<&'static str> {
    static SILENCED: Once = Once::new();
    SILENCED.call_once(|| {
        let loud = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            // The panics of cases, which must fail, are on threads of their runtimes.
            if std::thread::current().name() != Some("tokio-rt-worker") {
                loud(info);
            }
        }));
    });
    let factory = FixtureFactory::new("faulty", move || {
        let clock = Arc::new(ManualClock::at(Duration::from_secs(3600)));
        let memory = Memory::with_leases(Arc::clone(&clock) as _);
        Ok(Box::new(FaultyFixture { clock, backend: Arc::new(FaultyModes::new(memory, defect)) }))
    });
    broken_facts(&factory, wanted)
}

fn caught(defect: Defect, by: &[&str]) {
    let broken = broken(defect, |fact| by.contains(&fact));
    for fact in by {
        assert!(broken.contains(fact), "{defect:?} passed {fact}");
    }
}

#[test]
fn the_double_without_a_defect_breaks_nothing() {
    assert_eq!(broken(Defect::None, |_| true), Vec::<&str>::new());
}

#[test]
fn a_mode_that_is_taken_for_another_is_caught() {
    caught(
        Defect::SharedIsExclusive,
        &["readers_hold_a_key_together", "readers_in_a_row_are_let_in_together", "a_row_is_listed_as_one_key"],
    );
    caught(
        Defect::PermitsAreShared,
        &[
            "there_are_as_many_permits_as_the_limit",
            "one_permit_is_an_exclusive_lock",
            "a_repeated_claim_takes_its_permits_once",
            "shared_locks_and_permits_of_one_key_conflict",
        ],
    );
}

#[test]
fn weights_that_are_ignored_are_caught() {
    caught(
        Defect::EveryWeightIsOne,
        &[
            "a_claim_takes_its_weight",
            "a_small_claim_does_not_overtake_a_large_one",
            "released_permits_go_to_as_many_waiters_as_fit",
            "a_row_of_permits_is_shown_with_their_weights",
            "no_more_permits_are_in_use_than_there_are",
        ],
    );
}

#[test]
fn limits_that_are_ignored_are_caught() {
    caught(Defect::IgnoresLimits, &["there_are_as_many_permits_as_the_limit", "another_limit_is_refused_by_name"]);
}

#[test]
fn a_conflict_that_is_not_refused_is_caught() {
    const CONFLICTS: [&str; 3] = [
        "another_limit_is_refused_by_name",
        "shared_locks_and_permits_of_one_key_conflict",
        "a_conflict_ends_with_the_last_holder",
    ];
    caught(Defect::ConflictIsBusy, &CONFLICTS);
    caught(Defect::ConflictIsGranted, &CONFLICTS);
    caught(Defect::ConflictStaysInTheQueue, &["a_conflict_leaves_nothing_behind", "a_claim_conflicts_with_a_waiter"]);
}

#[test]
fn a_claim_that_overtakes_because_it_fits_is_caught() {
    caught(
        Defect::FittingClaimsOvertake,
        &["a_reader_does_not_overtake_a_waiting_writer", "a_small_claim_does_not_overtake_a_large_one"],
    );
}

#[test]
fn a_call_of_one_holder_that_changes_the_row_is_caught() {
    caught(
        Defect::ReleaseEndsTheRow,
        &[
            "a_release_ends_one_hold_of_many",
            "a_writer_gets_the_key_after_the_last_reader",
            "a_second_release_returns_no_permits",
        ],
    );
    caught(Defect::RenewalOfTheRow, &["a_renewal_extends_the_lease_of_its_holder_only"]);
    caught(
        Defect::EvictsTheRow,
        &["an_eviction_ends_one_hold_of_many", "an_eviction_of_a_released_reader_changes_nothing"],
    );
}

#[test]
fn a_row_that_is_shown_in_part_is_caught() {
    const SHOWN: [&str; 2] = ["a_row_is_shown_with_all_holders_and_their_modes", "a_row_is_listed_as_one_key"];
    caught(Defect::ShowsOneHolder, &SHOWN);
    caught(Defect::ShowsNoModes, &SHOWN);
    caught(Defect::ShowsNoModes, &["a_row_of_permits_is_shown_with_their_weights"]);
}

#[test]
fn a_downgrade_that_is_something_else_is_caught() {
    caught(Defect::DowngradeReleases, &["a_downgrade_lets_the_readers_in_up_to_the_next_writer"]);
    caught(
        Defect::DowngradeDoesNothing,
        &[
            "a_downgraded_writer_is_a_reader_with_a_new_token",
            "a_downgrade_renews_the_lease",
            "a_late_claim_does_not_undo_a_downgrade",
        ],
    );
    caught(Defect::DowngradeOfAnybodys, &["a_downgrade_by_another_client_changes_nothing"]);
    caught(
        Defect::DowngradeTakes,
        &["a_downgrade_of_a_free_key_finds_it_absent", "a_downgrade_after_the_expiry_finds_it_absent"],
    );
}

#[test]
fn a_downgrade_with_a_wrong_token_is_caught() {
    caught(Defect::DowngradeKeepsTheToken, &["a_downgraded_writer_is_a_reader_with_a_new_token"]);
    caught(Defect::DowngradeDrawsAgain, &["a_repeated_downgrade_returns_the_same_token"]);
}

#[test]
fn a_resize_that_is_something_else_is_caught() {
    caught(
        Defect::ResizeDoesNothing,
        &[
            "a_larger_limit_admits_more_holders",
            "a_smaller_limit_admits_no_waiter_until_the_sum_fits",
            "a_larger_limit_lets_waiters_in_at_once",
            "a_waiter_that_wants_more_than_there_is_after_a_resize_is_refused",
        ],
    );
    caught(Defect::ResizeEndsTheRow, &["holders_stay_when_their_semaphore_is_resized"]);
    caught(Defect::ResizeOfAnyMode, &["an_exclusive_lock_is_not_resized", "a_shared_lock_is_not_resized"]);
}
