//! The order of requests, with requests that are dropped.

use super::{ALONE, PATIENT, SOON, acquire_all, backend, claim, claims, exists, is_granted, once, start};
use fencelock_core::{HolderId, Intent, Key, Release};
use fencelock_redis::side_key;
use fencelock_testkit::redis_or_skip;
use futures_util::future::join_all;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

/// A release that has joined a batch, and then a claim of the same lock, which has not.
#[tokio::test]
async fn a_request_does_not_overtake_an_earlier_one_for_its_lock() {
    let Some(server) = redis_or_skip() else { return };
    let (backend, claims) = (backend(&server, PATIENT).await, claims(ALONE + 3));
    acquire_all(&*backend, &claims).await;
    let mut releases: Vec<_> = claims.iter().map(|claim| backend.release(&claim.key, &claim.holder.id)).collect();
    for release in &mut releases {
        assert!(once(release).await.is_pending());
    }
    let mut next = claims[ALONE + 1].with_intent(Intent::Try);
    next.holder.id = HolderId::from_bytes([0xff; 16]);
    let granted = backend.acquire(&next);
    let all = futures_util::future::join(granted, join_all(releases));
    let (granted, answers) = tokio::time::timeout(SOON, all).await.unwrap();
    assert!(answers.into_iter().all(|released| released.unwrap() == Release::Released));
    assert!(is_granted(&granted.answer.unwrap()), "the lock was released before");
}

/// A batch that waits for space in the queue of the connection could be overtaken.
#[tokio::test]
async fn a_full_queue_of_the_connection_keeps_the_order() {
    let Some(server) = redis_or_skip() else { return };
    let (backend, claims) = (backend(&server, PATIENT).await, claims(ALONE + 2));
    let other = Key::new("other").unwrap();
    let mut full: Vec<_> = (0..5000).map(|_| backend.inspect(&other)).collect();
    for request in &mut full {
        assert!(once(request).await.is_pending());
    }
    let mut started = start(&*backend, &claims).await;
    for request in started.iter_mut().skip(ALONE) {
        assert!(once(request.as_mut().unwrap()).await.is_pending());
    }
    started[ALONE] = None;
    let cancelled = &claims[ALONE];
    let release = backend.release(&cancelled.key, &cancelled.holder.id);
    let (_, released) = tokio::time::timeout(SOON, futures_util::future::join(join_all(full), release)).await.unwrap();
    released.unwrap();
    join_all(started.into_iter().flatten()).await;
    assert!(!exists(&server, cancelled.key.as_str()), "its claim was executed after its release");
}

#[tokio::test]
async fn a_request_that_is_dropped_before_its_batch_is_sent_is_never_sent() {
    let Some(server) = redis_or_skip() else { return };
    let (backend, claims) = (backend(&server, PATIENT).await, claims(ALONE + 10));
    let mut started = start(&*backend, &claims).await;
    // The first request of the batch, and one in the middle.
    for dropped in [ALONE, ALONE + 5] {
        started[dropped] = None;
    }
    let replies = tokio::time::timeout(SOON, join_all(started.into_iter().flatten())).await.unwrap();
    assert!(replies.into_iter().all(|reply| is_granted(&reply.answer.unwrap())));
    for (number, claim) in claims.iter().enumerate() {
        let is_dropped = [ALONE, ALONE + 5].contains(&number);
        assert_eq!(exists(&server, claim.key.as_str()), !is_dropped, "{}", claim.key);
        assert_eq!(exists(&server, &side_key(claim.key.as_str(), "fence")), !is_dropped, "{}", claim.key);
    }
}

#[tokio::test]
async fn a_release_does_not_overtake_a_claim_that_was_dropped_after_its_batch_was_sent() {
    let Some(server) = redis_or_skip() else { return };
    let (backend, claims) = (backend(&server, PATIENT).await, claims(ALONE + 10));
    let mut started = start(&*backend, &claims).await;
    // The first request of the batch sends it.
    assert!(once(started[ALONE].as_mut().unwrap()).await.is_pending());
    started[ALONE + 5] = None;
    started[ALONE] = None;
    for dropped in [&claims[ALONE], &claims[ALONE + 5]] {
        let released = tokio::time::timeout(SOON, backend.release(&dropped.key, &dropped.holder.id)).await.unwrap();
        assert_eq!(released.unwrap(), Release::Released, "{}: its claim came first", dropped.key);
    }
    // The other requests do not depend on the one that sent the batch.
    let replies = tokio::time::timeout(SOON, join_all(started.into_iter().flatten())).await.unwrap();
    assert!(replies.into_iter().all(|reply| is_granted(&reply.answer.unwrap())));
}

