//! A node that loses its vote, with and without a quarantine.

use super::{answer, hold_as, marker};
use fencelock::backends::{Quorum, Redis, connect, init};
use fencelock_core::{Acquire, Backend, Claim, Level, Mode, Unknown};
use fencelock_testkit::{RedisServer, Reply, redlock_url, servers_or_skip};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// `a` acquires the lock in this mode on the first two of three nodes, and the second node loses it. Then the writer `b` tries
/// for `patience`.
async fn forget_a_vote(
    mode: Mode,
    servers: &mut [RedisServer],
    backend: &dyn Backend,
    patience: Duration,
) -> (Claim, Result<Acquire, Unknown>) {
    servers[2].command(&["SET", "k", "another program"]);
    let held = hold_as(mode, backend, "k").await;
    servers[2].command(&["DEL", "k"]);
    servers[1].restart_empty().unwrap();
    // Two nodes decide, so the claim may reach the third node later. This test prevents that.
    let unreached = "if redis.call('GET', KEYS[1]) == ARGV[1] or redis.call('HEXISTS', KEYS[2], ARGV[2]) == 1 then \
        redis.call('DEL', KEYS[1], KEYS[2]) end return 1";
    let (value, id) = (held.holder.wire().to_string(), held.holder.id.to_string());
    // The quorum may leave the node out for a moment after its restart.
    let begun = Instant::now();
    loop {
        let words = ["EVAL", unreached, "2", "k", "fencelock:{k}:held", &value, &id];
        assert_eq!(servers[2].command(&words), Reply::Int(1));
        let last = answer(backend, "k").await;
        if matches!(last, Ok(Acquire::Granted { .. })) || begun.elapsed() > patience {
            return (held, last);
        }
        sleep(Duration::from_millis(50)).await;
    }
}

async fn a_lost_vote_admits_no_second_holder(mode: Mode) {
    let Some(mut servers) = servers_or_skip(3) else { return };
    let url = redlock_url(&servers, "");
    init(&url, true).await.unwrap();
    let quorum = connect(&url).await.unwrap();
    let (held, second) = forget_a_vote(mode, &mut servers, &*quorum, Duration::from_secs(2)).await;
    assert!(!matches!(second, Ok(Acquire::Granted { .. })), "{second:?}");
    assert_ne!(marker(&servers[1], "until"), "", "a client has started its quarantine");
    let _ = quorum.release(&held.key, &held.holder.id).await;
    for _ in 0..50 {
        let next = hold_as(mode, &*quorum, "j").await;
        let _ = quorum.release(&next.key, &next.holder.id).await;
    }
    assert_eq!(
        servers[1].command(&["EXISTS", "fencelock:{j}:fence"]),
        Reply::Int(0),
        "only the other two nodes have granted"
    );
    let findings = quorum.diagnose().await.findings;
    let kept_out =
        |finding: &&fencelock_core::Finding| finding.subject == "quarantine" && finding.level == Level::Warning;
    assert_eq!(findings.iter().filter(kept_out).count(), 1, "{findings:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_lost_its_vote_admits_no_second_holder() {
    a_lost_vote_admits_no_second_holder(Mode::Exclusive).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_lost_a_reader_admits_no_writer() {
    a_lost_vote_admits_no_second_holder(Mode::Shared).await;
}

async fn two_hold_without_a_quarantine(mode: Mode) {
    let Some(mut servers) = servers_or_skip(3) else { return };
    let mut nodes: Vec<Arc<dyn Backend>> = Vec::new();
    for server in &servers {
        nodes.push(Arc::new(Redis::open(&format!("{}?timeout=5000", server.url())).await.unwrap()));
    }
    let quorum = Quorum::trusting_empty(nodes).unwrap().node_timeout(Duration::from_secs(5)).unwrap();
    let (held, second) = forget_a_vote(mode, &mut servers, &quorum, Duration::from_secs(20)).await;
    assert!(matches!(second, Ok(Acquire::Granted { .. })), "{second:?}");
    let id = held.holder.id.to_string();
    let first = match mode {
        Mode::Shared => servers[0].command(&["HEXISTS", "fencelock:{k}:held", &id]) == Reply::Int(1),
        _ => servers[0].command(&["GET", "k"]).text().unwrap().starts_with(&id),
    };
    assert!(first, "the first also holds the lock");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_quarantine_the_same_sequence_has_two_holders() {
    two_hold_without_a_quarantine(Mode::Exclusive).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_quarantine_the_same_sequence_has_a_reader_and_a_writer() {
    two_hold_without_a_quarantine(Mode::Shared).await;
}
