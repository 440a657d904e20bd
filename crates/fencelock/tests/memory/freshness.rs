//! Where a late rollback could free a later claim, no holder claims twice.

use crate::common::{Fate, Scene, Verb, secs};
use fencelock::HolderId;
use std::collections::HashSet;
use std::sync::atomic::Ordering;

fn quorum_like() -> Scene {
    Scene::with(|net| net.like_a_quorum.store(true, Ordering::SeqCst))
}

fn claimants(scene: &Scene) -> Vec<HolderId> {
    scene.net.claimants.lock().unwrap().clone()
}

fn assert_all_differ(claimants: &[HolderId]) {
    assert_eq!(claimants.iter().collect::<HashSet<_>>().len(), claimants.len(), "{claimants:?}");
}

#[tokio::test(start_paused = true)]
async fn a_claim_after_busy_has_a_fresh_holder() {
    let scene = quorum_like();
    let held = scene.neighbour().lock("k").ttl(secs(30)).await.unwrap();
    let waiting = tokio::spawn(scene.client.lock("k").acquire());
    scene.pass(secs(2)).await;
    held.release().await.unwrap();
    let guard = waiting.await.unwrap().unwrap();
    let claimants = claimants(&scene);
    assert!((6..60).contains(&claimants.len()), "more and more rarely: {}", claimants.len());
    assert_all_differ(&claimants);
    assert_eq!(scene.holding("k").await.unwrap().first().holder_id(), Some(guard.holder()));
}

#[tokio::test(start_paused = true)]
async fn a_claim_after_no_answer_has_a_fresh_holder_and_the_old_one_is_released() {
    let scene = quorum_like();
    scene.net.next(Verb::Acquire, [Fate::Lost, Fate::Mute]);
    let guard = scene.client.lock("k").wait(secs(5)).await.unwrap();
    assert_all_differ(&claimants(&scene));
    assert!(scene.net.calls(Verb::Release) >= 2, "both were given up");
    assert_eq!(scene.holding("k").await.unwrap().first().holder_id(), Some(guard.holder()));
}
