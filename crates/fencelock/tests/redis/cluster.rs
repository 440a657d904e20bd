//! Clients of a cluster whose slots are moved.

use crate::common::{eventually, secs};
use crate::support::{client, in_line};
use fencelock::{Client, Error};
use fencelock_testkit::{ClusterNodes, RedisServer, Reply};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::Instant;

const WAITERS: usize = 200;
/// The slot of the key is moved before every tenth grant.
const GRANTS_BETWEEN_MOVES: usize = 10;
/// Spread over the masters.
const OTHERS: usize = 6;

/// How many milliseconds are left to the waiter of the key that has not polled for the longest time.
fn shortest_life(server: &RedisServer, key: &str) -> i64 {
    let ends = r"local first = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2]
        local now = redis.call('TIME')
        return first and first - now[1] * 1000 - math.floor(now[2] / 1000) or 3000";
    match server.command(&["EVAL", ends, "1", &format!("fencelock:{{{key}}}:alive")]) {
        Reply::Int(left) => left,
        other => panic!("{other:?}"),
    }
}

/// When a waiter had which position in the queue, or no reply, or the lock.
type History = Arc<Mutex<Vec<(usize, Duration, String)>>>;

/// Waiters without a reply for so long may have polled three seconds apart, and then have lost their position.
fn late(history: &[(usize, Duration, String)]) -> BTreeSet<usize> {
    let mut last = [None; WAITERS];
    let replies = history.iter().filter(|(.., what)| what.starts_with("Some") || what == GRANTED);
    let late = replies.filter(|(waiter, at, _)| last[*waiter].replace(*at).is_some_and(|last| *at > last + secs(2)));
    late.map(|(waiter, ..)| *waiter).collect()
}

const GRANTED: &str = "granted";

/// Moves the slot of a key to the next master.
fn move_on(cluster: &ClusterNodes, key: &str) {
    let (slot, masters) = (cluster.slot_of(key), cluster.masters());
    let index = masters.iter().position(|master| *master == cluster.owner_of(slot)).unwrap();
    cluster.move_slots([slot], masters[(index + 1) % masters.len()]).unwrap();
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
    let mut late = Vec::new();
    // On a busy machine, some waiters poll too late to keep their position.
    while let Some(count) = late_waiters_while_every_slot_is_moved().await {
        late.push(count);
        if count < WAITERS / 2 {
            return;
        }
        assert!(late.len() < 3, "{late:?} of {WAITERS} waiters had no reply in time");
    }
}

/// How many waiters may have lost their position because the machine was too slow; all others were served in order. `None` without
/// servers.
async fn late_waiters_while_every_slot_is_moved() -> Option<usize> {
    let cluster = ClusterNodes::start_or_skip(3, 0)?;
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
    let (history, begun) = (History::default(), Instant::now());
    let mut waiters = Vec::new();
    let owner = &cluster.nodes[cluster.owner_of(cluster.slot_of("k"))];
    for i in 0..WAITERS {
        let (seen, trouble, order) = (Arc::clone(&history), Arc::clone(&history), Arc::clone(&order));
        let note = move |of: &History, what: String| of.lock().unwrap().push((i, begun.elapsed(), what));
        let lock =
            clients[i % clients.len()].lock("k").on_wait(move |waiting| note(&seen, format!("{:?}", waiting.ahead)));
        let lock = lock.on_trouble(move |cause| note(&trouble, format!("{cause:#}")));
        let granted = Arc::clone(&history);
        waiters.push(tokio::spawn(async move {
            let guard = lock.await.unwrap();
            let token = guard.fencing_token();
            note(&granted, GRANTED.to_owned());
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
        // A waiter that has no reply for three seconds loses its position, and a move may take a second of them.
        let owner = &cluster.nodes[cluster.owner_of(cluster.slot_of("k"))];
        let all_have_polled = eventually("every waiter has polled", async || shortest_life(owner, "k") > 1500);
        let _ = tokio::time::timeout(secs(3), all_have_polled).await;
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

    let (order, history) = (order.lock().unwrap().clone(), history.lock().unwrap().clone());
    let late = late(&history);
    let served: Vec<_> = order.iter().map(|(waiter, _)| *waiter).filter(|waiter| !late.contains(waiter)).collect();
    if let Some(pair) = served.windows(2).find(|pair| pair[0] > pair[1]) {
        let last: Vec<_> = history.iter().filter(|(waiter, ..)| *waiter == pair[1]).rev().take(20).collect();
        panic!("{} was overtaken: {served:?}\nits last replies, the latest first: {last:#?}", pair[1]);
    }
    assert!(order.is_sorted_by(|(_, one), (_, next)| one < next), "{order:?}");
    let fence = |key: &String| key.ends_with("}:fence");
    eventually("only fences are left", async || all_keys(&cluster).iter().all(fence)).await;
    Some(late.len())
}
