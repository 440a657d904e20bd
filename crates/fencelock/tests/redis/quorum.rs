//! The client over three servers of which one may be away.

use super::support::{client, is_free, server};
use crate::common::{eventually, secs};
use fencelock::{Client, Error};
use fencelock_conformance::RedisServer;

fn three() -> Option<Vec<RedisServer>> {
    Some(vec![server()?, RedisServer::start().unwrap(), RedisServer::start().unwrap()])
}

fn url(servers: &[RedisServer]) -> String {
    let hosts: Vec<_> = servers.iter().map(|server| server.url().replace("redis://", "")).collect();
    format!("redlock://{}?trust_empty=true", hosts.join(","))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_gets_the_lock_when_it_is_released_and_nothing_stays() {
    let Some(servers) = three() else { return };
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
    let Some(mut servers) = three() else { return };
    let client = client(&url(&servers)).await;
    let held = client.lock("k").ttl(secs(1)).await.unwrap();
    servers[0].kill();
    tokio::time::sleep(secs(3)).await;
    assert!(held.is_held(), "renewed on the other two");
    servers[1].kill();
    eventually("lost at the end of its lease", async || !held.is_held()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quorum_must_be_told_to_trust_empty_servers() {
    let error = Client::connect("redlock://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3").await.unwrap_err();
    assert!(matches!(&error, Error::Config(_)) && error.to_string().contains("trust_empty=true"), "{error}");
}
