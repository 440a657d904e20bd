//! Tasks of two clients share leases on a real server. The other files test the queue of the server, so there each task claims for
//! itself.

use crate::common::{eventually, ms};
use crate::support::{calls, command, patient, server};
use fencelock::Client;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

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
