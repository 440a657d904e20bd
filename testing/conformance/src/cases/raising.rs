//! A holder can raise its fence, but not lower it: the nodes of a quorum thus agree on one token.

use crate::Fixture;
use crate::case::{Case, Need, case_for};
use crate::test_client::{TestClient, expect_known, test_clients};
use fencelock_core::{FencingToken, Intent, Raise, Release};
use std::time::Duration;
use tokio::time::Instant;

pub(super) fn cases() -> Vec<Case> {
    vec![
        case_for(&[Need::Node], a_raised_hold_has_its_new_fence_and_the_next_one_is_greater),
        case_for(&[Need::Node], a_raise_to_the_current_fence_succeeds_and_changes_nothing),
        case_for(&[Need::Node], a_raise_never_lowers_a_fence),
        case_for(&[Need::Node], a_raise_by_another_client_is_refused),
        case_for(&[Need::Node], a_raise_of_a_free_key_is_refused_and_does_not_take_it),
        case_for(&[Need::Node], a_grant_is_close_to_its_proposal),
    ]
}

async fn raise(fixture: &dyn Fixture, client: &TestClient, to: FencingToken) -> Raise {
    let node = fixture.backend().await;
    expect_known(node.raise(&client.key, &client.holder.id, to).await)
}

fn more(fence: FencingToken, by: u64) -> FencingToken {
    FencingToken::new(fence.get() + by).expect("far from the last one")
}

fn less(fence: FencingToken) -> FencingToken {
    FencingToken::new(fence.get() - 1).expect("far from zero")
}

async fn a_raised_hold_has_its_new_fence_and_the_next_one_is_greater(fixture: &dyn Fixture) {
    let [a, b] = test_clients(fixture).await;
    // Half a minute ahead of every clock: the next fence cannot be greater because of the time alone.
    let raised = more(a.takes().await, 30_000_000);
    assert_eq!(raise(fixture, &a, raised).await, Raise::Acked);
    a.still_holds_with(raised).await;
    assert_eq!(a.hold().await.fence, Some(raised));
    assert_eq!(a.releases().await, Release::Released);
    assert!(b.takes().await > raised);
}

async fn a_raise_to_the_current_fence_succeeds_and_changes_nothing(fixture: &dyn Fixture) {
    let [a] = test_clients(fixture).await;
    let fence = a.takes().await;
    assert_eq!(raise(fixture, &a, fence).await, Raise::Acked);
    a.still_holds_with(fence).await;
}

async fn a_raise_never_lowers_a_fence(fixture: &dyn Fixture) {
    let [a] = test_clients(fixture).await;
    let fence = a.takes().await;
    assert_eq!(raise(fixture, &a, less(fence)).await, Raise::Refused);
    a.still_holds_with(fence).await;
}

async fn a_raise_by_another_client_is_refused(fixture: &dyn Fixture) {
    let [a, stranger] = test_clients(fixture).await;
    let fence = a.takes().await;
    assert_eq!(raise(fixture, &stranger, more(fence, 1)).await, Raise::Refused);
    a.still_holds_with(fence).await;
}

async fn a_raise_of_a_free_key_is_refused_and_does_not_take_it(fixture: &dyn Fixture) {
    let [a, b] = test_clients(fixture).await;
    let fence = a.takes().await;
    assert_eq!(a.releases().await, Release::Released);
    assert_eq!(raise(fixture, &a, more(fence, 1)).await, Raise::Refused);
    assert_eq!(b.inspects().await, None);
}

async fn a_grant_is_close_to_its_proposal(fixture: &dyn Fixture) {
    let [a] = test_clients(fixture).await;
    loop {
        let begun = Instant::now();
        let usual = a.takes().await;
        assert_eq!(a.releases().await, Release::Released);
        // A proposal within one second of the clock of the node is granted unchanged.
        let turn = a.new_attempt();
        let proposal = usual.get() + 900_000;
        let node = fixture.backend().await;
        expect_known(node.acquire_proposed(&turn.claim(Intent::Try), proposal).await.answer);
        let granted = turn.still_holds().await.get();
        if granted == proposal {
            return;
        }
        // The clock has passed it.
        assert!(begun.elapsed() >= Duration::from_millis(900), "{granted}, although {proposal} was proposed");
        turn.releases().await;
    }
}
