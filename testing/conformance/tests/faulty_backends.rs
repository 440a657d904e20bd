//! The suite detects a faulty backend: each defect is added to the memory backend, which is correct.
#![allow(missing_docs, clippy::unwrap_used)]

mod faulty;

use faulty::{Defect, FaultyBackend};
use fencelock::backends::{ManualClock, Memory};
use fencelock_conformance::{Fixture, FixtureFactory, broken_facts};
use fencelock_core::{Backend, BoxFuture, QuorumNode};
use std::sync::{Arc, Once};
use std::time::Duration;

struct FaultyFixture {
    clock: Arc<ManualClock>,
    backend: Arc<FaultyBackend>,
}

impl Fixture for FaultyFixture {
    fn backend(&self) -> BoxFuture<'_, Arc<dyn Backend>> {
        Box::pin(async { Arc::clone(&self.backend) as _ })
    }

    fn node(&self) -> Result<BoxFuture<'_, Arc<dyn QuorumNode>>, &'static str> {
        Ok(Box::pin(async { self.backend.node() }))
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

/// Silences the panics of cases that must fail, but not those of the tests in this file.
fn silence_panics_of_cases() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let loud = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if std::thread::current().name() != Some("tokio-rt-worker") {
                loud(info);
            }
        }));
    });
}

fn caught(defect: Defect, by: &[&str]) {
    silence_panics_of_cases();
    let broken = broken_facts(&fixture_with(defect), |fact| by.contains(&fact));
    for fact in by {
        assert!(broken.contains(fact), "{defect:?} passed {fact}");
    }
}

#[test]
fn the_truth_breaks_nothing() {
    assert_eq!(broken_facts(&fixture_with(Defect::None), |_| true), Vec::<&str>::new());
}

#[test]
fn two_holders_of_one_key_are_caught() {
    caught(
        Defect::BusyIsGranted,
        &[
            "a_held_key_is_busy_for_all_other_clients",
            "sixty_four_tasks_lose_no_increment",
            "readers_never_overlap_a_writer",
            "no_more_permits_are_in_use_than_there_are",
        ],
    );
}

#[test]
fn a_hold_that_is_let_in_now_and_then_is_caught_by_counting() {
    caught(Defect::OneInAHundredIsGranted, &["sixty_four_tasks_lose_no_increment"]);
}

#[test]
fn contention_that_is_an_error_is_caught() {
    caught(Defect::BusyIsAnError, &["a_held_key_is_busy_for_all_other_clients"]);
}

#[test]
fn a_release_that_frees_the_hold_of_any_client_is_caught() {
    caught(
        Defect::ReleaseFreesAnybodys,
        &[
            "a_late_release_does_not_free_the_next_holder",
            "a_release_by_another_client_frees_nothing_and_names_the_holder",
            "a_second_release_returns_no_permits",
            "an_expired_holder_returns_its_permits_once",
        ],
    );
}

#[test]
fn a_release_that_is_always_content_is_caught() {
    caught(Defect::ReleaseSaysReleased, &["a_second_release_finds_the_key_absent"]);
}

#[test]
fn a_renewal_that_takes_the_key_again_is_caught() {
    caught(
        Defect::RenewalTakesAgain,
        &[
            "a_renewal_after_the_expiry_does_not_take_it_again",
            "a_renewal_of_a_free_key_finds_it_absent_and_does_not_take_it",
        ],
    );
}

#[test]
fn a_renewal_that_renews_the_hold_of_any_client_is_caught() {
    caught(Defect::RenewalOfAnybodys, &["a_renewal_after_a_takeover_changes_nothing_for_the_new_holder"]);
}

#[test]
fn a_renewal_that_does_nothing_is_caught() {
    caught(
        Defect::RenewalDoesNothing,
        &["a_renewed_lease_lasts_a_full_ttl_from_the_request", "a_renewed_hold_outlasts_its_first_ttl"],
    );
}

#[test]
fn answers_out_of_order_are_caught() {
    caught(Defect::RenewalsBackwards, &["renewals_in_one_batch_are_answered_in_their_order"]);
}

#[test]
fn a_try_that_stays_in_the_queue_is_caught() {
    caught(Defect::TryEnqueues, &["a_try_at_a_busy_key_changes_nothing"]);
}

#[test]
fn a_poll_that_takes_is_caught() {
    caught(
        Defect::PollTakes,
        &["a_poll_by_an_unknown_holder_takes_no_free_key", "a_poll_by_an_unknown_holder_does_not_enqueue_it"],
    );
}

