//! Tasks of one client share one claim. Only the speed shows it.

use crate::common::{Fate, Scene, Verb, ms, secs};
use fencelock::{Client, Error, FencingToken, Guard, LossReason};
use futures_util::FutureExt;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinHandle;

type Log<T> = Arc<Mutex<Vec<T>>>;

/// Starts tasks of a client that lock `k` one after the other, hold it for a while, and record their number and token.
async fn line_up(
    client: &Client,
    who: char,
    tasks: usize,
    hold: Duration,
    log: &Log<(char, usize, FencingToken)>,
) -> Vec<JoinHandle<()>> {
    let mut waiting = Vec::new();
    for number in 0..tasks {
        let (lock, log) = (client.lock("k"), Arc::clone(log));
        waiting.push(tokio::spawn(async move {
            let guard = lock.await.unwrap();
            log.lock().unwrap().push((who, number, guard.fencing_token()));
            if !hold.is_zero() {
                tokio::time::sleep(hold).await;
            }
            guard.release().await.unwrap();
        }));
        tokio::task::yield_now().await;
    }
    waiting
}

pub(crate) async fn all(tasks: Vec<JoinHandle<()>>) {
    for task in tasks {
        task.await.unwrap();
    }
}

fn tokens_grow(log: &[(char, usize, FencingToken)]) {
    assert!(log.windows(2).all(|pair| pair[0].2 < pair[1].2), "{log:?}");
}

/// A guard that is shared: the first one of a key has a single token.
pub(crate) async fn shared_guard(scene: &Scene, client: &Client) -> Guard {
    let first = client.lock("k").await.unwrap();
    let second = tokio::spawn(client.lock("k").acquire());
    scene.pass(ms(1)).await;
    first.release().await.unwrap();
    second.await.unwrap().unwrap()
}

#[tokio::test(start_paused = true)]
async fn many_tasks_need_few_claims_and_are_served_in_order_with_growing_tokens() {
    let scene = Scene::new();
    let log = Log::default();
    let held = scene.client.lock("k").await.unwrap();
    // Time passes, or there would be no token for the next grant: one key has a million of them a second.
    let tasks = line_up(&scene.client, 'a', 1000, ms(1), &log).await;
    held.release().await.unwrap();
    all(tasks).await;
    let log = std::mem::take(&mut *log.lock().unwrap());
    assert!(log.iter().map(|entry| entry.1).eq(0..1000), "first come, first served");
    tokens_grow(&log);
    let claims = scene.net.calls(Verb::Acquire);
    assert!(claims < 8, "{claims} claims for a thousand grants");
    assert_eq!(scene.holding("k").await, None);
}

