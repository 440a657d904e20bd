//! One lock object, many holds; one hold, many processes.

use crate::common::{Fate, Scene, Verb, ms, secs};
use fencelock::{Error, LossReason};

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
    guard.release().await.unwrap();
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
