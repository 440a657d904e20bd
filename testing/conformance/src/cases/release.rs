//! A release frees only the hold of its holder, and reports the state that it found.

use crate::Fixture;
use crate::case::{Case, Need, case, case_for};
use crate::test_client::{ALIVE, PAST_SHORT, SHORT, test_clients};
use fencelock_core::{Acquire, Release};

pub(super) fn cases() -> Vec<Case> {
    vec![
        case(a_release_frees_the_key),
        case(a_second_release_finds_the_key_absent),
        case(a_release_of_a_free_key_finds_it_absent),
        case(a_release_by_another_client_frees_nothing_and_names_the_holder),
        case(a_late_release_does_not_free_the_next_holder),
        case_for(&[Need::Expires], a_release_after_the_expiry_finds_the_key_absent),
        case_for(&[Need::Expires], a_release_after_expiry_and_takeover_frees_nothing),
        case_for(&[Need::Queues], a_release_by_a_waiter_removes_it_from_the_queue).within(ALIVE),
    ]
}

async fn a_release_frees_the_key(fixture: &dyn Fixture) {
    let [a, b] = test_clients(fixture).await;
    a.takes().await;
    assert_eq!(a.releases().await, Release::Released);
    assert_eq!(b.inspects().await, None);
    b.takes().await;
}

async fn a_second_release_finds_the_key_absent(fixture: &dyn Fixture) {
    let [a] = test_clients(fixture).await;
    a.takes().await;
    assert_eq!(a.releases().await, Release::Released);
    assert_eq!(a.releases().await, Release::Absent);
    assert_eq!(a.releases().await, Release::Absent);
}

async fn a_release_of_a_free_key_finds_it_absent(fixture: &dyn Fixture) {
    let [a, b] = test_clients(fixture).await;
    assert_eq!(a.releases().await, Release::Absent);
    b.takes().await;
}

async fn a_release_by_another_client_frees_nothing_and_names_the_holder(fixture: &dyn Fixture) {
    let [a, b] = test_clients(fixture).await;
    let fence = a.takes().await;
    for other in [&b, &a.new_attempt()] {
        assert_eq!(other.releases().await, Release::TakenBy(a.holders()));
    }
    a.still_holds_with(fence).await;
    b.is_refused().await;
}

async fn a_late_release_does_not_free_the_next_holder(fixture: &dyn Fixture) {
    let [a, b] = test_clients(fixture).await;
    a.takes().await;
    assert_eq!(a.releases().await, Release::Released);
    let fence = b.takes().await;
    assert_eq!(a.releases().await, Release::TakenBy(b.holders()));
    b.still_holds_with(fence).await;
}

async fn a_release_after_the_expiry_finds_the_key_absent(fixture: &dyn Fixture) {
    let [a] = test_clients(fixture).await;
    let a = a.for_ttl(SHORT);
    a.takes().await;
    fixture.let_leases_end(PAST_SHORT).await;
    assert_eq!(a.releases().await, Release::Absent);
}

async fn a_release_after_expiry_and_takeover_frees_nothing(fixture: &dyn Fixture) {
    let [a, b] = test_clients(fixture).await;
    let a = a.for_ttl(SHORT);
    a.takes().await;
    fixture.let_leases_end(PAST_SHORT).await;
    let fence = b.takes().await;
    assert_eq!(a.releases().await, Release::TakenBy(b.holders()));
    b.still_holds_with(fence).await;
}

async fn a_release_by_a_waiter_removes_it_from_the_queue(fixture: &dyn Fixture) {
    let [a, b, c] = test_clients(fixture).await;
    a.takes().await;
    b.is_queued(0).await;
    assert_eq!(b.releases().await, Release::TakenBy(a.holders()));
    assert_eq!(a.seen().await.waiters, 0);
    assert_eq!(b.polls().await, Acquire::Gone);
    assert_eq!(a.releases().await, Release::Released);
    assert_eq!(c.inspects().await, None, "the key was not handed over");
}
