//! A release frees only what its holder has, and says what it found.

use crate::Place;
use crate::case::{Case, Need, case, case_for};
use crate::rival::{ALIVE, PAST_SHORT, SHORT, rivals};
use fencelock_core::{Acquire, Release};

pub(super) fn cases() -> Vec<Case> {
    vec![
        case(a_release_frees_the_key),
        case(a_second_release_finds_the_key_absent),
        case(a_release_of_a_free_key_finds_it_absent),
        case(a_release_by_a_rival_frees_nothing_and_names_the_holder),
        case(a_late_release_does_not_free_the_next_holder),
        case_for(&[Need::Expires], a_release_after_the_expiry_finds_the_key_absent),
        case_for(&[Need::Expires], a_release_after_expiry_and_takeover_frees_nothing),
        case_for(&[Need::Queues], a_release_from_the_line_gives_up_the_place).within(ALIVE),
    ]
}

async fn a_release_frees_the_key(place: &dyn Place) {
    let [a, b] = rivals(place).await;
    a.takes().await;
    assert_eq!(a.releases().await, Release::Released);
    assert_eq!(b.inspects().await, None);
    b.takes().await;
}

async fn a_second_release_finds_the_key_absent(place: &dyn Place) {
    let [a] = rivals(place).await;
    a.takes().await;
    assert_eq!(a.releases().await, Release::Released);
    assert_eq!(a.releases().await, Release::Absent);
    assert_eq!(a.releases().await, Release::Absent);
}

async fn a_release_of_a_free_key_finds_it_absent(place: &dyn Place) {
    let [a, b] = rivals(place).await;
    assert_eq!(a.releases().await, Release::Absent);
    b.takes().await;
}

async fn a_release_by_a_rival_frees_nothing_and_names_the_holder(place: &dyn Place) {
    let [a, b] = rivals(place).await;
    let fence = a.takes().await;
    assert_eq!(b.releases().await, Release::TakenBy(a.holders()));
    assert_eq!(a.has_it().await, fence);
    b.finds_it_busy().await;
}

async fn a_late_release_does_not_free_the_next_holder(place: &dyn Place) {
    let [a, b] = rivals(place).await;
    a.takes().await;
    assert_eq!(a.releases().await, Release::Released);
    let fence = b.takes().await;
    assert_eq!(a.releases().await, Release::TakenBy(b.holders()));
    assert_eq!(b.has_it().await, fence);
}

async fn a_release_after_the_expiry_finds_the_key_absent(place: &dyn Place) {
    let [a] = rivals(place).await;
    let a = a.for_ttl(SHORT);
    a.takes().await;
    place.let_time_pass(PAST_SHORT).await;
    assert_eq!(a.releases().await, Release::Absent);
}

async fn a_release_after_expiry_and_takeover_frees_nothing(place: &dyn Place) {
    let [a, b] = rivals(place).await;
    let a = a.for_ttl(SHORT);
    a.takes().await;
    place.let_time_pass(PAST_SHORT).await;
    let fence = b.takes().await;
    assert_eq!(a.releases().await, Release::TakenBy(b.holders()));
    assert_eq!(b.has_it().await, fence);
}

async fn a_release_from_the_line_gives_up_the_place(place: &dyn Place) {
    let [a, b, c] = rivals(place).await;
    a.takes().await;
    b.stands_in_line(0).await;
    assert_eq!(b.releases().await, Release::TakenBy(a.holders()));
    assert_eq!(a.seen().await.waiters, 0);
    assert_eq!(b.polls().await, Acquire::Gone);
    assert_eq!(a.releases().await, Release::Released);
    assert_eq!(c.inspects().await, None, "it was handed to nobody");
}
