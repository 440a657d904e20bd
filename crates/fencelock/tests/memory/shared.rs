//! Shared locks of tasks and clients.

use crate::common::{Fate, Scene, Verb, ms, secs};
use fencelock::{Error, LossReason, Mode, Released};

#[tokio::test(start_paused = true)]
async fn tasks_are_served_in_order_and_readers_in_a_row_together() {
    let scene = Scene::new();
    let (order, neighbour) = (std::sync::Arc::new(std::sync::Mutex::new(Vec::new())), scene.neighbour());
    let first = neighbour.lock("k").await.unwrap();
    let mut tasks = Vec::new();
    for name in ["r1", "r2", "w", "r3"] {
        let (lock, order) = (scene.another(|own| own).lock("k"), order.clone());
        let lock = if name == "w" { lock } else { lock.shared() };
        tasks.push(tokio::spawn(async move {
            let guard = lock.await.unwrap();
            order.lock().unwrap().push(format!("{name} in"));
            tokio::time::sleep(secs(1)).await;
            order.lock().unwrap().push(format!("{name} out"));
            guard.release().await.unwrap();
        }));
        scene.pass(ms(10)).await;
    }
    first.release().await.unwrap();
    for task in tasks {
        task.await.unwrap();
    }
    let order = order.lock().unwrap().clone();
    assert_eq!(order[..2].iter().filter(|what| ["r1 in", "r2 in"].contains(&what.as_str())).count(), 2, "{order:?}");
    assert_eq!(order[4..], ["w in", "w out", "r3 in", "r3 out"], "{order:?}");
}

#[tokio::test(start_paused = true)]
async fn each_reader_is_renewed_and_notified_of_its_own_loss() {
    let scene = Scene::new();
    let neighbour = scene.neighbour();
    let mine = scene.client.lock("k").shared().ttl(secs(9)).await.unwrap();
    let theirs = neighbour.lock("k").shared().ttl(secs(9)).await.unwrap();
    scene.pass(secs(60)).await;
    assert!(mine.is_held() && theirs.is_held());
    scene.net.always(Verb::Renew, Fate::Lost);
    assert_eq!(mine.lost().await, LossReason::Expired);
    assert!(theirs.is_held());
    scene.pass(secs(1)).await;
    assert_eq!(scene.holding("k").await.unwrap().holders.count(), 1);
    assert_eq!(mine.release().await.unwrap(), Released::AlreadyLost { why: LossReason::Expired });
    assert!(theirs.is_held(), "a release after the loss frees nothing");
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_is_evicted_loses_its_hold_and_the_others_keep_theirs() {
    let scene = Scene::new();
    let neighbour = scene.neighbour();
    let mine = scene.client.lock("k").shared().ttl(secs(9)).await.unwrap();
    let theirs = neighbour.lock("k").shared().ttl(secs(9)).await.unwrap();
    let seen = scene.holding("k").await.unwrap();
    let hold = seen.holders.iter().find(|hold| hold.holder_id() == Some(mine.holder())).unwrap();
    neighbour.evict(&fencelock::Holding::new(seen.key.clone(), hold.clone())).await.unwrap();
    let LossReason::TakenBy(holders) = mine.lost().await else { panic!("another reader has the key") };
    assert_eq!(holders.first().holder_id(), Some(theirs.holder()));
    scene.pass(secs(20)).await;
    assert!(theirs.is_held());
}

#[tokio::test(start_paused = true)]
async fn a_dropped_reader_and_a_cancelled_one_leave_nothing() {
    let scene = Scene::new();
    let writer = scene.client.lock("k").await.unwrap();
    let waiting = tokio::spawn(scene.client.lock("k").shared().acquire());
    scene.pass(secs(1)).await;
    waiting.abort();
    writer.release().await.unwrap();
    drop(scene.client.lock("k").shared().await.unwrap());
    scene.pass(secs(2)).await;
    assert_eq!(scene.holding("k").await, None);
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

#[tokio::test(start_paused = true)]
async fn max_hold_and_run_work_for_readers() {
    let scene = Scene::new();
    let guard = scene.client.lock("k").shared().max_hold(secs(5)).await.unwrap();
    assert_eq!(guard.lost().await, LossReason::MaxHold);
    scene.pass(ms(1)).await;
    assert_eq!(scene.holding("k").await, None);
    let ran = scene.client.lock("k").shared().run(async |held| Ok::<_, Error>(held.mode())).await;
    assert_eq!(ran.unwrap(), Mode::Shared);
}

#[tokio::test(start_paused = true)]
async fn several_keys_are_read_together() {
    let scene = Scene::new();
    let neighbour = scene.neighbour();
    let mine = scene.client.lock_all(["a", "b"]).shared().await.unwrap();
    let theirs = neighbour.lock_all(["b", "a"]).shared().await.unwrap();
    assert!(neighbour.lock_all(["a", "b"]).try_acquire().await.unwrap().is_none());
    drop((mine, theirs));
    drop(neighbour.lock_all(["a", "b"]).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_try_to_read_is_not_refused_because_of_an_idle_lease_of_its_own_client() {
    let scene = Scene::new();
    let client = scene.another(|own| own.idle_timeout(ms(10)));
    client.lock("k").await.unwrap().release().await.unwrap();
    assert!(client.lock("k").shared().try_acquire().await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_lost_reply_to_a_shared_claim_costs_no_second_hold() {
    let scene = Scene::new();
    scene.net.next(Verb::Acquire, [Fate::Mute]);
    let guard = scene.client.lock("k").shared().await.unwrap();
    assert_eq!(scene.holding("k").await.unwrap().holders.count(), 1);
    guard.release().await.unwrap();
    scene.pass(secs(2)).await;
    assert_eq!(scene.holding("k").await, None);
}
