//! One lock object, many holds; one hold, many processes.

use crate::common::{Fate, Scene, Verb, ms, secs};
use fencelock::{Error, LossReason, Released};

#[tokio::test(start_paused = true)]
async fn two_tasks_that_share_a_lock_object_have_their_own_holds_and_tokens() {
    let scene = Scene::new();
    let lock = scene.client.lock("k");
    let first = lock.clone().await.unwrap();
    let second = tokio::spawn(lock.clone().acquire());
    scene.pass(ms(10)).await;
    assert!(!second.is_finished(), "a clone excludes a clone");
    let (holder, token) = (first.holder(), first.fencing_token());
    first.release().await.unwrap();
    let second = second.await.unwrap().unwrap();
    assert_ne!(second.holder(), holder);
    assert!(second.fencing_token() > token);
    let released = scene.client.release("k", holder).await.unwrap();
    assert!(matches!(released, Released::AlreadyLost { .. }), "the old proof opens nothing: {released:?}");
    assert!(second.is_held() && scene.holding("k").await.is_some());
    assert_eq!(second.release().await.unwrap(), Released::Released);
}

#[tokio::test(start_paused = true)]
async fn a_second_claim_while_holding_leaves_the_first_hold_releasable() {
    let scene = Scene::new();
    let lock = scene.client.lock("k");
    let guard = lock.clone().await.unwrap();
    assert!(lock.clone().try_acquire().await.unwrap().is_none());
    assert_eq!(guard.release().await.unwrap(), Released::Released);
    assert!(lock.try_acquire().await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_hold_travels_by_its_proof_and_is_watched_where_it_arrives() {
    let scene = Scene::new();
    let guard = scene.client.lock("k").ttl(secs(10)).await.unwrap();
    let token = guard.fencing_token();
    let holder = guard.into_holder();
    let renewals = scene.net.calls(Verb::Renew);
    scene.pass(secs(5)).await;
    assert_eq!(scene.net.calls(Verb::Renew), renewals, "a detached hold is not renewed");
    let there = scene.neighbour();
    let guard = there.lock("k").ttl(secs(10)).resume(holder).await.unwrap();
    assert_eq!((guard.holder(), guard.fencing_token()), (holder, token));
    scene.pass(secs(100)).await;
    assert!(guard.is_held());
    assert_eq!(guard.release().await.unwrap(), Released::Released);
}

#[tokio::test(start_paused = true)]
async fn a_proof_whose_lease_has_ended_is_not_resumed() {
    let scene = Scene::new();
    let holder = scene.client.lock("k").ttl(secs(10)).await.unwrap().into_holder();
    scene.pass(secs(11)).await;
    let error = scene.client.lock("k").resume(holder).await.unwrap_err();
    assert!(matches!(error, Error::Lost { reason: LossReason::Expired, .. }), "{error:?}");
    assert_eq!(scene.holding("k").await, None, "and the key was not made again");
    let error = scene.client.renew("k", holder, secs(10)).await.unwrap_err();
    assert!(matches!(error, Error::Lost { .. }));
    assert_eq!(scene.holding("k").await, None);
}

#[tokio::test(start_paused = true)]
async fn a_proof_does_not_work_once_another_has_held_the_key_though_it_is_free_again() {
    let scene = Scene::new();
    let holder = scene.client.lock("k").ttl(secs(10)).await.unwrap().into_holder();
    scene.pass(secs(11)).await;
    scene.neighbour().lock("k").await.unwrap().release().await.unwrap();
    assert!(matches!(scene.client.renew("k", holder, secs(10)).await, Err(Error::Lost { .. })));
    assert!(scene.client.lock("k").resume(holder).await.is_err());
    assert_eq!(scene.holding("k").await, None);
}

#[tokio::test(start_paused = true)]
async fn tokens_grow_from_hold_to_hold() {
    let scene = Scene::new();
    let mut last = 0;
    for i in 0..100 {
        let client = if i % 2 == 0 { scene.client.clone() } else { scene.neighbour() };
        let guard = client.lock("k").await.unwrap();
        assert!(guard.fencing_token().get() > last);
        last = guard.fencing_token().get();
        guard.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_renewal_from_before_the_journey_does_not_trouble_the_hold_that_arrived() {
    let scene = Scene::new();
    let guard = scene.client.lock("k").ttl(secs(9)).await.unwrap();
    scene.net.always(Verb::Renew, Fate::Slow(ms(200)));
    let renewals = scene.net.calls(Verb::Renew);
    while scene.net.calls(Verb::Renew) == renewals {
        scene.pass(ms(10)).await;
    }
    let holder = guard.into_holder();
    let guard = scene.client.lock("k").ttl(secs(9)).resume(holder).await.unwrap();
    scene.pass(secs(100)).await;
    assert!(guard.is_held(), "it is renewed");
}
