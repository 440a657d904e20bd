//! The queue of waiters: its order, its cost, and that no waiter is forgotten.

use crate::common::{eventually, secs};
use crate::support::{calls, client, command, in_line, keys, server};
use std::sync::{Arc, Mutex};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_waiters_are_served_in_order_at_two_commands_each() {
    let Some(server) = server() else { return };
    let clients = [client(&server.url()).await, client(&server.url()).await];
    let held = clients[0].lock("k").await.unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    let waiters = 200;
    command(&server, &["CONFIG", "RESETSTAT"]);
    let begun = tokio::time::Instant::now();
    for i in 0..waiters {
        let (lock, order) = (clients[i % 2].lock("k"), Arc::clone(&order));
        tasks.push(tokio::spawn(async move {
            let guard = lock.await.unwrap();
            order.lock().unwrap().push(i);
            guard.release().await.unwrap();
        }));
        // The order of arrival must be known, also between two connections.
        eventually("in line", async || usize::try_from(in_line(&server, "k")) == Ok(i + 1)).await;
    }
    held.release().await.unwrap();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(*order.lock().unwrap(), (0..waiters).collect::<Vec<_>>());
    // One to come, one to go; and each that waits says once a second that it is there.
    let heartbeats = waiters * (usize::try_from(begun.elapsed().as_secs()).unwrap() + 1);
    let evals = calls(&server, "evalsha");
    assert!(evals <= waiters * 22 / 10 + heartbeats, "{evals} calls, of them {heartbeats} heartbeats at most");
    assert!(calls(&server, "publish") <= waiters + 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_releases_race_with_those_that_come_and_none_is_missed() {
    let Some(server) = server() else { return };
    let clients = [client(&server.url()).await, client(&server.url()).await];
    command(&server, &["CONFIG", "RESETSTAT"]);
    let (tasks, rounds) = (4, 2500);
    let working: Vec<_> = (0..tasks)
        .map(|i| {
            let client = clients[i % 2].clone();
            tokio::spawn(async move {
                for _ in 0..rounds {
                    client.lock("k").await.unwrap().release().await.unwrap();
                }
            })
        })
        .collect();
    for task in working {
        task.await.unwrap();
    }
    let grants = tasks * rounds;
    // A wake-up that is missed costs a poll after a second; a hold that lasts 25 ms costs a renewal.
    let evals = calls(&server, "evalsha");
    assert!(evals <= grants * 2 + grants / 50, "{evals} calls for {grants} grants");
    assert_eq!(keys(&server), ["fencelock:{k}:fence"]);
}

#[tokio::test]
async fn waiters_that_give_up_in_a_herd_leave_the_others_in_order() {
    let Some(server) = server() else { return };
    let client = client(&server.url()).await;
    let held = client.lock("k").await.unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for i in 0..60 {
        let (lock, order) = (client.lock("k"), Arc::clone(&order));
        tasks.push(tokio::spawn(async move {
            let guard = lock.await.unwrap();
            order.lock().unwrap().push(i);
            guard.release().await.unwrap();
        }));
        eventually("in line", async || usize::try_from(in_line(&server, "k")) == Ok(i + 1)).await;
    }
    for (i, task) in tasks.iter().enumerate() {
        if i % 3 != 0 {
            task.abort();
        }
    }
    // Some of the releases overtake the hand-offs, some do not.
    held.release().await.unwrap();
    for task in tasks {
        let _ = tokio::time::timeout(secs(10), task).await.expect("served or gone");
    }
    assert_eq!(*order.lock().unwrap(), (0..20).map(|i| i * 3).collect::<Vec<_>>());
    eventually("nothing is left", async || keys(&server) == ["fencelock:{k}:fence"]).await;
    assert!(tokio::time::timeout(secs(10), client.lock("k").acquire()).await.is_ok());
}
