//! Semaphores: the permits in use never exceed the limit, and no waiter is overtaken because of a large weight.

use crate::Fixture;
use crate::case::{Case, Need, case_for};
use crate::test_client::{ALIVE, PAST_SHORT, SHORT, TestClient, test_clients};
use fencelock_core::{Acquire, Mode, Release, Renew};

pub(super) fn cases() -> Vec<Case> {
    const PERMITS: &[Need] = &[Need::Permits];
    const QUEUED: &[Need] = &[Need::Permits, Need::Queues];
    const LEASED: &[Need] = &[Need::Permits, Need::Expires];
    vec![
        case_for(PERMITS, there_are_as_many_permits_as_the_limit),
        case_for(PERMITS, a_claim_takes_its_weight),
        case_for(PERMITS, one_permit_is_an_exclusive_lock),
        case_for(PERMITS, a_million_permits_can_be_held_at_once),
        case_for(PERMITS, a_repeated_claim_takes_its_permits_once),
        case_for(PERMITS, a_second_release_returns_no_permits),
        case_for(PERMITS, an_exclusive_claim_waits_for_all_permits),
        case_for(PERMITS, a_free_key_takes_another_limit),
        case_for(QUEUED, released_permits_go_to_as_many_waiters_as_fit).within(ALIVE),
        case_for(QUEUED, a_small_claim_does_not_overtake_a_large_one).within(ALIVE),
        case_for(QUEUED, a_large_claim_that_gives_up_lets_in_the_small_ones).within(ALIVE),
        case_for(QUEUED, permits_wait_behind_an_exclusive_claim).within(ALIVE),
        case_for(LEASED, the_permits_of_a_holder_that_died_are_free),
        case_for(LEASED, an_expired_holder_returns_its_permits_once),
    ]
}

/// Clients that want one of `limit` permits.
async fn users<const N: usize>(fixture: &dyn Fixture, limit: u32) -> [TestClient; N] {
    test_clients::<N>(fixture).await.map(|client| client.in_mode(permits(1, limit)))
}

pub(super) fn permits(weight: u32, limit: u32) -> Mode {
    Mode::permits(weight, limit).expect("within the bounds")
}

async fn there_are_as_many_permits_as_the_limit(fixture: &dyn Fixture) {
    let [a, b, c, d] = users(fixture, 3).await;
    for user in [&a, &b, &c] {
        user.takes().await;
    }
    assert_eq!(d.is_refused().await.holders.count(), 3);
    assert_eq!(b.releases().await, Release::Released);
    d.takes().await;
    b.new_attempt().is_refused().await;
}

async fn a_claim_takes_its_weight(fixture: &dyn Fixture) {
    let [a, b, c] = users(fixture, 5).await;
    let (a, b) = (a.in_mode(permits(3, 5)), b.in_mode(permits(3, 5)));
    a.takes().await;
    b.is_refused().await;
    c.takes().await;
    let last = c.new_attempt();
    last.takes().await;
    last.new_attempt().is_refused().await;
    assert_eq!(a.releases().await, Release::Released);
    b.takes().await;
}

async fn one_permit_is_an_exclusive_lock(fixture: &dyn Fixture) {
    let [a, b] = users(fixture, 1).await;
    a.takes().await;
    assert_eq!(b.is_refused().await.holders, a.holders());
    a.releases().await;
    b.takes().await;
}

async fn a_million_permits_can_be_held_at_once(fixture: &dyn Fixture) {
    let [a, b, c] = users(fixture, Mode::MOST_PERMITS).await;
    let a = a.in_mode(permits(Mode::MOST_PERMITS - 1, Mode::MOST_PERMITS));
    a.takes().await;
    b.takes().await;
    c.is_refused().await;
    a.releases().await;
    c.takes().await;
}

async fn a_repeated_claim_takes_its_permits_once(fixture: &dyn Fixture) {
    let [a, b, c] = users(fixture, 2).await;
    let fence = a.takes().await;
    for _ in 0..3 {
        assert_eq!(a.takes().await, fence);
    }
    b.takes().await;
    c.is_refused().await;
    assert_eq!(a.releases().await, Release::Released);
    c.takes().await;
}

