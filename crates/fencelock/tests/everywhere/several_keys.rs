//! Several keys: all or none, no deadlock, each key in the order of its claims.

use crate::backends::TestBackend;
use crate::facts::{GENEROUS, client, sure};
use fencelock::{Client, Error, Eviction, Guards, ReleasedAll};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
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
                    assert_eq!(guards.release().await.unwrap(), ReleasedAll::Released);
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

pub(crate) async fn a_busy_key_leaves_the_others_free(backend: &TestBackend, sharing: bool) {
    let [one, other] = [client(backend, sharing).await, client(backend, sharing).await];
    let held = sure(|| one.lock("b").try_acquire()).await.expect("free");
    for client in [&one, &other] {
        assert!(sure(|| client.lock_all(["a", "b", "c"]).try_acquire()).await.is_none());
        let bounded = client.lock_all(["c", "b", "a"]).wait(Duration::from_millis(40)).acquire();
        match within(bounded).await {
            Err(Error::Busy { key, .. }) => assert_eq!(key, "b"),
            Err(Error::Unreachable { .. }) => {}
            other => panic!("{other:?}"),
        }
        drop(takes(client, &["a", "c"]).await);
    }
    held.release().await.unwrap();
    takes(&other, &["c", "b", "a"]).await.release().await.unwrap();
}

pub(crate) async fn sixteen_keys_are_locked_together(backend: &TestBackend, sharing: bool) {
    let client = client(backend, sharing).await;
    let names: Vec<_> = (0..16).rev().map(|number| format!("k{number:02}")).collect();
    let guards = sure(|| client.lock_all(&names).acquire()).await;
    assert!(guards.is_held() && guards.remaining() > Duration::ZERO);
    assert_eq!((guards.keys().len(), guards.fencing_tokens().len(), guards.holders().len()), (16, 16, 16));
    assert!(client.lock("k07").try_acquire().await.is_ok_and(|taken| taken.is_none()));
    within(guards.release()).await.unwrap();
    for name in &names {
        drop(takes(&client, &[name]).await);
    }
}

pub(crate) async fn each_key_is_granted_in_the_order_of_its_claims(backend: &TestBackend, sharing: bool) {
    let client = client(backend, sharing).await;
    if !sharing && !client.capabilities().queues {
        // There is no queue, neither on the backend nor in the client.
        return;
    }
    let held = client.lock("b").await.unwrap();
    let order: Arc<Mutex<Vec<usize>>> = Arc::default();
    let mut tasks = Vec::new();
    for number in 0..6 {
        // A set waits for its first key like a single lock.
        let keys = if number % 2 == 0 { vec!["c", "b"] } else { vec!["b"] };
        let (locks, order) = (client.lock_all(keys), Arc::clone(&order));
        tasks.push(tokio::spawn(async move {
            let guards = locks.await.unwrap();
            order.lock().unwrap().push(number);
            guards.release().await.unwrap();
        }));
        within(async {
            while client.waiting("b") != number + 1 {
                yield_now().await;
            }
        })
        .await;
        // The claim is on its way before the next one begins; one connection keeps that order.
        yield_now().await;
    }
    held.release().await.unwrap();
    for task in tasks {
        within(task).await.unwrap();
    }
    assert!(order.lock().unwrap().iter().copied().eq(0..6), "{order:?}");
}

pub(crate) async fn a_wait_that_is_given_up_releases_what_is_held(backend: &TestBackend, sharing: bool) {
    let [one, other] = [client(backend, sharing).await, client(backend, sharing).await];
    let held = sure(|| one.lock("b").try_acquire()).await.expect("free");
    let waiting = tokio::spawn(other.lock_all(["b", "a"]).acquire());
    within(async {
        while other.waiting("b") == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
    assert!(sure(|| one.lock("a").try_acquire()).await.is_none(), "held while b is waited for");
    waiting.abort();
    drop(takes(&one, &["a"]).await);
    held.release().await.unwrap();
    for client in [one, other] {
        client.close(GENEROUS).await.unwrap();
    }
}

pub(crate) async fn the_loss_of_one_is_the_loss_of_all(backend: &TestBackend, sharing: bool) {
    let [one, other] = [client(backend, sharing).await, client(backend, sharing).await];
    let guards = sure(|| one.lock_all(["c", "b", "a"]).acquire()).await;
    let seen = sure(|| other.inspect("b")).await.expect("held");
    if !one.capabilities().evicts {
        assert!(matches!(sure(|| other.evict(&seen)).await, Eviction::Refused(_)));
        return;
    }
    assert!(matches!(sure(|| other.evict(&seen)).await, Eviction::Evicted | Eviction::Changed(_)));
    let loss = within(guards.lost()).await;
    assert_eq!(loss.key, "b");
    assert!(!guards.is_held() && guards.check().is_err_and(|error| error.key() == Some(&loss.key)));
    assert_eq!(guards.remaining(), Duration::ZERO);
    assert!(sure(|| other.lock("a").try_acquire()).await.is_none(), "the others are held until the release");
    match within(guards.release()).await.unwrap() {
        ReleasedAll::AlreadyLost { losses } => assert_eq!(losses, [loss]),
        released @ ReleasedAll::Released => panic!("{released:?}"),
    }
    takes(&other, &["a", "b", "c"]).await.release().await.unwrap();
}

pub(crate) async fn a_loss_while_waiting_begins_anew(backend: &TestBackend, sharing: bool) {
    let [one, other] = [client(backend, sharing).await, client(backend, sharing).await];
    if !one.capabilities().evicts {
        return;
    }
    let held = sure(|| other.lock("b").try_acquire()).await.expect("free");
    let waiting = tokio::spawn(one.lock_all(["a", "b"]).acquire());
    let before = within(async {
        loop {
            if one.waiting("b") > 0
                && let Some(seen) = sure(|| other.inspect("a")).await
            {
                return seen;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
    assert!(matches!(sure(|| other.evict(&before)).await, Eviction::Evicted | Eviction::Changed(_)));
    // It is held again, under another token, though b is not free yet.
    within(async {
        while sure(|| other.inspect("a")).await.is_none_or(|seen| seen.first().fence == before.first().fence) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await;
    held.release().await.unwrap();
    let guards = within(waiting).await.unwrap().unwrap();
    assert!(guards.is_held() && Some(guards.fencing_tokens()[0]) > before.first().fence);
    guards.release().await.unwrap();
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
