//! The limit of a semaphore in use is changed.

use crate::common::{Scene, ms, secs};
use fencelock::{Error, Mode, blocking};

#[tokio::test(start_paused = true)]
async fn a_task_that_waits_is_let_in_when_the_semaphore_grows() {
    let scene = Scene::new();
    let held = scene.client.semaphore("k", 1).acquire(1).await.unwrap();
    let old = scene.neighbour().semaphore("k", 1);
    let waiting = tokio::spawn({
        let old = old.clone();
        async move { old.acquire(1).await }
    });
    scene.pass(ms(50)).await;
    assert!(!waiting.is_finished());
    let new = scene.client.semaphore("k", 3);
    assert!(new.try_acquire(1).await.unwrap_err().is_mode_conflict());
    let begun = scene.now();
    let resized = new.resize().await.unwrap();
    assert_eq!((resized.before, resized.limit, resized.used, resized.holders), (1, 3, 2, 2));
    let let_in = waiting.await.unwrap().unwrap();
    assert_eq!(scene.now(), begun, "without a poll");
    let refused = old.acquire(1).await.unwrap_err();
    assert!(refused.is_mode_conflict() && refused.to_string().contains("a semaphore with 3 permits"), "{refused}");
    let third = new.try_acquire(1).await.unwrap().unwrap();
    assert!(new.try_acquire(1).await.unwrap().is_none());
    scene.pass(secs(60)).await;
    assert!(held.is_held() && let_in.is_held() && third.is_held(), "all are renewed");
}

#[tokio::test(start_paused = true)]
async fn a_waiting_task_keeps_waiting_when_the_semaphore_shrinks() {
    let scene = Scene::new();
    let (one, two) = (
        scene.client.semaphore("k", 2).acquire(1).await.unwrap(),
        scene.client.semaphore("k", 2).acquire(1).await.unwrap(),
    );
    let waiting = scene.neighbour().semaphore("k", 2);
    let waiting = tokio::spawn(async move { waiting.acquire(1).await });
    let large = scene.neighbour().semaphore("k", 2);
    scene.pass(ms(50)).await;
    let large = tokio::spawn(async move { large.acquire(2).await });
    scene.pass(ms(50)).await;
    assert_eq!(scene.client.semaphore("k", 1).resize().await.unwrap().used, 2);
    let refused = large.await.unwrap().unwrap_err();
    assert!(refused.is_mode_conflict() && refused.to_string().contains("a semaphore with 1 permit"), "{refused}");
    one.release().await.unwrap();
    scene.pass(secs(5)).await;
    assert!(!waiting.is_finished(), "one of one is in use");
    two.release().await.unwrap();
    assert!(waiting.await.unwrap().unwrap().is_held());
}

#[tokio::test(start_paused = true)]
async fn what_is_no_semaphore_in_use_is_not_resized_and_the_error_says_why() {
    let scene = Scene::new();
    let semaphore = scene.client.semaphore("k", 3);
    let refused = |error: Error, part: &str| {
        assert!(error.to_string().contains(part), "{error} should contain {part}");
        error
    };
    let held_as = |error: Error| match error {
        Error::ModeConflict { present, .. } => present,
        other => panic!("{other:?}"),
    };
    assert!(refused(semaphore.resize().await.unwrap_err(), "k is not in use").is_config());
    let alone = scene.neighbour().lock("k").label("migration").await.unwrap();
    let error = refused(semaphore.resize().await.unwrap_err(), "k is held as an exclusive lock by");
    assert_eq!(held_as(refused(error, "(migration)")), Mode::Exclusive);
    let reader = alone.downgrade().await.unwrap();
    let error = refused(semaphore.resize().await.unwrap_err(), "k is held as a shared lock by");
    assert_eq!(held_as(error), Mode::Shared);
    reader.release().await.unwrap();
    let _held = semaphore.acquire(1).await.unwrap();
    for limit in [0, Mode::MOST_PERMITS + 1] {
        let error = scene.client.semaphore("k", limit).resize().await.unwrap_err();
        assert!(refused(error, &format!("not {limit}")).is_config());
    }
    assert_eq!(scene.holding("k").await.unwrap().first().mode, Mode::permits(1, 3).unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_hold_of_a_resized_semaphore_is_resumed_by_either_limit() {
    let scene = Scene::new();
    let (old, new) = (scene.client.semaphore("k", 5), scene.client.semaphore("k", 2));
    let holder = old.acquire(4).await.unwrap().into_holder();
    assert_eq!(new.resize().await.unwrap().used, 4);
    let holder = old.resume(4, holder).await.unwrap().into_holder();
    assert!(scene.client.lock("k").shared().resume(holder).await.unwrap_err().is_mode_conflict());
    old.resume(4, holder).await.unwrap().release().await.unwrap();
    let holder = new.acquire(2).await.unwrap().into_holder();
    assert_eq!(scene.client.semaphore("k", 9).resize().await.unwrap().before, 2);
    new.resume(2, holder).await.unwrap().release().await.unwrap();
}

#[test]
fn a_blocking_client_resizes() {
    let client = blocking::Client::connect("memory:resized").unwrap();
    let held = client.semaphore("k", 1).acquire(1).unwrap();
    assert_eq!(client.semaphore("k", 2).resize().unwrap().before, 1);
    let second = client.semaphore("k", 2).try_acquire(1).unwrap();
    assert!(second.is_some() && client.semaphore("k", 1).acquire(1).unwrap_err().is_mode_conflict());
    drop((held, second));
}

#[tokio::test(start_paused = true)]
async fn a_hold_is_resumed_with_its_own_weight_and_the_limit_of_the_server() {
    let scene = Scene::new();
    let three = scene.client.semaphore("k", 3);
    let holder = three.acquire(2).await.unwrap().into_holder();
    for weight in [1, 3, 5] {
        let error = scene.neighbour().semaphore("k", 5).resume(weight, holder).await.unwrap_err();
        assert_eq!(error.to_string(), "k is held as 2 of 3 permits: resume it in the same mode");
        assert!(error.is_mode_conflict());
    }
    let resumed = scene.neighbour().semaphore("k", 5).resume(2, holder).await.unwrap();
    assert_eq!(resumed.mode(), Mode::permits(2, 3).unwrap());
    assert!(three.try_acquire(1).await.unwrap().is_some());
    resumed.release().await.unwrap();
    scene.pass(secs(1)).await;
    assert_eq!(scene.holding("k").await, None);
}
