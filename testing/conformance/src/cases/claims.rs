//! A repeated claim has the same answer; a poll by an unknown holder is not granted.

use crate::Fixture;
use crate::case::{Case, Need, case, case_for};
use crate::test_client::{ALIVE, test_clients};
use fencelock_core::{Acquire, Intent, Release};
use std::time::Duration;

pub(super) fn cases() -> Vec<Case> {
    vec![
        case(a_repeated_claim_gets_the_same_grant),
        case_for(&[Need::Expires], repeated_claims_do_not_accumulate_time),
        case_for(&[Need::Queues], a_claim_repeated_by_a_waiter_keeps_its_one_position).within(ALIVE),
        case(a_poll_by_an_unknown_holder_takes_no_free_key),
        case(a_poll_by_an_unknown_holder_does_not_enqueue_it),
        case(a_poll_after_the_release_finds_it_gone),
        case_for(&[Need::Portable], a_holder_can_continue_through_another_client),
    ]
}

async fn a_repeated_claim_gets_the_same_grant(fixture: &dyn Fixture) {
    let [a, b] = test_clients(fixture).await;
    let fence = a.takes().await;
    for intent in [Intent::Try, Intent::Enqueue, Intent::Poll, Intent::Poll, Intent::Try] {
        a.is_granted_again(&a.claims(intent).await, fence);
    }
    assert_eq!(a.releases().await, Release::Released);
    assert_eq!(b.inspects().await, None, "one release ends the hold");
}

async fn repeated_claims_do_not_accumulate_time(fixture: &dyn Fixture) {
    let [a] = test_clients(fixture).await;
    let a = a.for_ttl(Duration::from_secs(5));
    a.takes().await;
    for intent in [Intent::Try, Intent::Enqueue, Intent::Poll, Intent::Poll, Intent::Poll] {
        a.claims(intent).await;
        let left = a.time_left().await;
        assert!(left <= a.ttl, "{left:?} left after {intent:?}");
    }
}

async fn a_claim_repeated_by_a_waiter_keeps_its_one_position(fixture: &dyn Fixture) {
    let [a, b, c] = test_clients(fixture).await;
    a.takes().await;
    b.is_queued(0).await;
    c.is_queued(1).await;
    b.is_queued(0).await;
    c.is_queued(1).await;
    assert!(matches!(b.polls().await, Acquire::Queued { ahead: 0, .. }));
    assert!(matches!(c.polls().await, Acquire::Queued { ahead: 1, .. }));
    assert_eq!(a.seen().await.waiters, 2);
}

async fn a_poll_by_an_unknown_holder_takes_no_free_key(fixture: &dyn Fixture) {
    let [stranger, b] = test_clients(fixture).await;
    assert_eq!(stranger.polls().await, Acquire::Gone);
    assert_eq!(b.inspects().await, None);
    b.takes().await;
}

async fn a_poll_by_an_unknown_holder_does_not_enqueue_it(fixture: &dyn Fixture) {
    let [a, stranger, c] = test_clients(fixture).await;
    a.takes().await;
    stranger.is_unknown().await;
    assert_eq!(a.seen().await.waiters, 0);
    assert_eq!(a.releases().await, Release::Released);
    assert_eq!(c.inspects().await, None, "the queue is empty");
}

async fn a_poll_after_the_release_finds_it_gone(fixture: &dyn Fixture) {
    let [a, b] = test_clients(fixture).await;
    a.takes().await;
    assert_eq!(a.releases().await, Release::Released);
    assert_eq!(a.polls().await, Acquire::Gone);
    b.takes().await;
    a.is_unknown().await;
}

async fn a_holder_can_continue_through_another_client(fixture: &dyn Fixture) {
    let [a, b] = test_clients(fixture).await;
    let fence = a.takes().await;
    let moved = a.on_another_client(fixture).await;
    moved.still_holds_with(fence).await;
    drop(a);
    b.is_refused().await;
    assert_eq!(moved.releases().await, Release::Released);
    b.takes().await;
}
