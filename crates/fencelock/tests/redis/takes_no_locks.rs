//! Servers that answer but take no locks, permanently or for a while.

use crate::common::{eventually, ms, secs};
use crate::support::{calls, client, command, server, server_with, text};
use fencelock::{Client, Error, Fault};
use fencelock_testkit::{RedisServer, Reply};
use std::io::{Read, Write};
use std::net::TcpListener;
use tokio::time::Instant;

const WAITERS: usize = 40;

/// Forty wait for a free key of a server that takes no writes, until it does again.
async fn forty_wait(server: &RedisServer, fault: Fault, refuse: impl AsyncFnOnce(), heal: impl FnOnce()) {
    let client = client(&server.url()).await;
    let lock = client.lock("k").ttl(secs(60));
    lock.clone().await.unwrap().release().await.unwrap();
    refuse().await;
    let Err(Error::Unreachable { cause, .. }) = lock.clone().try_acquire().await else { panic!("{fault:?}") };
    assert_eq!(cause.nodes()[0].fault, fault, "{cause}");
    assert!(!cause.to_string().contains("user_script"), "{cause}");
    let before = calls(server, "evalsha");
    let begun = Instant::now();
    let take = async |lock: fencelock::Lock| lock.acquire().await?.release().await;
    let waiting: Vec<_> = (0..WAITERS).map(|_| tokio::spawn(take(lock.clone()))).collect();
    tokio::time::sleep(secs(3)).await;
    let claims = calls(server, "evalsha") - before;
    // A dozen claims until the pauses are at their longest, which is a quarter of a second; each new connection sends a claim at
    // once.
    let rounds = 12 + begun.elapsed().as_millis() / 225 + begun.elapsed().as_millis() / 500 + 2;
    assert!(claims < WAITERS * usize::try_from(rounds).unwrap(), "{fault:?}: {claims} claims in {:?}", begun.elapsed());
    heal();
    for waiting in waiting {
        tokio::time::timeout(secs(30), waiting).await.expect("served").unwrap().unwrap();
    }
}

#[tokio::test]
async fn waiters_for_a_full_server_back_off() {
    let Some(server) = server() else { return };
    let memory = |limit| drop(command(&server, &["CONFIG", "SET", "maxmemory", limit]));
    command(&server, &["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    forty_wait(&server, Fault::Full, async || memory("1"), || memory("0")).await;
}

#[tokio::test]
async fn waiters_for_a_replica_back_off() {
    let Some(server) = server() else { return };
    // A master that does not exist: the data stay, and writes are refused.
    let follow = |host, port| drop(command(&server, &["REPLICAOF", host, port]));
    forty_wait(&server, Fault::ReadOnly, async || follow("127.0.0.1", "1"), || follow("NO", "ONE")).await;
}

/// What connecting and taking a lock say at once, and never again.
async fn refused_for_good(url: &str) -> String {
    let begun = Instant::now();
    let taken = async {
        let client = Client::connect(url).await?;
        client.lock("k").acquire().await
    };
    let taken = tokio::time::timeout(secs(20), taken).await.expect("no use in waiting");
    let Err(Error::Config(invalid)) = taken else { panic!("{url}: {taken:?}") };
    let text = invalid.to_string();
    assert!(begun.elapsed() < secs(10), "{text}: {:?}", begun.elapsed());
    text
}

#[tokio::test]
async fn a_node_of_a_cluster_is_identified() {
    // The other node is missed after as long as this, and then there is no cluster.
    let cluster = ["--cluster-enabled", "yes", "--cluster-node-timeout", "600000"];
    let Some(server) = server_with(RedisServer::options().args(cluster)) else { return };
    // Every slot is said to be at another node, which need not be there.
    let (me, other) = ("7".repeat(40), "8".repeat(40));
    let file = format!(
        "{other} 127.0.0.1:1@2 master - 0 0 2 connected 0-16383\n{me} 127.0.0.1:{}@0 myself,master - 0 0 1 connected\nvars currentEpoch 2 lastVoteEpoch 0\n",
        server.port()
    );
    let server = restarted_with(server, &file);
    let state = || text(&server, &["CLUSTER", "INFO"]).unwrap();
    eventually("a cluster", async || state().contains("cluster_state:ok")).await;
    let right = format!("use redis+cluster://127.0.0.1:{}", server.port());
    for options in ["", "?protocol=resp2"] {
        let error = refused_for_good(&format!("{}{options}", server.url())).await;
        assert!(error.contains("Redis Cluster") && error.contains(&right), "{error}");
    }
    // For a user without the right to query the mode of the server, the first lock reports it.
    command(&server, &["ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all", "-info"]);
    let error = refused_for_good(&format!("redis://app:pw@127.0.0.1:{}", server.port())).await;
    assert!(error.contains("MOVED") && error.contains("use redis+cluster://"), "{error}");
}

/// The same server with another idea of the cluster that it is in.
fn restarted_with(mut server: RedisServer, nodes: &str) -> RedisServer {
    let Reply::Array(dir) = command(&server, &["CONFIG", "GET", "dir"]) else { panic!("a directory") };
    let file = std::path::Path::new(dir[1].text().unwrap()).join("nodes.conf");
    server.kill();
    std::fs::write(file, nodes).unwrap();
    server.restart().unwrap();
    server
}

#[tokio::test]
async fn a_database_that_is_not_there_is_identified() {
    let Some(server) = server() else { return };
    for options in ["", "?protocol=resp2"] {
        let error = refused_for_good(&format!("{}/99{options}", server.url())).await;
        assert!(error.contains("DB index is out of range") && error.contains("at the end of the URL"), "{error}");
    }
}

#[tokio::test]
async fn commands_that_scripts_may_not_use_are_named_with_the_remedy() {
    let Some(server) = server() else { return };
    command(&server, &["ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all"]);
    let url = format!("redis://app:pw@127.0.0.1:{}", server.port());
    for lack in ["set", "zadd", "get", "getrange", "zcard", "evalsha"] {
        command(&server, &["ACL", "SETUSER", "app", &format!("-{lack}")]);
        // A claim that only waits in the queue does not reach the command that it may not use.
        command(&server, &["SET", "k", "somebody", "PX", "60000"]);
        if lack == "set" || lack == "zcard" {
            command(&server, &["DEL", "k"]);
        }
        let error = refused_for_good(&url).await;
        assert!(error.contains("access denied") && !error.contains("user_script"), "{lack}: {error}");
        command(&server, &["ACL", "SETUSER", "app", &format!("+{lack}")]);
    }
    command(&server, &["ACL", "SETUSER", "app", "resetkeys", "~other:*", "~fencelock:*"]);
    assert!(refused_for_good(&url).await.contains("access denied"));
}

#[tokio::test]
async fn a_command_that_was_renamed_is_identified() {
    for command in ["SET", "EVALSHA"] {
        let Some(server) = server_with(RedisServer::options().args(["--rename-command", command, ""])) else { return };
        let error = refused_for_good(&server.url()).await;
        assert!(error.contains("cannot hold these locks") && error.to_lowercase().contains("unknown"), "{error}");
    }
}

#[tokio::test]
async fn a_port_that_speaks_something_else_is_identified() {
    let http = answers("HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n");
    for scheme in ["redis", "rediss"] {
        let error = refused_for_good(&format!("{scheme}://127.0.0.1:{http}")).await;
        assert!(error.contains("this is an HTTP server"), "{scheme}: {error}");
    }
    let ssh = answers("SSH-2.0-OpenSSH_9.2\r\n");
    let error = refused_for_good(&format!("redis://127.0.0.1:{ssh}")).await;
    assert!(error.contains("sends \"SSH-2.0-OpenSSH_9.2\""), "{error}");
}

/// A port with the same reply for every client.
fn answers(what: &'static str) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let _ = stream.set_read_timeout(Some(ms(500)));
                let _ = stream.read(&mut [0; 1024]);
                let _ = stream.write_all(what.as_bytes());
                let _ = stream.shutdown(std::net::Shutdown::Write);
                let _ = stream.read(&mut [0; 1024]);
            });
        }
    });
    port
}

