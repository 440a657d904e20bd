//! The limit of a semaphore in use: a change of it ends no hold, and the permits in use never grow above it.

use crate::Fixture;
use crate::case::{Case, Need, case_for};
use crate::cases::permits::permits;
use crate::test_client::{ALIVE, TestClient, expect_known, test_clients};
use fencelock_core::{Acquire, Intent, Mode, Renew, Resize, Resized};

pub(super) fn cases() -> Vec<Case> {
    const PERMITS: &[Need] = &[Need::ModeChanges, Need::Permits];
    const QUEUED: &[Need] = &[Need::ModeChanges, Need::Permits, Need::Queues];
    vec![
        case_for(PERMITS, a_larger_limit_admits_more_holders),
        case_for(PERMITS, a_smaller_limit_admits_no_waiter_until_the_sum_fits),
        case_for(PERMITS, holders_stay_when_their_semaphore_is_resized),
        case_for(PERMITS, a_semaphore_that_is_not_in_use_is_not_resized),
        case_for(PERMITS, an_exclusive_lock_is_not_resized),
        case_for(&[Need::ModeChanges, Need::Permits, Need::Shared], a_shared_lock_is_not_resized),
        case_for(PERMITS, limits_that_no_semaphore_has_are_refused),
        case_for(QUEUED, a_larger_limit_lets_waiters_in_at_once).within(ALIVE),
        case_for(QUEUED, a_waiter_keeps_its_position_when_its_semaphore_is_resized).within(ALIVE),
        case_for(QUEUED, a_waiter_that_wants_more_than_there_is_after_a_resize_is_refused).within(ALIVE),
    ]
}

/// Clients that want one of `limit` permits.
async fn users<const N: usize>(fixture: &dyn Fixture, limit: u32) -> [TestClient; N] {
    test_clients::<N>(fixture).await.map(|client| client.in_mode(permits(1, limit)))
}

async fn resize(client: &TestClient, limit: u32) -> Resize {
    expect_known(client.backend.resize(&client.key, limit).await)
}

async fn resizes(client: &TestClient, limit: u32) -> Resized {
    match resize(client, limit).await {
        Resize::Resized(resized) => resized,
        other => panic!("{} should be resized: {other:?}", client.key),
    }
}

async fn a_larger_limit_admits_more_holders(fixture: &dyn Fixture) {
    let [a, b, c] = users(fixture, 2).await;
    a.takes().await;
    b.takes().await;
    assert_eq!(resizes(&c, 3).await, Resized::new(2, 3, 2, 2));
    c.conflicts(Intent::Enqueue, permits(1, 3)).await;
    let c = c.new_attempt().in_mode(permits(1, 3));
    c.takes().await;
    c.new_attempt().is_refused().await;
    assert_eq!(a.seen().await.holders.count(), 3);
}

async fn a_smaller_limit_admits_no_waiter_until_the_sum_fits(fixture: &dyn Fixture) {
    let [a, b, c, d] = users(fixture, 3).await;
    for user in [&a, &b, &c] {
        user.takes().await;
    }
    assert_eq!(resizes(&d, 1).await, Resized::new(3, 1, 3, 3));
    let d = d.in_mode(permits(1, 1));
    for user in [a, b, c] {
        d.is_refused().await;
        user.releases().await;
    }
    d.takes().await;
}

async fn holders_stay_when_their_semaphore_is_resized(fixture: &dyn Fixture) {
    let [a, b] = users(fixture, 5).await;
    let a = a.in_mode(permits(3, 5));
    let fences = [a.takes().await, b.takes().await];
    for limit in [9, 2, 2] {
        resizes(&b, limit).await;
        a.still_holds_with(fences[0]).await;
        b.still_holds_with(fences[1]).await;
        assert!(matches!(a.renews().await, Renew::Renewed { .. }));
        let seen = a.seen().await;
        let mut shown: Vec<_> = seen.holders.iter().map(|hold| (hold.mode.weight(), hold.mode.limit())).collect();
        shown.sort_unstable();
        assert_eq!(shown, [(1, Some(limit)), (3, Some(limit))], "{seen:?}");
    }
    a.releases().await;
    b.new_attempt().in_mode(permits(1, 2)).takes().await;
    b.new_attempt().in_mode(permits(1, 2)).is_refused().await;
}