async fn a_second_release_returns_no_permits(fixture: &dyn Fixture) {
    let [a, b, c, d] = users(fixture, 2).await;
    a.takes().await;
    b.takes().await;
    assert_eq!(a.releases().await, Release::Released);
    for _ in 0..3 {
        assert_eq!(a.releases().await, Release::TakenBy(b.holders()));
    }
    c.takes().await;
    d.is_refused().await;
}

async fn an_exclusive_claim_waits_for_all_permits(fixture: &dyn Fixture) {
    let [a, b, alone] = users(fixture, 9).await;
    let alone = alone.in_mode(Mode::Exclusive);
    a.takes().await;
    b.takes().await;
    a.releases().await;
    assert_eq!(alone.is_refused().await.holders, b.holders());
    b.releases().await;
    alone.takes().await;
    assert_eq!(a.new_attempt().is_refused().await.holders, alone.holders());
}

async fn a_free_key_takes_another_limit(fixture: &dyn Fixture) {
    let [a, b] = users(fixture, 1).await;
    a.takes().await;
    a.releases().await;
    let (b, c) = (b.clone().in_mode(permits(1, 2)), b.new_attempt().in_mode(permits(1, 2)));
    b.takes().await;
    c.takes().await;
}

async fn released_permits_go_to_as_many_waiters_as_fit(fixture: &dyn Fixture) {
    let [a, b, c, d] = users(fixture, 3).await;
    let (a, c) = (a.in_mode(permits(3, 3)), c.in_mode(permits(2, 3)));
    a.takes().await;
    for (ahead, waiter) in (0..).zip([&b, &c, &d]) {
        waiter.is_queued(ahead).await;
    }
    a.releases().await;
    b.still_holds().await;
    c.still_holds().await;
    assert!(matches!(d.polls().await, Acquire::Queued { ahead: 0, .. }));
}

async fn a_small_claim_does_not_overtake_a_large_one(fixture: &dyn Fixture) {
    let [a, large, small, hasty] = users(fixture, 3).await;
    let large = large.in_mode(permits(3, 3));
    a.takes().await;
    large.is_queued(0).await;
    small.is_queued(1).await;
    assert_eq!(hasty.is_refused().await.holders, a.holders(), "it would fit, but others were first");
    a.releases().await;
    large.still_holds().await;
    assert!(matches!(small.polls().await, Acquire::Queued { ahead: 0, .. }));
    large.releases().await;
    small.still_holds().await;
}

async fn a_large_claim_that_gives_up_lets_in_the_small_ones(fixture: &dyn Fixture) {
    let [a, large, small, last] = users(fixture, 3).await;
    let large = large.in_mode(permits(3, 3));
    a.takes().await;
    large.is_queued(0).await;
    small.is_queued(1).await;
    last.is_queued(2).await;
    assert_eq!(large.releases().await, Release::TakenBy(a.holders()));
    assert_eq!(a.seen().await.holders.count(), 3, "both have room, without a poll");
    small.still_holds().await;
    last.still_holds().await;
}

async fn permits_wait_behind_an_exclusive_claim(fixture: &dyn Fixture) {
    let [a, b, alone] = users(fixture, 9).await;
    let alone = alone.in_mode(Mode::Exclusive);
    a.takes().await;
    alone.is_queued(0).await;
    b.is_queued(1).await;
    a.releases().await;
    alone.still_holds().await;
    assert!(matches!(b.polls().await, Acquire::Queued { ahead: 0, .. }));
    alone.releases().await;
    b.still_holds().await;
}

async fn the_permits_of_a_holder_that_died_are_free(fixture: &dyn Fixture) {
    let [a, b, c, d] = users(fixture, 3).await;
    a.for_ttl(SHORT).in_mode(permits(2, 3)).takes().await;
    b.takes().await;
    fixture.let_leases_end(PAST_SHORT).await;
    c.takes().await;
    d.takes().await;
    assert_eq!(d.new_attempt().is_refused().await.holders.count(), 3);
}

async fn an_expired_holder_returns_its_permits_once(fixture: &dyn Fixture) {
    let [a, b, c, d] = users(fixture, 2).await;
    let a = a.for_ttl(SHORT);
    a.takes().await;
    b.takes().await;
    fixture.let_leases_end(PAST_SHORT).await;
    c.takes().await;
    assert!(!matches!(a.renews().await, Renew::Renewed { .. }));
    assert!(!matches!(a.releases().await, Release::Released));
    assert_eq!(a.polls().await, Acquire::Gone);
    d.is_refused().await;
}
