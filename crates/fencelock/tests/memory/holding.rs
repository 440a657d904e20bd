//! A held lock stays held.

use crate::common::{Fate, Scene, Verb, ms, secs};
use fencelock::Error;
use std::time::Duration;

#[tokio::test(start_paused = true)]
async fn a_lock_is_held_for_a_day_on_a_lease_of_seconds() {
    let scene = Scene::new();
    let guard = scene.client.lock("k").ttl(secs(30)).await.unwrap();
    for _ in 0..24 {
        scene.pass(secs(3600)).await;
        assert!(guard.is_held());
        assert!(scene.holding("k").await.is_some());
    }
    let renewals = scene.net.calls(Verb::Renew);
    let expected = 24 * 3600 * 3 / 30;
    assert!((expected..expected * 12 / 10).contains(&renewals), "every third of the TTL, less a tenth: {renewals}");
}

#[tokio::test(start_paused = true)]
async fn many_leases_are_renewed_in_few_calls() {
    let scene = Scene::new();
    let mut guards = Vec::new();
    for i in 0..5000 {
        guards.push(scene.client.lock(format!("k{i}")).ttl(secs(30)).await.unwrap());
    }
    scene.pass(secs(60)).await;
    assert!(guards.iter().all(fencelock::Guard::is_held));
    let calls = scene.net.calls(Verb::Renew);
    // A batch each 25 ms, and those of the first renewals.
    let (renewals, batches) = (5000 * 6, 60 * 40 + 20);
    assert!(calls < batches, "{renewals} renewals at least, in {calls} calls");
}

#[tokio::test(start_paused = true)]
async fn short_leases_that_a_slow_backend_cannot_renew_do_not_trouble_long_ones() {
    let scene = Scene::new();
    let long = scene.client.lock("long").ttl(secs(30)).await.unwrap();
    scene.pass(secs(1)).await;
    // An answer takes 50 ms: more than the fifth of 100 ms, and nothing for 30 s.
    scene.net.always(Verb::Renew, Fate::Slow(ms(25)));
    let others: Vec<_> = (0..20)
        .map(|number| {
            let client = scene.client.clone();
            tokio::spawn(async move {
                tokio::time::sleep(ms(3 * number)).await;
                loop {
                    let guard = client.lock(format!("short{number}")).ttl(ms(100)).await.unwrap();
                    tokio::time::sleep(ms(60)).await;
                    guard.release().await.unwrap();
                }
            })
        })
        .collect();
    scene.pass(secs(45)).await;
    assert!(long.is_held(), "{:?}", long.check());
    others.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test(start_paused = true)]
async fn a_ttl_outside_its_bounds_is_refused_before_any_request() {
    let scene = Scene::new();
    for ttl in [Duration::ZERO, Duration::from_micros(400), ms(1), ms(9), secs(400 * 86_400), Duration::MAX] {
        let error = scene.client.lock("k").ttl(ttl).await.unwrap_err();
        assert!(matches!(error, Error::Config(_)), "{ttl:?}: {error:?}");
    }
    assert_eq!(scene.net.calls(Verb::Acquire), 0);
}

#[tokio::test]
async fn a_hold_without_any_time_is_a_mistake() {
    let client = Scene::new().client;
    let zero = Duration::ZERO;
    let errors = [
        client.lock("k").max_hold(zero).await.unwrap_err(),
        client.lock_all(["k", "l"]).max_hold(zero).await.unwrap_err(),
        client.semaphore("k", 3).max_hold(zero).acquire(1).await.unwrap_err(),
        client.slots("k", 3).max_hold(zero).acquire().await.unwrap_err(),
    ];
    for error in errors {
        assert!(matches!(error, Error::Config(_)) && error.to_string().contains("max_hold"), "{error}");
    }
}
