//! The client over three servers; one of them may be away.

use super::support::{client, is_free};
use crate::common::{eventually, ms, secs};
use fencelock::{Client, Error};
use fencelock_testkit::{Proxy, RedisServer, redlock_url, servers_or_skip};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

fn url(servers: &[RedisServer]) -> String {
    redlock_url(servers, "trust_empty=true")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_gets_the_lock_when_it_is_released_and_nothing_stays() {
    let Some(servers) = servers_or_skip(3) else { return };
    let (one, other) = (client(&url(&servers)).await, client(&url(&servers)).await);
    let held = one.lock("k").ttl(secs(30)).await.unwrap();
    let first = held.fencing_token();
    let waiting = tokio::spawn(other.lock("k").wait(secs(20)).acquire());
    assert!(other.lock("k").try_acquire().await.unwrap().is_none());
    held.release().await.unwrap();
    let guard = waiting.await.unwrap().unwrap();
    assert!(guard.fencing_token() > first);
    guard.release().await.unwrap();
    eventually("free everywhere", async || servers.iter().all(|server| is_free(server, "k"))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_outlives_the_death_of_one_server_and_not_that_of_two() {
    let Some(mut servers) = servers_or_skip(3) else { return };
    let client = client(&url(&servers)).await;
    let held = client.lock("k").ttl(secs(3)).await.unwrap();
    servers[0].kill();
    tokio::time::sleep(secs(5)).await;
    assert!(held.is_held(), "renewed on the other two");
    servers[1].kill();
    eventually("lost at the end of its lease", async || !held.is_held()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_without_replies_at_all_nodes_cost_no_lock_while_new_ones_pass() {
    let Some(servers) = servers_or_skip(3) else { return };
    let proxies: Vec<_> = servers.iter().map(|server| Proxy::to(server.port()).unwrap()).collect();
    let hosts: Vec<_> = proxies.iter().map(|proxy| proxy.url().replace("redis://", "")).collect();
    for proxy in &proxies {
        proxy.delay(ms(2), ms(2));
    }
    for ttl in [ms(3000), ms(1000)] {
        let url = format!("redlock://{}?trust_empty=true", hosts.join(","));
        let outlives = async || {
            let Ok(client) = Client::connect(&url).await else { return false };
            let Ok(guard) = client.lock("k").ttl(ttl).await else { return false };
            proxies.iter().for_each(Proxy::black_hole_open);
            tokio::time::sleep(ttl + ttl / 2).await;
            let held = guard.is_held();
            let _ = guard.release().await;
            held
        };
        let mut tries = 0;
        while !outlives().await {
            tries += 1;
            // A machine may stop for as long as the lease.
            assert!(tries < 5, "TTL {ttl:?}");
        }
    }
}

fn careful(servers: &[RedisServer], max_ttl: u64) -> String {
    redlock_url(servers, &format!("max_ttl={max_ttl}&node_timeout=5000"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_outlasts_a_quarantine_that_is_longer_than_its_ttl() {
    let Some(servers) = servers_or_skip(3) else { return };
    let client = client(&careful(&servers, 60_000)).await;
    let reports = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&reports);
    let lock = client.lock("k").ttl(secs(1)).on_trouble(move |cause| {
        assert!(cause.is_quarantine(), "{cause}");
        count.fetch_add(1, Ordering::SeqCst);
    });
    let waiting = tokio::spawn(lock.acquire());
    tokio::time::sleep(secs(2)).await;
    assert!(!waiting.is_finished() && reports.load(Ordering::SeqCst) > 0);
    for server in &servers {
        server.command(&["HSET", "fencelock:node", "until", "1"]);
    }
    assert!(waiting.await.unwrap().unwrap().is_held());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_that_ends_in_quarantine_says_for_how_long_and_what_to_do() {
    let Some(servers) = servers_or_skip(3) else { return };
    let client = client(&careful(&servers, 60_000)).await;
    let error = client.lock("k").wait(secs(2)).await.unwrap_err();
    let text = format!("{error:#}");
    assert!(matches!(error, Error::Unreachable { .. }), "{text}");
    // Two decide; a third that is late is not waited for. Nodes with the same time left are named together.
    assert!(text.contains("in quarantine") && text.matches("redis://").count() >= 2, "{text}");
    assert!(
        text.contains("grants nothing") && text.contains("s left") && text.contains("init --trust-empty"),
        "{text}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ttl_beyond_the_longest_is_refused_before_anything_is_sent() {
    let Some(servers) = servers_or_skip(3) else { return };
    let client = client(&careful(&servers, 10_000)).await;
    let error = client.lock("k").ttl(secs(11)).await.unwrap_err();
    assert!(matches!(&error, Error::Config(why) if why.to_string().contains("11 s")), "{error}");
    let holder = fencelock::HolderId::from_bytes([1; 16]);
    assert!(matches!(client.renew("k", holder, secs(11)).await, Err(Error::Config(_))));
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_of_another_list_fail_at_once_with_any_wait() {
    let Some(servers) = servers_or_skip(3) else { return };
    let one = client(&url(&servers)).await;
    // The first claim takes the servers into its list.
    one.lock("j").await.unwrap().release().await.unwrap();
    let error = Client::connect(&url(&servers[..2])).await.unwrap_err();
    assert!(matches!(&error, Error::Config(why) if why.to_string().contains("it belongs to")), "{error}");
    fencelock::backends::init(&url(&servers[..2]), true).await.unwrap();
    let error = one.lock("k").wait(secs(60)).await.unwrap_err();
    assert!(matches!(error, Error::Config(_)), "{error}");
}
