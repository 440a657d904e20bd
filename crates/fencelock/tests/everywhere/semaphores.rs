//! Permits: no more in use than the limit, wherever a backend has semaphores, and a refusal elsewhere.

use crate::backends::TestBackend;
use crate::facts::{GENEROUS, client, sure};
use fencelock::{Client, Error, Guard, Mode, Semaphore};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::time::timeout;

const LIMIT: u32 = 3;

/// Two clients; `None` if the backend has no semaphores, which it says at once.
async fn two(backend: &TestBackend, sharing: bool) -> Option<[Client; 2]> {
    let clients = [client(backend, sharing).await, client(backend, sharing).await];
    if clients[0].capabilities().modes.permits {
        return Some(clients);
    }
    let refused = pool(&clients[0]).acquire(1).await.unwrap_err();
    let Error::ModeUnsupported { key, mode, reason, .. } = &refused else { panic!("{refused}") };
    assert_eq!((key.as_str(), *mode), ("pool", Mode::permits(1, LIMIT).unwrap()));
    assert!(reason.to_string().contains("use slots"), "{refused}");
    None
}

fn pool(client: &Client) -> Semaphore {
    client.semaphore("pool", LIMIT)
}

async fn takes(client: &Client, weight: u32) -> Guard {
    timeout(GENEROUS, pool(client).acquire(weight)).await.expect("in time").unwrap()
}

pub(crate) async fn no_more_permits_are_in_use_than_the_limit(backend: &TestBackend, sharing: bool) {
    let Some(clients) = two(backend, sharing).await else { return };
    let (inside, most) = (Arc::<AtomicU32>::default(), Arc::<AtomicU32>::default());
    let mut tasks = Vec::new();
    for number in 0..8 {
        let client = clients[number % 2].clone();
        let (inside, most) = (Arc::clone(&inside), Arc::clone(&most));
        let weight = if number < 6 { 1 } else { 2 };
        tasks.push(tokio::spawn(async move {
            for _ in 0..5 {
                let guard = takes(&client, weight).await;
                let in_use = inside.fetch_add(weight, Ordering::SeqCst) + weight;
                assert!(in_use <= LIMIT, "{in_use} permits are in use");
                most.fetch_max(in_use, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(1)).await;
                inside.fetch_sub(weight, Ordering::SeqCst);
                guard.release().await.unwrap();
            }
        }));
    }
    for task in tasks {
        timeout(GENEROUS, task).await.expect("served").unwrap();
    }
    assert!(most.load(Ordering::SeqCst) > 1, "permits were never in use together");
    // All of them are free again.
    let whole = takes(&clients[1], LIMIT).await;
    assert!(sure(async || pool(&clients[0]).try_acquire(1).await).await.is_none());
    whole.release().await.unwrap();
    for client in clients {
        client.close(GENEROUS).await.unwrap();
    }
}
