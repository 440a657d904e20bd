//! Inspecting a hold, and evicting a hold that was inspected.

use crate::Fixture;
use crate::case::{Case, Need, case, case_for};
use crate::deadline::in_time;
use crate::test_client::{ALIVE, CLOCK_RESOLUTION, PAST_SHORT, SHORT, TestClient, expect_known, test_clients};
use fencelock_core::{Eviction, Expiry, Liveness, Mode, Occupant, Release, Renew};
use std::time::Duration;

pub(super) fn cases() -> Vec<Case> {
    vec![
        case(a_free_key_shows_nothing),
        case(a_held_key_shows_its_holder_with_owner_label_and_fence),
        case(a_held_key_shows_when_it_ends),
        case(inspecting_does_not_hold_the_key),
        case(a_hold_shows_its_duration_if_it_is_known),
        case_for(&[Need::Expires], a_hold_shows_its_last_renewal_if_it_is_known),
        case_for(&[Need::Queues], a_held_key_shows_the_number_of_waiters).within(ALIVE),
        case_for(&[Need::Queues], waiters_are_named_in_the_order_of_arrival_if_they_are_known).within(ALIVE),
        case_for(&[Need::Admin], the_list_contains_held_keys_only),
        case_for(&[Need::Admin], the_list_shows_what_inspect_shows),
        case_for(&[Need::Evicts], an_eviction_ends_the_hold_that_was_seen),
        case_for(&[Need::Evicts], an_eviction_does_not_end_a_later_hold),
        case_for(&[Need::Evicts], an_eviction_of_a_freed_key_changes_nothing),
        case_for(&[Need::Evicts, Need::Queues], an_eviction_hands_over_to_the_first_waiter).within(ALIVE),
        case_for(&[Need::Evicts, Need::Expires], an_eviction_after_the_expiry_changes_nothing),
        case_for(&[Need::NeverEvicts], an_unsupported_eviction_is_refused_with_advice),
    ]
}

async fn a_free_key_shows_nothing(fixture: &dyn Fixture) {
    let [a, b] = test_clients(fixture).await;
    assert_eq!(a.inspects().await, None);
    a.takes().await;
    a.releases().await;
    assert_eq!(b.inspects().await, None);
}

async fn a_held_key_shows_its_holder_with_owner_label_and_fence(fixture: &dyn Fixture) {
    let [a, b] = test_clients(fixture).await;
    let fence = a.takes().await;
    assert_eq!(b.seen().await.key, a.key);
    let hold = b.hold().await;
    assert_eq!((hold.fence, hold.mode), (Some(fence), Mode::Exclusive));
    let Occupant::Holder(holder) = hold.occupant else { panic!("not foreign: {hold:?}") };
    assert_eq!(holder.id, a.holder.id);
    assert_eq!(holder.owner.process(), a.holder.owner.process());
    assert_eq!(holder.owner.label(), Some("conformance case"));
}

async fn a_held_key_shows_when_it_ends(fixture: &dyn Fixture) {
    let [a, b] = test_clients(fixture).await;
    a.takes().await;
    match b.hold().await.expiry {
        Expiry::In(left) => assert!(!left.is_zero() && left <= a.ttl, "{left:?}"),
        Expiry::Never => assert!(!a.backend.capabilities().expires, "holds expire at this backend"),
    }
}

async fn inspecting_does_not_hold_the_key(fixture: &dyn Fixture) {
    let [a, b] = test_clients(fixture).await;
    for _ in 0..5 {
        assert_eq!(b.inspects().await, None);
        assert_eq!(b.lists().await, None);
    }
    a.takes().await;
    b.seen().await;
    b.lists().await;
    assert_eq!(a.releases().await, Release::Released);
    assert_eq!(b.inspects().await, None);
}

async fn a_hold_shows_its_duration_if_it_is_known(fixture: &dyn Fixture) {
    let [a, b] = test_clients(fixture).await;
    a.takes().await;
    let passed = Duration::from_millis(200);
    fixture.let_time_pass(passed).await;
    if let Some(held_for) = b.hold().await.held_for {
        assert!(held_for + CLOCK_RESOLUTION >= passed, "{held_for:?} after {passed:?}");
        assert!(held_for < Duration::from_secs(60), "{held_for:?} is longer than the case");
    }
}

async fn a_hold_shows_its_last_renewal_if_it_is_known(fixture: &dyn Fixture) {
    let [a, b] = test_clients(fixture).await;
    a.takes().await;
    let passed = Duration::from_millis(200);
    fixture.let_time_pass(passed).await;
    let Some(Liveness::Renewed { ago, every }) = b.hold().await.alive else { return };
    assert!(ago + CLOCK_RESOLUTION >= passed, "{ago:?} after {passed:?}");
    assert!(every.is_none_or(|every| every < a.ttl), "{every:?} is too late for {:?}", a.ttl);
    assert_eq!(a.renews().await, Renew::Renewed { waiters: 0 });
    let hold = b.hold().await;
    let Some(Liveness::Renewed { ago, .. }) = hold.alive else { panic!("it was known: {hold:?}") };
    assert!(hold.held_for.is_none_or(|held_for| ago < held_for), "the renewal is the latest event: {hold:?}");
}

async fn a_held_key_shows_the_number_of_waiters(fixture: &dyn Fixture) {
    let [a, b, c] = test_clients(fixture).await;
    a.takes().await;
    assert_eq!(a.seen().await.waiters, 0);
    b.is_queued(0).await;
    c.is_queued(1).await;
    assert_eq!(a.seen().await.waiters, 2);
    assert_eq!(a.releases().await, Release::Released);
    assert_eq!(a.seen().await.waiters, 1, "the new holder is not counted");
}

