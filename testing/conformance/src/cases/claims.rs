//! A claim that is repeated gets the same answer; a poll by a stranger gets nothing.

use crate::Place;
use crate::case::{Case, Need, case, case_for};
use crate::rival::{ALIVE, rivals};
use fencelock_core::{Acquire, Intent, Release};
use std::time::Duration;

pub(super) fn cases() -> Vec<Case> {
    vec![
        case(a_repeated_claim_gets_the_same_grant),
        case_for(&[Need::Expires], repeated_claims_do_not_pile_up_time),
        case_for(&[Need::Queues], a_claim_repeated_from_the_line_keeps_its_one_place).within(ALIVE),
        case(a_poll_by_a_stranger_takes_no_free_key),
        case(a_poll_by_a_stranger_does_not_join_the_line),
        case(a_poll_after_the_release_finds_it_gone),
        case_for(&[Need::Portable], a_holder_goes_on_through_another_client),
    ]
}

async fn a_repeated_claim_gets_the_same_grant(place: &dyn Place) {
    let [a, b] = rivals(place).await;
    let fence = a.takes().await;
    for intent in [Intent::Try, Intent::Enqueue, Intent::Poll, Intent::Poll, Intent::Try] {
        assert_eq!(a.claims(intent).await, Acquire::Granted { tokens: fence.into() }, "{intent:?}");
    }
    assert_eq!(a.releases().await, Release::Released);
    assert_eq!(b.inspects().await, None, "one release ends all of it");
}

async fn repeated_claims_do_not_pile_up_time(place: &dyn Place) {
    let [a] = rivals(place).await;
    let a = a.for_ttl(Duration::from_secs(5));
    a.takes().await;
    for intent in [Intent::Try, Intent::Enqueue, Intent::Poll, Intent::Poll, Intent::Poll] {
        a.claims(intent).await;
        let left = a.time_left().await;
        assert!(left <= a.ttl, "{left:?} left after {intent:?}");
    }
}

async fn a_claim_repeated_from_the_line_keeps_its_one_place(place: &dyn Place) {
    let [a, b, c] = rivals(place).await;
    a.takes().await;
    b.stands_in_line(0).await;
    c.stands_in_line(1).await;
    b.stands_in_line(0).await;
    c.stands_in_line(1).await;
    assert!(matches!(b.polls().await, Acquire::Queued { ahead: 0, .. }));
    assert!(matches!(c.polls().await, Acquire::Queued { ahead: 1, .. }));
    assert_eq!(a.seen().await.waiters, 2);
}

async fn a_poll_by_a_stranger_takes_no_free_key(place: &dyn Place) {
    let [stranger, b] = rivals(place).await;
    assert_eq!(stranger.polls().await, Acquire::Gone);
    assert_eq!(b.inspects().await, None);
    b.takes().await;
}

async fn a_poll_by_a_stranger_does_not_join_the_line(place: &dyn Place) {
    let [a, stranger, c] = rivals(place).await;
    a.takes().await;
    assert_eq!(stranger.polls().await, Acquire::Gone);
    assert_eq!(a.seen().await.waiters, 0);
    assert_eq!(a.releases().await, Release::Released);
    assert_eq!(c.inspects().await, None, "nobody was in line for it");
}

async fn a_poll_after_the_release_finds_it_gone(place: &dyn Place) {
    let [a, b] = rivals(place).await;
    a.takes().await;
    assert_eq!(a.releases().await, Release::Released);
    assert_eq!(a.polls().await, Acquire::Gone);
    b.takes().await;
    assert_eq!(a.polls().await, Acquire::Gone);
}

async fn a_holder_goes_on_through_another_client(place: &dyn Place) {
    let [a, b] = rivals(place).await;
    let fence = a.takes().await;
    let moved = a.moved(place).await;
    assert_eq!(moved.has_it().await, fence);
    drop(a);
    b.finds_it_busy().await;
    assert_eq!(moved.releases().await, Release::Released);
    b.takes().await;
}
