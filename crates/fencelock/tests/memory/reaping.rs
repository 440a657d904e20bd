//! The order and the time limits of releases in the background.

use crate::common::{Fate, Scene, Verb, ms, secs};
use std::future::Future;
use std::task::{Context, Poll, Waker};
use tokio::task::coop::unconstrained;

/// Claims that are sent, and given up before they are answered.
fn cancelled_claims(scene: &Scene, many: usize) {
    scene.net.always(Verb::Acquire, Fate::Hang);
    for i in 0..many {
        let mut acquiring = Box::pin(unconstrained(scene.client.lock(format!("k{i}")).acquire()));
        let once = acquiring.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(once, Poll::Pending));
    }
    assert!(scene.net.calls(Verb::Acquire) >= many, "all were sent");
}

#[tokio::test(start_paused = true)]
async fn a_dropped_guard_is_released_before_thousands_of_cancelled_claims() {
    let scene = Scene::new();
    let guard = scene.client.lock("held").await.unwrap();
    scene.net.always(Verb::Release, Fate::Slow(ms(5)));
    cancelled_claims(&scene, 5000);
    scene.pass(ms(1)).await;
    let before = scene.net.calls(Verb::Release);
    drop(guard);
    while scene.holding("held").await.is_some() {
        scene.pass(ms(1)).await;
    }
    let meanwhile = scene.net.calls(Verb::Release) - before;
    assert!(meanwhile < 10, "{meanwhile} releases came first or at the same time");
    assert!(before < 100, "{before} releases were under way at one time");
}

#[tokio::test(start_paused = true)]
async fn thousands_of_cancelled_claims_are_given_up_twice_each_within_seconds() {
    let scene = Scene::new();
    cancelled_claims(&scene, 5000);
    scene.net.always(Verb::Release, Fate::Slow(ms(1)));
    let before = scene.now();
    scene.client.clone().close(secs(60)).await.unwrap();
    assert_eq!(scene.net.calls(Verb::Release), 10_000);
    assert!(scene.now().since(before) < secs(2), "{:?}", scene.now().since(before));
    assert!(scene.net.times(Verb::Release)[5000..].iter().all(|sent| sent.since(before) >= ms(1000)));
}

#[tokio::test(start_paused = true)]
async fn a_dropped_guard_does_not_wait_for_releases_that_fail() {
    let scene = Scene::new();
    cancelled_claims(&scene, 5000);
    scene.net.always(Verb::Acquire, Fate::Pass);
    let guard = scene.client.lock("held").await.unwrap();
    scene.net.always(Verb::Release, Fate::Lost);
    scene.pass(secs(5)).await;
    scene.net.always(Verb::Release, Fate::Pass);
    let before = scene.now();
    drop(guard);
    while scene.holding("held").await.is_some() {
        scene.pass(ms(1)).await;
    }
    assert!(scene.now().since(before) <= ms(2), "{:?}", scene.now().since(before));
}