/// The task of the first request is busy with something else.
#[tokio::test]
async fn a_request_that_is_not_polled_again_does_not_hold_up_its_batch() {
    let Some(server) = redis_or_skip() else { return };
    let (backend, claims) = (backend(&server, PATIENT).await, claims(ALONE + 10));
    let mut started = start(&*backend, &claims).await;
    let first = started[ALONE].take().unwrap();
    let replies = tokio::time::timeout(SOON, join_all(started.into_iter().flatten())).await.unwrap();
    assert!(replies.into_iter().all(|reply| is_granted(&reply.answer.unwrap())));
    assert!(is_granted(&first.await.answer.unwrap()), "it was sent with the others");
}

/// The thread of each runtime ends with it.
#[test]
fn a_batch_does_not_depend_on_the_runtime_of_the_request_that_sent_it() {
    let Some(server) = redis_or_skip() else { return };
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    // The connection belongs to a runtime that keeps running.
    let of_connection = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (backend, claims) = (of_connection.block_on(backend(&server, PATIENT)), claims(ALONE + 10));
    let (sender, others) = (runtime(), runtime());
    server.command(&["CLIENT", "PAUSE", "300", "ALL"]);
    let mut started = others.block_on(start(&*backend, &claims));
    let mut first = started[ALONE].take().unwrap();
    sender.block_on(async { assert!(once(&mut first).await.is_pending()) });
    drop(first);
    drop(sender);
    let all = async { tokio::time::timeout(SOON, join_all(started.into_iter().flatten())).await.unwrap() };
    let replies = others.block_on(all);
    assert!(replies.into_iter().all(|reply| is_granted(&reply.answer.unwrap())));
}

/// Claims are dropped at any of their steps, on several threads, and released. No lock stays.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn claims_that_are_cancelled_at_any_step_leave_nothing() {
    let Some(server) = redis_or_skip() else { return };
    let backend = backend(&server, PATIENT).await;
    let tasks = (0..24).map(|task| {
        let backend = Arc::clone(&backend);
        tokio::spawn(async move {
            let claim = claim(&format!("key:{task}"));
            let mut other = claim.clone();
            other.holder.id = HolderId::from_bytes([0xff; 16]);
            let mut completed = 0;
            for round in 0..400 {
                let mut steps = (task * 7 + round * 5) % 9;
                let mut request = backend.acquire(&claim);
                let granted = poll_fn(|context| match Pin::new(&mut request).poll(context) {
                    Poll::Ready(answer) => Poll::Ready(Some(answer)),
                    Poll::Pending if steps == 0 => Poll::Ready(None),
                    Poll::Pending => {
                        steps -= 1;
                        Poll::Pending
                    }
                });
                let granted = granted.await;
                drop(request);
                let released = backend.release(&claim.key, &claim.holder.id).await.unwrap();
                if let Some(granted) = granted {
                    assert!(is_granted(&granted.answer.unwrap()));
                    assert_eq!(released, Release::Released);
                    completed += 1;
                }
                // If a claim had arrived after its release, the lock would be held now.
                let next = backend.acquire(&other).await.answer.unwrap();
                assert!(is_granted(&next), "task {task}, round {round}: {next:?}");
                assert_eq!(backend.release(&other.key, &other.holder.id).await.unwrap(), Release::Released);
            }
            completed
        })
    });
    let completed: usize = join_all(tasks).await.into_iter().map(|done| done.unwrap()).sum();
    assert!(completed > 0 && completed < 24 * 400, "{completed} claims were not cancelled");
    for task in 0..24 {
        assert!(!exists(&server, &format!("key:{task}")), "key:{task}");
    }
}
