//! Permits of tasks and clients.

use crate::common::{Fate, Scene, Verb, ms, secs};
use fencelock::{Error, Mode, Released, RunError};

#[tokio::test(start_paused = true)]
async fn a_semaphore_is_used_again_and_again() {
    let scene = Scene::new();
    let semaphore = scene.client.semaphore("k", 2).ttl(secs(9)).wait(secs(1)).label("uploads");
    let (one, two) = (semaphore.acquire(1).await.unwrap(), semaphore.acquire(1).await.unwrap());
    assert!(semaphore.try_acquire(1).await.unwrap().is_none());
    let busy = semaphore.acquire(1).await.unwrap_err();
    assert!(busy.is_busy() && busy.to_string().contains("(uploads)"), "{busy}");
    assert_eq!(one.release().await.unwrap(), Released::Released);
    drop(two);
    scene.pass(ms(1)).await;
    assert_eq!(
        semaphore.acquire(2).await.unwrap().fencing_token(),
        scene.holding("k").await.unwrap().first().fence.unwrap()
    );
}

#[tokio::test(start_paused = true)]
async fn permits_of_a_client_that_dies_are_free_after_its_lease() {
    let scene = Scene::new();
    let lost = scene.client.semaphore("k", 2).ttl(secs(9)).acquire(2).await.unwrap();
    scene.net.always(Verb::Renew, Fate::Lost);
    scene.net.always(Verb::Release, Fate::Lost);
    let next = scene.neighbour().semaphore("k", 2).acquire(2).await.unwrap();
    assert!(!lost.is_held() && next.is_held());
    assert!(matches!(lost.release().await, Ok(Released::AlreadyLost { .. })));
    scene.pass(secs(60)).await;
    assert!(next.is_held());
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
async fn clients_that_disagree_while_they_wait_fail_at_once() {
    let scene = Scene::new();
    let alone = scene.neighbour().lock("k").await.unwrap();
    let semaphore = scene.client.semaphore("k", 2);
    let waiting = tokio::spawn(async move { semaphore.acquire(1).await });
    scene.pass(ms(50)).await;
    let refused = scene.neighbour().semaphore("k", 3).acquire(1).await.unwrap_err();
    assert!(refused.is_mode_conflict(), "{refused}");
    alone.release().await.unwrap();
    assert!(waiting.await.unwrap().unwrap().is_held());
}

#[tokio::test(start_paused = true)]
async fn a_run_with_permits_returns_them() {
    let scene = Scene::new();
    let semaphore = scene.client.semaphore("k", 2);
    let ran = semaphore.run(2, async |held| Ok::<_, Error>(held.is_held())).await;
    assert!(ran.unwrap());
    assert_eq!(scene.holding("k").await, None);
    let ran = semaphore.run(3, async |_| Ok::<_, Error>(())).await;
    assert!(matches!(ran, Err(RunError::Lock(Error::Config(_)))));
}
