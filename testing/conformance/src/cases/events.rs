//! Listeners receive events. A single event may be lost, so each case has several attempts.

use crate::Fixture;
use crate::case::{Case, Need, case_for};
use crate::event_recorder::EventRecorder;
use crate::test_client::{TestClient, test_clients};
use fencelock_core::{Event, Eviction, FencingToken, HolderId, Release};
use std::sync::Arc;
use std::time::Duration;

/// An event arrives within milliseconds, or is lost.
const TIMEOUT: Duration = Duration::from_secs(2);
const CHANCES: u32 = 4;

pub(super) fn cases() -> Vec<Case> {
    vec![
        case_for(&[Need::Queues], a_release_notifies_the_first_waiter_of_its_grant),
        case_for(&[Need::Queues], only_the_first_waiter_is_handed_the_key),
        case_for(&[Need::Queues], a_waiter_that_gives_up_hands_the_key_to_the_next),
        case_for(&[Need::Queues, Need::Evicts], an_eviction_notifies_the_first_waiter_of_its_grant),
        case_for(&[Need::Evicts], an_eviction_notifies_every_listener),
        case_for(&[Need::Queues], a_dropped_listener_has_no_effect),
    ]
}

/// Ends the hold of `first` while `second` waits, in one of several ways; then `second` must receive its grant.
async fn is_notified_of_its_grant(recorder: &EventRecorder, second: &TestClient) -> bool {
    let me = second.holder.id;
    let Some((fence, claim_ttl)) = recorder.wait_for(TIMEOUT, |event| handed(event, me)).await else { return false };
    // Zero is allowed: the waiter must poll.
    assert!(claim_ttl <= second.ttl, "{claim_ttl:?}");
    // The event contains the fence of the grant.
    second.still_holds_with(fence).await;
    true
}

fn handed(event: &Event, to: HolderId) -> Option<(FencingToken, Duration)> {
    match event {
        Event::Handed { holder, tokens, claim_ttl, .. } if *holder == to => Some((tokens.last(), *claim_ttl)),
        _ => None,
    }
}

fn listen(client: &TestClient) -> Arc<EventRecorder> {
    let recorder = EventRecorder::new();
    client.backend.listen(recorder.clone());
    recorder
}

/// How a key becomes free for a waiter.
#[derive(PartialEq)]
enum Freed {
    Released,
    Evicted,
    /// The waiter before it gives up when it gets the key.
    GivenUp,
}

async fn a_release_notifies_the_first_waiter_of_its_grant(fixture: &dyn Fixture) {
    the_waiter_is_notified_of_its_grant(fixture, Freed::Released).await;
}

async fn an_eviction_notifies_the_first_waiter_of_its_grant(fixture: &dyn Fixture) {
    the_waiter_is_notified_of_its_grant(fixture, Freed::Evicted).await;
}

async fn a_waiter_that_gives_up_hands_the_key_to_the_next(fixture: &dyn Fixture) {
    the_waiter_is_notified_of_its_grant(fixture, Freed::GivenUp).await;
}

async fn the_waiter_is_notified_of_its_grant(fixture: &dyn Fixture, by: Freed) {
    let [a, b, c] = test_clients(fixture).await;
    let recorder = listen(&c);
    for _ in 0..CHANCES {
        let (first, quitter, next) = (a.new_attempt(), b.new_attempt(), c.new_attempt());
        first.takes().await;
        if by == Freed::GivenUp {
            quitter.is_queued(0).await;
        }
        next.is_queued(u32::from(by == Freed::GivenUp)).await;
        if by == Freed::Evicted {
            assert_eq!(a.evicts(&first.seen().await).await, Eviction::Evicted);
        } else {
            assert_eq!(first.releases().await, Release::Released);
        }
        if by == Freed::GivenUp {
            assert_eq!(quitter.releases().await, Release::Released);
        }
        if is_notified_of_its_grant(&recorder, &next).await {
            return;
        }
        next.releases().await;
    }
    panic!("{CHANCES} hand-offs, but it received only {:?}", recorder.recorded());
}

async fn only_the_first_waiter_is_handed_the_key(fixture: &dyn Fixture) {
    let [a, b, c] = test_clients(fixture).await;
    let (recorder, bystander) = (listen(&b), listen(&c));
    for _ in 0..CHANCES {
        let (first, second, third) = (a.new_attempt(), b.new_attempt(), c.new_attempt());
        first.takes().await;
        second.is_queued(0).await;
        third.is_queued(1).await;
        assert_eq!(first.releases().await, Release::Released);
        let notified = is_notified_of_its_grant(&recorder, &second).await;
        let not_me = |event: &Event| handed(event, third.holder.id).is_some();
        assert!(!bystander.recorded().iter().any(not_me), "{} is not the first waiter", third.holder.id);
        third.releases().await;
        second.releases().await;
        if notified {
            return;
        }
    }
    panic!("{CHANCES} hand-offs, but it received only {:?}", recorder.recorded());
}

async fn an_eviction_notifies_every_listener(fixture: &dyn Fixture) {
    let [a, b] = test_clients(fixture).await;
    let recorder = EventRecorder::new();
    a.backend.listen(recorder.clone());
    b.backend.listen(recorder.clone());
    for _ in 0..CHANCES {
        let (held, evictor) = (a.with_new_key(), &b);
        held.takes().await;
        assert_eq!(evictor.evicts(&held.seen().await).await, Eviction::Evicted);
        let hint = |event: &Event| match event {
            Event::Changed { key } if *key == held.key => Some(()),
            Event::Reset => Some(()),
            _ => None,
        };
        if recorder.wait_for(TIMEOUT, hint).await.is_some() {
            return;
        }
    }
    panic!(
        "Event::Changed with the evicted key should reach the listeners of the client that evicted it; after {CHANCES} \
         evictions they received only {:?}",
        recorder.recorded()
    );
}

async fn a_dropped_listener_has_no_effect(fixture: &dyn Fixture) {
    let [a, b] = test_clients(fixture).await;
    drop(listen(&b));
    a.takes().await;
    b.is_queued(0).await;
    assert_eq!(a.releases().await, Release::Released);
    b.still_holds().await;
}
