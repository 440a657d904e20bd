//! Permits of tasks and clients, and changes of their number.

use crate::common::{Scene, Verb, ms, secs};
use fencelock::{Error, Mode};

#[tokio::test(start_paused = true)]
async fn a_semaphore_is_used_again_and_again() {
    let scene = Scene::new();
    let semaphore = scene.client.semaphore("k", 2).ttl(secs(9)).wait(secs(1)).label("uploads");
    let (one, two) = (semaphore.acquire(1).await.unwrap(), semaphore.acquire(1).await.unwrap());
    assert!(semaphore.try_acquire(1).await.unwrap().is_none());
    let busy = semaphore.acquire(1).await.unwrap_err();
    assert!(busy.is_busy() && busy.to_string().contains("(uploads)"), "{busy}");
    one.release().await.unwrap();
    drop(two);
    scene.pass(ms(1)).await;
    assert_eq!(
        semaphore.acquire(2).await.unwrap().fencing_token(),
        scene.holding("k").await.unwrap().first().fence.unwrap()
    );
}

#[tokio::test(start_paused = true)]
async fn a_wrong_weight_or_limit_is_refused_by_name_before_anything_is_sent() {
    let scene = Scene::new();
    for (limit, weight, expected) in [
        (0, 1, "k: a semaphore has 1 to 1000000 permits, not 0"),
        (1_000_001, 1, "k: a semaphore has 1 to 1000000 permits, not 1000001"),
        (3, 0, "k: a claim takes 1 to 3 permits of a semaphore that has 3, not 0"),
        (3, 4, "k: a claim takes 1 to 3 permits of a semaphore that has 3, not 4"),
    ] {
        let semaphore = scene.client.semaphore("k", limit);
        let refusals = [semaphore.acquire(weight).await.unwrap_err(), semaphore.try_acquire(weight).await.unwrap_err()];
        for refusal in refusals {
            assert!(refusal.is_config(), "{refusal}");
            assert_eq!(refusal.to_string(), expected);
        }
    }
    assert_eq!(scene.net.calls(Verb::Acquire), 0);
}

#[tokio::test(start_paused = true)]
async fn clients_that_disagree_on_the_limit_fail_at_once() {
    let scene = Scene::new();
    let guard = scene.client.semaphore("k", 10).acquire(1).await.unwrap();
    let begun = scene.now();
    let refused = scene.neighbour().semaphore("k", 11).acquire(1).await.unwrap_err();
    assert!(
        matches!(refused, Error::ModeConflict { present: Mode::Permits { limit: 10, .. }, .. }),
        "the program can use the limit that is there: {refused:?}"
    );
    assert_eq!(
        refused.to_string(),
        "k is in use as a semaphore with 10 permits: use the same mode and limit in all clients, or another key; \
         to change the limit: fencelock resize --permits 11 k"
    );
    let refused = scene.client.lock("k").shared().try_acquire().await.unwrap_err();
    assert!(refused.is_mode_conflict(), "{refused}");
    assert_eq!(scene.now(), begun);
    assert_eq!(scene.holding("k").await.unwrap().waiters, 0);
    guard.release().await.unwrap();
    drop(scene.neighbour().semaphore("k", 11).acquire(11).await.unwrap());
}

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
    // The hold is over, and the key is in use in another mode.
    let _reader = scene.neighbour().lock("k").shared().await.unwrap();
    assert!(three.resume(2, holder).await.unwrap_err().is_mode_conflict());
}
