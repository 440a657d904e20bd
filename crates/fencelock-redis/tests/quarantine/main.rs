//! Real servers that lose their data: what they grant afterwards, and when.
#![allow(missing_docs, clippy::unwrap_used, clippy::tests_outside_test_module)]

use fencelock::backends::{Change, ConnectError, Redis, connect, init};
use fencelock_core::{Acquire, Backend, Claim, Fault, FencingToken, Mode, Release, Renew, Renewal, Ttl, Unknown};
use fencelock_testkit::{Proxy, RedisServer, Reply, redlock_url, servers_or_skip};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// For temporary failures on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(20);

fn alone(server: &RedisServer) -> String {
    format!("{}?quarantine=on&timeout=5000", server.url())
}

fn claim(key: &str) -> Claim {
    fencelock_testkit::claim(key, Ttl::default().get())
}

/// Tries until it holds the lock on a majority: a loaded machine may exceed the time limits of nodes.
async fn hold(backend: &dyn Backend, key: &str) -> Claim {
    hold_as(Mode::Exclusive, backend, key).await
}

async fn hold_as(mode: Mode, backend: &dyn Backend, key: &str) -> Claim {
    let begun = Instant::now();
    loop {
        let next = claim(key).with_mode(mode);
        match backend.acquire(&next).await.answer {
            Ok(Acquire::Granted { .. }) => return next,
            other => assert!(begun.elapsed() < PATIENCE, "{other:?}"),
        }
        sleep(Duration::from_millis(5)).await;
    }
}

async fn granted(backend: &dyn Backend, claim: &Claim) -> FencingToken {
    match backend.acquire(claim).await.answer {
        Ok(Acquire::Granted { tokens }) => tokens.last(),
        other => panic!("{other:?}"),
    }
}

/// Polls until the server replies again.
async fn answer(backend: &dyn Backend, key: &str) -> Result<Acquire, Unknown> {
    let begun = Instant::now();
    loop {
        match backend.acquire(&claim(key)).await.answer {
            Err(cause) if !cause.is_refusal() && begun.elapsed() < PATIENCE => {
                sleep(Duration::from_millis(5)).await;
            }
            answer => return answer,
        }
    }
}

async fn is_quarantined(backend: &dyn Backend, key: &str) -> bool {
    match answer(backend, key).await {
        Err(cause) => cause.is_quarantine() && cause.to_string().contains("s left"),
        Ok(_) => false,
    }
}

fn marker(server: &RedisServer, field: &str) -> String {
    server.command(&["HGET", "fencelock:node", field]).text().unwrap_or_default().to_owned()
}

/// Simulates that the time has passed.
fn end_quarantine(server: &RedisServer) {
    assert_eq!(server.command(&["HSET", "fencelock:node", "until", "1"]), Reply::Int(0));
}

