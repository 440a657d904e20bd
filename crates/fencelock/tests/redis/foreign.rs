//! Programs without fencelock use the same keys.

use crate::common::{ms, secs};
use crate::support::{calls, client, command, is_free, renewed, server, text, waiting};
use fencelock::{Guard, LossReason};
use std::time::Duration;
use tokio::time::Instant;

async fn lost(guard: &Guard) -> LossReason {
    tokio::time::timeout(secs(8), guard.lost()).await.expect("notified long before the renewal after 10 s")
}

#[tokio::test]
async fn a_foreign_release_wakes_the_first_waiter() {
    let Some(server) = server() else { return };
    let client = client(&server.url()).await;
    command(&server, &["CONFIG", "RESETSTAT"]);
    let rounds = 10;
    let (begun, mut fastest) = (Instant::now(), Duration::MAX);
    for _ in 0..rounds {
        assert!(text(&server, &["SET", "k", "theirs", "NX", "PX", "30000"]).is_some());
        let guard = waiting(&server, "k", client.lock("k")).await;
        command(&server, &["DEL", "k"]);
        let freed = Instant::now();
        guard.await.unwrap().release().await.unwrap();
        fastest = fastest.min(freed.elapsed());
    }
    // Without wake-ups each round would take until the next poll: nearly a second, because the waiter has just claimed.
    assert!(fastest < ms(700), "{fastest:?}");
    // Asked, woken, released; and now and then a poll because a second was over.
    let (evals, polls) = (calls(&server, "evalsha"), 8 + 2 * begun.elapsed().as_secs());
    assert!(evals as u64 <= rounds * 3 + polls, "{evals}");
}

#[tokio::test]
async fn a_foreign_delete_of_a_held_key_is_reported_immediately() {
    let Some(server) = server() else { return };
    let client = client(&server.url()).await;
    for lock_command in ["DEL", "UNLINK"] {
        let guard = client.lock("k").ttl(secs(30)).await.unwrap();
        // Tracking is enabled after a hold has lasted some milliseconds.
        renewed(&guard).await;
        command(&server, &[lock_command, "k"]);
        assert_eq!(lost(&guard).await, LossReason::Deleted, "{lock_command}");
        assert!(is_free(&server, "k"), "and it was not made again");
    }
}

#[tokio::test]
async fn a_flush_is_reported_to_every_holder_and_wakes_every_waiter() {
    let Some(server) = server() else { return };
    let client = client(&server.url()).await;
    let mut guards = Vec::new();
    for i in 0..50 {
        guards.push(client.lock(format!("k{i}")).ttl(secs(30)).await.unwrap());
    }
    command(&server, &["SET", "theirs", "x"]);
    let next = waiting(&server, "theirs", client.lock("theirs")).await;
    // So the others were renewed too.
    renewed(&guards[49]).await;
    command(&server, &["FLUSHALL"]);
    for guard in &guards {
        assert_eq!(lost(guard).await, LossReason::Deleted);
    }
    assert!(tokio::time::timeout(secs(20), next).await.unwrap().unwrap().is_held());
}
