//! A renewal does not create, shorten or free a hold.

use crate::Fixture;
use crate::case::{Case, Need, case, case_for};
use crate::deadline::in_time;
use crate::test_client::{ALIVE, CLOCK_RESOLUTION, LONG, PAST_SHORT, SHORT, TestClient, expect_known, test_clients};
use fencelock_core::{Release, Renew};
use futures_util::future::join_all;
use std::time::Duration;
use tokio::time::Instant;

const FIVE_SECONDS: Duration = Duration::from_secs(5);

pub(super) fn cases() -> Vec<Case> {
    vec![
        case(a_renewal_by_the_holder_succeeds),
        case(a_renewal_of_a_free_key_finds_it_absent_and_does_not_take_it),
        case(a_renewal_by_another_client_names_the_holder),
        case_for(&[Need::Expires], a_renewed_lease_lasts_a_full_ttl_from_the_request),
        case_for(&[Need::Expires], a_renewed_hold_outlasts_its_first_ttl),
        case_for(&[Need::Expires], a_shorter_renewal_does_not_shorten),
        case_for(&[Need::Expires], a_poll_with_a_shorter_ttl_does_not_shorten),
        case_for(&[Need::Expires], five_renewals_of_five_seconds_leave_at_most_five),
        case_for(&[Need::Expires], a_renewal_after_the_expiry_does_not_take_it_again),
        case_for(&[Need::Expires], a_renewal_after_a_later_hold_was_released_finds_it_absent),
        case_for(&[Need::Expires], a_renewal_after_a_takeover_changes_nothing_for_the_new_holder),
        case_for(&[Need::Queues], a_renewal_reports_the_number_of_waiters).within(ALIVE),
        case_for(&[Need::Queues], a_renewal_by_a_waiter_takes_nothing).within(ALIVE),
        case(renewals_in_one_batch_are_answered_in_their_order),
        case(an_empty_batch_has_no_answers),
        case(a_batch_may_be_large),
    ]
}

async fn a_renewal_by_the_holder_succeeds(fixture: &dyn Fixture) {
    let [a, b] = test_clients(fixture).await;
    let fence = a.takes().await;
    assert_eq!(a.renews().await, Renew::Renewed { waiters: 0 });
    a.still_holds_with(fence).await;
    b.is_refused().await;
}

async fn a_renewal_of_a_free_key_finds_it_absent_and_does_not_take_it(fixture: &dyn Fixture) {
    let [a, b] = test_clients(fixture).await;
    assert_eq!(a.renews().await, Renew::Absent);
    assert_eq!(b.inspects().await, None);
    b.takes().await;
    assert_eq!(b.releases().await, Release::Released);
    assert_eq!(b.renews().await, Renew::Absent, "the release ended the hold");
    assert_eq!(a.inspects().await, None);
}

async fn a_renewal_by_another_client_names_the_holder(fixture: &dyn Fixture) {
    let [a, b] = test_clients(fixture).await;
    let fence = a.takes().await;
    for other in [b, a.new_attempt()] {
        assert_eq!(other.renews().await, Renew::TakenBy(a.holders()));
    }
    a.still_holds_with(fence).await;
}

async fn a_renewed_lease_lasts_a_full_ttl_from_the_request(fixture: &dyn Fixture) {
    let [a] = test_clients(fixture).await;
    a.takes().await;
    fixture.let_time_pass(Duration::from_secs(1)).await;
    assert!(a.time_left().await + Duration::from_secs(1) <= LONG + CLOCK_RESOLUTION);
    let requested = Instant::now();
    assert_eq!(a.renews().await, Renew::Renewed { waiters: 0 });
    has_at_least(fixture, &a, LONG, requested).await;
}

/// Checks that the hold lasts `whole` from `requested` or later.
async fn has_at_least(fixture: &dyn Fixture, a: &TestClient, whole: Duration, requested: Instant) {
    let mut left = a.time_left().await;
    // A read of a quorum may hear a node that is late with the renewal.
    while left + requested.elapsed() + CLOCK_RESOLUTION < whole {
        assert!(requested.elapsed() < Duration::from_secs(5), "{left:?} left of {whole:?}");
        fixture.let_time_pass(CLOCK_RESOLUTION).await;
        left = a.time_left().await;
    }
    assert!(left <= whole, "{left:?} left of {whole:?}");
}

async fn a_renewed_hold_outlasts_its_first_ttl(fixture: &dyn Fixture) {
    let [a, b] = test_clients(fixture).await;
    in_time(SHORT, async {
        let first = a.clone().for_ttl(SHORT);
        first.takes().await;
        fixture.let_time_pass(SHORT / 2).await;
        assert!(matches!(first.renews().await, Renew::Renewed { .. }));
        assert!(matches!(a.renews().await, Renew::Renewed { .. }));
    })
    .await;
    fixture.let_leases_end(PAST_SHORT).await;
    b.is_refused().await;
}

async fn a_shorter_renewal_does_not_shorten(fixture: &dyn Fixture) {
    let [a, b] = test_clients(fixture).await;
    let taken = Instant::now();
    a.takes().await;
    let shorter = a.clone().for_ttl(SHORT);
    assert!(matches!(shorter.renews().await, Renew::Renewed { .. }));
    has_at_least(fixture, &a, LONG, taken).await;
    fixture.let_leases_end(PAST_SHORT).await;
    b.is_refused().await;
}

