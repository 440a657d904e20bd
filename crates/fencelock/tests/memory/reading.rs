//! Tasks of one client that read together share one hold.

use crate::common::{Scene, Verb, ms, secs};
use fencelock::{Error, Guard, LossReason, Mode};
use std::sync::{Arc, Mutex};

#[tokio::test(start_paused = true)]
async fn readers_of_one_client_are_one_holder_with_a_token_for_each() {
    let scene = Scene::new();
    let mut guards = Vec::new();
    for _ in 0..20 {
        // The clock of the tokens counts microseconds.
        scene.pass(ms(1)).await;
        guards.push(scene.client.lock("k").shared().await.unwrap());
    }
    assert_eq!((scene.net.calls(Verb::Acquire), scene.holding("k").await.unwrap().holders.count()), (1, 1));
    scene.pass(secs(100)).await;
    assert!(guards.iter().all(Guard::is_held));
    assert_eq!(scene.holding("k").await.unwrap().holders.count(), 1);
    while let Some(guard) = guards.pop() {
        let held = guard.held();
        guard.release().await.unwrap();
        assert!(!held.is_held(), "its own tenure is over");
        assert!(guards.iter().all(Guard::is_held), "the others read on");
        assert_eq!(scene.holding("k").await.is_some(), !guards.is_empty());
    }
    assert_eq!(scene.net.calls(Verb::Release), 1);
}

#[tokio::test(start_paused = true)]
async fn a_stream_of_readers_does_not_starve_a_writer() {
    for own in [true, false] {
        let scene = Scene::new();
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut first = Some(scene.client.lock("k").shared().await.unwrap());
        let writing = if own { scene.client.clone() } else { scene.neighbour() };
        let (log, mut readers) = (order.clone(), Vec::new());
        let writer = tokio::spawn(async move {
            let guard = writing.lock("k").await.unwrap();
            log.lock().unwrap().push("writer".to_owned());
            guard.release().await.unwrap();
        });
        for number in 0..100 {
            scene.pass(ms(2)).await;
            let (lock, log) = (scene.client.lock("k").shared(), order.clone());
            readers.push(tokio::spawn(async move {
                let guard = lock.await.unwrap();
                log.lock().unwrap().push(format!("reader {number}"));
                tokio::time::sleep(ms(10)).await;
                guard.release().await.unwrap();
            }));
            if number == 20 {
                first.take().unwrap().release().await.unwrap();
            }
        }
        writer.await.unwrap();
        for reader in readers {
            reader.await.unwrap();
        }
        let order = order.lock().unwrap();
        let ahead = order.iter().position(|who| who == "writer").unwrap();
        assert!(ahead < 40, "{ahead} readers overtook the writer");
        assert_eq!(order.len(), 101);
    }
}

#[tokio::test(start_paused = true)]
async fn a_reader_with_settings_of_its_own_has_a_hold_of_its_own() {
    let scene = Scene::new();
    let lock = || scene.client.lock("k").shared().ttl(secs(9));
    let usual = lock().await.unwrap();
    let longer = lock().ttl(secs(20)).await.unwrap();
    let labelled = lock().label("export").await.unwrap();
    let limited = lock().max_hold(secs(3)).await.unwrap();
    assert_eq!(scene.holding("k").await.unwrap().holders.count(), 4);
    let set = scene.client.lock_all(["k"]).shared().ttl(secs(9)).max_hold(secs(3)).await.unwrap();
    assert_eq!(limited.lost().await, LossReason::MaxHold);
    assert!(usual.is_held() && labelled.is_held() && longer.is_held());
    assert_eq!(set.lost().await.reason, LossReason::MaxHold);
    assert!(usual.is_held() && labelled.is_held() && longer.is_held());
}

#[tokio::test(start_paused = true)]
async fn a_try_to_read_joins_those_who_read() {
    let scene = Scene::new();
    let first = scene.client.lock("k").shared().await.unwrap();
    let second = scene.client.lock("k").shared().try_acquire().await.unwrap().unwrap();
    assert_eq!(scene.net.calls(Verb::Acquire), 1);
    first.release().await.unwrap();
    assert!(second.is_held());
}

#[tokio::test(start_paused = true)]
async fn a_shared_hold_is_resumed_as_what_it_is() {
    let scene = Scene::new();
    let guard = scene.client.lock("k").shared().await.unwrap();
    let token = guard.fencing_token();
    let holder = guard.into_holder();
    let other = scene.client.lock("k").resume(holder).await.unwrap_err();
    assert_eq!(other.to_string(), "k is held as a shared lock: resume it in the same mode");
    let other = scene.client.semaphore("k", 2).resume(1, holder).await.unwrap_err();
    assert!(matches!(other, Error::ModeConflict { present: Mode::Shared, .. }), "{other}");
    let resumed = scene.neighbour().lock("k").shared().resume(holder).await.unwrap();
    assert_eq!((resumed.mode(), resumed.fencing_token()), (Mode::Shared, token));
    scene.pass(secs(100)).await;
    assert!(resumed.is_held());
    let exclusive = scene.client.lock("e").await.unwrap().into_holder();
    let other = scene.client.lock("e").shared().resume(exclusive).await.unwrap_err();
    assert_eq!(other.to_string(), "e is held as an exclusive lock: resume it in the same mode");
    drop(scene.client.lock("e").resume(exclusive).await.unwrap());
}
