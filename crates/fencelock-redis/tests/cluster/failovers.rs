use crate::kit::{PATIENT, backend, granted, held, poll, queued, release, renew, tokens, waiting};
use fencelock::backends::connect;
use fencelock_core::{Intent, Mode, Renew};
use fencelock_testkit::{ClusterNodes, Reply};
use std::sync::Arc;
use std::time::Duration;

/// Waits until the replica of this key's node has all writes.
fn replicate(cluster: &ClusterNodes, key: &str) -> usize {
    let owner = cluster.owner_of(cluster.slot_of(key));
    let mut connection = cluster.nodes[owner].connect().unwrap();
    connection.command(&["SET", &format!("{{{key}}}replicated"), "1"]);
    assert_eq!(connection.command(&["WAIT", "1", "30000"]), Reply::Int(1));
    owner
}

#[tokio::test(flavor = "multi_thread")]
async fn a_promoted_replica_continues_the_queue() {
    let Some(cluster) = ClusterNodes::start_or_skip(3, 1) else { return };
    let (one, other) = (backend(&cluster).await, backend(&cluster).await);
    let (first, second, third) = (held("k", Mode::Exclusive), waiting("k"), waiting("k"));
    granted(&one, &first).await;
    queued(&one, &second, 0).await;
    queued(&other, &third, 1).await;
    let owner = replicate(&cluster, "k");
    let cluster = Arc::new(cluster);
    let failed_over = tokio::task::spawn_blocking({
        let cluster = Arc::clone(&cluster);
        move || cluster.fail_over(cluster.replica_of(owner).unwrap())
    });
    // Waiters expire after three seconds without a poll, and a failover may take longer.
    while !failed_over.is_finished() {
        for (backend, waiter) in [(&one, &second), (&other, &third)] {
            let _ = backend.acquire(&waiter.with_intent(Intent::Poll)).await.answer;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    failed_over.await.unwrap();
    assert!(matches!(renew(&one, &first).await, Ok(Renew::Renewed { .. })));
    release(&other, &first).await;
    tokens(&poll(&one, &second).await);
    release(&one, &second).await;
    tokens(&poll(&other, &third).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_master_is_replaced() {
    let Some(mut cluster) = ClusterNodes::start_or_skip(3, 1) else { return };
    let backend = backend(&cluster).await;
    let first = held("k", Mode::Exclusive);
    granted(&backend, &first).await;
    let owner = replicate(&cluster, "k");
    cluster.nodes[owner].kill();
    let begun = tokio::time::Instant::now();
    granted(&backend, &held("{k}2", Mode::Exclusive)).await;
    println!("{:?} from the end of the master to a grant of its replica", begun.elapsed());
    assert!(matches!(renew(&backend, &first).await, Ok(Renew::Renewed { .. })));
    // The restarted master is a replica.
    cluster.nodes[owner].restart().unwrap();
    cluster.wait_until_settled();
    release(&backend, &first).await;
    granted(&connect(&cluster.url(PATIENT)).await.unwrap(), &held("k", Mode::Exclusive)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_counts_when_the_replica_has_it() {
    let Some(cluster) = ClusterNodes::start_or_skip(3, 1) else { return };
    let backend = connect(&cluster.url("acks=1&timeout=5000")).await.unwrap();
    for number in 0..20 {
        let key = format!("k{number}");
        let claim = held(&key, Mode::Exclusive);
        granted(&backend, &claim).await;
        let owner = cluster.owner_of(cluster.slot_of(&key));
        let copy = cluster.get_at(cluster.replica_of(owner).unwrap(), &key);
        assert!(copy.is_some(), "{key}");
        assert!(matches!(renew(&backend, &claim).await, Ok(Renew::Renewed { .. })));
        release(&backend, &claim).await;
    }
}
