//! A task that acquires free keys, and never has to wait, leaves its thread to other tasks.
//!
//! All tests of a process use one backend, so each has keys of its own.

use fencelock::Client;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const CYCLES: usize = 100_000;

async fn leaves_the_thread(cycle: impl AsyncFn(&Client)) {
    let client = Client::connect("memory:").await.unwrap();
    let has_run = Arc::new(AtomicBool::new(false));
    let other = Arc::clone(&has_run);
    tokio::spawn(async move { other.store(true, Ordering::Relaxed) });
    for _ in 0..CYCLES {
        cycle(&client).await;
        if has_run.load(Ordering::Relaxed) {
            return;
        }
    }
    panic!("no other task ran during {CYCLES} cycles");
}

#[tokio::test]
async fn of_locks() {
    leaves_the_thread(async |client| drop(client.lock("free").await.unwrap())).await;
    leaves_the_thread(async |client| drop(client.lock("shared").shared().await.unwrap())).await;
    leaves_the_thread(async |client| drop(client.lock("tried").try_acquire().await.unwrap())).await;
}

#[tokio::test]
async fn of_permits_and_slots() {
    leaves_the_thread(async |client| drop(client.semaphore("permits", 3).acquire(2).await.unwrap())).await;
    leaves_the_thread(async |client| drop(client.slots("slots", 3).acquire().await.unwrap())).await;
}

#[tokio::test]
async fn of_several_keys() {
    leaves_the_thread(async |client| drop(client.lock_all(["several", "keys"]).await.unwrap())).await;
    leaves_the_thread(async |client| drop(client.lock_all(["several", "keys"]).try_acquire().await.unwrap())).await;
}

#[tokio::test]
async fn of_refusals() {
    let held = Client::connect("memory:").await.unwrap();
    let _guard = held.lock("refused").await.unwrap();
    leaves_the_thread(async |_| assert!(held.lock("refused").try_acquire().await.unwrap().is_none())).await;
}
