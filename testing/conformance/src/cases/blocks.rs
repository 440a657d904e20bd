//! A grant of several fencing tokens has them to itself, in order with all others of the key.

use crate::Fixture;
use crate::case::{Case, Need, case, case_for};
use crate::event_recorder::EventRecorder;
use crate::test_client::{TestClient, expect_known, test_clients};
use fencelock_core::{Acquire, Event, Intent, Release, TokenBlock};
use std::num::NonZeroU32;
use std::time::Duration;

pub(super) fn cases() -> Vec<Case> {
    vec![
        case(a_grant_has_as_many_tokens_as_are_wanted),
        case(a_claim_that_wants_one_gets_one),
        case(blocks_of_one_key_do_not_overlap_and_grow),
        case(the_fence_that_is_shown_is_the_last_of_its_block),
        case(asked_again_only_the_last_token_is_certain),
        case_for(&[Need::Queues], a_waiter_is_handed_the_tokens_it_wanted),
        case_for(&[Need::Queues], a_waiter_is_handed_the_tokens_it_wanted_last),
    ]
}

async fn claim(client: &TestClient, intent: Intent, wanted: u32) -> Acquire {
    let wanted = NonZeroU32::new(wanted).expect("one at least");
    expect_known(client.backend.acquire(&client.claim(intent).with_block(wanted)).await)
}

async fn takes(client: &TestClient, wanted: u32) -> TokenBlock {
    match claim(client, Intent::Try, wanted).await {
        Acquire::Granted { tokens } => tokens,
        other => panic!("should be granted: {other:?}"),
    }
}

/// Time for more tokens than any case here wants: a single backend grants at most one token for each microsecond that has passed.
const ENOUGH: Duration = Duration::from_millis(2);

async fn a_grant_has_as_many_tokens_as_are_wanted(fixture: &dyn Fixture) {
    let [a] = test_clients(fixture).await;
    takes(&a, 1).await;
    assert_eq!(a.releases().await, Release::Released);
    fixture.let_time_pass(ENOUGH).await;
    assert_eq!(takes(&a.new_attempt(), 64).await.count().get(), 64);
}

async fn a_claim_that_wants_one_gets_one(fixture: &dyn Fixture) {
    let [a] = test_clients(fixture).await;
    let tokens = takes(&a, 1).await;
    assert_eq!(tokens.first(), tokens.last());
}

async fn blocks_of_one_key_do_not_overlap_and_grow(fixture: &dyn Fixture) {
    let [a] = test_clients(fixture).await;
    let mut last = None;
    // More than a second of microseconds: also where fewer must be given.
    for wanted in [1, 3, 500_000, 64, 900_000, 100_000, 7, 1, 1].into_iter().cycle().take(40) {
        let turn = a.new_attempt();
        let tokens = takes(&turn, wanted).await;
        assert!(tokens.count().get() <= wanted);
        assert!(last < Some(tokens.first()), "{tokens:?} after {last:?}");
        last = Some(tokens.last());
        assert_eq!(turn.releases().await, Release::Released);
    }
}

async fn the_fence_that_is_shown_is_the_last_of_its_block(fixture: &dyn Fixture) {
    let [a] = test_clients(fixture).await;
    let tokens = takes(&a, 64).await;
    assert_eq!(a.hold().await.fence, Some(tokens.last()));
}

/// Whoever asks again may have used some already.
async fn asked_again_only_the_last_token_is_certain(fixture: &dyn Fixture) {
    let [a] = test_clients(fixture).await;
    let tokens = takes(&a, 64).await;
    for _ in 0..2 {
        assert_eq!(claim(&a, Intent::Poll, 64).await, Acquire::Granted { tokens: tokens.last().into() });
    }
}

async fn a_waiter_is_handed_the_tokens_it_wanted(fixture: &dyn Fixture) {
    waits_for_tokens(fixture, &[16]).await;
}

/// It may have come alone, and have others behind it by now.
async fn a_waiter_is_handed_the_tokens_it_wanted_last(fixture: &dyn Fixture) {
    waits_for_tokens(fixture, &[1, 16]).await;
}

async fn waits_for_tokens(fixture: &dyn Fixture, wanted: &[u32]) {
    let [a, b] = test_clients(fixture).await;
    let before = takes(&a, 8).await;
    let recorder = EventRecorder::new();
    b.backend.listen(recorder.clone());
    let mut intent = Intent::Enqueue;
    for wanted in wanted {
        let queued = claim(&b, intent, *wanted).await;
        assert!(
            matches!(queued, Acquire::Queued { last_fence, .. } if last_fence == before.last().get()),
            "{queued:?}"
        );
        intent = Intent::Poll;
    }
    fixture.let_time_pass(ENOUGH).await;
    assert_eq!(a.releases().await, Release::Released);
    let handed = |event: &Event| match event {
        Event::Handed { holder, tokens, .. } if *holder == b.holder.id => Some(*tokens),
        _ => None,
    };
    // A backend may send no notification; then the waiter polls.
    if let Some(tokens) = recorder.wait_for(Duration::from_secs(2), handed).await {
        assert_eq!(tokens.count().get(), 16);
        assert!(tokens.first() > before.last());
        assert_eq!(b.still_holds().await, tokens.last());
    } else {
        assert!(b.still_holds().await > before.last());
    }
}
