//! A dropped future leaves the backend in a consistent state; its request may still be executed.

use crate::Fixture;
use crate::case::{Case, Need, case, case_for};
use crate::test_client::{ALIVE, TestClient, expect_known, test_clients};
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
        case_for(&[Need::Queues], a_dropped_enqueue_can_be_released).within(ALIVE),
        case(a_dropped_release_can_be_sent_again),
        case(a_dropped_renewal_does_not_release_or_acquire),
        case(dropped_inspections_leave_the_client_usable),
    ]
}

/// Polls the future once, and drops it.
async fn begin_and_drop(future: impl Future) {
    let mut future = pin!(future);
    std::future::poll_fn(|context| {
        let _ = future.as_mut().poll(context);
        Poll::Ready(())
    })
    .await;
}

async fn a_claim_dropped_before_its_first_poll_does_nothing(fixture: &dyn Fixture) {
    let [a, b] = test_clients(fixture).await;
    drop(a.backend.acquire(&a.claim(Intent::Enqueue)));
    assert_eq!(a.inspects().await, None);
    b.takes().await;
}

async fn a_dropped_claim_can_be_released(fixture: &dyn Fixture) {
    let [a, b] = test_clients(fixture).await;
    for intent in [Intent::Try, Intent::Enqueue] {
        let turn = a.new_attempt();
        begin_and_drop(turn.claims(intent)).await;
        is_free_after_its_release(&turn, &b).await;
    }
}

async fn is_free_after_its_release(dropped: &TestClient, next: &TestClient) {
    let release = || dropped.backend.release(&dropped.key, &dropped.holder.id);
    let mut released = release().await;
    if released.is_err() && dropped.backend.capabilities().fresh_holders {
        // The dropped claim is released by its quorum too. If an even number of nodes answers, half of them may have nothing left
        // for this release, and no majority says what was there. All claims have ended by now, so the next answer is clear.
        released = release().await;
    }
    let released = expect_known(released);
    assert!(matches!(released, Release::Released | Release::Absent), "{released:?}");
    let next = next.new_attempt();
    let answer = next.tries().await;
    let is_granted = matches!(answer, Acquire::Granted { .. });
    assert!(is_granted, "the dropped claim was executed after the release that followed it: {answer:?}");
    assert_eq!(next.releases().await, Release::Released);
}

async fn claims_dropped_at_any_moment_can_be_released(fixture: &dyn Fixture) {
    let [a, b] = test_clients(fixture).await;
    for step in 0..40 {
        let turn = a.new_attempt();
        let _ = tokio::time::timeout(Duration::from_micros(50 * step), turn.enqueues()).await;
        is_free_after_its_release(&turn, &b).await;
    }
}

async fn a_dropped_enqueue_can_be_released(fixture: &dyn Fixture) {
    let [a, dropped, c] = test_clients(fixture).await;
    a.takes().await;
    begin_and_drop(dropped.enqueues()).await;
    assert_eq!(dropped.releases().await, Release::TakenBy(a.holders()));
    assert_eq!(a.seen().await.waiters, 0);
    assert_eq!(a.releases().await, Release::Released);
    c.takes().await;
}

async fn a_dropped_release_can_be_sent_again(fixture: &dyn Fixture) {
    let [a, b] = test_clients(fixture).await;
    a.takes().await;
    begin_and_drop(a.releases()).await;
    is_free_after_its_release(&a, &b).await;
}

async fn a_dropped_renewal_does_not_release_or_acquire(fixture: &dyn Fixture) {
    let [held, b] = test_clients(fixture).await;
    let free = held.with_new_key();
    let fence = held.takes().await;
    begin_and_drop(held.backend.renew(&[held.renewal(), free.renewal()])).await;
    held.still_holds_with(fence).await;
    b.is_refused().await;
    assert_eq!(free.inspects().await, None);
}

async fn dropped_inspections_leave_the_client_usable(fixture: &dyn Fixture) {
    let [a, b] = test_clients(fixture).await;
    for _ in 0..10 {
        begin_and_drop(a.inspects()).await;
        begin_and_drop(a.backend.list()).await;
        begin_and_drop(a.backend.diagnose()).await;
    }
    let fence = a.takes().await;
    a.still_holds_with(fence).await;
    b.is_refused().await;
}
