//! Programs without fencelock use the same keys.

use crate::common::{ms, secs};
use crate::support::{busy, calls, client, command, is_free, renewed, server, text, waiting};
use fencelock::contract::Foreign;
use fencelock::{Error, Expiry, Guard, LossReason, Occupant};
use std::time::Duration;
use tokio::time::Instant;

async fn lost(guard: &Guard) -> LossReason {
    tokio::time::timeout(secs(8), guard.lost()).await.expect("notified long before the renewal after 10 s")
}

/// What another program put in the place of the lock.
async fn taken_by_another_program(guard: &Guard) -> Foreign {
    match lost(guard).await {
        LossReason::TakenBy(holders) => match holders.into_first() {
            Occupant::Foreign(what) => what,
            ours @ Occupant::Holder(_) => panic!("{ours:?}"),
        },
        other => panic!("{other}"),
    }
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
async fn a_foreign_overwrite_of_a_held_key_is_reported_immediately() {
    let Some(server) = server() else { return };
    let client = client(&server.url()).await;
    let guard = client.lock("k").ttl(secs(30)).await.unwrap();
    renewed(&guard).await;
    command(&server, &["SET", "k", "mine now"]);
    let what = taken_by_another_program(&guard).await;
    assert!(what.to_string().contains("8 bytes, \"mine\""), "{what}");
    guard.release().await.unwrap();
    assert_eq!(text(&server, &["GET", "k"]).as_deref(), Some("mine now"));
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

#[tokio::test]
async fn whatever_lies_under_the_key_is_an_occupant_with_a_name() {
    let Some(server) = server() else { return };
    let client = client(&server.url()).await;
    let oddities: [(&[&str], &str); 6] = [
        (&["ZADD", "k", "1", "m"], "zset"),
        (&["HSET", "k", "f", "v"], "hash"),
        (&["RPUSH", "k", "a"], "list"),
        (&["SADD", "k", "a"], "set"),
        (&["XADD", "k", "*", "f", "v"], "stream"),
        (&["SET", "k", "plain"], "a string of 5 bytes"),
    ];
    for (put, name) in oddities {
        command(&server, put);
        assert!(client.lock("k").try_acquire().await.unwrap().is_none(), "{name}");
        let busy = busy(client.lock("k")).await;
        assert!(matches!(&busy, Error::Busy { expires_in: Expiry::Never, .. }), "{busy:?}");
        assert!(busy.to_string().contains(name) && busy.to_string().contains("with no expiry"), "{busy}");
        assert_eq!(client.inspect("k").await.unwrap().unwrap().first().expiry, Expiry::Never);
        // Now it takes the place of a lock that is held.
        command(&server, &["DEL", "k"]);
        let guard = client.lock("k").await.unwrap();
        // One transaction, so that no client sees the gap.
        let mut other = server.connect().unwrap();
        other.command(&["MULTI"]);
        other.command(&["DEL", "k"]);
        other.command(put);
        other.command(&["EXEC"]);
        let what = taken_by_another_program(&guard).await;
        assert!(what.to_string().contains(name), "{what}");
        guard.release().await.unwrap();
        assert!(!is_free(&server, "k"), "{name} is not ours to delete");
        command(&server, &["DEL", "k"]);
    }
}

#[tokio::test]
async fn a_value_in_the_format_of_fencelock_may_be_foreign() {
    let Some(server) = server() else { return };
    let client = client(&server.url()).await;
    let guard = client.lock("k").await.unwrap();
    renewed(&guard).await;
    let (proof, longer) = (guard.holder(), format!("{}0", guard.holder()));
    command(&server, &["SET", "k", &longer]);
    assert!(matches!(lost(&guard).await, LossReason::TakenBy(_)));
    client.release("k", proof).await.unwrap();
    assert_eq!(text(&server, &["GET", "k"]), Some(longer));
}
