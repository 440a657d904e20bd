//! Two modes that never fit each other, or semaphores of two limits, on one key: refused immediately.

use crate::Fixture;
use crate::case::{Case, Need, case_for};
use crate::cases::permits::permits;
use crate::test_client::{ALIVE, TestClient, test_clients};
use fencelock_core::{Acquire, Intent, Mode};

pub(super) fn cases() -> Vec<Case> {
    const PERMITS: &[Need] = &[Need::Permits];
    const BOTH: &[Need] = &[Need::Permits, Need::Shared];
    vec![
        case_for(PERMITS, another_limit_is_refused_by_name),
        case_for(BOTH, shared_locks_and_permits_of_one_key_conflict),
        case_for(PERMITS, a_conflict_leaves_nothing_behind),
        case_for(PERMITS, an_exclusive_claim_conflicts_with_no_mode),
        case_for(&[Need::Permits, Need::Queues], a_claim_conflicts_with_a_waiter).within(ALIVE),
        case_for(PERMITS, a_conflict_ends_with_the_last_holder),
    ]
}

async fn users<const N: usize>(fixture: &dyn Fixture, limit: u32) -> [TestClient; N] {
    test_clients::<N>(fixture).await.map(|client| client.in_mode(permits(1, limit)))
}

async fn another_limit_is_refused_by_name(fixture: &dyn Fixture) {
    let [a] = users(fixture, 2).await;
    a.takes().await;
    for limit in [1, 3] {
        let other = a.new_attempt().in_mode(permits(1, limit));
        for intent in [Intent::Try, Intent::Enqueue] {
            other.conflicts(intent, a.mode).await;
        }
    }
}

async fn shared_locks_and_permits_of_one_key_conflict(fixture: &dyn Fixture) {
    for (mode, other) in [(Mode::Shared, permits(1, 9)), (permits(1, 9), Mode::Shared)] {
        let [a, b] = test_clients(fixture).await;
        let (a, b) = (a.in_mode(mode), b.in_mode(other));
        a.takes().await;
        b.conflicts(Intent::Enqueue, mode).await;
        a.releases().await;
        b.takes().await;
    }
}

async fn a_conflict_leaves_nothing_behind(fixture: &dyn Fixture) {
    let [a, b] = users(fixture, 2).await;
    let other = b.clone().in_mode(permits(1, 3));
    let fence = a.takes().await;
    other.conflicts(Intent::Try, a.mode).await;
    other.conflicts(Intent::Enqueue, a.mode).await;
    assert_eq!(a.seen().await.waiters, 0);
    a.still_holds_with(fence).await;
    b.new_attempt().takes().await;
    a.releases().await;
    assert_eq!(a.seen().await.holders.count(), 1, "the refused claim got nothing");
}

async fn an_exclusive_claim_conflicts_with_no_mode(fixture: &dyn Fixture) {
    let [a, alone] = users(fixture, 2).await;
    let alone = alone.in_mode(Mode::Exclusive);
    a.takes().await;
    alone.is_refused().await;
    a.releases().await;
    alone.takes().await;
    a.is_refused().await;
}

async fn a_claim_conflicts_with_a_waiter(fixture: &dyn Fixture) {
    let [alone, waiter, other] = users(fixture, 2).await;
    let (alone, other) = (alone.in_mode(Mode::Exclusive), other.in_mode(permits(1, 3)));
    alone.takes().await;
    waiter.is_queued(0).await;
    other.conflicts(Intent::Enqueue, waiter.mode).await;
    assert_eq!(alone.seen().await.waiters, 1);
    alone.releases().await;
    waiter.still_holds().await;
    assert!(!matches!(other.backend.acquire(&other.claim(Intent::Poll)).await.answer, Ok(Acquire::Granted { .. })));
}

async fn a_conflict_ends_with_the_last_holder(fixture: &dyn Fixture) {
    let [a, b, c] = users(fixture, 2).await;
    let c = c.in_mode(permits(1, 3));
    a.takes().await;
    b.takes().await;
    a.releases().await;
    c.conflicts(Intent::Try, a.mode).await;
    b.releases().await;
    c.takes().await;
    a.new_attempt().conflicts(Intent::Try, permits(1, 3)).await;
}
