//! Waiters are served in the order of arrival, and a release hands the lock to the first live waiter.

use crate::Fixture;
use crate::case::{Case, Need, case_for};
use crate::deadline::in_time;
use crate::test_client::{ALIVE, CLOCK_RESOLUTION, LONG, PAST_SHORT, SHORT, TestClient, test_clients};
use fencelock_core::{Acquire, FencingToken, Release};
use std::time::Duration;
use tokio::time::Instant;

pub(super) fn cases() -> Vec<Case> {
    const LEASED_QUEUE: &[Need] = &[Need::Queues, Need::Expires];
    vec![
        case_for(&[Need::Queues], waiters_are_served_in_the_order_of_arrival).within(ALIVE),
        case_for(&[Need::Queues], ahead_counts_the_waiters_in_front).within(ALIVE),
        case_for(&[Need::Queues], a_try_does_not_overtake_a_waiter).within(ALIVE),
        case_for(&[Need::Queues], an_enqueue_does_not_overtake_a_waiter).within(ALIVE),
        case_for(LEASED_QUEUE, a_try_after_an_expiry_does_not_overtake_a_waiter).within(ALIVE),
        case_for(LEASED_QUEUE, a_waiter_gets_the_key_of_a_holder_that_died),
        case_for(&[Need::Queues], a_waiter_that_gave_up_is_skipped).within(ALIVE),
        case_for(&[Need::Queues], a_waiter_can_release_a_key_it_was_just_handed).within(ALIVE),
        case_for(LEASED_QUEUE, a_dead_waiter_is_skipped),
        case_for(LEASED_QUEUE, a_hand_off_is_a_short_lease_and_the_claim_makes_it_a_full_one).within(ALIVE),
        case_for(LEASED_QUEUE, an_unclaimed_hand_off_passes_to_the_next_waiter_and_the_late_claim_is_gone),
        case_for(LEASED_QUEUE, a_waiter_that_polls_keeps_its_position),
    ]
}

async fn waiters_are_served_in_the_order_of_arrival(fixture: &dyn Fixture) {
    let clients: [TestClient; 6] = test_clients(fixture).await;
    clients[0].takes().await;
    for (ahead, waiter) in (0..).zip(&clients[1..]) {
        waiter.is_queued(ahead).await;
    }
    for served in 1..clients.len() {
        assert_eq!(clients[served - 1].releases().await, Release::Released);
        for (ahead, later) in (0..).zip(&clients[served + 1..]) {
            let answer = later.polls().await;
            assert!(matches!(answer, Acquire::Queued { ahead: before, .. } if before == ahead), "{answer:?}");
        }
        clients[served].still_holds().await;
    }
}

async fn ahead_counts_the_waiters_in_front(fixture: &dyn Fixture) {
    let [a, b, c, d] = test_clients(fixture).await;
    a.takes().await;
    b.is_queued(0).await;
    c.is_queued(1).await;
    d.is_queued(2).await;
    assert_eq!(c.releases().await, Release::TakenBy(a.holders()));
    d.is_queued(1).await;
    assert_eq!(a.releases().await, Release::Released);
    b.still_holds().await;
    assert_eq!(d.is_queued(0).await.holders, b.holders());
}

async fn a_try_does_not_overtake_a_waiter(fixture: &dyn Fixture) {
    let [a, waiter, hasty] = test_clients(fixture).await;
    a.takes().await;
    waiter.is_queued(0).await;
    assert_eq!(a.releases().await, Release::Released);
    assert_eq!(hasty.is_refused().await.holders, waiter.holders());
    waiter.still_holds().await;
}

async fn an_enqueue_does_not_overtake_a_waiter(fixture: &dyn Fixture) {
    let [a, waiter, hasty] = test_clients(fixture).await;
    a.takes().await;
    waiter.is_queued(0).await;
    assert_eq!(a.releases().await, Release::Released);
    assert_eq!(hasty.is_queued(0).await.holders, waiter.holders());
    waiter.still_holds().await;
}

/// Acquires the key for a short TTL, with a client that waits behind it, and returns the token.
async fn short_before(holder: TestClient, waiter: &TestClient) -> FencingToken {
    in_time(SHORT, async {
        let token = holder.for_ttl(SHORT).takes().await;
        waiter.is_queued(0).await;
        token
    })
    .await
}