#[tokio::test]
async fn a_port_without_tls_is_reported_to_a_client_with_it() {
    let Some(server) = server() else { return };
    let error = refused_for_good(&format!("rediss://127.0.0.1:{}", server.port())).await;
    assert!(error.contains("uses Redis without TLS: use redis://"), "{error}");
}

#[tokio::test]
async fn a_port_with_tls_is_reported_to_a_client_without_it() {
    let Some(server) = server_with(RedisServer::options().tls()) else { return };
    for options in ["", "?protocol=resp2"] {
        let error = refused_for_good(&format!("{}{options}", server.tls_url().replace("rediss", "redis"))).await;
        assert!(error.contains("uses TLS: use rediss://"), "{error}");
    }
}

#[tokio::test]
async fn an_outage_is_not_taken_for_another_protocol() {
    let Some(mut server) = server() else { return };
    let url = format!("{}?timeout=200", server.url());
    server.freeze();
    assert!(matches!(Client::connect(&url).await, Err(Error::Unreachable { .. })));
    let tls = url.replace("redis://", "rediss://");
    assert!(matches!(Client::connect(&tls).await, Err(Error::Unreachable { .. })));
    server.thaw();
    server.kill();
    for url in [url, tls] {
        assert!(matches!(Client::connect(&url).await, Err(Error::Unreachable { .. })));
    }
}

#[tokio::test]
async fn a_counter_at_its_maximum_is_reported_with_the_remedy() {
    let Some(server) = server() else { return };
    command(&server, &["SET", "fencelock:{k}:fence", "9007199254740991"]);
    let error = refused_for_good(&server.url()).await;
    assert!(error.contains("reached 2^53") && error.contains("fencelock:{KEY}:fence"), "{error}");
}

#[tokio::test]
async fn a_certificate_that_is_not_trusted_is_reported_with_the_remedy() {
    let Some(server) = server_with(RedisServer::options().tls()) else { return };
    let error = refused_for_good(&server.tls_url()).await;
    assert!(error.contains("its certificate is not trusted: UnknownIssuer; ca=FILE"), "{error}");
}
