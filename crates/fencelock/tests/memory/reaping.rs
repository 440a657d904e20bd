//! The order and the time limits of releases in the background.

use crate::common::{Fate, Scene, Verb, ms, secs};
use futures_util::FutureExt;
use tokio::task::coop::unconstrained;

#[tokio::test(start_paused = true)]
async fn thousands_of_cancelled_claims_are_given_up_twice_each_within_seconds() {
    let scene = Scene::new();
    scene.net.always(Verb::Acquire, Fate::Hang);
    for i in 0..5000 {
        let sent = Box::pin(unconstrained(scene.client.lock(format!("k{i}")).acquire()));
        assert!(sent.now_or_never().is_none());
    }
    assert!(scene.net.calls(Verb::Acquire) >= 5000, "all were sent");
    scene.net.always(Verb::Release, Fate::Slow(ms(1)));
    let before = scene.now();
    scene.client.clone().close(secs(60)).await.unwrap();
    assert_eq!(scene.net.calls(Verb::Release), 10_000);
    assert!(scene.now().since(before) < secs(2), "{:?}", scene.now().since(before));
    assert!(scene.net.times(Verb::Release)[5000..].iter().all(|sent| sent.since(before) >= ms(1000)));
}
