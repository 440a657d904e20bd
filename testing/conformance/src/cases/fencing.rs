//! The fencing tokens of a key increase with every grant, however the previous hold ended.

use crate::Fixture;
use crate::case::{Case, Need, case, case_for};
use crate::test_client::{ALIVE, PAST_SHORT, SHORT, TestClient, test_clients};
use fencelock_core::{Eviction, FencingToken, Release};

pub(super) fn cases() -> Vec<Case> {
    vec![
        case(a_fence_increases_with_every_grant),
        case_for(&[Need::Expires], a_fence_increases_after_an_expiry),
        case_for(&[Need::Queues], a_fence_increases_with_a_hand_off).within(ALIVE),
        case_for(&[Need::Evicts], a_fence_increases_after_an_eviction),
        case(the_fences_of_several_keys_increase_independently),
        case(a_refused_claim_does_not_move_the_fence_of_the_holder),
    ]
}

/// Appends a token to the history of a key, which must increase.
fn note(history: &mut Vec<FencingToken>, fence: FencingToken) {
    assert!(history.last().is_none_or(|last| fence > *last), "{fence} came after {history:?}");
    history.push(fence);
}

async fn a_fence_increases_with_every_grant(fixture: &dyn Fixture) {
    let clients: [TestClient; 3] = test_clients(fixture).await;
    let mut history = Vec::new();
    for client in clients.iter().cycle().take(50) {
        let turn = client.new_attempt();
        note(&mut history, turn.takes().await);
        assert_eq!(turn.releases().await, Release::Released);
    }
}

async fn a_fence_increases_after_an_expiry(fixture: &dyn Fixture) {
    let [client] = test_clients(fixture).await;
    let mut history = Vec::new();
    for _ in 0..4 {
        note(&mut history, client.new_attempt().for_ttl(SHORT).takes().await);
        fixture.let_leases_end(PAST_SHORT).await;
    }
}

async fn a_fence_increases_with_a_hand_off(fixture: &dyn Fixture) {
    let clients: [TestClient; 8] = test_clients(fixture).await;
    let mut history = vec![clients[0].takes().await];
    for (ahead, waiter) in (0..).zip(&clients[1..]) {
        waiter.is_queued(ahead).await;
    }
    for pair in clients.windows(2) {
        assert_eq!(pair[0].releases().await, Release::Released);
        note(&mut history, pair[1].still_holds().await);
    }
}

async fn a_fence_increases_after_an_eviction(fixture: &dyn Fixture) {
    let [client] = test_clients(fixture).await;
    let mut history = Vec::new();
    for _ in 0..5 {
        note(&mut history, client.new_attempt().takes().await);
        assert_eq!(client.evicts(&client.seen().await).await, Eviction::Evicted);
    }
}

async fn the_fences_of_several_keys_increase_independently(fixture: &dyn Fixture) {
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
    a.still_holds_with(fence).await;
    assert_eq!(a.hold().await.fence, Some(fence));
}
