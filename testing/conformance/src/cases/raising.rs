//! A fence can be raised by its holder, and only raised: that is how the nodes of a quorum agree on one token.

use crate::Place;
use crate::case::{Case, Need, case_for};
use crate::rival::{Rival, rivals, told};
use fencelock_core::{FencingToken, Raise, Release};

pub(super) fn cases() -> Vec<Case> {
    vec![
        case_for(&[Need::Node], a_raised_hold_has_its_new_fence_and_the_next_one_is_greater),
        case_for(&[Need::Node], a_raise_to_what_it_is_changes_nothing_and_is_acked),
        case_for(&[Need::Node], a_raise_never_lowers_a_fence),
        case_for(&[Need::Node], a_raise_by_a_stranger_is_refused),
        case_for(&[Need::Node], a_raise_of_a_free_key_is_refused_and_does_not_take_it),
        case_for(&[Need::Node], a_grant_is_close_to_what_was_proposed),
    ]
}

async fn raise(place: &dyn Place, rival: &Rival, to: FencingToken) -> Raise {
    let node = place.node().expect("the case needs one").await;
    told(node.raise(&rival.key, &rival.holder.id, to).await)
}

fn more(fence: FencingToken, by: u64) -> FencingToken {
    FencingToken::new(fence.get() + by).expect("far from the last one")
}

fn less(fence: FencingToken) -> FencingToken {
    FencingToken::new(fence.get() - 1).expect("far from zero")
}

async fn a_raised_hold_has_its_new_fence_and_the_next_one_is_greater(place: &dyn Place) {
    let [a, b] = rivals(place).await;
    // Half a minute ahead of every clock: the next fence cannot be greater by the time alone.
    let raised = more(a.takes().await, 30_000_000);
    assert_eq!(raise(place, &a, raised).await, Raise::Acked);
    assert_eq!(a.has_it().await, raised);
    assert_eq!(a.hold().await.fence, Some(raised));
    assert_eq!(a.releases().await, Release::Released);
    assert!(b.takes().await > raised);
}

async fn a_raise_to_what_it_is_changes_nothing_and_is_acked(place: &dyn Place) {
    let [a] = rivals(place).await;
    let fence = a.takes().await;
    assert_eq!(raise(place, &a, fence).await, Raise::Acked);
    assert_eq!(a.has_it().await, fence);
}

async fn a_raise_never_lowers_a_fence(place: &dyn Place) {
    let [a] = rivals(place).await;
    let fence = a.takes().await;
    assert_eq!(raise(place, &a, less(fence)).await, Raise::Refused);
    assert_eq!(a.has_it().await, fence);
}

async fn a_raise_by_a_stranger_is_refused(place: &dyn Place) {
    let [a, stranger] = rivals(place).await;
    let fence = a.takes().await;
    assert_eq!(raise(place, &stranger, more(fence, 1)).await, Raise::Refused);
    assert_eq!(a.has_it().await, fence);
}

async fn a_raise_of_a_free_key_is_refused_and_does_not_take_it(place: &dyn Place) {
    let [a, b] = rivals(place).await;
    let fence = a.takes().await;
    assert_eq!(a.releases().await, Release::Released);
    assert_eq!(raise(place, &a, more(fence, 1)).await, Raise::Refused);
    assert_eq!(b.inspects().await, None);
}

async fn a_grant_is_close_to_what_was_proposed(place: &dyn Place) {
    let [a] = rivals(place).await;
    let usual = a.takes().await;
    assert_eq!(a.releases().await, Release::Released);
    // Within the second by which a proposal may lie ahead of a node's clock, it is granted as it is.
    let turn = a.afresh();
    let proposal = usual.get() + 500_000;
    let claim = turn.claim(fencelock_core::Intent::Try).with_proposal(proposal);
    told(turn.backend.acquire(&claim).await);
    assert_eq!(turn.has_it().await.get(), proposal);
}