async fn waiters_are_named_in_the_order_of_arrival_if_they_are_known(fixture: &dyn Fixture) {
    let [a, b, c] = test_clients(fixture).await;
    a.takes().await;
    b.is_queued(0).await;
    let passed = Duration::from_millis(200);
    fixture.let_time_pass(passed).await;
    c.is_queued(1).await;
    let seen = b.seen().await;
    let Some(queue) = &seen.queue else { return };
    assert_eq!(queue.iter().map(|waiter| waiter.holder.id).collect::<Vec<_>>(), [b.holder.id, c.holder.id]);
    assert!(queue.iter().all(|waiter| waiter.mode == Mode::Exclusive), "{queue:?}");
    assert_eq!(queue[0].holder.owner.label(), Some("conformance case"));
    if let Some(waited) = seen.longest_wait() {
        assert!(waited + CLOCK_RESOLUTION >= passed, "{waited:?} after {passed:?}");
        assert!(waited < Duration::from_secs(60), "{waited:?} is longer than the case");
    }
    if a.backend.capabilities().lists {
        let listed = b.lists().await.expect("a held key is listed").queue;
        assert_eq!(listed.expect("what is inspected is listed")[0].holder, queue[0].holder, "at least the first one");
    }
    assert_eq!(a.releases().await, Release::Released);
    let left: Vec<_> = a.seen().await.queue.into_iter().flatten().map(|waiter| waiter.holder.id).collect();
    assert_eq!(left, [c.holder.id], "the new holder does not wait");
}

async fn the_list_contains_held_keys_only(fixture: &dyn Fixture) {
    let [client, other] = test_clients(fixture).await;
    let held: Vec<_> = (0..10).map(|_| client.with_new_key()).collect();
    let freed = client.with_new_key();
    for client in held.iter().chain([&freed]) {
        client.takes().await;
    }
    freed.releases().await;
    let listed = expect_known(other.backend.list().await);
    let count = |client: &TestClient| listed.iter().filter(|holding| holding.key == client.key).count();
    assert_eq!(held.iter().map(count).collect::<Vec<_>>(), vec![1; held.len()], "each once");
    assert_eq!((count(&freed), count(&other)), (0, 0), "neither a released key nor an unused one");
}

async fn the_list_shows_what_inspect_shows(fixture: &dyn Fixture) {
    let [a, b] = test_clients(fixture).await;
    a.takes().await;
    let (inspected, listed) = (b.seen().await, b.lists().await.expect("a held key is listed"));
    assert_eq!((listed.holders.count(), inspected.holders.count()), (1, 1));
    assert_eq!(listed.waiters, inspected.waiters);
    let (listed, inspected) = (listed.first(), inspected.first());
    assert_eq!(listed.occupant, inspected.occupant);
    assert_eq!(listed.fence, inspected.fence);
    assert_eq!(listed.expiry.span().is_some(), inspected.expiry.span().is_some());
}

async fn an_eviction_ends_the_hold_that_was_seen(fixture: &dyn Fixture) {
    let [a, admin, c] = test_clients(fixture).await;
    a.takes().await;
    assert_eq!(admin.evicts(&admin.seen().await).await, Eviction::Evicted);
    assert_eq!(admin.inspects().await, None);
    assert_eq!(a.renews().await, Renew::Absent, "the evicted holder detects the loss");
    c.takes().await;
    assert_eq!(a.releases().await, Release::TakenBy(c.holders()));
}

async fn an_eviction_does_not_end_a_later_hold(fixture: &dyn Fixture) {
    let [a, admin, c] = test_clients(fixture).await;
    a.takes().await;
    let seen = admin.seen().await;
    assert_eq!(a.releases().await, Release::Released);
    let fence = c.takes().await;
    match admin.evicts(&seen).await {
        Eviction::Changed(Some(now)) => assert!(now.has(c.holder.id), "{now:?}"),
        other => panic!("{other:?}"),
    }
    c.still_holds_with(fence).await;
}

async fn an_eviction_of_a_freed_key_changes_nothing(fixture: &dyn Fixture) {
    let [a, admin] = test_clients(fixture).await;
    a.takes().await;
    let seen = admin.seen().await;
    assert_eq!(a.releases().await, Release::Released);
    assert_eq!(admin.evicts(&seen).await, Eviction::Changed(None));
    assert_eq!(admin.evicts(&seen).await, Eviction::Changed(None));
}

async fn an_eviction_hands_over_to_the_first_waiter(fixture: &dyn Fixture) {
    let [a, waiter, admin] = test_clients(fixture).await;
    let earlier = a.takes().await;
    waiter.is_queued(0).await;
    assert_eq!(admin.evicts(&admin.seen().await).await, Eviction::Evicted);
    assert!(waiter.still_holds().await > earlier);
    assert_eq!(a.renews().await, Renew::TakenBy(waiter.holders()));
}

async fn an_eviction_after_the_expiry_changes_nothing(fixture: &dyn Fixture) {
    let [a, admin] = test_clients(fixture).await;
    let a = a.for_ttl(SHORT);
    let seen = in_time(SHORT, async { (a.takes().await, admin.seen().await).1 }).await;
    fixture.let_leases_end(PAST_SHORT).await;
    assert_eq!(admin.evicts(&seen).await, Eviction::Changed(None));
}

async fn an_unsupported_eviction_is_refused_with_advice(fixture: &dyn Fixture) {
    let [a, admin] = test_clients(fixture).await;
    let fence = a.takes().await;
    match admin.evicts(&admin.seen().await).await {
        Eviction::Refused(advice) => assert!(!advice.is_empty(), "the answer says how to end the hold"),
        other => panic!("{other:?}"),
    }
    a.still_holds_with(fence).await;
}
