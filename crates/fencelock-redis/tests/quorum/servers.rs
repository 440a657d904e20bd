//! A quorum of real servers: how it connects.

use fencelock::backends::{ConnectError, connect, init};
use fencelock_core::{Acquire, Claim, Level, Release};
use fencelock_testkit::{RedisServer, Reply, redis_or_skip, redlock_url, servers_or_skip};
use std::time::Duration;

fn url(servers: &[RedisServer]) -> String {
    redlock_url(servers, "trust_empty=true")
}

fn claim(key: &str) -> Claim {
    fencelock_testkit::claim(key, Duration::from_secs(2))
}

fn is_free(server: &RedisServer, key: &str) -> bool {
    server.command(&["EXISTS", key]) == Reply::Int(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn one_server_under_two_names_is_refused() {
    let Some(servers) = servers_or_skip(3) else { return };
    let port = servers[0].url().rsplit_once(':').unwrap().1.to_owned();
    let url = format!("redlock://127.0.0.1:{port},localhost:{port}?trust_empty=true");
    let refused = connect(&url).await.unwrap_err();
    assert!(matches!(&refused, ConnectError::Url(why) if why.to_string().contains("same server")), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn it_connects_with_one_server_unavailable_and_diagnose_reports_it() {
    let Some(mut servers) = servers_or_skip(3) else { return };
    // The servers of a new list are not claimed before all of them reply.
    init(&url(&servers), true).await.unwrap();
    servers[2].kill();
    let quorum = connect(&url(&servers)).await.unwrap();
    let claim = claim("k");
    assert!(matches!(quorum.acquire(&claim).await.answer, Ok(Acquire::Granted { .. })));
    let findings = quorum.diagnose().await.findings;
    let nodes = findings.iter().find(|finding| finding.subject == "quorum").unwrap();
    assert_eq!((nodes.level, nodes.text.as_str()), (Level::Warning, "2 of 3 nodes answer"));
    assert!(findings.iter().any(|finding| finding.level == Level::Failure
        && finding.text.starts_with(&format!("127.0.0.1:{}: ", servers[2].port()))));
}

#[tokio::test(flavor = "multi_thread")]
async fn with_two_of_three_unavailable_it_does_not_connect_and_names_both() {
    let Some(mut servers) = servers_or_skip(3) else { return };
    let url = url(&servers);
    servers[1].kill();
    servers[2].kill();
    match connect(&url).await {
        Err(ConnectError::Unknown(unknown)) => assert_eq!(unknown.nodes().len(), 2, "{unknown}"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_are_reached_over_tls_if_the_url_requires_it() {
    let Some(plain) = redis_or_skip() else { return };
    let servers: Vec<_> = (0..3).map(|_| RedisServer::tls().unwrap()).collect();
    // Each of these servers has its own certificate authority.
    let dir = tempfile::tempdir().unwrap();
    let ca = dir.path().join("all.pem");
    let certificates: String =
        servers.iter().map(|server| std::fs::read_to_string(&server.tls_files().ca).unwrap()).collect();
    std::fs::write(&ca, certificates).unwrap();
    let hosts: Vec<_> = servers.iter().map(|server| server.tls_url().replace("rediss://", "")).collect();
    let url = format!("redlock+tls://{}?trust_empty=true", hosts.join(","));
    let trusting = format!("{url}&ca={}", ca.display());
    init(&trusting, true).await.unwrap();
    let quorum = connect(&trusting).await.unwrap();
    assert_eq!(quorum.name(), format!("redlock+tls://{}", hosts.join(",")));
    let claim = claim("k");
    assert!(matches!(quorum.acquire(&claim).await.answer, Ok(Acquire::Granted { .. })));
    assert!(servers.iter().filter(|server| !is_free(server, "k")).count() >= 2, "the lock is on these servers");
    assert_eq!(quorum.release(&claim.key, &claim.holder.id).await, Ok(Release::Released));
    assert!(quorum.diagnose().await.findings.iter().all(|finding| finding.level < Level::Failure));
    let unknown = |answer| match answer {
        Err(ConnectError::Unknown(unknown)) => unknown,
        other => panic!("{other:?}"),
    };
    assert_eq!(unknown(connect(&url).await).nodes().len(), 3, "unknown certificates are not trusted");
    let without_tls = format!("redlock+tls://127.0.0.1:{}?trust_empty=true", plain.port());
    assert_eq!(unknown(connect(&without_tls).await).nodes().len(), 1, "there is no fallback");
}
