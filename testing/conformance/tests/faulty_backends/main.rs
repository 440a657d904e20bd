//! The suite detects a faulty backend: each defect is added to the memory backend, which is correct.
#![allow(missing_docs, clippy::unwrap_used)]

mod backend;

use backend::{Defect, FaultyBackend};
use fencelock::backends::{ManualClock, Memory};
use fencelock_conformance::{Fixture, FixtureFactory, broken_facts};
use fencelock_core::{Backend, BoxFuture};
use std::sync::Arc;
use std::time::Duration;

struct FaultyFixture {
    clock: Arc<ManualClock>,
    backend: Arc<FaultyBackend>,
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

fn fixture_with(defect: Defect) -> FixtureFactory {
    FixtureFactory::new("faulty", move || {
        let clock = Arc::new(ManualClock::at(Duration::from_secs(3600)));
        let memory = match defect {
            Defect::LocksNeverExpire => Memory::with_leases(Arc::new(ManualClock::at(Duration::from_secs(3600)))),
            _ => Memory::with_leases(Arc::clone(&clock) as _),
        };
        Ok(Box::new(FaultyFixture { clock, backend: Arc::new(FaultyBackend::new(memory, defect)) }))
    })
}

/// The cases that catch each defect.
#[rustfmt::skip]
const CAUGHT: &[(Defect, &[&str])] = &[
    (Defect::BusyIsGranted, &["a_held_key_is_busy_for_all_other_clients", "sixty_four_tasks_lose_no_increment", "readers_never_overlap_a_writer", "no_more_permits_are_in_use_than_there_are"]),
    (Defect::OneInAHundredIsGranted, &["sixty_four_tasks_lose_no_increment"]),
    (Defect::BusyIsAnError, &["a_held_key_is_busy_for_all_other_clients"]),
    (Defect::ReleaseFreesAnybodys, &["a_late_release_does_not_free_the_next_holder", "a_release_by_another_client_frees_nothing_and_names_the_holder", "a_second_release_returns_no_permits", "an_expired_holder_returns_its_permits_once"]),
    (Defect::ReleaseSaysReleased, &["a_second_release_finds_the_key_absent"]),
    (Defect::RenewalTakesAgain, &["a_renewal_after_the_expiry_does_not_take_it_again", "a_renewal_of_a_free_key_finds_it_absent_and_does_not_take_it"]),
    (Defect::RenewalOfAnybodys, &["a_renewal_after_a_takeover_changes_nothing_for_the_new_holder"]),
    (Defect::RenewalDoesNothing, &["a_renewed_lease_lasts_a_full_ttl_from_the_request", "a_renewed_hold_outlasts_its_first_ttl"]),
    (Defect::RenewalsBackwards, &["renewals_in_one_batch_are_answered_in_their_order"]),
    (Defect::TryEnqueues, &["a_try_at_a_busy_key_changes_nothing"]),
    (Defect::PollTakes, &["a_poll_by_an_unknown_holder_takes_no_free_key", "a_poll_by_an_unknown_holder_does_not_enqueue_it"]),
    (Defect::FenceStandsStill, &["a_fence_increases_with_every_grant", "a_fence_increases_after_an_expiry", "a_fence_increases_with_a_hand_off"]),
    (Defect::FenceMovesOnRepeat, &["a_repeated_claim_gets_the_same_grant"]),
    (Defect::LocksNeverExpire, &["a_hold_expires_without_renewal", "an_expired_hold_is_not_shown"]),
    (Defect::HalfTheTtl, &["a_hold_does_not_end_before_its_ttl"]),
    (Defect::TwiceTheTtl, &["a_hold_expires_without_renewal", "five_renewals_of_five_seconds_leave_at_most_five"]),
    (Defect::ForgetsLabels, &["a_held_key_shows_its_holder_with_owner_label_and_fence"]),
    (Defect::IgnoresCase, &["similar_names_are_different_locks"]),
    (Defect::CutsNames, &["names_of_512_bytes_that_differ_in_the_last_are_different_locks"]),
    (Defect::EvictsWhateverIsThere, &["an_eviction_does_not_end_a_later_hold"]),
    (Defect::ListsNothing, &["the_list_contains_held_keys_only"]),
    (Defect::NeverNotifies, &["a_release_notifies_the_first_waiter_of_its_grant", "each_reader_is_notified_of_its_grant"]),
    (Defect::KeepsWaiters, &["a_release_by_a_waiter_removes_it_from_the_queue", "a_waiter_that_gave_up_is_skipped"]),
    (Defect::TryOvertakes, &["a_try_does_not_overtake_a_waiter"]),
    (Defect::CarriesOutLater, &["a_dropped_claim_can_be_released"]),
    (Defect::OneLockForAll, &["keys_are_independent"]),
    (Defect::ReleaseDoesNothing, &["a_release_frees_the_key", "an_eviction_does_not_end_a_later_hold"]),
    (Defect::ClaimsEagerly, &["a_claim_dropped_before_its_first_poll_does_nothing"]),
    (Defect::InspectTakes, &["a_free_key_shows_nothing", "inspecting_does_not_hold_the_key"]),
    (Defect::CompletesForAnybody, &["a_completion_by_another_client_is_refused", "a_completion_of_a_free_key_is_refused", "a_completion_after_the_release_is_refused", "a_completion_after_the_expiry_is_refused", "a_completion_after_a_takeover_is_refused"]),
    (Defect::CompletionGoesBack, &["a_later_run_is_kept_until_the_later_end"]),
    (Defect::CompletionIsForgotten, &["a_completion_outlasts_the_hold"]),
    (Defect::CompletionOfAllKeys, &["a_completion_belongs_to_one_key"]),
    (Defect::ClearsAnyCompletion, &["a_completion_of_a_later_run_is_not_cleared"]),
    (Defect::SharedIsExclusive, &["readers_hold_a_key_together", "readers_in_a_row_are_let_in_together", "a_row_is_listed_as_one_key"]),
    (Defect::PermitsAreShared, &["there_are_as_many_permits_as_the_limit", "one_permit_is_an_exclusive_lock", "a_repeated_claim_takes_its_permits_once", "shared_locks_and_permits_of_one_key_conflict"]),
    (Defect::EveryWeightIsOne, &["a_claim_takes_its_weight", "a_small_claim_does_not_overtake_a_large_one", "released_permits_go_to_as_many_waiters_as_fit", "a_row_of_permits_is_shown_with_their_weights", "no_more_permits_are_in_use_than_there_are"]),
    (Defect::IgnoresLimits, &["there_are_as_many_permits_as_the_limit", "another_limit_is_refused_by_name"]),
    (Defect::ConflictIsBusy, &["another_limit_is_refused_by_name", "shared_locks_and_permits_of_one_key_conflict", "a_conflict_ends_with_the_last_holder"]),
    (Defect::ConflictIsGranted, &["another_limit_is_refused_by_name", "shared_locks_and_permits_of_one_key_conflict", "a_conflict_ends_with_the_last_holder"]),
    (Defect::ConflictStaysInTheQueue, &["a_conflict_leaves_nothing_behind", "a_claim_conflicts_with_a_waiter"]),
    (Defect::FittingClaimsOvertake, &["a_reader_does_not_overtake_a_waiting_writer", "a_small_claim_does_not_overtake_a_large_one"]),
    (Defect::ReleaseEndsTheRow, &["a_release_ends_one_hold_of_many", "a_writer_gets_the_key_after_the_last_reader", "a_second_release_returns_no_permits"]),
    (Defect::RenewalOfTheRow, &["a_renewal_extends_the_lease_of_its_holder_only"]),
    (Defect::EvictsTheRow, &["an_eviction_ends_one_hold_of_many", "an_eviction_of_a_released_reader_changes_nothing"]),
    (Defect::ShowsOneHolder, &["a_row_is_shown_with_all_holders_and_their_modes", "a_row_is_listed_as_one_key"]),
    (Defect::ShowsNoModes, &["a_row_is_shown_with_all_holders_and_their_modes", "a_row_is_listed_as_one_key", "a_row_of_permits_is_shown_with_their_weights"]),
    (Defect::DowngradeReleases, &["a_downgrade_lets_the_readers_in_up_to_the_next_writer"]),
    (Defect::DowngradeDoesNothing, &["a_downgraded_writer_is_a_reader_with_a_new_token", "a_downgrade_renews_the_lease", "a_late_claim_does_not_undo_a_downgrade"]),
    (Defect::DowngradeOfAnybodys, &["a_downgrade_by_another_client_changes_nothing"]),
    (Defect::DowngradeTakes, &["a_downgrade_of_a_free_key_finds_it_absent", "a_downgrade_after_the_expiry_finds_it_absent"]),
    (Defect::DowngradeKeepsTheToken, &["a_downgraded_writer_is_a_reader_with_a_new_token"]),
    (Defect::DowngradeDrawsAgain, &["a_repeated_downgrade_returns_the_same_token"]),
    (Defect::ResizeDoesNothing, &["a_larger_limit_admits_more_holders", "a_smaller_limit_admits_no_waiter_until_the_sum_fits", "a_larger_limit_lets_waiters_in_at_once", "a_waiter_that_wants_more_than_there_is_after_a_resize_is_refused"]),
    (Defect::ResizeEndsTheRow, &["holders_stay_when_their_semaphore_is_resized"]),
    (Defect::ResizeOfAnyMode, &["an_exclusive_lock_is_not_resized", "a_shared_lock_is_not_resized"]),
];

#[test]
fn the_truth_breaks_nothing() {
    assert_eq!(broken_facts(&fixture_with(Defect::None), |_| true), Vec::<&str>::new());
}

#[test]
fn every_defect_is_caught() {
    // The panics of cases, which must fail, are on threads of their runtimes.
    let loud = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if std::thread::current().name() != Some("tokio-rt-worker") {
            loud(info);
        }
    }));
    for (defect, by) in CAUGHT {
        let broken = broken_facts(&fixture_with(*defect), |fact| by.contains(&fact));
        for fact in *by {
            assert!(broken.contains(fact), "{defect:?} passed {fact}");
        }
    }
}
