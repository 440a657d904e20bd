//! Closing a client: nothing new, nothing left, and the truth about what is.

use crate::common::{Fate, Scene, Verb, eventually, ms, secs};
use fencelock::backends::Memory;
use fencelock::{Backend, Client, Error, Guard};
use futures_util::FutureExt;
use std::sync::Arc;
use tokio::runtime::Runtime;

#[tokio::test(start_paused = true)]
async fn a_closed_client_refuses_new_claims_on_every_clone() {
    let scene = Scene::new();
    let (clone, lock) = (scene.client.clone(), scene.client.lock("k"));
    scene.client.close(secs(1)).await.unwrap();
    assert!(matches!(clone.lock("k").await, Err(Error::Closed { held: 0, pending: 0, .. })));
    assert!(matches!(lock.await, Err(Error::Closed { .. })));
}

#[tokio::test(start_paused = true)]
async fn closing_ends_those_that_wait() {
    let scene = Scene::new();
    let held = scene.neighbour().lock("k").await.unwrap();
    let in_queue = tokio::spawn(scene.client.lock("k").acquire());
    let retrying = tokio::spawn(scene.client.lock("k").retry(10, secs(100)).acquire());
    scene.pass(ms(10)).await;
    let before = scene.now();
    scene.client.clone().close(secs(10)).await.unwrap();
    assert!(matches!(in_queue.await.unwrap(), Err(Error::Closed { .. })));
    assert!(matches!(retrying.await.unwrap(), Err(Error::Closed { .. })));
    assert!(scene.now().since(before) < secs(2));
    assert_eq!(scene.holding("k").await.unwrap().waiters, 0);
    drop(held);
}

#[tokio::test(start_paused = true)]
async fn closing_reports_what_is_left() {
    let scene = Scene::new();
    let _held = scene.client.lock("a").await.unwrap();
    let dropped = scene.client.lock("b").await.unwrap();
    scene.net.always(Verb::Release, Fate::Lost);
    drop(dropped);
    let before = scene.now();
    let closed = scene.client.clone().close(secs(5)).await;
    assert!(matches!(closed, Err(Error::Closed { held: 1, pending: 1, .. })), "{closed:?}");
    assert!(scene.now().since(before) <= secs(5) + ms(10));
}

#[tokio::test(start_paused = true)]
async fn closing_ends_with_the_last_guard_and_not_a_moment_later() {
    let scene = Scene::new();
    let guard = scene.client.lock("k").await.unwrap();
    let closing = tokio::spawn(scene.client.clone().close(secs(60)));
    scene.pass(ms(3)).await;
    let before = scene.now();
    drop(guard);
    closing.await.unwrap().unwrap();
    assert_eq!(scene.now(), before, "it is notified, and does not poll");
}

#[tokio::test(start_paused = true)]
async fn closing_waits_for_a_release_that_its_owner_waits_for() {
    let scene = Scene::new();
    let guard = scene.client.lock("k").await.unwrap();
    scene.net.always(Verb::Release, Fate::Slow(ms(50)));
    let (releasing, before) = (tokio::spawn(guard.release()), scene.now());
    scene.pass(ms(1)).await;
    scene.client.clone().close(secs(60)).await.unwrap();
    assert!(scene.now().since(before) >= ms(100), "it is not confirmed before");
    assert!(releasing.is_finished());
    assert_eq!(scene.holding("k").await, None);
}

#[tokio::test(start_paused = true)]
async fn closing_waits_for_stragglers_as_long_as_they_may_arrive_and_says_so() {
    let scene = Scene::new();
    scene.net.always(Verb::Acquire, Fate::Hang);
    for i in 0..10 {
        let acquiring = scene.client.lock(format!("k{i}")).acquire();
        assert!(tokio::time::timeout(ms(1), acquiring).await.is_err());
    }
    let before = scene.now();
    let left = scene.client.clone().close(ms(100)).await;
    assert!(matches!(left, Err(Error::Closed { held: 0, pending: 10, .. })), "{left:?}");
    scene.client.clone().close(secs(60)).await.unwrap();
    assert!(scene.now().since(before) <= secs(1), "{:?}", scene.now().since(before));
}

/// Nothing would renew what it is granted.
#[test]
fn a_client_whose_runtime_has_ended_acquires_nothing() {
    let one_worker = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    refuses_after_the_end_of(one_worker);
}

/// As above: a busy machine may run the client and not the task of its renewals.
#[test]
fn a_client_whose_runtime_has_ended_before_it_ran_a_task_acquires_nothing() {
    refuses_after_the_end_of(tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap());
}

fn refuses_after_the_end_of(of_client: Runtime) {
    let other = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let backend: Arc<dyn Backend> = Arc::new(Memory::new());
    let start = async |sharing| Client::builder().sharing(sharing).backend(Arc::clone(&backend)).unwrap();
    let client = of_client.block_on(start(crate::SHARING));
    let holder = other.block_on(start(crate::SHARING));
    let held = other.block_on(holder.lock("k").acquire()).unwrap();
    let waits = [client.lock("k").acquire().boxed(), client.lock("k").retry(10, secs(1)).acquire().boxed()];
    let waiting: Vec<_> = waits.into_iter().map(|wait| other.spawn(wait)).collect();
    other.block_on(eventually("it waits", async || holder.inspect("k").await.unwrap().is_some_and(|k| k.waiters > 0)));
    drop(of_client);
    let is_refused = |result: Result<_, Error>| {
        let error = result.map(|_: Guard| ()).unwrap_err();
        assert!(error.is_config() && error.to_string().contains("runtime"), "{error}");
    };
    for waiting in waiting {
        is_refused(other.block_on(waiting).unwrap());
    }
    drop(held);
    is_refused(other.block_on(client.lock("free").acquire()));
    assert!(other.block_on(holder.lock("free").try_acquire()).unwrap().is_some(), "nothing is held");
    drop((client, holder));
}

#[test]
#[should_panic = "timers are disabled"]
fn a_runtime_without_timers_is_refused_when_the_client_starts() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let _ = runtime.block_on(async { Client::builder().backend(Arc::new(Memory::new())) });
}
