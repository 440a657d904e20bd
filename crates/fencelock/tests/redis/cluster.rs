//! Clients of a cluster whose slots are moved.

use crate::common::{eventually, secs};
use crate::support::{client, in_line};
use fencelock::{Client, Error};
use fencelock_testkit::{ClusterNodes, Reply};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use tokio::task::{JoinHandle, spawn_blocking};

const WAITERS: usize = 200;
/// The slot of the key is moved before every tenth grant.
const GRANTS_BETWEEN_MOVES: usize = 10;
/// Spread over the masters.
const OTHERS: usize = 6;

/// Moves the slot of a key to the next master.
fn move_on(cluster: &ClusterNodes, key: &str) {
    let (slot, masters) = (cluster.slot_of(key), cluster.masters());
    let place = masters.iter().position(|master| *master == cluster.owner_of(slot)).unwrap();
    cluster.move_slots([slot], masters[(place + 1) % masters.len()]).unwrap();
}

/// A task that acquires and releases a key until it is stopped; its tokens must increase. Returns how many it got.
fn work(client: Client, key: String, stopped: Arc<AtomicBool>) -> JoinHandle<usize> {
    tokio::spawn(async move {
        let (mut grants, mut last) = (0, None);
        while !stopped.load(Ordering::SeqCst) {
            let guard = client.lock(&key).await.unwrap();
            let token = Some(guard.fencing_token());
            assert!(token > last, "{key}: {token:?} after {last:?}");
            (grants, last) = (grants + 1, token);
            match guard.release().await {
                // The slot is on its way. The client releases the lock later.
                Ok(_) | Err(Error::Unreachable { .. }) => {}
                Err(error) => panic!("{key}: {error:#}"),
            }
        }
        grants
    })
}

fn all_keys(cluster: &ClusterNodes) -> Vec<String> {
    let keys = cluster.nodes.iter().flat_map(|node| match node.command(&["KEYS", "*"]) {
        Reply::Array(keys) => keys,
        other => panic!("{other:?}"),
    });
    keys.filter_map(|key| key.text().map(str::to_owned)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_slot_is_moved_under_two_hundred_waiters_who_are_served_in_order() {
    let Some(cluster) = ClusterNodes::start_or_skip(3, 0) else { return };
    let cluster = Arc::new(cluster);
    let mut clients = Vec::new();
    for _ in 0..4 {
        clients.push(client(&cluster.url("")).await);
    }
    let stopped = Arc::new(AtomicBool::new(false));
    let others: Vec<_> = (0..OTHERS)
        .map(|number| work(clients[number % 2].clone(), format!("other-{number}"), Arc::clone(&stopped)))
        .collect();

    let held = clients[0].lock("k").await.unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut waiters = Vec::new();
    let owner = &cluster.nodes[cluster.owner_of(cluster.slot_of("k"))];
    for i in 0..WAITERS {
        let (lock, order) = (clients[i % clients.len()].lock("k"), Arc::clone(&order));
        waiters.push(tokio::spawn(async move {
            let guard = lock.await.unwrap();
            let token = guard.fencing_token();
            order.lock().unwrap().push((i, token));
            guard.release().await.unwrap();
        }));
        // The order of arrival must be known, also between clients.
        eventually("in line", async || usize::try_from(in_line(owner, "k")) == Ok(i + 1)).await;
    }

    let moved = Arc::clone(&cluster);
    spawn_blocking(move || moved.move_all_slots().unwrap()).await.unwrap();
    assert!(held.is_held(), "a move is no reason to lose a lock");
    assert_eq!(*order.lock().unwrap(), [], "the key is still held");
    held.release().await.unwrap();
    for grants in (0..WAITERS).step_by(GRANTS_BETWEEN_MOVES) {
        eventually("served", async || order.lock().unwrap().len() >= grants).await;
        let moved = Arc::clone(&cluster);
        spawn_blocking(move || move_on(&moved, "k")).await.unwrap();
    }
    for waiter in waiters {
        tokio::time::timeout(secs(20), waiter).await.expect("nobody is lost").unwrap();
    }
    stopped.store(true, Ordering::SeqCst);
    for other in others {
        let grants = other.await.unwrap();
        assert!(grants > WAITERS / 10, "{grants} grants of another key");
    }

    let order = order.lock().unwrap().clone();
    assert!(order.iter().map(|(waiter, _)| *waiter).eq(0..WAITERS), "{order:?}");
    assert!(order.is_sorted_by(|(_, one), (_, next)| one < next), "{order:?}");
    let fence = |key: &String| key.ends_with("}:fence");
    eventually("only fences are left", async || all_keys(&cluster).iter().all(fence)).await;
}
