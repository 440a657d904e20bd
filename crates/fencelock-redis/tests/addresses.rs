//! Addresses of a server other than a host with one IPv4 address.
#![allow(missing_docs, clippy::unwrap_used, clippy::tests_outside_test_module)]

use fencelock::backends::connect;
use fencelock_core::{Acquire, Backend, Release};
use fencelock_testkit::{Proxy, RedisServer, claim, redis_or_skip, release_surely, say_skipped, start_or_skip};
use std::net::{Ipv6Addr, TcpListener};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

async fn locks_and_releases(backend: &Arc<dyn Backend>) {
    let claim = claim("k", Duration::from_secs(10));
    let answer = backend.acquire(&claim).await.answer;
    assert!(matches!(answer, Ok(Acquire::Granted { .. })), "{answer:?}");
    assert!(matches!(backend.release(&claim.key, &claim.holder.id).await, Ok(Release::Released)));
}

#[tokio::test]
async fn a_unix_socket() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("redis.sock");
    let file = socket.to_str().unwrap();
    let Some(server) = start_or_skip(RedisServer::options().args(["--unixsocket", file])) else { return };
    let url = format!("redis+unix://{file}");
    for options in ["", "?protocol=resp2", "?quarantine=on&trust_empty=true"] {
        let backend = connect(&format!("{url}{options}")).await.unwrap();
        assert_eq!(backend.name(), url);
        locks_and_releases(&backend).await;
    }
    let backend = connect(&format!("{url}?db=3")).await.unwrap();
    locks_and_releases(&backend).await;
    assert!(server.command(&["INFO", "keyspace"]).text().unwrap().contains("db3:keys="));
    server.command(&["CONFIG", "SET", "requirepass", "s3cret"]);
    assert!(connect(&url).await.is_err());
    locks_and_releases(&connect(&format!("redis+unix://:s3cret@{file}")).await.unwrap()).await;
    assert!(connect(&format!("redis+unix://{file}.missing")).await.is_err());
}

#[tokio::test]
async fn an_address_of_ipv6() {
    if TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_err() {
        say_skipped("an_ipv6_address: this machine has no IPv6");
        return;
    }
    let Some(server) = start_or_skip(RedisServer::options().args(["--bind", "127.0.0.1", "::1"])) else { return };
    let backend = connect(&format!("redis://[::1]:{}", server.port())).await.unwrap();
    locks_and_releases(&backend).await;
}

/// `localhost` has an IPv4 and an IPv6 address, and the server listens only on the first.
#[tokio::test]
async fn a_name_with_several_addresses() {
    let Some(server) = redis_or_skip() else { return };
    locks_and_releases(&connect(&format!("redis://localhost:{}", server.port())).await.unwrap()).await;
}

/// Load balancers close old or idle connections.
#[tokio::test]
async fn connections_that_are_closed_repeatedly() {
    let Some(server) = redis_or_skip() else { return };
    let proxy = Proxy::to(server.port()).unwrap();
    let backend = connect(&proxy.url()).await.unwrap();
    for _ in 0..20 {
        proxy.cut();
        proxy.forward();
        let claim = claim("k", Duration::from_secs(10));
        let mut last = None;
        for _ in 0..100 {
            last = Some(backend.acquire(&claim).await.answer);
            if matches!(last, Some(Ok(Acquire::Granted { .. }))) {
                break;
            }
            sleep(Duration::from_millis(10)).await;
        }
        assert!(matches!(last, Some(Ok(Acquire::Granted { .. }))), "{last:?}");
        release_surely(&backend, &claim).await;
    }
}
