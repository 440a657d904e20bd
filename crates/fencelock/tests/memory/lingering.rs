//! A free lease stays for a moment, if that is wanted.

use crate::common::{Scene, Verb, ms, secs};
use crate::sharing::shared_guard;
use fencelock::backends::Memory;
use fencelock::{Client, Drift, Error, Released};
use std::sync::Arc;

#[tokio::test(start_paused = true)]
async fn a_free_lease_lingers_for_the_next_task_and_goes_back_then() {
    let scene = Scene::new();
    let net = Arc::clone(&scene.net);
    let lingering = Client::builder()
        .clock(Arc::new(scene.clock), Drift::default())
        .linger(ms(5))
        .backend(Arc::clone(&net) as _)
        .unwrap();
    let guard = shared_guard(&scene, &lingering).await;
    let (holder, token) = (guard.holder(), guard.fencing_token());
    let claims = net.calls(Verb::Acquire);
    assert_eq!(guard.release().await.unwrap(), Released::Released);
    scene.pass(ms(3)).await;
    let again = lingering.lock("k").await.unwrap();
    assert_eq!((again.holder(), net.calls(Verb::Acquire)), (holder, claims));
    assert!(again.fencing_token() > token);
    drop(again);
    let tried = lingering.lock("k").try_acquire().await.unwrap().unwrap();
    assert_eq!((tried.holder(), net.calls(Verb::Acquire)), (holder, claims));
    drop(tried);
    scene.pass(ms(10)).await;
    assert_eq!(scene.holding("k").await, None);
    let settings = Client::builder().linger(secs(1)).backend(Arc::new(Memory::new()));
    assert!(matches!(settings, Err(Error::Config(_))));
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_lingers_is_given_up_for_whoever_cannot_use_it() {
    let scene = Scene::new();
    let lingering = scene.another(|settings| settings.linger(ms(10)));
    drop(shared_guard(&scene, &lingering).await);
    let began = scene.now();
    let other = lingering.lock("k").label("other").try_acquire().await.unwrap().unwrap();
    drop(other);
    drop(shared_guard(&scene, &lingering).await);
    let other = lingering.lock("k").label("other").await.unwrap();
    let remote = tokio::spawn(scene.neighbour().lock("k").acquire());
    scene.pass(ms(1)).await;
    drop(other);
    drop(remote.await.unwrap().unwrap());
    assert!(scene.now().since(began) < ms(9), "{:?}", scene.now().since(began));
}
