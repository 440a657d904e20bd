//! The backend answers, and takes no locks.

use crate::common::{Fate, Scene, Verb, ms, secs};
use crate::log::Log;
use fencelock::{Error, Fault};

const WAITERS: usize = 40;

#[tokio::test(start_paused = true)]
async fn waiters_at_a_free_key_that_cannot_be_written_back_off_and_warn_once() {
    let log = Log::default();
    let _listening = log.listen();
    let scene = Scene::new();
    scene.net.always(Verb::Acquire, Fate::Full);
    let waiting: Vec<_> = (0..WAITERS)
        .map(|_| {
            let lock = scene.client.lock("k").ttl(secs(60));
            tokio::spawn(async move { lock.acquire().await.map(drop) })
        })
        .collect();
    scene.pass(secs(20)).await;
    let claims = scene.net.calls(Verb::Acquire);
    // A dozen until the pauses are at their longest, and then not five a second.
    let most = WAITERS * (12 + 20 * 5);
    assert!(claims >= 20 && claims < most, "{claims} claims in 20 s");
    assert_eq!(scene.net.calls(Verb::Release), 0, "there is nothing to give back");
    assert_eq!(log.warnings().len(), 1, "{:#?}", log.warnings());
    assert!(log.warnings()[0].contains("claims are refused") && log.warnings()[0].contains("OOM"));

    scene.net.always(Verb::Acquire, Fate::Pass);
    for waiting in waiting {
        waiting.await.unwrap().unwrap();
    }
    assert_eq!(log.warnings().len(), 2, "{:#?}", log.warnings());
    assert!(log.warnings()[1].contains("claims are answered again after 20"), "{:#?}", log.warnings());
}

#[tokio::test(start_paused = true)]
async fn a_queued_waiter_backs_off_even_if_it_waits_for_a_short_lease() {
    let scene = Scene::new();
    let held = scene.neighbour().lock("k").ttl(ms(30)).await.unwrap();
    let waiting = tokio::spawn(scene.client.lock("k").ttl(secs(60)).acquire());
    scene.pass(ms(10)).await;
    scene.net.always(Verb::Acquire, Fate::Full);
    let before = scene.net.calls(Verb::Acquire);
    scene.pass(secs(20)).await;
    let claims = scene.net.calls(Verb::Acquire) - before;
    assert!((70..12 + 20 * 5).contains(&claims), "{claims} claims in 20 s");
    scene.net.always(Verb::Acquire, Fate::Pass);
    drop(held);
    assert!(waiting.await.unwrap().unwrap().is_held());
}

#[tokio::test(start_paused = true)]
async fn a_refusal_that_lasts_as_long_as_a_lease_is_reported() {
    let scene = Scene::new();
    scene.net.always(Verb::Acquire, Fate::Full);
    let before = scene.now();
    let Err(Error::Unreachable { cause, .. }) = scene.client.lock("k").ttl(secs(5)).await else { panic!("refused") };
    assert_eq!(cause.nodes()[0].fault, Fault::Full);
    assert!(scene.now().since(before) >= secs(5) && scene.now().since(before) < secs(6));
    assert_eq!(scene.net.calls(Verb::Release), 0);
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_is_denied_for_good_is_given_back_once_and_without_a_warning() {
    let log = Log::default();
    let _listening = log.listen();
    let scene = Scene::new();
    scene.net.always(Verb::Acquire, Fate::Denied);
    scene.net.always(Verb::Release, Fate::Denied);
    assert!(matches!(scene.client.lock("k").await, Err(Error::Config(_))));
    scene.pass(secs(60)).await;
    assert_eq!(scene.net.calls(Verb::Release), 1, "it may have been carried out in part");
    assert_eq!(log.warnings(), Vec::<String>::new());
}
