//! Tasks of two clients share leases on a real server. The other files test the queue of the server, so there each task claims for
//! itself.

use crate::common::{eventually, ms};
use crate::support::{calls, command, keys, patient, server, text};
use fencelock::{Client, FencingToken, Released};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// So many tasks of each client take the key so often; the tokens in the order in which it was held.
async fn tokens(clients: &[Client], tasks: usize, rounds: usize) -> Vec<FencingToken> {
    let log = Arc::new(Mutex::new(Vec::new()));
    let working: Vec<_> = (0..tasks)
        .flat_map(|_| clients.iter().cloned())
        .map(|client| {
            let log = Arc::clone(&log);
            tokio::spawn(async move {
                for _ in 0..rounds {
                    let guard = client.lock("k").await.unwrap();
                    log.lock().unwrap().push(guard.fencing_token());
                    assert_eq!(guard.release().await.unwrap(), Released::Released);
                }
            })
        })
        .collect();
    for task in working {
        task.await.unwrap();
    }
    Arc::into_inner(log).unwrap().into_inner().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_grow_over_shared_leases_with_few_calls_to_the_server() {
    let Some(server) = server() else { return };
    let clients =
        [Client::connect(&patient(&server)).await.unwrap(), Client::connect(&patient(&server)).await.unwrap()];
    command(&server, &["CONFIG", "RESETSTAT"]);
    let tokens = tokens(&clients, 32, 200).await;
    assert!(tokens.windows(2).all(|pair| pair[0] < pair[1]));
    let evals = calls(&server, "evalsha");
    assert!(evals < tokens.len() / 2, "{evals} calls for {} grants", tokens.len());
    assert_eq!(keys(&server), ["fencelock:{k}:fence"]);
}

/// A client that keeps leases for its next task until another client waits.
async fn sticky(url: &str) -> Client {
    let settings = Client::builder().idle_timeout(Duration::from_secs(60));
    settings.yield_interval(Duration::from_secs(60), ms(20)).connect(url).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_is_kept_needs_no_call_to_the_server() {
    let Some(server) = server() else { return };
    let sticky = sticky(&patient(&server)).await;
    for _ in 0..2 {
        drop(sticky.lock("k").await.unwrap());
        tokio::time::sleep(ms(50)).await;
    }
    command(&server, &["CONFIG", "RESETSTAT"]);
    let mut last = None;
    for _ in 0..1000 {
        let guard = sticky.lock("k").await.unwrap();
        assert!(last < Some(guard.fencing_token()));
        last = Some(guard.fencing_token());
    }
    let evals = calls(&server, "evalsha");
    // The block of tokens is used up a few times, and a renewal checks after each claim whether another client waits.
    assert!(evals < 50, "{evals} calls for 1000 grants");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_gets_a_lease_that_is_kept_without_a_poll() {
    let Some(server) = server() else { return };
    let (sticky, other) = (sticky(&patient(&server)).await, Client::connect(&patient(&server)).await.unwrap());
    let mut without = 0;
    for _ in 0..20 {
        eventually("it is kept", async || {
            drop(sticky.lock("k").await.unwrap());
            tokio::time::sleep(ms(5)).await;
            sticky.inspect("k").await.unwrap().is_some()
        })
        .await;
        let polls = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&polls);
        let lock = other.lock("k").on_wait(move |_| _ = counter.fetch_add(1, Ordering::SeqCst));
        drop(lock.await.unwrap());
        // A first answer says that the key is held; a poll would say so again.
        without += usize::from(polls.load(Ordering::SeqCst) <= 1);
    }
    // A machine that stops for a second lets a waiter poll.
    assert!(without >= 10, "{without} of 20");
}

/// Whether the server announces waiters is known with the first connection, which this client opens with its first claim.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_connects_with_its_first_claim_keeps_its_lease() {
    let Some(server) = server() else { return };
    let backend = fencelock::backends::lazy(&patient(&server)).await.unwrap();
    let settings = Client::builder().idle_timeout(Duration::from_secs(60));
    let sticky = settings.yield_interval(Duration::from_secs(60), ms(20)).backend(backend).unwrap();
    eventually("it is kept", async || {
        drop(sticky.lock("k").await.unwrap());
        tokio::time::sleep(ms(50)).await;
        sticky.inspect("k").await.unwrap().is_some()
    })
    .await;
    sticky.close(Duration::from_secs(5)).await.unwrap();
}

/// A program that polls with `SET NX` is in no queue, so it is not announced.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_that_polls_gets_a_key_that_is_kept() {
    let Some(server) = server() else { return };
    let settings = Client::builder().idle_timeout(Duration::from_secs(60)).yield_interval(ms(200), ms(40));
    let sticky = settings.connect(&patient(&server)).await.unwrap();
    for is_busy in [false, true] {
        let tasks: Vec<_> = (0..2)
            .map(|_| {
                let client = sticky.clone();
                tokio::spawn(async move {
                    loop {
                        drop(client.lock("k").await.unwrap());
                        // An idle lease, or one that is used all the time.
                        tokio::time::sleep(if is_busy { ms(0) } else { ms(30) }).await;
                    }
                })
            })
            .collect();
        eventually("it is kept", async || text(&server, &["GET", "k"]).is_some()).await;
        for _ in 0..3 {
            eventually("the other program holds it", async || {
                text(&server, &["SET", "k", "theirs", "NX", "PX", "30000"]).is_some()
            })
            .await;
            tokio::time::sleep(ms(20)).await;
            assert_eq!(text(&server, &["GET", "k"]).as_deref(), Some("theirs"));
            command(&server, &["DEL", "k"]);
            eventually("it is kept again", async || text(&server, &["GET", "k"]).is_some()).await;
        }
        for task in tasks {
            task.abort();
        }
    }
}

