//! The server is frozen, killed, restarted, or cut off.

use crate::common::{eventually, ms, secs};
use crate::support::{
    calls, client, command, in_line, is_free, kill_connections, listeners, renewed, server, text, waiting,
};
use fencelock::backends::connect;
use fencelock::{Client, Error, Level, LossReason};
use fencelock_core::Acquire;
use fencelock_testkit::{Proxy, RedisServer, Then};
use std::time::Duration;

#[tokio::test]
async fn a_frozen_server_answers_a_hundred_callers_together() {
    let Some(server) = server() else { return };
    let client = client(&format!("{}?timeout=1000", server.url())).await;
    server.freeze();
    let begun = tokio::time::Instant::now();
    // The second time, the connection is given up already.
    for _ in 0..2 {
        let claims: Vec<_> = (0..100).map(|i| tokio::spawn(client.lock(format!("k{i}")).try_acquire())).collect();
        for claim in claims {
            assert!(matches!(claim.await.unwrap(), Err(Error::Unreachable { .. })));
        }
    }
    assert!(begun.elapsed() < secs(60), "200 time limits would be three minutes: {:?}", begun.elapsed());
    server.thaw();
    // Their claims are executed now, and the locks are released.
    eventually("nothing is held", async || (0..100).all(|i| is_free(&server, &format!("k{i}")))).await;
}

#[tokio::test]
async fn a_hold_is_not_reported_as_lost_because_its_release_was_sent_twice() {
    let Some(server) = server() else { return };
    let backend = connect(&format!("{}?timeout=1000", server.url())).await.unwrap();
    let claim = fencelock_testkit::claim("k", secs(60));
    assert!(matches!(backend.acquire(&claim).await.answer, Ok(Acquire::Granted { .. })));
    server.freeze();
    assert!(backend.inspect(&claim.key).await.is_err(), "from now on, the connection is given up");
    let thaw = async {
        tokio::time::sleep(ms(100)).await;
        server.thaw();
    };
    let (released, ()) = tokio::join!(backend.release(&claim.key, &claim.holder.id), thaw);
    assert!(matches!(&released, Err(cause) if !cause.is_permanent()), "{released:?}");
    assert!(is_free(&server, "k"));
}

#[tokio::test]
async fn a_server_that_restarts_empty_costs_a_held_lock() {
    let Some(mut server) = server() else { return };
    let client = client(&server.url()).await;
    let guard = client.lock("k").ttl(secs(90)).await.unwrap();
    server.restart_empty().unwrap();
    let lost = tokio::time::timeout(secs(20), guard.lost()).await.expect("at once, not after 30 s");
    assert_eq!(lost, LossReason::Deleted);
    assert!(is_free(&server, "k"), "it is not made again");
}

#[tokio::test]
async fn a_waiter_gets_its_lock_from_a_server_that_restarted_empty() {
    let Some(mut server) = server() else { return };
    let (holder, waiter) = (client(&server.url()).await, client(&server.url()).await);
    let held = holder.lock("k").await.unwrap();
    let next = waiting(&server, "k", waiter.lock("k")).await;
    server.restart_empty().unwrap();
    let next = tokio::time::timeout(secs(20), next).await.unwrap().unwrap();
    assert!(next.is_held());
    assert!(tokio::time::timeout(secs(20), held.lost()).await.is_ok(), "the old holder is notified");
}

#[tokio::test]
async fn connections_that_are_killed_cost_nothing() {
    let Some(server) = server() else { return };
    let client = client(&server.url()).await;
    let held = client.lock("k").await.unwrap();
    let next = waiting(&server, "k", client.lock("k")).await;
    for _ in 0..5 {
        kill_connections(&server);
        tokio::time::sleep(ms(50)).await;
    }
    assert!(held.is_held());
    eventually("in line again", async || in_line(&server, "k") == 1).await;
    held.release().await.unwrap();
    assert!(next.await.unwrap().is_held());
}

#[tokio::test]
async fn a_cut_in_the_middle_of_a_wait_costs_at_most_the_time_of_the_cut() {
    let Some(server) = server() else { return };
    let proxy = Proxy::to(server.port()).unwrap();
    let (holder, waiter) = (client(&server.url()).await, client(&proxy.url()).await);
    let held = holder.lock("k").await.unwrap();
    let next = waiting(&server, "k", waiter.lock("k")).await;
    proxy.cut();
    eventually("the server knows that it is gone", async || listeners(&server) == 1).await;
    assert!(!next.is_finished());
    held.release().await.unwrap();
    assert!(is_free(&server, "k"), "the waiter's channel has no reader, so the lock is not handed to it");
    proxy.forward();
    let next = tokio::time::timeout(secs(20), next).await.expect("it polls, whether it was woken or not").unwrap();
    assert!(next.is_held());
}

