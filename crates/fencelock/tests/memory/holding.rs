//! A held lock stays held.

use crate::common::{Fate, Scene, Verb, ms, secs};
use fencelock::{Error, Expiry};
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
async fn three_failures_in_a_row_and_then_a_success_keep_it() {
    let scene = Scene::new();
    let guard = scene.client.lock("k").ttl(secs(9)).await.unwrap();
    scene.pass(secs(1)).await;
    for fate in [Fate::Lost, Fate::Mute] {
        scene.net.next(Verb::Renew, [fate; 3]);
        scene.pass(secs(60)).await;
        assert!(guard.is_held(), "after three times {fate:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_outage_that_ends_just_before_the_lease_keeps_it() {
    let scene = Scene::new();
    let guard = scene.client.lock("k").ttl(secs(60)).await.unwrap();
    scene.net.always(Verb::Renew, Fate::Lost);
    scene.pass(guard.remaining().saturating_sub(ms(1500))).await;
    scene.net.always(Verb::Renew, Fate::Pass);
    scene.pass(secs(600)).await;
    assert!(guard.is_held());
}

#[tokio::test(start_paused = true)]
async fn a_slow_network_keeps_it_too() {
    let scene = Scene::new();
    scene.net.always(Verb::Acquire, Fate::Slow(secs(1)));
    scene.net.always(Verb::Renew, Fate::Slow(secs(1)));
    let guard = scene.client.lock("k").ttl(secs(10)).await.unwrap();
    assert!(guard.remaining() <= secs(8), "a lease is counted from its request: {:?}", guard.remaining());
    scene.pass(secs(600)).await;
    assert!(guard.is_held());
}

#[tokio::test(start_paused = true)]
async fn after_a_long_wait_a_lock_has_its_full_time_and_the_renewals_count_from_there() {
    let scene = Scene::new();
    let first = scene.client.lock("k").ttl(secs(30)).await.unwrap();
    let second = tokio::spawn(scene.client.lock("k").ttl(secs(30)).acquire());
    scene.pass(secs(600)).await;
    let before = scene.now();
    first.release().await.unwrap();
    let second = second.await.unwrap().unwrap();
    scene.pass(ms(100)).await;
    assert!(second.remaining() > secs(29), "{:?}", second.remaining());
    let renewals = scene.net.calls(Verb::Renew);
    scene.pass(secs(10)).await;
    let next = scene.net.times(Verb::Renew)[renewals];
    let after = next.since(before);
    assert!(after > secs(8) && after <= secs(10) + ms(100), "a third of the TTL: {after:?}");
    assert!(second.is_held());
}

#[tokio::test(start_paused = true)]
async fn renewing_often_does_not_add_up() {
    let scene = Scene::new();
    let guard = scene.client.lock("k").ttl(secs(5)).await.unwrap();
    for _ in 0..5 {
        scene.client.renew("k", guard.holder(), secs(5)).await.unwrap();
    }
    let Expiry::In(left) = scene.holding("k").await.unwrap().first().expiry else { panic!("a lease has an end") };
    assert!(left <= secs(5), "{left:?}");
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
async fn one_lease_in_trouble_does_not_trouble_its_neighbours() {
    let scene = Scene::new();
    let good = scene.client.lock("good").ttl(secs(9)).await.unwrap();
    let bad = scene.client.lock("bad").ttl(secs(9)).await.unwrap();
    let seen = scene.holding("bad").await.unwrap();
    scene.neighbour().evict(&seen).await.unwrap();
    bad.lost().await;
    scene.pass(secs(100)).await;
    assert!(good.is_held());
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
