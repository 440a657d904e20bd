//! Dropping any of the futures leaves the backend sound; what was sent may still be carried out.

use crate::Place;
use crate::case::{Case, Need, case, case_for};
use crate::rival::{ALIVE, Rival, rivals, told};
use fencelock_core::{Acquire, Intent, Release};
use std::future::Future;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

pub(super) fn cases() -> Vec<Case> {
    vec![
        case(a_claim_dropped_before_its_first_poll_does_nothing),
        case(a_dropped_claim_can_be_released),
        case(claims_dropped_at_any_moment_can_be_released),
        case_for(&[Need::Queues], a_dropped_place_in_line_can_be_given_up).within(ALIVE),
        case(a_dropped_release_can_be_sent_again),
        case(a_dropped_renewal_neither_frees_nor_takes),
        case(dropped_looks_leave_the_client_usable),
    ]
}

/// Polls once, and drops it.
async fn begin_and_drop(future: impl Future) {
    let mut future = pin!(future);
    std::future::poll_fn(|context| {
        let _ = future.as_mut().poll(context);
        Poll::Ready(())
    })
    .await;
}

async fn a_claim_dropped_before_its_first_poll_does_nothing(place: &dyn Place) {
    let [a, b] = rivals(place).await;
    drop(a.backend.acquire(&a.claim(Intent::Enqueue)));
    assert_eq!(a.inspects().await, None);
    b.takes().await;
}

async fn a_dropped_claim_can_be_released(place: &dyn Place) {
    let [a, b] = rivals(place).await;
    for intent in [Intent::Try, Intent::Enqueue] {
        let turn = a.afresh();
        begin_and_drop(turn.claims(intent)).await;
        is_free_after_its_release(&turn, &b).await;
    }
}

async fn is_free_after_its_release(dropped: &Rival, next: &Rival) {
    let released = dropped.releases().await;
    assert!(matches!(released, Release::Released | Release::Absent), "{released:?}");
    let next = next.afresh();
    next.takes().await;
    assert_eq!(next.releases().await, Release::Released);
}

async fn claims_dropped_at_any_moment_can_be_released(place: &dyn Place) {
    let [a, b] = rivals(place).await;
    for step in 0..40 {
        let turn = a.afresh();
        let _ = tokio::time::timeout(Duration::from_micros(50 * step), turn.enqueues()).await;
        is_free_after_its_release(&turn, &b).await;
    }
}

async fn a_dropped_place_in_line_can_be_given_up(place: &dyn Place) {
    let [a, dropped, c] = rivals(place).await;
    a.takes().await;
    begin_and_drop(dropped.enqueues()).await;
    assert_eq!(dropped.releases().await, Release::TakenBy(a.holders()));
    assert_eq!(a.seen().await.waiters, 0);
    assert_eq!(a.releases().await, Release::Released);
    c.takes().await;
}

async fn a_dropped_release_can_be_sent_again(place: &dyn Place) {
    let [a, b] = rivals(place).await;
    a.takes().await;
    begin_and_drop(a.releases()).await;
    is_free_after_its_release(&a, &b).await;
}

async fn a_dropped_renewal_neither_frees_nor_takes(place: &dyn Place) {
    let [held, b] = rivals(place).await;
    let free = held.elsewhere();
    let fence = held.takes().await;
    begin_and_drop(held.backend.renew(&[held.renewal(), free.renewal()])).await;
    assert_eq!(held.has_it().await, fence);
    b.finds_it_busy().await;
    assert_eq!(free.inspects().await, None);
}

async fn dropped_looks_leave_the_client_usable(place: &dyn Place) {
    let [a, b] = rivals(place).await;
    for _ in 0..10 {
        begin_and_drop(a.inspects()).await;
        begin_and_drop(a.lists()).await;
        begin_and_drop(a.backend.diagnose()).await;
    }
    let fence = a.takes().await;
    assert_eq!(told(a.backend.acquire(&a.claim(Intent::Poll)).await), Acquire::Granted { tokens: fence.into() });
    b.finds_it_busy().await;
}