async fn a_try_after_an_expiry_does_not_overtake_a_waiter(fixture: &dyn Fixture) {
    let [a, waiter, hasty] = test_clients(fixture).await;
    short_before(a, &waiter).await;
    fixture.let_leases_end(PAST_SHORT).await;
    assert_eq!(hasty.is_refused().await.holders, waiter.holders());
    waiter.still_holds().await;
}

async fn a_waiter_gets_the_key_of_a_holder_that_died(fixture: &dyn Fixture) {
    let [a, waiter] = test_clients(fixture).await;
    let earlier = short_before(a, &waiter).await;
    assert!(waiter.polls_until_granted(fixture).await > earlier);
}

async fn a_waiter_that_gave_up_is_skipped(fixture: &dyn Fixture) {
    let [a, quitter, next] = test_clients(fixture).await;
    a.takes().await;
    quitter.is_queued(0).await;
    next.is_queued(1).await;
    assert_eq!(quitter.releases().await, Release::TakenBy(a.holders()));
    assert_eq!(a.releases().await, Release::Released);
    next.still_holds().await;
    assert_eq!(quitter.polls().await, Acquire::Gone);
}

async fn a_waiter_can_release_a_key_it_was_just_handed(fixture: &dyn Fixture) {
    let [a, quitter, next] = test_clients(fixture).await;
    a.takes().await;
    quitter.is_queued(0).await;
    next.is_queued(1).await;
    assert_eq!(a.releases().await, Release::Released);
    assert_eq!(quitter.releases().await, Release::Released, "it was handed the key before it was notified");
    next.still_holds().await;
}

async fn a_dead_waiter_is_skipped(fixture: &dyn Fixture) {
    let [a, dead, living] = test_clients(fixture).await;
    a.takes().await;
    dead.is_queued(0).await;
    living.is_queued(1).await;
    poll_while_time_passes(fixture, &living, fixture.waiter_life() + PAST_SHORT).await;
    assert_eq!(a.releases().await, Release::Released);
    living.still_holds().await;
    assert_eq!(dead.polls().await, Acquire::Gone);
}

async fn poll_while_time_passes(fixture: &dyn Fixture, waiter: &TestClient, span: Duration) {
    let step = Duration::from_millis(400);
    let mut passed = Duration::ZERO;
    while passed < span {
        in_time(ALIVE, async {
            fixture.let_time_pass(step).await;
            let answer = waiter.polls().await;
            assert!(matches!(answer, Acquire::Queued { .. }), "{answer:?}");
        })
        .await;
        passed += step;
    }
}

async fn a_hand_off_is_a_short_lease_and_the_claim_makes_it_a_full_one(fixture: &dyn Fixture) {
    let [a, waiter] = test_clients(fixture).await;
    a.takes().await;
    waiter.is_queued(0).await;
    assert_eq!(a.releases().await, Release::Released);
    let unclaimed = waiter.time_left().await;
    assert!(unclaimed < LONG / 2, "{unclaimed:?} for a waiter that may be dead");
    let requested = Instant::now();
    waiter.still_holds().await;
    let claimed = waiter.time_left().await;
    assert!(claimed + requested.elapsed() + CLOCK_RESOLUTION >= LONG, "{claimed:?}");
}

async fn an_unclaimed_hand_off_passes_to_the_next_waiter_and_the_late_claim_is_gone(fixture: &dyn Fixture) {
    let [a, late, next] = test_clients(fixture).await;
    a.takes().await;
    late.is_queued(0).await;
    next.is_queued(1).await;
    in_time(ALIVE, async {
        assert_eq!(a.releases().await, Release::Released);
        assert!(next.seen().await.has(late.holder.id));
    })
    .await;
    let fence = next.polls_until_granted(fixture).await;
    assert_eq!(late.polls().await, Acquire::Gone);
    assert_eq!(late.releases().await, Release::TakenBy(next.holders()));
    next.still_holds_with(fence).await;
}

async fn a_waiter_that_polls_keeps_its_position(fixture: &dyn Fixture) {
    let [a, patient, later] = test_clients(fixture).await;
    a.takes().await;
    patient.is_queued(0).await;
    later.is_queued(1).await;
    poll_while_time_passes(fixture, &patient, fixture.waiter_life() * 2).await;
    assert_eq!(a.releases().await, Release::Released);
    patient.still_holds().await;
}
