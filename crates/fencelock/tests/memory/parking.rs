//! Futures that are neither polled nor dropped for a while, as in a `select!` in a loop.

use crate::common::{Fate, Scene, Verb, ms, secs};
use fencelock::{Error, Guard, Lock};
use std::future::{Future, IntoFuture, poll_fn};
use std::pin::Pin;
use std::task::Poll;

type Acquiring = Pin<Box<dyn Future<Output = Result<Guard, Error>> + Send>>;

/// A future that has been polled once.
async fn parked(lock: Lock) -> Acquiring {
    let mut future: Acquiring = Box::pin(lock.into_future());
    let ready = poll_fn(|context| Poll::Ready(future.as_mut().poll(context).is_ready())).await;
    assert!(!ready, "it waits");
    future
}

#[tokio::test(start_paused = true)]
async fn a_parked_claim_keeps_no_task_of_its_client_from_a_free_key() {
    for fate in [Fate::Slow(ms(10)), Fate::Hang] {
        let scene = Scene::new();
        scene.net.next(Verb::Acquire, [fate]);
        let parked = parked(scene.client.lock("k")).await;
        let acquired = |lock: Lock| tokio::spawn(async move { drop(lock.await.unwrap()) });
        let others: Vec<_> = (0..3).map(|_| acquired(scene.client.lock("k"))).collect();
        scene.pass(secs(10)).await;
        assert!(others.iter().all(tokio::task::JoinHandle::is_finished), "{fate:?}");
        assert!(parked.await.unwrap().is_held(), "it enters again");
    }
}

#[tokio::test(start_paused = true)]
async fn a_parked_future_that_is_dropped_leaves_nothing() {
    for pause in [ms(100), secs(3), secs(10)] {
        let scene = Scene::new();
        scene.net.next(Verb::Acquire, [Fate::Slow(ms(10))]);
        let parked = parked(scene.client.lock("k")).await;
        let other = tokio::spawn(scene.client.lock("k").acquire());
        scene.pass(pause).await;
        drop(parked);
        scene.pass(secs(5)).await;
        drop(other.await.unwrap().unwrap());
        scene.pass(secs(2)).await;
        assert_eq!(scene.holding("k").await, None, "{pause:?}");
        scene.client.close(secs(1)).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_future_that_has_lost_its_turn_sends_no_claim_of_that_turn() {
    let scene = Scene::new();
    scene.net.next(Verb::Acquire, [Fate::Slow(ms(10))]);
    let parked = parked(scene.client.lock("k")).await;
    let holder = tokio::spawn(scene.client.lock("k").acquire());
    scene.pass(secs(6)).await;
    let held = holder.await.unwrap().unwrap();
    let claims = scene.net.claimants.lock().unwrap().len();
    let parked = tokio::spawn(parked);
    scene.pass(secs(2)).await;
    assert!(!parked.is_finished() && held.is_held());
    let own = scene.net.claimants.lock().unwrap()[..claims].to_vec();
    let later = scene.net.claimants.lock().unwrap()[claims..].to_vec();
    assert!(later.iter().all(|claimant| !own.contains(claimant)), "{own:?} {later:?}");
    drop(held);
    assert!(parked.await.unwrap().unwrap().is_held());
}
