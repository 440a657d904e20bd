//! A grant of several fencing tokens owns all of them, in order with all other tokens of the key.

use crate::Fixture;
use crate::case::{Case, Need, case, case_for};
use crate::event_recorder::EventRecorder;
use crate::test_client::{TestClient, expect_known, test_clients};
use fencelock_core::{Acquire, Event, Intent, Release, TokenBlock};
use std::num::NonZeroU32;
use std::time::Duration;

pub(super) fn cases() -> Vec<Case> {
    vec![
        case(a_grant_has_the_requested_number_of_tokens),
        case(a_claim_that_wants_one_gets_one),
        case(blocks_of_one_key_increase_without_overlap),
        case(the_fence_that_is_shown_is_the_last_of_its_block),
        case(a_repeated_claim_returns_only_the_last_token),
        case_for(&[Need::Queues], a_waiter_receives_the_requested_number_of_tokens),
        case_for(&[Need::Queues], a_waiter_receives_the_number_of_tokens_of_its_last_claim),
    ]
}

async fn claim(client: &TestClient, intent: Intent, wanted: u32) -> Acquire {
    let wanted = NonZeroU32::new(wanted).expect("at least one");
    expect_known(client.backend.acquire(&client.claim(intent).with_block(wanted)).await.answer)
}

async fn takes(client: &TestClient, wanted: u32) -> TokenBlock {
    match claim(client, Intent::Try, wanted).await {
        Acquire::Granted { tokens } => tokens,
        other => panic!("should be granted: {other:?}"),
    }
}

/// Time for more tokens than any case requests: a backend grants at most one token per microsecond.
const ENOUGH: Duration = Duration::from_millis(2);

async fn a_grant_has_the_requested_number_of_tokens(fixture: &dyn Fixture) {
    let [a] = test_clients(fixture).await;
    takes(&a, 1).await;
    assert_eq!(a.releases().await, Release::Released);
    fixture.let_time_pass(ENOUGH).await;
    let count = takes(&a.new_attempt(), 64).await.count().get();
    assert!(count == 64 || count == 1 && !a.backend.capabilities().queues, "{count} tokens");
}

async fn a_claim_that_wants_one_gets_one(fixture: &dyn Fixture) {
    let [a] = test_clients(fixture).await;
    let tokens = takes(&a, 1).await;
    assert_eq!(tokens.first(), tokens.last());
}

async fn blocks_of_one_key_increase_without_overlap(fixture: &dyn Fixture) {
    let [a] = test_clients(fixture).await;
    let mut last = None;
    // More tokens than microseconds in a second, so that a backend must grant fewer.
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

/// The client may have used some tokens of the block before it repeats the claim.
async fn a_repeated_claim_returns_only_the_last_token(fixture: &dyn Fixture) {
    let [a] = test_clients(fixture).await;
    let tokens = takes(&a, 64).await;
    for _ in 0..2 {
        a.is_granted_again(&claim(&a, Intent::Poll, 64).await, tokens.last());
    }
}

async fn a_waiter_receives_the_requested_number_of_tokens(fixture: &dyn Fixture) {
    waits_for_tokens(fixture, &[16]).await;
}

/// A waiter that was alone at first may have other waiters behind it at the hand-off.
async fn a_waiter_receives_the_number_of_tokens_of_its_last_claim(fixture: &dyn Fixture) {
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
            matches!(queued, Acquire::Queued { hand_off, .. } if hand_off.last_fence == before.last().get()),
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
        b.still_holds_with(tokens.last()).await;
    } else {
        assert!(b.still_holds().await > before.last());
    }
}
