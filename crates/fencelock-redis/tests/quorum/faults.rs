//! A quorum of real servers that freeze, lose their scripts or reject them, and rounds that are released.

use fencelock::backends::{Redis, connect, init};
use fencelock_conformance::EventRecorder;
use fencelock_core::{Acquire, Backend, Claim, Event, Intent, Release};
use fencelock_testkit::{RedisServer, redlock_url, servers_or_skip};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Longer than any step takes. No test passes because this time has elapsed.
const NEVER: Duration = Duration::from_secs(10);

fn url(servers: &[RedisServer]) -> String {
    redlock_url(servers, "trust_empty=true")
}

fn claim(key: &str) -> Claim {
    fencelock_testkit::claim(key, Duration::from_secs(10))
}

async fn grants(quorum: &dyn Backend, claim: &Claim) {
    let answer = quorum.acquire(claim).await.answer;
    assert!(matches!(answer, Ok(Acquire::Granted { .. })), "{answer:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_servers_are_waited_for_as_long_as_the_url_says() {
    let Some(servers) = servers_or_skip(3) else { return };
    let url = redlock_url(&servers, "trust_empty=true&node_timeout=30000");
    init(&url, true).await.unwrap();
    let quorum = connect(&url).await.unwrap();
    servers[1..].iter().for_each(RedisServer::freeze);
    let key = fencelock_testkit::claim("k", Duration::from_secs(60));
    let thawed = async {
        // Longer than the default timeout of a request to one server.
        sleep(Duration::from_millis(1500)).await;
        servers[1..].iter().for_each(RedisServer::thaw);
    };
    tokio::join!(grants(&*quorum, &key), thawed);
}

fn tracks_a_key(server: &RedisServer) -> bool {
    server.command(&["INFO", "stats"]).text().is_some_and(|info| !info.contains("tracking_total_keys:0\r"))
}

/// Whether the nodes report a change within `patience`.
async fn is_notified(recorder: &EventRecorder, patience: Duration) -> bool {
    recorder.wait_for(patience, |event| matches!(event, Event::Changed { .. }).then_some(())).await.is_some()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_round_that_another_process_releases_wakes_a_waiter() {
    let Some(servers) = servers_or_skip(3) else { return };
    let quorum = connect(&url(&servers)).await.unwrap();
    let recorder = EventRecorder::listening_to(&*quorum);
    let failing = claim("k");
    let mut votes = Vec::new();
    for server in &servers[..2] {
        let node = Redis::open(&format!("{}?timeout=5000", server.url())).await.unwrap();
        grants(&node, &failing).await;
        votes.push(node);
    }
    assert!(!servers.iter().any(tracks_a_key));
    assert!(matches!(quorum.acquire(&claim("k").with_intent(Intent::Enqueue)).await.answer, Ok(Acquire::Busy(_))));
    // The servers are queried in the background.
    let begun = Instant::now();
    while !servers[..2].iter().all(tracks_a_key) {
        assert!(begun.elapsed() < NEVER, "nothing is tracked");
        sleep(Duration::from_millis(5)).await;
    }
    assert!(!is_notified(&recorder, Duration::ZERO).await, "nothing has changed yet");
    for node in &votes {
        assert_eq!(node.release(&failing.key, &failing.holder.id).await, Ok(Release::Released));
    }
    assert!(is_notified(&recorder, NEVER).await, "the servers notify, not a timer");
}
