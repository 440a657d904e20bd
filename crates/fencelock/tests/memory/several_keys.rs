//! Several keys are acquired, kept and released together.

use crate::cancelling::polled;
use crate::common::{Counter, Fate, Scene, Verb, eventually, ms, secs};
use fencelock::backends::{ManualClock, Memory};
use fencelock::{Client, Drift, Error, LossReason, RunError};
use std::sync::{Arc, Mutex};

/// Ends the hold of a key, as `fencelock break` does.
async fn evict(scene: &Scene, key: &str) {
    let seen = scene.holding(key).await.unwrap();
    scene.neighbour().evict(&seen).await.unwrap();
}

async fn are_free(scene: &Scene, keys: &[&str]) {
    for key in keys {
        assert_eq!(scene.holding(key).await, None, "{key}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_leases_that_are_held_are_renewed_while_the_rest_is_waited_for() {
    let scene = Scene::new();
    let other = scene.neighbour().lock("b").await.unwrap();
    let waiting = tokio::spawn(scene.client.lock_all(["b", "a"]).ttl(secs(3)).acquire());
    scene.pass(ms(10)).await;
    let token = scene.holding("a").await.unwrap().first().fence;
    scene.pass(secs(60)).await;
    other.release().await.unwrap();
    let guards = waiting.await.unwrap().unwrap();
    assert_eq!(Some(guards.fencing_tokens()[1]), token, "the first lease was never lost");
    assert!(guards.remaining() > secs(1), "{:?}", guards.remaining());
}

#[tokio::test]
async fn a_lease_that_ended_during_a_pause_is_not_part_of_a_grant() {
    let clock = Arc::new(ManualClock::at(secs(1)));
    let memory = Arc::new(Memory::with_leases(Arc::clone(&clock) as _));
    let settings = || Client::builder().clock(Arc::clone(&clock) as _, Drift::default()).sharing(crate::SHARING);
    let [client, other] = [settings(), settings()].map(|settings| settings.backend(memory.clone()).unwrap());
    let last = other.lock("b").ttl(secs(600)).await.unwrap();
    let waiting = tokio::spawn(client.lock_all(["a", "b"]).ttl(secs(9)).acquire());
    while client.waiting("b") == 0 {
        tokio::task::yield_now().await;
    }
    let first = other.inspect("a").await.unwrap().unwrap().first().fence;
    // The process is paused, and `b` is granted at once when it resumes.
    clock.advance(secs(18));
    last.release().await.unwrap();
    let guards = waiting.await.unwrap().unwrap();
    assert!(guards.is_held() && Some(guards.fencing_tokens()[0]) > first);
}

#[tokio::test(start_paused = true)]
async fn the_wait_is_for_all_keys_and_all_rounds_together() {
    let scene = Scene::new();
    let begun = scene.now();
    let other = scene.neighbour().lock("c").await.unwrap();
    let short = tokio::spawn(scene.neighbour().lock("b").acquire());
    tokio::spawn(async move {
        let short = short.await.unwrap().unwrap();
        tokio::time::sleep(secs(3)).await;
        short.release().await.unwrap();
    });
    scene.pass(ms(10)).await;
    let waiting = tokio::spawn(scene.client.lock_all(["c", "b", "a"]).wait(secs(5)).acquire());
    scene.pass(secs(1)).await;
    evict(&scene, "a").await;
    match waiting.await.unwrap() {
        Err(Error::Busy { key, waited, attempts, .. }) => {
            assert_eq!(key, "c");
            assert!(waited >= secs(5) && attempts >= 2, "{waited:?}, {attempts}");
        }
        other => panic!("{other:?}"),
    }
    assert!(scene.now().since(begun) < ms(5_200), "{:?}", scene.now().since(begun));
    are_free(&scene, &["a", "b"]).await;
    other.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn free_keys_cost_one_round_trip_together() {
    let scene = Scene::new();
    scene.net.always(Verb::Acquire, Fate::Slow(ms(10)));
    let begun = scene.now();
    let guards = scene.client.lock_all(["d", "c", "b", "a"]).await.unwrap();
    assert_eq!((scene.now().since(begun), scene.net.calls(Verb::Acquire)), (ms(20), 4), "10 ms each way");
    guards.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_key_after_the_one_that_is_waited_for_stays_free() {
    let scene = Scene::new();
    let other = scene.neighbour().lock("b").await.unwrap();
    let waiting = tokio::spawn(scene.client.lock_all(["a", "b", "c", "d"]).acquire());
    scene.pass(ms(10)).await;
    assert!(scene.holding("a").await.is_some(), "it comes first");
    are_free(&scene, &["c", "d"]).await;
    let calls = scene.net.calls(Verb::Acquire);
    other.release().await.unwrap();
    let guards = waiting.await.unwrap().unwrap();
    assert_eq!(guards.keys(), ["a", "b", "c", "d"]);
    assert!(scene.net.calls(Verb::Acquire) <= calls + 3, "the grant of b, and both others together");
}

#[tokio::test(start_paused = true)]
async fn a_try_without_an_answer_ends_with_the_wait() {
    let scene = Scene::new();
    scene.net.always(Verb::Acquire, Fate::Slow(secs(2)));
    let begun = scene.now();
    let error = scene.client.lock_all(["a", "b"]).wait(ms(300)).await.unwrap_err();
    assert!(scene.now().since(begun) <= ms(400), "{:?}: {error}", scene.now().since(begun));
    scene.pass(secs(5)).await;
    are_free(&scene, &["a", "b"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_try_asks_for_each_key_once_and_releases_before_it_answers() {
    let scene = Scene::new();
    scene.net.always(Verb::Release, Fate::Slow(ms(20)));
    let other = scene.neighbour().lock("c").await.unwrap();
    assert!(scene.client.lock_all(["c", "a", "b"]).try_acquire().await.unwrap().is_none());
    are_free(&scene, &["a", "b"]).await;
    assert_eq!(scene.net.calls(Verb::Acquire), 3);
    other.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_lost_during_a_try_is_the_error() {
    let scene = Scene::new();
    scene.net.next(Verb::Acquire, [Fate::Pass, Fate::Slow(secs(2))]);
    let trying = tokio::spawn(scene.client.lock_all(["a", "b"]).try_acquire());
    scene.pass(ms(100)).await;
    evict(&scene, "a").await;
    match trying.await.unwrap() {
        Err(Error::Lost { key, reason, .. }) => assert_eq!((key.as_str(), reason), ("a", LossReason::Deleted)),
        other => panic!("{other:?}"),
    }
    scene.pass(secs(5)).await;
    are_free(&scene, &["a", "b"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_lost_before_the_others_are_answered_is_claimed_again() {
    let scene = Scene::new();
    scene.net.next(Verb::Acquire, [Fate::Pass, Fate::Slow(secs(2))]);
    let acquiring = tokio::spawn(scene.client.lock_all(["a", "b"]).acquire());
    scene.pass(ms(100)).await;
    evict(&scene, "a").await;
    assert!(acquiring.await.unwrap().unwrap().is_held());
}

#[tokio::test(start_paused = true)]
async fn an_acquisition_that_is_dropped_at_any_await_point_leaves_nothing() {
    for polls in 0..2000 {
        let scene = Scene::new();
        for verb in [Verb::Acquire, Verb::Release] {
            scene.net.always(verb, Fate::Slow(ms(5)));
        }
        let other = scene.neighbour().lock("b").await.unwrap();
        tokio::spawn(async move {
            tokio::time::sleep(ms(35)).await;
            other.release().await.unwrap();
        });
        let done = polled(polls, Box::pin(scene.client.lock_all(["c", "b", "a"]).acquire())).await;
        let over = done.is_some();
        drop(done);
        scene.pass(secs(4)).await;
        are_free(&scene, &["a", "b", "c"]).await;
        scene.client.close(secs(1)).await.unwrap();
        if over {
            assert!(polls > 10, "there were await points: {polls}");
            return;
        }
    }
    panic!("it never ended");
}

#[tokio::test(start_paused = true)]
async fn max_hold_begins_when_all_keys_are_held() {
    let scene = Scene::new();
    let other = scene.neighbour().lock("b").await.unwrap();
    let waiting = tokio::spawn(scene.client.lock_all(["a", "b"]).max_hold(secs(10)).acquire());
    scene.pass(ms(10)).await;
    let token = scene.holding("a").await.unwrap().first().fence;
    scene.pass(secs(60)).await;
    other.release().await.unwrap();
    let guards = waiting.await.unwrap().unwrap();
    assert_eq!(Some(guards.fencing_tokens()[0]), token, "the wait for the other key does not count");
    let begun = scene.now();
    assert_eq!(guards.lost().await.reason, LossReason::MaxHold);
    let held = scene.now().since(begun);
    assert!(held >= secs(10) && held <= secs(10) + ms(5), "{held:?}");
    scene.pass(ms(100)).await;
    // The work may hang, so both are released without it.
    are_free(&scene, &["a", "b"]).await;
    drop(guards);
}

#[tokio::test(start_paused = true)]
async fn the_loss_that_came_first_is_the_one_that_is_named() {
    let scene = Scene::new();
    let guards = scene.client.lock_all(["a", "b", "c"]).await.unwrap();
    evict(&scene, "c").await;
    assert_eq!(guards.lost().await.key, "c");
    evict(&scene, "a").await;
    scene.pass(ms(10)).await;
    assert_eq!(guards.lost().await.key, "c");
    assert_eq!(guards.check().unwrap_err().key().unwrap().as_str(), "c");
    let error = guards.release().await.unwrap_err();
    assert_eq!(error.losses().iter().map(|loss| loss.key.as_str()).collect::<Vec<_>>(), ["c", "a"]);
    assert!(error.to_string().ends_with("; also lost: a"), "{error}");
    are_free(&scene, &["a", "b", "c"]).await;
}

#[tokio::test(start_paused = true)]
async fn an_unconfirmed_release_names_its_key_and_continues() {
    let scene = Scene::new();
    let guards = scene.client.lock_all(["b", "a"]).await.unwrap();
    scene.net.always(Verb::Release, Fate::Lost);
    let error = guards.release().await.unwrap_err();
    assert!(error.is_unreachable() && error.key().unwrap() == "b", "{error}");
    scene.net.always(Verb::Release, Fate::Pass);
    scene.pass(secs(3)).await;
    are_free(&scene, &["a", "b"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_body_ends_when_one_of_its_locks_is_lost() {
    let scene = Scene::new();
    let running = tokio::spawn(scene.client.lock_all(["a", "b"]).run(async |held| {
        assert_eq!(held.keys(), ["a", "b"]);
        std::future::pending::<Result<(), std::io::Error>>().await
    }));
    scene.pass(ms(10)).await;
    evict(&scene, "b").await;
    match running.await.unwrap() {
        Err(RunError::Lock(Error::Lost { key, .. })) => assert_eq!(key, "b"),
        other => panic!("{other:?}"),
    }
    eventually("both are free", async || scene.holding("a").await.is_none() && scene.holding("b").await.is_none())
        .await;
}

#[tokio::test(start_paused = true)]
async fn progress_names_the_key_and_counts_the_whole_wait() {
    let scene = Scene::new();
    let first = scene.neighbour().lock("a").await.unwrap();
    let second = scene.neighbour().lock("b").await.unwrap();
    let seen: Arc<Mutex<Vec<_>>> = Arc::default();
    let log = Arc::clone(&seen);
    let locks = scene.client.lock_all(["b", "a"]).on_wait(move |waiting| {
        log.lock().unwrap().push((waiting.key.clone(), waiting.waited));
    });
    let waiting = tokio::spawn(locks.acquire());
    scene.pass(secs(2)).await;
    first.release().await.unwrap();
    scene.pass(secs(2)).await;
    second.release().await.unwrap();
    drop(waiting.await.unwrap().unwrap());
    let seen = seen.lock().unwrap();
    let (key, waited) = seen.last().unwrap();
    assert!(seen[0].0 == "a" && *key == "b" && *waited >= secs(2), "{seen:?}");
    assert!(seen.is_sorted_by_key(|(_, waited)| *waited), "{seen:?}");
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_reported_and_leaves_nothing() {
    let scene = Scene::new();
    let troubled = Counter::default();
    let reported = troubled.clone();
    scene.net.next(Verb::Acquire, [Fate::Pass]);
    scene.net.always(Verb::Acquire, Fate::Lost);
    let locks = scene.client.lock_all(["a", "b"]).ttl(secs(3)).wait(secs(2)).on_trouble(move |_| _ = reported.up());
    let error = locks.await.unwrap_err();
    assert!(error.is_unreachable() && error.key().unwrap() == "b" && troubled.get() > 0, "{error}");
    scene.pass(secs(5)).await;
    are_free(&scene, &["a", "b"]).await;
}