#[test]
fn a_fence_that_does_not_increase_is_caught() {
    caught(
        Defect::FenceStandsStill,
        &[
            "a_fence_increases_with_every_grant",
            "a_fence_increases_after_an_expiry",
            "a_fence_increases_with_a_hand_off",
        ],
    );
}

#[test]
fn a_fence_that_moves_with_every_answer_is_caught() {
    caught(Defect::FenceMovesOnRepeat, &["a_repeated_claim_gets_the_same_grant"]);
}

#[test]
fn locks_that_never_expire_are_caught() {
    caught(Defect::LocksNeverExpire, &["a_hold_expires_without_renewal", "an_expired_hold_is_not_shown"]);
}

#[test]
fn a_lease_of_half_the_ttl_is_caught() {
    caught(Defect::HalfTheTtl, &["a_hold_does_not_end_before_its_ttl"]);
}

#[test]
fn a_lease_of_twice_the_ttl_is_caught() {
    caught(
        Defect::TwiceTheTtl,
        &["a_hold_expires_without_renewal", "five_renewals_of_five_seconds_leave_at_most_five"],
    );
}

#[test]
fn a_missing_label_is_caught() {
    caught(Defect::ForgetsLabels, &["a_held_key_shows_its_holder_with_owner_label_and_fence"]);
}

#[test]
fn names_that_fall_together_are_caught() {
    caught(Defect::IgnoresCase, &["similar_names_are_different_locks"]);
    caught(Defect::CutsNames, &["names_of_512_bytes_that_differ_in_the_last_are_different_locks"]);
}

#[test]
fn an_eviction_of_any_holder_is_caught() {
    caught(Defect::EvictsWhateverIsThere, &["an_eviction_does_not_end_a_later_hold"]);
}

#[test]
fn a_list_without_an_end_is_caught() {
    caught(Defect::ListsNothing, &["the_list_contains_held_keys_only"]);
}

#[test]
fn a_backend_that_sends_no_event_is_caught() {
    caught(
        Defect::NeverNotifies,
        &["a_release_notifies_the_first_waiter_of_its_grant", "each_reader_is_notified_of_its_grant"],
    );
}

#[test]
fn a_queue_that_is_never_left_is_caught() {
    caught(
        Defect::KeepsWaiters,
        &["a_release_by_a_waiter_removes_it_from_the_queue", "a_waiter_that_gave_up_is_skipped"],
    );
}

#[test]
fn a_late_comer_that_overtakes_is_caught() {
    caught(Defect::TryOvertakes, &["a_try_does_not_overtake_a_waiter"]);
}

#[test]
fn a_dropped_claim_that_arrives_later_is_caught() {
    caught(Defect::CarriesOutLater, &["a_dropped_claim_can_be_released"]);
}

#[test]
fn one_lock_for_all_keys_is_caught() {
    caught(Defect::OneLockForAll, &["keys_are_independent"]);
}

#[test]
fn a_release_that_is_only_said_is_caught() {
    caught(Defect::ReleaseDoesNothing, &["a_release_frees_the_key", "an_eviction_does_not_end_a_later_hold"]);
}

#[test]
fn a_claim_that_is_made_before_it_is_awaited_is_caught() {
    caught(Defect::ClaimsEagerly, &["a_claim_dropped_before_its_first_poll_does_nothing"]);
}

#[test]
fn an_inspection_that_acquires_is_caught() {
    caught(Defect::InspectTakes, &["a_free_key_shows_nothing", "inspecting_does_not_hold_the_key"]);
}

#[test]
fn a_completion_of_a_client_that_does_not_hold_the_key_is_caught() {
    caught(
        Defect::CompletesForAnybody,
        &[
            "a_completion_by_another_client_is_refused",
            "a_completion_of_a_free_key_is_refused",
            "a_completion_after_the_release_is_refused",
            "a_completion_after_the_expiry_is_refused",
            "a_completion_after_a_takeover_is_refused",
        ],
    );
}

#[test]
fn a_completion_that_decreases_is_caught() {
    caught(Defect::CompletionGoesBack, &["a_later_run_is_kept_until_the_later_end"]);
}

#[test]
fn a_completion_that_ends_with_its_hold_is_caught() {
    caught(Defect::CompletionIsForgotten, &["a_completion_outlasts_the_hold"]);
}

#[test]
fn one_completion_for_all_keys_is_caught() {
    caught(Defect::CompletionOfAllKeys, &["a_completion_belongs_to_one_key"]);
}

#[test]
fn clearing_any_completion_is_caught() {
    caught(Defect::ClearsAnyCompletion, &["a_completion_of_a_later_run_is_not_cleared"]);
}
