//! Who waits is served in order, within its bounds.

use crate::common::{Fate, Scene, Verb, ms, secs};
use crate::log::Log;
use fencelock::{Client, Error, Expiry, Holders, Lock, Occupant, RunError};
use futures_util::future::{BoxFuture, FutureExt, TryFutureExt, join_all};
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn label(holders: &Holders) -> Option<&str> {
    match holders.first() {
        Occupant::Holder(holder) => holder.owner.label(),
        Occupant::Foreign(_) => None,
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_is_bounded() {
    let scene = Scene::new();
    let _held = scene.client.lock("k").label("other").ttl(secs(30)).await.unwrap();
    let before = scene.now();
    let Err(Error::Busy { holders, expires_in: Expiry::In(_), waited, attempts, key, .. }) =
        scene.client.lock("k").wait(secs(5)).await
    else {
        panic!("busy")
    };
    assert_eq!((key.as_str(), label(&holders)), ("k", Some("other")));
    assert!(waited >= secs(5) && scene.now().since(before) < secs(5) + ms(10), "{waited:?}");
    assert!((6..9).contains(&attempts), "once a second: {attempts}");
    assert_eq!(scene.holding("k").await.unwrap().waiters, 0, "no position in the queue is left");
}

#[tokio::test(start_paused = true)]
async fn a_wait_of_zero_sends_one_claim() {
    let scene = Scene::new();
    let held = scene.client.lock("k").await.unwrap();
    let calls = scene.net.calls(Verb::Acquire);
    let before = scene.now();
    assert!(scene.client.lock("k").try_acquire().await.unwrap().is_none());
    assert!(matches!(scene.client.lock("k").wait(ms(0)).await, Err(Error::Busy { attempts: 1, .. })));
    assert_eq!(scene.net.calls(Verb::Acquire), calls + 2);
    assert_eq!(scene.now(), before);
    held.release().await.unwrap();
    assert!(scene.client.lock("k").try_acquire().await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_wait_without_bounds_lasts_for_more_than_a_day() {
    let scene = Scene::new();
    let held = scene.client.lock("k").await.unwrap();
    let waiting = tokio::spawn(scene.client.lock("k").acquire());
    scene.pass(secs(25 * 3600)).await;
    assert!(!waiting.is_finished());
    held.release().await.unwrap();
    assert!(waiting.await.unwrap().unwrap().is_held());
}

#[tokio::test(start_paused = true)]
async fn a_retry_has_the_configured_number_and_interval_of_attempts() {
    let scene = Scene::new();
    let _held = scene.neighbour().lock("k").await.unwrap();
    for (times, expected) in [(0, 1), (1, 1), (2, 2), (5, 5)] {
        let before = scene.net.calls(Verb::Acquire);
        let Err(Error::Busy { attempts, .. }) = scene.client.lock("k").retry(times, secs(10)).await else {
            panic!("busy")
        };
        let claims = scene.net.times(Verb::Acquire)[before..].to_vec();
        assert_eq!((attempts, claims.len()), (expected, expected as usize));
        for pair in claims.windows(2) {
            let pause = pair[1].since(pair[0]);
            assert!(pause >= secs(9) && pause <= secs(10) + ms(2), "{pause:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_retry_counts_unanswered_requests_too() {
    let scene = Scene::new();
    let _held = scene.neighbour().lock("k").await.unwrap();
    for fate in [Fate::Lost, Fate::Mute] {
        scene.net.next(Verb::Acquire, [fate; 2]);
        let before = scene.net.calls(Verb::Acquire);
        assert!(scene.client.lock("k").retry(4, secs(1)).await.is_err());
        let claims = scene.net.times(Verb::Acquire)[before..].to_vec();
        assert_eq!(claims.len(), 4, "{fate:?}: {claims:?}");
        assert!(claims.windows(2).all(|pair| pair[1].since(pair[0]) >= ms(900)), "{fate:?}: {claims:?}");
    }
    let free = scene.net.calls(Verb::Acquire);
    scene.net.next(Verb::Acquire, [Fate::Lost]);
    assert!(scene.client.lock("free").retry(2, secs(1)).await.is_ok(), "the second request is a full one");
    assert_eq!(scene.net.calls(Verb::Acquire), free + 2);
}

#[tokio::test(start_paused = true)]
async fn a_retry_is_not_hurried_by_changes() {
    let scene = Scene::new();
    let _held = scene.neighbour().lock("k").await.unwrap();
    let before = scene.net.calls(Verb::Acquire);
    let retry = tokio::spawn(scene.client.lock("k").retry(3, secs(10)).acquire());
    scene.pass(secs(1)).await;
    for _ in 0..5 {
        let seen = scene.holding("k").await.unwrap();
        scene.neighbour().evict(&seen).await.unwrap();
        std::mem::forget(scene.neighbour().lock("k").ttl(secs(3600)).await.unwrap());
        scene.pass(ms(100)).await;
    }
    assert!(retry.await.unwrap().is_err());
    let claims = scene.net.times(Verb::Acquire)[before..].to_vec();
    assert_eq!(claims.len(), 3);
    assert!(claims.windows(2).all(|pair| pair[1].since(pair[0]) >= secs(9)), "{claims:?}");
}

#[tokio::test(start_paused = true)]
async fn a_waiter_learns_its_position_and_the_holder() {
    let scene = Scene::new();
    let held = scene.client.lock("k").label("payroll").await.unwrap();
    let reports = Arc::new(Mutex::new(Vec::new()));
    let mut waiting = Vec::new();
    for ahead in 0..3 {
        let reports = Arc::clone(&reports);
        let lock = scene.client.lock("k").on_wait(move |waiting| {
            let label = label(&waiting.holders).map(str::to_owned);
            reports.lock().unwrap().push((ahead, waiting.ahead, label));
        });
        waiting.push(tokio::spawn(lock.acquire()));
        scene.pass(ms(1)).await;
    }
    let expected: Vec<_> = (0..3).map(|ahead| (ahead, Some(ahead), Some("payroll".to_owned()))).collect();
    assert_eq!(*reports.lock().unwrap(), expected);
    drop(held);
    scene.pass(ms(1500)).await;
    let reports = reports.lock().unwrap();
    assert!(
        reports.iter().any(|(waiter, ahead, label)| (*waiter, *ahead, label.is_none()) == (2, Some(1), true)),
        "{reports:?}"
    );
}

/// Each way to wait for a lock, with a TTL of 10 s.
fn every_wait(client: &Client, limit: Option<Duration>) -> Vec<BoxFuture<'static, Result<(), Error>>> {
    macro_rules! of {
        ($request:expr) => {{
            let request = $request.ttl(secs(10));
            if let Some(limit) = limit { request.wait(limit) } else { request }
        }};
    }
    let (lock, reader, all) = (of!(client.lock("a")), of!(client.lock("b").shared()), of!(client.lock_all(["c", "d"])));
    let (semaphore, slots) = (of!(client.semaphore("e", 3)), of!(client.slots("f", 3)));
    let (campaign, leader) = (of!(client.election("g")), of!(client.election("h")));
    let once = of!(client.once("i", secs(3600)));
    vec![
        lock.acquire().map_ok(drop).boxed(),
        // In the queue behind it.
        of!(client.lock("a")).acquire().map_ok(drop).boxed(),
        reader.acquire().map_ok(drop).boxed(),
        all.acquire().map_ok(drop).boxed(),
        async move { semaphore.acquire(2).await.map(drop) }.boxed(),
        slots.acquire().map_ok(drop).boxed(),
        campaign.campaign().map_ok(drop).boxed(),
        async move {
            match leader.run_while_leader(async |_| Ok::<_, ()>(())).await {
                Err(RunError::Lock(error)) => Err(error),
                ended => panic!("{ended:?}"),
            }
        }
        .boxed(),
        once.begin().map_ok(drop).boxed(),
    ]
}

#[tokio::test(start_paused = true)]
async fn every_wait_ends_at_its_limit_or_without_one_when_nothing_was_answered_for_the_ttl() {
    let scene = Scene::new();
    for verb in [Verb::Acquire, Verb::ReadCompletion] {
        scene.net.always(verb, Fate::Lost);
    }
    for (limit, end) in [(None, secs(10)), (Some(secs(25)), secs(25))] {
        let before = scene.now();
        let waits = every_wait(&scene.client, limit).into_iter().map(|wait| async {
            let Err(Error::Unreachable { .. }) = wait.await else { panic!("unreachable") };
            scene.now().since(before)
        });
        let waited = join_all(waits).await;
        assert!(waited.iter().all(|waited| (end..end + secs(1)).contains(waited)), "{waited:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn wrong_credentials_end_a_wait_at_once() {
    let scene = Scene::new();
    scene.net.always(Verb::Acquire, Fate::Denied);
    let before = scene.now();
    assert!(matches!(scene.client.lock("k").await, Err(Error::Config(_))));
    assert_eq!((scene.now(), scene.net.calls(Verb::Acquire)), (before, 1));
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_always_arrives_too_late_does_not_loop_forever() {
    let scene = Scene::new();
    scene.net.always(Verb::Acquire, Fate::Slow(ms(10)));
    let claims = async {
        let once = scene.client.lock("k").ttl(ms(12)).try_acquire().await;
        assert!(matches!(once, Err(Error::Unreachable { attempts: 1, .. })), "{once:?}");
        let bounded = scene.client.lock("k").ttl(ms(12)).wait(secs(1)).await;
        assert!(matches!(bounded, Err(Error::Unreachable { .. })), "{bounded:?}");
        let endless = scene.client.lock("k").ttl(ms(12)).await;
        assert!(matches!(endless, Err(Error::Unreachable { .. })), "{endless:?}");
    };
    tokio::time::timeout(secs(60), claims).await.expect("it ends");
    scene.pass(secs(1)).await;
    assert_eq!(scene.holding("k").await, None, "and what came too late was given back");
}

#[tokio::test(start_paused = true)]
async fn a_wait_is_over_in_time_though_an_answer_is_under_way() {
    let scene = Scene::new();
    let _held = scene.neighbour().lock("k").await.unwrap();
    scene.net.next(Verb::Acquire, [Fate::Pass, Fate::HangAfter]);
    let before = scene.now();
    let outcome = scene.client.lock("k").wait(secs(2)).await;
    assert!(matches!(outcome, Err(Error::Busy { .. })), "the holder was reported before: {outcome:?}");
    assert!(scene.now().since(before) < secs(2) + ms(60), "{:?}", scene.now().since(before));
    scene.pass(secs(5)).await;
    assert_eq!(scene.holding("k").await.unwrap().waiters, 0, "no position in the queue is left");
}

#[tokio::test(start_paused = true)]
async fn a_waiter_polls_about_once_a_second_and_not_after_it_was_handed_the_key() {
    let scene = Scene::new();
    let held = scene.neighbour().lock("k").await.unwrap();
    let waiting = tokio::spawn(scene.client.lock("k").acquire());
    scene.pass(ms(10)).await;
    let claims = scene.net.calls(Verb::Acquire);
    assert_eq!(claims, 1);
    scene.pass(secs(10)).await;
    let claims = scene.net.calls(Verb::Acquire) - claims;
    assert!((5..=20).contains(&claims), "about once a second: {claims}");
    held.release().await.unwrap();
    let before = scene.now();
    let guard = waiting.await.unwrap().unwrap();
    assert_eq!((scene.net.calls(Verb::Acquire), scene.now()), (1 + claims, before), "the hand-off woke it for good");
    scene.pass(ms(100)).await;
    assert!(guard.remaining() > secs(29), "the first renewal gave it its full time: {:?}", guard.remaining());
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_ends_in_a_quarantine_ends_no_other_wait() {
    let scene = Scene::new();
    scene.net.always(Verb::Acquire, Fate::Quarantined);
    let bounded = tokio::spawn(scene.client.lock("k").ttl(secs(1)).wait(secs(5)).acquire());
    scene.pass(ms(1)).await;
    let patient = tokio::spawn(scene.client.lock("k").ttl(secs(1)).acquire());
    let error = bounded.await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
    scene.pass(secs(60)).await;
    assert!(!patient.is_finished(), "a quarantine is waited for like a release");
    scene.net.always(Verb::Acquire, Fate::Pass);
    assert!(patient.await.unwrap().unwrap().is_held());
}

#[tokio::test(start_paused = true)]
async fn a_task_that_waits_for_a_key_of_its_own_client_is_warned_of_once_with_its_place() {
    let log = Log::default();
    let _listening = log.listen();
    let scene = Scene::new();
    let _held = scene.client.lock("k").await.unwrap();
    let (_waiting, line) = (tokio::spawn(scene.client.lock("k").acquire()), line!());
    let _later = tokio::spawn(scene.client.lock_all(["k"]).acquire());
    let _elsewhere = tokio::spawn(scene.neighbour().lock("k").acquire());
    scene.pass(secs(9)).await;
    assert_eq!(log.warnings(), [""; 0]);
    scene.pass(secs(100)).await;
    let said = log.warnings();
    let place = format!("place={}:{line}:", file!());
    assert!(said.len() == 1 && said[0].contains(&place) && said[0].contains("key=k"), "{said:?}");
}

#[tokio::test(start_paused = true)]
async fn tasks_that_wait_for_each_other_in_turn_are_not_warned_of() {
    let log = Log::default();
    let _listening = log.listen();
    let scene = Scene::new();
    let work = |lock: Lock| async move {
        let _held = lock.await.unwrap();
        tokio::time::sleep(secs(6)).await;
    };
    let tasks: Vec<_> = (0..10).map(|_| tokio::spawn(work(scene.client.lock("k")))).collect();
    scene.pass(secs(90)).await;
    assert!(tasks.iter().all(tokio::task::JoinHandle::is_finished));
    assert_eq!(log.warnings(), [""; 0]);
}
