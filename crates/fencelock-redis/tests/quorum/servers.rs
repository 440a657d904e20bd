//! A quorum of real servers, one of which is killed and restarted empty.

use fencelock::backends::{BootClock, ConnectError, connect, init};
use fencelock_core::{Acquire, Backend, Claim, Clock, FencingToken, Level, Moment, Release};
use fencelock_testkit::{RedisServer, Reply, redis_or_skip, redlock_url, servers_or_skip};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::sleep;

const GRANTS: usize = 200;
const CLIENTS: usize = 4;

fn url(servers: &[RedisServer]) -> String {
    redlock_url(servers, "trust_empty=true")
}

fn claim(key: &str) -> Claim {
    fencelock_testkit::claim(key, Duration::from_secs(2))
}

fn is_free(server: &RedisServer, key: &str) -> bool {
    server.command(&["EXISTS", key]) == Reply::Int(0)
}

/// A token, and the times when it was requested and received.
struct Grant {
    requested: Moment,
    known: Moment,
    token: FencingToken,
}

async fn contend(quorum: Arc<dyn Backend>, count: Arc<AtomicUsize>, done: Arc<AtomicBool>) -> Vec<Grant> {
    let mut grants = Vec::new();
    while !done.load(Ordering::SeqCst) {
        let (requested, claim) = (BootClock.now(), claim("k"));
        match quorum.acquire(&claim).await.answer {
            Ok(Acquire::Granted { tokens }) => {
                let fence = tokens.last();
                grants.push(Grant { requested, known: BootClock.now(), token: fence });
                count.fetch_add(1, Ordering::SeqCst);
                let _ = quorum.release(&claim.key, &claim.holder.id).await;
            }
            // Contention is expected, and so is an unknown result while a node stops.
            _ => sleep(Duration::from_micros(500 + requested.as_micros() % 4000)).await,
        }
    }
    grants
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_grow_over_200_contended_grants_while_a_node_dies_and_comes_back() {
    let Some(mut servers) = servers_or_skip(3) else { return };
    let (url, count, done) = (url(&servers), Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        let quorum = connect(&url).await.unwrap();
        clients.push(tokio::spawn(contend(quorum, Arc::clone(&count), Arc::clone(&done))));
    }
    let reached = async |grants| {
        while count.load(Ordering::SeqCst) < grants {
            sleep(Duration::from_millis(1)).await;
        }
    };
    let scenario = async {
        reached(GRANTS / 3).await;
        servers[1].kill();
        reached(GRANTS / 2).await;
        servers[1].restart_empty().unwrap();
        // Long enough for the clients to probe it.
        sleep(Duration::from_millis(500)).await;
        let since = count.load(Ordering::SeqCst);
        reached(GRANTS.max(since + GRANTS / 4)).await;
        assert_ne!(servers[1].command(&["DBSIZE"]), Reply::Int(0), "it participates again");
        done.store(true, Ordering::SeqCst);
        let mut grants = Vec::new();
        for client in clients {
            grants.extend(client.await.unwrap());
        }
        grants
    };
    let grants = tokio::time::timeout(Duration::from_secs(60), scenario).await.expect("200 grants");
    assert!(grants.len() >= GRANTS);
    for (n, a) in grants.iter().enumerate() {
        for b in &grants[n + 1..] {
            assert_ne!(a.token, b.token);
            assert!(
                a.known >= b.requested || a.token < b.token,
                "{} was known before {} was requested",
                a.token,
                b.token
            );
            assert!(
                b.known >= a.requested || b.token < a.token,
                "{} was known before {} was requested",
                b.token,
                a.token
            );
        }
    }
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
