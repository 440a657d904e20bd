//! Fencing tokens of one key grow with every grant, whatever ended the hold before.

use crate::Fixture;
use crate::case::{Case, Need, case, case_for};
use crate::test_client::{ALIVE, PAST_SHORT, SHORT, TestClient, test_clients};
use fencelock_core::{Acquire, Eviction, FencingToken, Release};

pub(super) fn cases() -> Vec<Case> {
    vec![
        case(a_fence_grows_with_every_release_and_grant),
        case_for(&[Need::Expires], a_fence_grows_over_expiries),
        case_for(&[Need::Queues], a_fence_grows_over_hand_offs).within(ALIVE),
        case_for(&[Need::Evicts], a_fence_grows_over_evictions),
        case(fences_of_many_keys_grow_side_by_side),
        case(a_refused_claim_does_not_move_the_fence_of_the_holder),
    ]
}

/// Adds a token to the history of a key, which must grow.
fn note(history: &mut Vec<FencingToken>, fence: FencingToken) {
    assert!(history.last().is_none_or(|last| fence > *last), "{fence} came after {history:?}");
    history.push(fence);
}

async fn a_fence_grows_with_every_release_and_grant(fixture: &dyn Fixture) {
    let clients: [TestClient; 3] = test_clients(fixture).await;
    let mut history = Vec::new();
    for client in clients.iter().cycle().take(50) {
        let turn = client.new_attempt();
        note(&mut history, turn.takes().await);
        assert_eq!(turn.releases().await, Release::Released);
    }
}

async fn a_fence_grows_over_expiries(fixture: &dyn Fixture) {
    let [client] = test_clients(fixture).await;
    let mut history = Vec::new();
    for _ in 0..4 {
        note(&mut history, client.new_attempt().for_ttl(SHORT).takes().await);
        fixture.let_time_pass(PAST_SHORT).await;
    }
}

async fn a_fence_grows_over_hand_offs(fixture: &dyn Fixture) {
    let line: [TestClient; 8] = test_clients(fixture).await;
    let mut history = vec![line[0].takes().await];
    for (ahead, waiter) in (0..).zip(&line[1..]) {
        waiter.is_queued(ahead).await;
    }
    for pair in line.windows(2) {
        assert_eq!(pair[0].releases().await, Release::Released);
        note(&mut history, pair[1].still_holds().await);
    }
}

async fn a_fence_grows_over_evictions(fixture: &dyn Fixture) {
    let [client] = test_clients(fixture).await;
    let mut history = Vec::new();
    for _ in 0..5 {
        note(&mut history, client.new_attempt().takes().await);
        assert_eq!(client.evicts(&client.seen().await).await, Eviction::Evicted);
    }
}

async fn fences_of_many_keys_grow_side_by_side(fixture: &dyn Fixture) {
    let [client] = test_clients(fixture).await;
    let keys: Vec<_> = (0..20).map(|_| client.with_new_key()).collect();
    let mut histories = vec![Vec::new(); keys.len()];
    for _ in 0..5 {
        for (at_key, history) in keys.iter().zip(&mut histories) {
            let turn = at_key.new_attempt();
            note(history, turn.takes().await);
            assert_eq!(turn.releases().await, Release::Released);
        }
    }
}

async fn a_refused_claim_does_not_move_the_fence_of_the_holder(fixture: &dyn Fixture) {
    let [a, b] = test_clients(fixture).await;
    let fence = a.takes().await;
    for _ in 0..5 {
        b.new_attempt().is_refused().await;
    }
    assert_eq!(a.polls().await, Acquire::Granted { tokens: fence.into() });
    assert_eq!(a.hold().await.fence, Some(fence));
}
