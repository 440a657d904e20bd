//! Several keys: all or none, no deadlock, each key in the order of its claims.

use crate::backends::TestBackend;
use crate::facts::{GENEROUS, client, sure};
use fencelock::{Client, Error, Guards};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::task::yield_now;

const ROUNDS: usize = 20;

async fn within<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(GENEROUS, work).await.expect("no deadlock")
}

/// Waits for the keys. On a quorum a busy machine may miss the time limit of a node.
async fn acquires(client: &Client, keys: &[&str]) -> Guards {
    loop {
        match client.lock_all(keys).await {
            Ok(guards) => return guards,
            Err(Error::Unreachable { .. }) => tokio::time::sleep(Duration::from_millis(50)).await,
            Err(error) => panic!("{error:#}"),
        }
    }
}

/// Takes the keys as soon as they are free.
async fn takes(client: &Client, keys: &[&str]) -> Guards {
    within(async {
        loop {
            if let Some(guards) = sure(|| client.lock_all(keys).try_acquire()).await {
                return guards;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await
}

pub(crate) async fn clients_with_opposite_orders_never_deadlock(backend: &TestBackend, sharing: bool) {
    let clients = [client(backend, sharing).await, client(backend, sharing).await];
    let inside: Arc<[AtomicUsize; 3]> = Arc::default();
    let orders = [["a", "b", "c"], ["c", "b", "a"], ["b", "c", "a"], ["c", "a", "b"]];
    let mut tasks = Vec::new();
    for (number, keys) in orders.into_iter().enumerate() {
        let (client, inside) = (clients[number % 2].clone(), Arc::clone(&inside));
        tasks.push(tokio::spawn(async move {
            let mut last = [None; 3];
            for round in 0..ROUNDS {
                // Two keys of three, so that the sets differ.
                let keys = &keys[..2 + round % 2];
                let guards = acquires(&client, keys).await;
                for (key, token) in guards.keys().iter().zip(guards.fencing_tokens()) {
                    let index = usize::from(key.as_str().as_bytes()[0] - b'a');
                    assert_eq!(inside[index].fetch_add(1, Ordering::SeqCst), 0, "two hold {key}");
                    assert!(last[index].replace(token) < Some(token), "{key}");
                }
                assert_eq!(guards.keys(), keys, "as the caller named them");
                yield_now().await;
                for key in guards.keys() {
                    inside[usize::from(key.as_str().as_bytes()[0] - b'a')].fetch_sub(1, Ordering::SeqCst);
                }
                if round % 4 != 0 {
                    guards.release().await.unwrap();
                }
            }
        }));
    }
    for task in tasks {
        within(task).await.unwrap();
    }
    for client in clients {
        client.close(GENEROUS).await.unwrap();
    }
}

pub(crate) async fn a_set_goes_on_in_another_client(backend: &TestBackend, sharing: bool) {
    let [one, other] = [client(backend, sharing).await, client(backend, sharing).await];
    if !one.capabilities().portable {
        return;
    }
    let guards = sure(|| one.lock_all(["b", "a"]).acquire()).await;
    let tokens = guards.fencing_tokens();
    let holders = guards.into_holders();
    let few = other.lock_all(["b", "a"]).resume(holders[..1].to_vec()).await.unwrap_err();
    assert!(few.is_config() && few.to_string().contains("one holder for each of the 2 keys"), "{few}");
    let resumed = sure(|| other.lock_all(["b", "a"]).resume(holders.clone())).await;
    assert!(resumed.is_held() && resumed.keys() == ["b", "a"]);
    assert!(resumed.fencing_tokens().iter().zip(&tokens).all(|(now, before)| now >= before));
    within(resumed.release()).await.unwrap();
    // What is over cannot go on, and the other keys of the set become free.
    let late = other.lock_all(["b", "a"]).resume(holders).await.unwrap_err();
    assert!(late.is_lost() || late.is_unreachable(), "{late}");
    takes(&one, &["a", "b"]).await.release().await.unwrap();
}