/// The server announces only the waiters of other clients, and the announcement that a waiter of the same client uses up is
/// missing for the next one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_is_kept_ends_for_every_kind_of_waiter_of_its_own_client() {
    let Some(server) = server() else { return };
    let sticky = sticky(&patient(&server)).await;
    // Its next renewal, which finds the waiter at the latest, is due after ten seconds.
    let in_time = Duration::from_secs(9);
    let keep = async || {
        for _ in 0..4 {
            drop(sticky.lock("k").await.unwrap());
            tokio::time::sleep(ms(20)).await;
        }
    };
    keep().await;
    sticky.lock("k").shared().wait(in_time).await.unwrap().release().await.unwrap();
    keep().await;
    sticky.semaphore("k", 2).wait(in_time).acquire(1).await.unwrap().release().await.unwrap();
    keep().await;
    sticky.election("k").wait(in_time).campaign().await.unwrap().resign().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_client_is_not_delayed_by_waiters_of_the_client_that_shares_leases() {
    let Some(server) = server() else { return };
    let (sticky, other) = (sticky(&patient(&server)).await, Client::connect(&patient(&server)).await.unwrap());
    let tasks: Vec<_> = (0..4)
        .map(|_| {
            let client = sticky.clone();
            tokio::spawn(async move {
                loop {
                    let guard = client.lock("k").await.unwrap();
                    tokio::time::sleep(ms(1)).await;
                    drop(guard);
                }
            })
        })
        .collect();
    tokio::time::sleep(ms(100)).await;
    let reader = sticky.lock("k").shared().wait(Duration::from_secs(20));
    let reader = tokio::spawn(async move { reader.await.unwrap().release().await.unwrap() });
    let candidate = sticky.election("k").wait(Duration::from_secs(20));
    let candidate = tokio::spawn(async move { candidate.campaign().await.unwrap().resign().await.unwrap() });
    tokio::time::sleep(ms(30)).await;
    drop(other.lock("k").wait(Duration::from_secs(20)).await.unwrap());
    reader.await.unwrap();
    candidate.await.unwrap();
    for task in tasks {
        task.abort();
    }
}