#[tokio::test(start_paused = true)]
async fn no_client_waits_longer_than_a_batch_for_the_tasks_of_another_client() {
    let scene = Scene::new();
    let [a, b] = [0; 2].map(|_| scene.another(|settings| settings.batch(8, secs(1))));
    let log = Log::default();
    let held = a.lock("k").await.unwrap();
    let mut tasks = line_up(&a, 'a', 100, ms(1), &log).await;
    tasks.extend(line_up(&b, 'b', 100, ms(1), &log).await);
    held.release().await.unwrap();
    all(tasks).await;
    let log = log.lock().unwrap();
    tokens_grow(&log);
    for who in ['a', 'b'] {
        let mine: Vec<_> = log.iter().filter(|entry| entry.0 == who).map(|entry| entry.1).collect();
        assert!(mine.is_sorted(), "in order within a client: {mine:?}");
    }
    let runs: Vec<_> = log.chunk_by(|one, other| one.0 == other.0).map(<[_]>::len).collect();
    // The claim, the batch, and what passes until the question is answered.
    let (last, others) = runs.split_last().unwrap();
    assert!(others.iter().all(|run| *run <= 1 + 8 + 2), "{runs:?} then {last}");
    assert!(runs.len() > 15, "{runs:?}");
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_was_lost_is_not_passed_on() {
    let scene = Scene::new();
    let guard = shared_guard(&scene, &scene.client).await;
    let (holder, token) = (guard.holder(), guard.fencing_token());
    let waiting = tokio::spawn(scene.client.lock("k").acquire());
    scene.pass(ms(1)).await;
    let seen = scene.holding("k").await.unwrap();
    scene.neighbour().evict(&seen).await.unwrap();
    assert_eq!(guard.lost().await, LossReason::Deleted);
    // Waiters need not wait until the guard notices.
    let next = tokio::time::timeout(secs(1), waiting).await.unwrap().unwrap().unwrap();
    assert_ne!(next.holder(), holder);
    assert!(next.fencing_token() > token && next.is_held());
    assert!(matches!(guard.release().await, Err(Error::Lost { reason: LossReason::Deleted, .. })));
    assert!(next.is_held());
}

#[tokio::test(start_paused = true)]
async fn a_lease_with_less_than_half_of_its_time_is_released_instead() {
    let scene = Scene::new();
    let guard = shared_guard(&scene, &scene.client).await;
    let holder = guard.holder();
    let waiting = tokio::spawn(scene.client.lock("k").acquire());
    scene.pass(ms(100)).await;
    scene.net.always(Verb::Renew, Fate::Lost);
    scene.pass(secs(20)).await;
    assert!(guard.is_held());
    guard.release().await.unwrap();
    let next = waiting.await.unwrap().unwrap();
    assert_ne!(next.holder(), holder);
    assert!(next.remaining() > secs(25), "{:?}", next.remaining());
}

#[tokio::test(start_paused = true)]
async fn other_labels_and_other_ttls_get_separate_leases_in_order() {
    let scene = Scene::new();
    let guard = shared_guard(&scene, &scene.client).await;
    let order = Log::default();
    let mut tasks = Vec::new();
    for (number, lock) in [
        scene.client.lock("k").label("payroll"),
        scene.client.lock("k"),
        scene.client.lock("k").ttl(secs(7)),
        scene.client.lock("k").ttl(secs(7)),
    ]
    .into_iter()
    .enumerate()
    {
        let order = Arc::clone(&order);
        tasks.push(tokio::spawn(async move {
            let guard = lock.await.unwrap();
            order.lock().unwrap().push((number, guard.holder()));
            tokio::time::sleep(ms(1)).await;
            guard.release().await.unwrap();
        }));
        scene.pass(ms(1)).await;
    }
    guard.release().await.unwrap();
    all(tasks).await;
    let order = order.lock().unwrap();
    assert!(order.iter().map(|entry| entry.0).eq(0..4), "{order:?}");
    assert!(order[0].1 != order[1].1 && order[1].1 != order[2].1);
    assert_eq!(order[2].1, order[3].1, "only the last two could share");
}

#[tokio::test(start_paused = true)]
async fn a_task_outside_the_queue_does_not_overtake_the_queue_of_its_client() {
    let scene = Scene::new();
    let guard = shared_guard(&scene, &scene.client).await;
    let waiting = tokio::spawn(scene.client.lock("k").acquire());
    scene.pass(ms(1)).await;
    for _ in 0..3 {
        assert!(scene.client.lock("k").try_acquire().await.unwrap().is_none());
    }
    let Err(Error::Busy { holders, .. }) = scene.client.lock("k").retry(2, ms(1)).await else { panic!("busy") };
    assert_eq!(holders.first().holder_id(), Some(guard.holder()), "as the server reports it");
    // The server frees the key while a task waits here: it is served before tasks that claim in between.
    let seen = scene.holding("k").await.unwrap();
    scene.neighbour().evict(&seen).await.unwrap();
    assert!(scene.client.lock("k").try_acquire().await.unwrap().is_none());
    assert!(waiting.await.unwrap().unwrap().is_held());
}

#[tokio::test(start_paused = true)]
async fn a_guard_that_was_passed_on_is_over_for_its_views() {
    let scene = Scene::new();
    let guard = shared_guard(&scene, &scene.client).await;
    let waiting = tokio::spawn(scene.client.lock("k").acquire());
    scene.pass(ms(1)).await;
    let view = guard.held();
    guard.release().await.unwrap();
    let next = waiting.await.unwrap().unwrap();
    assert!(next.is_held() && !view.is_held());
    assert_eq!(view.remaining(), ms(0));
    let seen = scene.holding("k").await.unwrap();
    scene.neighbour().evict(&seen).await.unwrap();
    next.lost().await;
    assert!(tokio::time::timeout(secs(60), view.lost()).await.is_err(), "it was released, not lost");
}

#[tokio::test(start_paused = true)]
async fn a_wait_behind_another_task_is_bounded_and_reported() {
    let scene = Scene::new();
    let guard = shared_guard(&scene, &scene.client).await;
    let _second = tokio::spawn(scene.client.lock("k").acquire());
    scene.pass(ms(1)).await;
    let reports = Log::default();
    let log = Arc::clone(&reports);
    let began = scene.now();
    let lock = scene.client.lock("k").wait(secs(3)).on_wait(move |news| log.lock().unwrap().push(news.ahead));
    let Err(Error::Busy { holders, waited, .. }) = lock.await else { panic!("busy") };
    assert_eq!(holders.first().holder_id(), Some(guard.holder()));
    assert!(waited >= secs(3) && scene.now().since(began) < secs(3) + ms(60), "{waited:?}");
    assert_eq!(*reports.lock().unwrap(), [Some(1); 3], "one here stands before it");
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_waiter_with_a_granted_lease_passes_it_on() {
    let scene = Scene::new();
    let guard = shared_guard(&scene, &scene.client).await;
    let mut waiting: Vec<_> = (0..5).map(|_| Box::pin(scene.client.lock("k").acquire())).collect();
    for waiter in &mut waiting {
        assert!(waiter.now_or_never().is_none());
    }
    let (claims, releases) = (scene.net.calls(Verb::Acquire), scene.net.calls(Verb::Release));
    guard.release().await.unwrap();
    // None of them was polled yet. The first three leave one after the other, each with the lease.
    waiting.drain(..3);
    let last = waiting.pop().unwrap();
    let fourth = waiting.pop().unwrap().await.unwrap();
    assert_eq!((scene.net.calls(Verb::Acquire), scene.net.calls(Verb::Release)), (claims, releases));
    drop(fourth);
    drop(last);
    scene.pass(ms(10)).await;
    assert_eq!(scene.holding("k").await, None, "the last one gives it back");
}

#[tokio::test(start_paused = true)]
async fn all_waiters_learn_of_an_outage_together() {
    let scene = Scene::new();
    scene.net.always(Verb::Acquire, Fate::Lost);
    let began = scene.now();
    let waiting: Vec<_> = (0..20).map(|_| tokio::spawn(scene.client.lock("k").ttl(secs(5)).acquire())).collect();
    for task in waiting {
        assert!(matches!(task.await.unwrap(), Err(Error::Unreachable { .. })));
    }
    assert!(scene.now().since(began) < secs(7), "{:?}", scene.now().since(began));
}