async fn a_semaphore_that_is_not_in_use_is_not_resized(fixture: &dyn Fixture) {
    let [a, b] = users(fixture, 2).await;
    assert_eq!(resize(&a, 5).await, Resize::Free);
    a.takes().await;
    a.releases().await;
    assert_eq!(resize(&a, 5).await, Resize::Free);
    assert_eq!(a.inspects().await, None);
    b.in_mode(permits(1, 1)).takes().await;
}

async fn an_exclusive_lock_is_not_resized(fixture: &dyn Fixture) {
    let [a, b] = test_clients(fixture).await;
    let fence = a.takes().await;
    assert_eq!(resize(&b, 5).await, Resize::OtherMode { mode: Mode::Exclusive, holders: a.holders() });
    a.still_holds_with(fence).await;
    assert_eq!(a.hold().await.mode, Mode::Exclusive);
}

async fn a_shared_lock_is_not_resized(fixture: &dyn Fixture) {
    let [a, b] = test_clients(fixture).await.map(|client| client.in_mode(Mode::Shared));
    a.takes().await;
    assert_eq!(resize(&b, 5).await, Resize::OtherMode { mode: Mode::Shared, holders: a.holders() });
    b.takes().await;
}

async fn limits_that_no_semaphore_has_are_refused(fixture: &dyn Fixture) {
    let [a, b] = users(fixture, 2).await;
    a.takes().await;
    for limit in [0, Mode::MOST_PERMITS + 1, u32::MAX] {
        let refused = a.backend.resize(&a.key, limit).await.expect_err("no limit");
        assert!(refused.to_string().contains(&format!("not {limit}")), "{refused}");
    }
    b.takes().await;
    assert_eq!(resizes(&a, Mode::MOST_PERMITS).await, Resized::new(2, Mode::MOST_PERMITS, 2, 2));
}

async fn a_larger_limit_lets_waiters_in_at_once(fixture: &dyn Fixture) {
    let [a, b, c, d] = users(fixture, 2).await;
    let (a, c) = (a.in_mode(permits(2, 2)), c.in_mode(permits(2, 2)));
    a.takes().await;
    for (ahead, waiter) in (0..).zip([&b, &c, &d]) {
        waiter.is_queued(ahead).await;
    }
    assert_eq!(resizes(&a, 4).await, Resized::new(2, 4, 3, 2));
    assert_eq!(a.seen().await.holders.count(), 2, "without a poll");
    b.still_holds().await;
    assert!(matches!(d.polls().await, Acquire::Queued { ahead: 1, .. }), "one that would fit stays behind");
    assert!(matches!(c.polls().await, Acquire::Queued { ahead: 0, .. }));
    a.releases().await;
    c.still_holds().await;
    d.still_holds().await;
}

async fn a_waiter_keeps_its_position_when_its_semaphore_is_resized(fixture: &dyn Fixture) {
    let [a, b, c, late] = users(fixture, 3).await;
    let a = a.in_mode(permits(3, 3));
    a.takes().await;
    b.is_queued(0).await;
    c.is_queued(1).await;
    assert_eq!(resizes(&a, 1).await.used, 3);
    assert!(matches!(c.polls().await, Acquire::Queued { ahead: 1, .. }));
    b.is_queued(0).await;
    late.conflicts(Intent::Enqueue, permits(1, 1)).await;
    late.in_mode(permits(1, 1)).is_queued(2).await;
    a.releases().await;
    b.still_holds().await;
    assert!(matches!(c.polls().await, Acquire::Queued { ahead: 0, .. }), "one at a time");
    b.releases().await;
    c.still_holds().await;
}

async fn a_waiter_that_wants_more_than_there_is_after_a_resize_is_refused(fixture: &dyn Fixture) {
    let [a, large, small] = users(fixture, 3).await;
    let large = large.in_mode(permits(3, 3));
    a.takes().await;
    large.is_queued(0).await;
    small.is_queued(1).await;
    assert_eq!(resizes(&a, 2).await, Resized::new(3, 2, 2, 2), "the next one is let in");
    large.conflicts(Intent::Poll, permits(1, 2)).await;
    small.still_holds().await;
    assert_eq!(a.seen().await.waiters, 0);
}
