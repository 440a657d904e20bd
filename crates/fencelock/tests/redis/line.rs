//! The queue of waiters: no waiter is forgotten.

use crate::support::{calls, client, command, keys, server};

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