async fn refusal(url: &str) -> Unknown {
    match connect(url).await {
        Err(ConnectError::Unknown(cause)) => cause,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_new_grants_nothing_before_its_quarantine_is_over() {
    let Some(servers) = servers_or_skip(1) else { return };
    let begun = Instant::now();
    // The minimum length of a quarantine, for any longest TTL.
    let redis = connect(&format!("{}&max_ttl=1000", alone(&servers[0]))).await.unwrap();
    let mut brief = claim("k");
    brief.ttl = Ttl::new(Duration::from_secs(1)).unwrap();
    while let Err(cause) = redis.acquire(&brief).await.answer {
        assert!(cause.is_quarantine(), "{cause}");
        assert!(begun.elapsed() < PATIENCE, "{cause}");
        sleep(Duration::from_millis(20)).await;
    }
    assert!(begun.elapsed() >= Duration::from_millis(4_010), "{:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn connected_clients_detect_a_server_that_was_restarted_empty() {
    let Some(mut servers) = servers_or_skip(1) else { return };
    init(&alone(&servers[0]), true).await.unwrap();
    let redis = connect(&alone(&servers[0])).await.unwrap();
    granted(&*redis, &claim("k")).await;
    servers[0].restart_empty().unwrap();
    assert!(is_quarantined(&*redis, "k").await);
    end_quarantine(&servers[0]);
    granted(&*redis, &claim("k")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_from_its_file_starts_a_quarantine_and_the_holder_continues() {
    if servers_or_skip(1).is_none() {
        return;
    }
    let options = RedisServer::options().args(["--appendonly", "yes", "--appendfsync", "always"]);
    let mut server = options.start().unwrap();
    let url = format!("{}?quarantine=on&timeout=5000", server.url());
    init(&url, true).await.unwrap();
    let redis = connect(&url).await.unwrap();
    let held = claim("k");
    granted(&*redis, &held).await;
    let epoch = marker(&server, "epoch");
    server.restart().unwrap();
    assert_eq!(marker(&server, "epoch"), epoch, "it came back with its data");
    assert!(is_quarantined(&*redis, "other").await);
    assert_ne!(marker(&server, "epoch"), epoch);
    let renewal = [Renewal::new(held.key.clone(), held.holder.id, held.ttl)];
    assert_eq!(redis.renew(&renewal).await, [Ok(Renew::Renewed { waiters: 0 })]);
    assert!(redis.inspect(&held.key).await.unwrap().is_some());
    assert_eq!(redis.release(&held.key, &held.holder.id).await, Ok(Release::Released));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_claim_detects_a_flush_and_a_lost_marker_also_without_cached_scripts() {
    let Some(servers) = servers_or_skip(1) else { return };
    let server = &servers[0];
    init(&alone(server), true).await.unwrap();
    let redis = connect(&alone(server)).await.unwrap();
    for forget in [&["FLUSHALL"][..], &["DEL", "fencelock:node"], &["HDEL", "fencelock:node", "until"]] {
        granted(&*redis, &claim("k")).await;
        server.command(forget);
        server.command(&["SCRIPT", "FLUSH"]);
        let refused = redis.acquire(&claim("j")).await.answer.unwrap_err();
        assert!(refused.is_quarantine() && refused.is_refusal(), "{forget:?}: {refused}");
        assert_eq!(server.command(&["EXISTS", "j"]), Reply::Int(0));
        end_quarantine(server);
        server.command(&["DEL", "k"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_list_of_nodes_or_another_longest_ttl_is_an_error() {
    let Some(servers) = servers_or_skip(4) else { return };
    let [a, b, c, d] = &servers[..] else { panic!() };
    let ours = redlock_url([a, b, c], "max_ttl=30000&trust_empty=true");
    let quorum = connect(&ours).await.unwrap();
    hold(&*quorum, "k").await;
    for (other, what) in [
        (redlock_url([a, d], "max_ttl=30000&trust_empty=true"), "it belongs to"),
        (redlock_url([a, b, c], "max_ttl=40000&trust_empty=true"), "its max_ttl= is 30 s"),
        (alone(a), "a standalone Redis server"),
    ] {
        let refused = refusal(&other).await;
        assert!(refused.is_permanent() && refused.to_string().contains(what), "{refused}");
    }
    // The order of the list does not matter.
    connect(&redlock_url([c, a, b], "max_ttl=30000")).await.unwrap();
    init(&redlock_url([a, b, d], "max_ttl=30000"), false).await.unwrap();
    let late = answer(&*quorum, "j").await.unwrap_err();
    assert!(late.is_permanent() && late.nodes().iter().all(|node| node.fault == Fault::Misconfigured), "{late}");
    let refused = refusal(&ours).await;
    assert!(refused.is_permanent() && refused.nodes().len() == 2, "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_error_for_missing_permissions_names_them() {
    if servers_or_skip(1).is_none() {
        return;
    }
    let user = ["--user", "app", "on", ">secret", "~*", "&*", "+@all", "-info"];
    let server = RedisServer::options().args(user).start().unwrap();
    let url = format!("redis://app:secret@127.0.0.1:{}?quarantine=on&timeout=5000", server.port());
    let refused = refusal(&url).await;
    assert_eq!(refused.nodes()[0].fault, Fault::Denied);
    assert!(refused.to_string().contains("allow INFO"), "{refused}");
    let redis = Redis::lazy(&url).unwrap();
    assert!(redis.acquire(&claim("k")).await.answer.unwrap_err().is_permanent(), "nothing is granted");
    assert!(matches!(init(&url, true).await, Err(ConnectError::Unknown(_))));
}

#[tokio::test(flavor = "multi_thread")]
async fn trust_applies_to_unknown_servers_and_does_not_end_a_quarantine() {
    let Some(servers) = servers_or_skip(2) else { return };
    let trusted = connect(&format!("{}&trust_empty=true", alone(&servers[0]))).await.unwrap();
    granted(&*trusted, &claim("k")).await;
    let listed = trusted.list().await.unwrap();
    assert_eq!(listed.iter().map(|held| held.key.as_str()).collect::<Vec<_>>(), ["k"], "and no marker");
    let careful = connect(&alone(&servers[1])).await.unwrap();
    assert!(is_quarantined(&*careful, "k").await);
    let late = connect(&format!("{}&trust_empty=true", alone(&servers[1]))).await.unwrap();
    assert!(is_quarantined(&*late, "k").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_longer_than_a_quarantine_is_neither_claimed_nor_renewed() {
    let Some(servers) = servers_or_skip(1) else { return };
    let redis = connect(&format!("{}&max_ttl=30000&trust_empty=true", alone(&servers[0]))).await.unwrap();
    assert_eq!(redis.capabilities().longest_ttl, Some(Duration::from_secs(30)));
    let held = claim("k");
    granted(&*redis, &held).await;
    let ttl = Ttl::new(Duration::from_millis(30_001)).unwrap();
    let mut long = claim("j");
    long.ttl = ttl;
    assert!(redis.acquire(&long).await.answer.unwrap_err().is_permanent());
    let renewal = [Renewal::new(held.key.clone(), held.holder.id, ttl)];
    assert!(redis.renew(&renewal).await.pop().unwrap().unwrap_err().is_permanent());
    assert_eq!(servers[0].command(&["EXISTS", "j"]), Reply::Int(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn init_again_changes_nothing_and_keeps_the_quarantine() {
    let Some(servers) = servers_or_skip(3) else { return };
    let short = redlock_url(&servers, "max_ttl=1000");
    let first = init(&short, false).await.unwrap();
    assert!(first.iter().all(|node| node.change == Change::New && !node.ready_in.is_zero()), "{first:?}");
    let until = marker(&servers[0], "until");
    let again = init(&short, false).await.unwrap();
    assert!(again.iter().all(|node| node.change == Change::None), "{again:?}");
    assert_eq!(marker(&servers[0], "until"), until);
    // The lost locks may have been granted with the longer limit.
    let long = init(&redlock_url(&servers, ""), false).await.unwrap();
    assert!(
        long.iter().all(|node| node.change == Change::Moved && node.ready_in > Duration::from_secs(30)),
        "{long:?}"
    );
    let grown = marker(&servers[0], "until").parse::<u64>().unwrap() - until.parse::<u64>().unwrap();
    assert_eq!(grown, 60_612 - 4_010);
    let trusted = init(&redlock_url(&servers, ""), true).await.unwrap();
    assert!(trusted.iter().all(|node| node.ready_in.is_zero()), "{trusted:?}");
    hold(&*connect(&redlock_url(&servers, "")).await.unwrap(), "k").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn init_waits_longer_for_a_server_than_a_lock_does() {
    let Some(servers) = servers_or_skip(1) else { return };
    let proxy = Proxy::to(servers[0].port()).unwrap();
    proxy.delay(Duration::ZERO, Duration::from_millis(300));
    let url = format!("{}?quarantine=on&timeout=100", proxy.url());
    let unknown = connect(&url).await.unwrap_err();
    assert!(matches!(&unknown, ConnectError::Unknown(cause) if cause.nodes()[0].fault == Fault::Timeout), "{unknown}");
    assert_eq!(init(&url, true).await.unwrap()[0].change, Change::New);
}

#[tokio::test(flavor = "multi_thread")]
async fn init_writes_nothing_unless_all_servers_reply() {
    let Some(mut servers) = servers_or_skip(3) else { return };
    servers[2].kill();
    let Err(ConnectError::Unknown(cause)) = init(&redlock_url(&servers, ""), true).await else { panic!() };
    assert_eq!(cause.nodes().len(), 1, "{cause}");
    assert_eq!(servers[0].command(&["DBSIZE"]), Reply::Int(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quorum_in_quarantine_names_every_node_and_how_long() {
    let Some(servers) = servers_or_skip(3) else { return };
    let quorum = connect(&redlock_url(&servers, "")).await.unwrap();
    let begun = Instant::now();
    let mut refused = answer(&*quorum, "k").await.unwrap_err();
    // The result does not wait for a slow node.
    while refused.nodes().len() < 3 && begun.elapsed() < PATIENCE {
        refused = answer(&*quorum, "k").await.unwrap_err();
    }
    assert!(refused.is_refusal() && !refused.is_permanent(), "{refused}");
    assert_eq!(refused.nodes().iter().filter(|node| node.passes_in.is_some()).count(), 3, "{refused}");
    assert_eq!(refused.to_string().matches("s left").count(), 1, "{refused}");
}