async fn a_poll_with_a_shorter_ttl_does_not_shorten(fixture: &dyn Fixture) {
    let [a] = test_clients(fixture).await;
    let taken = Instant::now();
    a.takes().await;
    a.clone().for_ttl(SHORT).still_holds().await;
    has_at_least(fixture, &a, LONG, taken).await;
}

async fn five_renewals_of_five_seconds_leave_at_most_five(fixture: &dyn Fixture) {
    let [a] = test_clients(fixture).await;
    let a = a.for_ttl(FIVE_SECONDS);
    a.takes().await;
    for _ in 0..5 {
        assert!(matches!(a.renews().await, Renew::Renewed { .. }));
    }
    let left = a.time_left().await;
    assert!(left <= FIVE_SECONDS, "{left:?}");
}

async fn a_renewal_after_the_expiry_does_not_take_it_again(fixture: &dyn Fixture) {
    let [a, b] = test_clients(fixture).await;
    let a = a.for_ttl(SHORT);
    a.takes().await;
    fixture.let_leases_end(PAST_SHORT).await;
    assert_eq!(a.renews().await, Renew::Absent);
    assert_eq!(b.inspects().await, None);
    b.takes().await;
}

async fn a_renewal_after_a_later_hold_was_released_finds_it_absent(fixture: &dyn Fixture) {
    let [a, b] = test_clients(fixture).await;
    let a = a.for_ttl(SHORT);
    a.takes().await;
    fixture.let_leases_end(PAST_SHORT).await;
    b.takes().await;
    assert_eq!(b.releases().await, Release::Released);
    assert_eq!(a.renews().await, Renew::Absent);
    assert_eq!(b.inspects().await, None);
}

async fn a_renewal_after_a_takeover_changes_nothing_for_the_new_holder(fixture: &dyn Fixture) {
    let [a, b] = test_clients(fixture).await;
    let a = a.for_ttl(SHORT);
    a.takes().await;
    fixture.let_leases_end(PAST_SHORT).await;
    let b = b.for_ttl(FIVE_SECONDS);
    let fence = b.takes().await;
    let late = a.for_ttl(LONG);
    assert_eq!(late.renews().await, Renew::TakenBy(b.holders()));
    let left = b.time_left().await;
    assert!(left <= FIVE_SECONDS, "{left:?} left: the late renewal extended the hold of another client");
    b.still_holds_with(fence).await;
}

async fn a_renewal_reports_the_number_of_waiters(fixture: &dyn Fixture) {
    let [a, b, c] = test_clients(fixture).await;
    a.takes().await;
    b.is_queued(0).await;
    assert_eq!(a.renews().await, Renew::Renewed { waiters: 1 });
    c.is_queued(1).await;
    assert_eq!(a.renews().await, Renew::Renewed { waiters: 2 });
    b.releases().await;
    assert_eq!(a.renews().await, Renew::Renewed { waiters: 1 });
}

async fn a_renewal_by_a_waiter_takes_nothing(fixture: &dyn Fixture) {
    let [a, b] = test_clients(fixture).await;
    let fence = a.takes().await;
    b.is_queued(0).await;
    assert_eq!(b.renews().await, Renew::TakenBy(a.holders()));
    a.still_holds_with(fence).await;
    b.is_queued(0).await;
}

async fn renewals_in_one_batch_are_answered_in_their_order(fixture: &dyn Fixture) {
    let [client, other_client] = test_clients(fixture).await;
    let (mine, free, also_mine) = (client.with_new_key(), client.with_new_key(), client.with_new_key());
    let others = TestClient { key: client.key.clone(), ..other_client };
    mine.takes().await;
    also_mine.takes().await;
    others.takes().await;
    let batch = [free.renewal(), mine.renewal(), client.renewal(), also_mine.renewal(), mine.renewal()];
    let answers: Vec<_> = client.backend.renew(&batch).await.into_iter().map(expect_known).collect();
    let renewed = Renew::Renewed { waiters: 0 };
    let taken = Renew::TakenBy(others.holders());
    assert_eq!(answers, [Renew::Absent, renewed.clone(), taken, renewed.clone(), renewed]);
}

async fn an_empty_batch_has_no_answers(fixture: &dyn Fixture) {
    let [a] = test_clients(fixture).await;
    assert!(a.backend.renew(&[]).await.is_empty());
}

async fn a_batch_may_be_large(fixture: &dyn Fixture) {
    let [client] = test_clients(fixture).await;
    let held: Vec<_> = (0..300).map(|_| client.with_new_key()).collect();
    let is_held = |i: usize| !i.is_multiple_of(3);
    let batch: Vec<_> = held.iter().map(TestClient::renewal).collect();
    let claims = held.iter().enumerate().filter(|(i, _)| is_held(*i)).map(|(_, client)| client.takes());
    // The first lease must outlast the claims.
    in_time(LONG, async {
        join_all(claims).await;
        let answers = client.backend.renew(&batch).await;
        assert_eq!(answers.len(), batch.len());
        for (i, answer) in answers.into_iter().map(expect_known).enumerate() {
            let expected = if is_held(i) { Renew::Renewed { waiters: 0 } } else { Renew::Absent };
            assert_eq!(answer, expected, "answer {i} of the batch");
        }
    })
    .await;
}
