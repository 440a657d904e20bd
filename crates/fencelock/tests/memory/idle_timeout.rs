//! An idle lease is kept for a while, if it is configured.

use crate::common::{Fate, Scene, Verb, eventually, ms, secs};
use crate::sharing::shared_guard;
use fencelock::backends::Memory;
use fencelock::{Client, Drift, Error};
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// A client of this network that keeps leases for so long.
fn keeping(scene: &Scene, span: Duration) -> Client {
    Client::builder()
        .clock(Arc::new(scene.clock), Drift::default())
        .idle_timeout(span)
        .backend(Arc::clone(&scene.net) as _)
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_free_lease_is_kept_for_the_next_task_and_then_released() {
    let scene = Scene::new();
    let net = Arc::clone(&scene.net);
    let keeping = keeping(&scene, ms(5));
    let guard = shared_guard(&scene, &keeping).await;
    let (holder, token) = (guard.holder(), guard.fencing_token());
    let claims = net.calls(Verb::Acquire);
    guard.release().await.unwrap();
    scene.pass(ms(3)).await;
    let again = keeping.lock("k").await.unwrap();
    assert_eq!((again.holder(), net.calls(Verb::Acquire)), (holder, claims));
    assert!(again.fencing_token() > token);
    drop(again);
    let tried = keeping.lock("k").try_acquire().await.unwrap().unwrap();
    assert_eq!((tried.holder(), net.calls(Verb::Acquire)), (holder, claims));
    drop(tried);
    scene.pass(ms(10)).await;
    assert_eq!(scene.holding("k").await, None);
    let settings = Client::builder().idle_timeout(secs(86_401)).backend(Arc::new(Memory::new()));
    assert!(matches!(settings, Err(Error::Config(_))));
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_idle_is_given_up_for_a_task_that_cannot_use_it() {
    let scene = Scene::new();
    let keeping = scene.another(|settings| settings.idle_timeout(ms(10)));
    drop(shared_guard(&scene, &keeping).await);
    let began = scene.now();
    let other = keeping.lock("k").label("other").try_acquire().await.unwrap().unwrap();
    drop(other);
    drop(shared_guard(&scene, &keeping).await);
    let other = keeping.lock("k").label("other").await.unwrap();
    let remote = tokio::spawn(scene.neighbour().lock("k").acquire());
    scene.pass(ms(1)).await;
    drop(other);
    drop(remote.await.unwrap().unwrap());
    assert!(scene.now().since(began) < ms(9), "{:?}", scene.now().since(began));
}

/// A client that keeps idle leases for long, and leaves keys free for pollers every 10 s.
fn sticky(scene: &Scene) -> Client {
    scene.another(|settings| settings.idle_timeout(secs(60)).yield_interval(secs(10), ms(20)))
}

/// The client has an idle lease: a key that it uses again.
async fn keep(scene: &Scene, sticky: &Client) {
    for _ in 0..2 {
        drop(sticky.lock("k").await.unwrap());
        scene.pass(ms(1)).await;
    }
    assert!(scene.holding("k").await.is_some(), "it is kept");
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_kept_goes_to_a_client_that_waits() {
    let scene = Scene::new();
    let sticky = sticky(&scene);
    drop(sticky.lock("k").await.unwrap());
    scene.pass(ms(1)).await;
    drop(sticky.lock("k").await.unwrap());
    scene.pass(secs(1)).await;
    let began = scene.now();
    let other = scene.neighbour().lock("k").await.unwrap();
    assert!(scene.now().since(began) < ms(5), "{:?}", scene.now().since(began));
    drop(other);
    // It is announced after each renewal, not only once.
    drop(sticky.lock("k").await.unwrap());
    drop(sticky.lock("k").await.unwrap());
    scene.pass(secs(1)).await;
    let began = scene.now();
    drop(scene.neighbour().lock("k").await.unwrap());
    assert!(scene.now().since(began) < ms(5), "{:?}", scene.now().since(began));
}

#[tokio::test(start_paused = true)]
async fn an_idle_lease_that_ends_leaves_the_key_free_for_a_while() {
    let scene = Scene::new();
    let client = scene.another(|settings| settings.idle_timeout(secs(60)).yield_interval(secs(1), ms(20)));
    drop(client.lock("k").await.unwrap());
    scene.pass(ms(1)).await;
    drop(client.lock("k").await.unwrap());
    eventually("it is left free", async || scene.holding("k").await.is_none()).await;
    let began = scene.now();
    drop(client.lock("k").await.unwrap());
    let waited = scene.now().since(began);
    assert!((ms(10)..ms(30)).contains(&waited), "{waited:?}");
}

/// The task often comes before the timer of the idle lease.
#[tokio::test(start_paused = true)]
async fn a_lease_that_is_idle_now_and_then_leaves_the_key_free_once_in_each_stretch() {
    let scene = Scene::new();
    let client = scene.another(|settings| settings.idle_timeout(secs(60)).yield_interval(secs(1), ms(20)));
    let (began, mut pauses) = (scene.now(), 0);
    while scene.now().since(began) < ms(3500) {
        let asked = scene.now();
        drop(client.lock("k").await.unwrap());
        pauses += u32::from(scene.now().since(asked) >= ms(10));
        scene.pass(ms(1)).await;
    }
    assert_eq!(pauses, 3);
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_left_free_is_forgotten_and_delays_no_close() {
    for waits in [true, false] {
        let scene = Scene::new();
        let client = scene.another(|settings| settings.idle_timeout(secs(60)).yield_interval(secs(1), secs(1)));
        drop(client.lock("k").await.unwrap());
        scene.pass(ms(1)).await;
        drop(client.lock("k").await.unwrap());
        scene.pass(ms(1100)).await;
        assert_eq!(scene.holding("k").await, None, "it is left free");
        if waits {
            scene.pass(ms(1500)).await;
        }
        let began = scene.now();
        client.close(secs(10)).await.unwrap();
        assert!(scene.now().since(began) < ms(100), "{:?}", scene.now().since(began));
    }
}

/// A waiter polls once a second. The default of the stretch is as long.
#[tokio::test(start_paused = true)]
async fn a_lost_announcement_costs_the_waiter_a_second_at_most() {
    let scene = Scene::with(|net| net.loses_events.store(true, Ordering::SeqCst));
    let sticky = keeping(&scene, secs(60));
    let mut longest = ms(0);
    for pause in 0..10 {
        drop(sticky.lock("k").await.unwrap());
        scene.pass(ms(100 * pause)).await;
        assert!(scene.holding("k").await.is_some(), "it is kept");
        let began = scene.now();
        drop(scene.neighbour().lock("k").await.unwrap());
        longest = longest.max(scene.now().since(began));
        scene.pass(ms(50)).await;
    }
    assert!((ms(500)..=ms(1_050)).contains(&longest), "{longest:?}");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_ends_or_is_closed_keeps_no_lease() {
    let scene = Scene::new();
    for close in [false, true] {
        let sticky = sticky(&scene);
        drop(sticky.lock("k").await.unwrap());
        scene.pass(ms(1)).await;
        let guard = sticky.lock("k").await.unwrap();
        drop(guard);
        scene.pass(secs(1)).await;
        assert!(scene.holding("k").await.is_some());
        if close {
            let closed = sticky.close(ms(100)).await;
            assert!(closed.is_ok(), "closing does not wait for the idle timeout");
        } else {
            drop(sticky);
        }
        scene.pass(ms(100)).await;
        assert_eq!(scene.holding("k").await, None, "closed: {close}");
    }
}

#[test]
fn a_lease_is_not_kept_where_the_runtime_is_gone() {
    let memory = Arc::new(Memory::new());
    let runtime = || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let first = runtime();
    let guard = first.block_on(async {
        let client = Client::builder().idle_timeout(ms(10)).backend(Arc::clone(&memory) as _).unwrap();
        let held = client.lock("k").await.unwrap();
        let next = tokio::spawn(client.lock("k").acquire());
        eventually("it waits", async || client.waiting("k") == 1).await;
        held.release().await.unwrap();
        next.await.unwrap().unwrap()
    });
    drop(first);
    let (done, dropped) = mpsc::channel();
    let dropping = std::thread::spawn(move || {
        drop(guard);
        done.send(()).unwrap();
    });
    assert_eq!(dropped.recv_timeout(secs(20)), Ok(()), "it hangs");
    dropping.join().unwrap();
    runtime().block_on(async {
        let client = Client::builder().backend(memory).unwrap();
        eventually("it is free", async || client.inspect("k").await.unwrap().is_none()).await;
    });
}

/// No other task or client has the key, so each of these tries finds it free.
#[tokio::test(start_paused = true)]
async fn a_lease_that_is_idle_is_given_up_for_a_try_in_another_mode() {
    for other in 0..4 {
        let scene = Scene::new();
        let sticky = sticky(&scene);
        keep(&scene, &sticky).await;
        let tried = match other {
            0 => sticky.lock("k").shared().try_acquire().await.unwrap().map(drop),
            1 => sticky.semaphore("k", 3).try_acquire(2).await.unwrap().map(drop),
            2 => sticky.lock_all(["k", "l"]).shared().try_acquire().await.unwrap().map(drop),
            _ => sticky.lock("k").shared().retry(1, ms(1)).await.ok().map(drop),
        };
        assert!(tried.is_some(), "try {other}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_reader_does_not_take_the_idle_lease_of_a_writer() {
    let scene = Scene::new();
    let sticky = sticky(&scene);
    keep(&scene, &sticky).await;
    let reader = sticky.lock("k").shared().try_acquire().await.unwrap().unwrap();
    let held = scene.holding("k").await.unwrap();
    assert_eq!((held.first().mode, held.first().holder_id()), (reader.mode(), Some(reader.holder())));
    assert!(scene.neighbour().lock("k").shared().try_acquire().await.unwrap().is_some(), "readers share the key");
}

#[tokio::test(start_paused = true)]
async fn a_task_that_gives_up_while_such_a_lease_is_released_leaves_nothing() {
    let scene = Scene::new();
    let keeping = keeping(&scene, ms(10));
    let guard = shared_guard(&scene, &keeping).await;
    // By now it has a whole lease, of half a minute.
    scene.pass(secs(1)).await;
    drop(guard);
    scene.net.next(Verb::Release, [Fate::Slow(secs(1))]);
    let other = keeping.lock("k").label("other").try_acquire();
    assert!(tokio::time::timeout(ms(1), other).await.is_err(), "it waits for the release");
    scene.pass(secs(5)).await;
    assert_eq!(scene.holding("k").await, None);
}

#[tokio::test(start_paused = true)]
async fn such_a_lease_is_released_even_if_its_release_is_lost() {
    let scene = Scene::new();
    let keeping = keeping(&scene, ms(10));
    let guard = shared_guard(&scene, &keeping).await;
    // By now it has a whole lease, of half a minute.
    scene.pass(secs(1)).await;
    drop(guard);
    scene.net.next(Verb::Release, [Fate::Lost]);
    let _ = keeping.lock("k").label("other").try_acquire().await.unwrap();
    scene.pass(secs(5)).await;
    assert_eq!(scene.holding("k").await, None);
}
