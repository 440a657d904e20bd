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