#[tokio::test]
async fn connections_without_replies_cost_no_lock_while_new_ones_pass() {
    let Some(server) = server() else { return };
    for (ttl, query) in [(6000, ""), (3000, ""), (1000, ""), (1000, "?protocol=resp2"), (3000, "?timeout=5000")] {
        let mut tries = 0;
        while !outlives_its_connection(&server, ms(ttl), query).await {
            tries += 1;
            // A machine may stop for as long as the lease.
            assert!(tries < 20, "TTL {ttl} ms {query}");
        }
    }
}

async fn outlives_its_connection(server: &RedisServer, ttl: Duration, query: &str) -> bool {
    let proxy = Proxy::to(server.port()).unwrap();
    let Ok(client) = Client::builder().connect(&format!("{}{query}", proxy.url())).await else { return false };
    let Ok(guard) = client.lock("k").ttl(ttl).await else { return false };
    renewed(&guard).await;
    proxy.black_hole_open();
    // It lives on only if it is renewed, and the next renewal after that shows that the new connection stays.
    tokio::time::sleep(ttl + ttl / 2).await;
    let held = guard.is_held();
    let _ = guard.release().await;
    held
}

#[tokio::test]
async fn a_waiter_without_replies_polls_over_a_new_connection_after_one_timeout() {
    let Some(server) = server() else { return };
    let proxy = Proxy::to(server.port()).unwrap();
    let (holder, waiter) = (client(&server.url()).await, client(&format!("{}?timeout=10000", proxy.url())).await);
    let held = holder.lock("k").ttl(secs(60)).await.unwrap();
    let next = waiting(&server, "k", waiter.lock("k").ttl(secs(60))).await;
    proxy.black_hole_open();
    held.release().await.unwrap();
    // Two time limits would be twenty seconds.
    let next = tokio::time::timeout(secs(18), next).await.expect("it polls again").unwrap();
    assert!(next.is_held());
}

#[tokio::test]
async fn a_handshake_that_stalls_is_repeated_completely() {
    let Some(server) = server() else { return };
    for word in ["INFO", "TRACKING", "SUBSCRIBE"] {
        let proxy = Proxy::to(server.port()).unwrap();
        let url = format!("{}?timeout=600", proxy.url());
        proxy.drop_reply_to(word, Then::StaySilent);
        let stalled = Client::connect(&url).await;
        assert!(matches!(stalled, Err(Error::Unreachable { .. })), "{word}");
        // The same in the middle of a life.
        let client = client(&url).await;
        proxy.drop_reply_to(word, Then::StaySilent);
        kill_connections(&server);
        let _ = client.lock("k").try_acquire().await;
        eventually("back", async || client.lock("k").try_acquire().await.is_ok()).await;
        assert!(proxy.dropped_replies() >= 2, "{word}");
        let findings = client.diagnose().await.findings;
        for subject in ["wake-ups", "tracking"] {
            let finding = findings.iter().find(|finding| finding.subject == subject).unwrap();
            assert_eq!(finding.level, Level::Fine, "{word}: {finding:?}");
        }
    }
}

#[tokio::test]
async fn a_listener_that_is_killed_comes_back() {
    let Some(server) = server() else { return };
    let client = client(&format!("{}?protocol=resp2", server.url())).await;
    let held = client.lock("k").await.unwrap();
    command(&server, &["CLIENT", "KILL", "TYPE", "pubsub"]);
    let mut waiters = Vec::new();
    for _ in 0..5 {
        waiters.push(waiting(&server, "k", client.lock("k")).await);
    }
    eventually("it listens again", async || {
        text(&server, &["CLIENT", "LIST", "TYPE", "pubsub"]).unwrap().contains("sub=1")
    })
    .await;
    command(&server, &["CONFIG", "RESETSTAT"]);
    held.release().await.unwrap();
    for waiter in waiters {
        waiter.await.unwrap().release().await.unwrap();
    }
    assert!(calls(&server, "publish") >= 5, "each was handed the lock");
}
