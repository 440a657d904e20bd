//! Whoever listens is told. Any one hint may be lost, so each fact gets a few chances.

use crate::Place;
use crate::case::{Case, Need, case_for};
use crate::ear::Ear;
use crate::rival::{Rival, rivals};
use fencelock_core::{Acquire, Event, Eviction, FencingToken, HolderId, Release};
use std::sync::Arc;
use std::time::Duration;

/// A hint comes within milliseconds, or it is lost.
const PATIENCE: Duration = Duration::from_secs(2);
const CHANCES: u32 = 4;

pub(super) fn cases() -> Vec<Case> {
    vec![
        case_for(&[Need::Queues], a_release_tells_the_next_in_line_its_grant),
        case_for(&[Need::Queues], only_the_next_in_line_is_handed_the_key),
        case_for(&[Need::Queues], a_waiter_that_gives_up_its_turn_hands_it_on),
        case_for(&[Need::Queues, Need::Evicts], an_eviction_tells_the_next_in_line_its_grant),
        case_for(&[Need::Evicts], an_eviction_is_hinted_to_whoever_listens),
        case_for(&[Need::Queues], a_dropped_listener_is_no_trouble),
    ]
}

/// Ends the hold of `first`, with `second` in line, in one of several ways; then `second` must hear of its grant.
async fn hears_of_its_grant(ear: &Ear, second: &Rival) -> bool {
    let me = second.holder.id;
    let Some((fence, claim_ttl)) = ear.hears(PATIENCE, |event| handed(event, me)).await else { return false };
    // Zero is allowed: the waiter must ask.
    assert!(claim_ttl <= second.ttl, "{claim_ttl:?}");
    assert_eq!(
        second.polls().await,
        Acquire::Granted { tokens: fence.into() },
        "the hint carries the fence of the grant"
    );
    true
}

fn handed(event: &Event, to: HolderId) -> Option<(FencingToken, Duration)> {
    match event {
        Event::Handed { holder, tokens, claim_ttl, .. } if *holder == to => Some((tokens.last(), *claim_ttl)),
        _ => None,
    }
}

fn listen(rival: &Rival) -> Arc<Ear> {
    let ear = Ear::new();
    rival.backend.listen(ear.clone());
    ear
}

async fn a_release_tells_the_next_in_line_its_grant(place: &dyn Place) {
    let [a, b] = rivals(place).await;
    let ear = listen(&b);
    for _ in 0..CHANCES {
        let (first, second) = (a.afresh(), b.afresh());
        first.takes().await;
        second.stands_in_line(0).await;
        assert_eq!(first.releases().await, Release::Released);
        if hears_of_its_grant(&ear, &second).await {
            return;
        }
        second.releases().await;
    }
    panic!("{CHANCES} hand-offs, and all it heard was {:?}", ear.so_far());
}

async fn only_the_next_in_line_is_handed_the_key(place: &dyn Place) {
    let [a, b, c] = rivals(place).await;
    let (ear, bystander) = (listen(&b), listen(&c));
    for _ in 0..CHANCES {
        let (first, second, third) = (a.afresh(), b.afresh(), c.afresh());
        first.takes().await;
        second.stands_in_line(0).await;
        third.stands_in_line(1).await;
        assert_eq!(first.releases().await, Release::Released);
        let told = hears_of_its_grant(&ear, &second).await;
        let not_me = |event: &Event| handed(event, third.holder.id).is_some();
        assert!(!bystander.so_far().iter().any(not_me), "it is not the turn of {}", third.holder.id);
        third.releases().await;
        second.releases().await;
        if told {
            return;
        }
    }
    panic!("{CHANCES} hand-offs, and all it heard was {:?}", ear.so_far());
}

async fn a_waiter_that_gives_up_its_turn_hands_it_on(place: &dyn Place) {
    let [a, b, c] = rivals(place).await;
    let ear = listen(&c);
    for _ in 0..CHANCES {
        let (first, quitter, next) = (a.afresh(), b.afresh(), c.afresh());
        first.takes().await;
        quitter.stands_in_line(0).await;
        next.stands_in_line(1).await;
        assert_eq!(first.releases().await, Release::Released);
        assert_eq!(quitter.releases().await, Release::Released);
        if hears_of_its_grant(&ear, &next).await {
            return;
        }
        next.releases().await;
    }
    panic!("{CHANCES} hand-offs, and all it heard was {:?}", ear.so_far());
}

async fn an_eviction_tells_the_next_in_line_its_grant(place: &dyn Place) {
    let [a, b] = rivals(place).await;
    let ear = listen(&b);
    for _ in 0..CHANCES {
        let (first, second) = (a.afresh(), b.afresh());
        first.takes().await;
        second.stands_in_line(0).await;
        assert_eq!(a.evicts(&first.seen().await).await, Eviction::Evicted);
        if hears_of_its_grant(&ear, &second).await {
            return;
        }
        second.releases().await;
    }
    panic!("{CHANCES} hand-offs, and all it heard was {:?}", ear.so_far());
}

async fn an_eviction_is_hinted_to_whoever_listens(place: &dyn Place) {
    let [a, b] = rivals(place).await;
    let ear = Ear::new();
    a.backend.listen(ear.clone());
    b.backend.listen(ear.clone());
    for _ in 0..CHANCES {
        let (held, evictor) = (a.elsewhere(), &b);
        held.takes().await;
        assert_eq!(evictor.evicts(&held.seen().await).await, Eviction::Evicted);
        let hint = |event: &Event| match event {
            Event::Changed { key } if *key == held.key => Some(()),
            Event::Reset => Some(()),
            _ => None,
        };
        if ear.hears(PATIENCE, hint).await.is_some() {
            return;
        }
    }
    panic!("{CHANCES} evictions, and all that was heard is {:?}", ear.so_far());
}

async fn a_dropped_listener_is_no_trouble(place: &dyn Place) {
    let [a, b] = rivals(place).await;
    drop(listen(&b));
    a.takes().await;
    b.stands_in_line(0).await;
    assert_eq!(a.releases().await, Release::Released);
    b.has_it().await;
}
