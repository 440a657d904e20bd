use crate::kit::{PATIENCE, backend, granted, held, poll, queued, release, tokens, waiting};
use fencelock::backends::{ConnectError, connect};
use fencelock_core::{Backend, Fault, Mode, Unknown};
use fencelock_testkit::{ClusterNodes, RedisServer, redis_or_skip};
use std::sync::Arc;

async fn refused(url: &str) -> Unknown {
    match connect(url).await {
        Err(ConnectError::Unknown(unknown)) => unknown,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_lock_is_on_the_node_of_its_slot() {
    let Some(cluster) = ClusterNodes::start_or_skip(3, 0) else { return };
    // One node returns the others.
    let backend = connect(&format!("redis+cluster://127.0.0.1:{}", cluster.nodes[1].port())).await.unwrap();
    for key in ["a", "b", "c", "}{", "{tag}x", "x{tag}", "锁"] {
        let claim = held(key, Mode::Exclusive);
        granted(&backend, &claim).await;
        let owner = &cluster.nodes[cluster.owner_of(cluster.slot_of(key))];
        assert!(owner.command(&["GET", key]).text().is_some(), "{key}");
        release(&backend, &claim).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_of_the_url_may_be_unavailable() {
    let Some(mut cluster) = ClusterNodes::start_or_skip(3, 1) else { return };
    let away = RedisServer::start().unwrap();
    let dead = away.port();
    drop(away);
    let url = format!("redis+cluster://127.0.0.1:{dead},127.0.0.1:{}", cluster.nodes[3].port());
    let backend = connect(&url).await.unwrap();
    granted(&backend, &held("a", Mode::Exclusive)).await;
    // No node in the URL is left. The client has learned the others from the map.
    cluster.nodes[3].kill();
    for key in ["b", "c", "d", "e"] {
        granted(&backend, &held(key, Mode::Exclusive)).await;
    }
    refresh_works(&backend, &mut cluster).await;
}

/// A master fails after that.
async fn refresh_works(backend: &Arc<dyn Backend>, cluster: &mut ClusterNodes) {
    let master =
        cluster.masters().into_iter().find(|master| cluster.replica_of(*master).is_some_and(|r| r != 3)).unwrap();
    cluster.nodes[master].kill();
    for key in ["f", "g", "h", "i", "j", "k", "l", "m"] {
        granted(backend, &held(key, Mode::Exclusive)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_no_node_of_a_cluster_is_identified() {
    let Some(server) = redis_or_skip() else { return };
    let unknown = refused(&format!("redis+cluster://127.0.0.1:{}", server.port())).await;
    assert_eq!(unknown.nodes()[0].fault, Fault::Unsupported);
    assert!(unknown.to_string().contains(&format!("use redis://127.0.0.1:{}", server.port())), "{unknown}");
    assert!(unknown.is_permanent());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_password_is_reported_once_for_each_node() {
    let Some(cluster) = ClusterNodes::start_or_skip(2, 0) else { return };
    for node in &cluster.nodes {
        node.command(&["CONFIG", "SET", "requirepass", "right"]);
    }
    let url = cluster.url("");
    let unknown = refused(&url.replace("://", "://:wrong@")).await;
    assert!(unknown.nodes().iter().all(|node| node.fault == Fault::Denied), "{unknown}");
    assert!(unknown.is_permanent() && !unknown.to_string().contains("wrong"), "{unknown}");
    let backend = connect(&url.replace("://", "://:right@")).await.unwrap();
    granted(&backend, &held("k", Mode::Exclusive)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_right_to_cluster_slots_is_reported() {
    let Some(cluster) = ClusterNodes::start_or_skip(2, 0) else { return };
    for node in &cluster.nodes {
        node.command(&["ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all", "-cluster"]);
    }
    let unknown = refused(&cluster.url("").replace("://", "://app:pw@")).await;
    assert!(unknown.to_string().contains("allow this user CLUSTER SLOTS"), "{unknown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_reports_each_master_and_slots_without_one() {
    let Some(cluster) = ClusterNodes::start_or_skip(3, 0) else { return };
    let backend = backend(&cluster).await;
    let failures = |findings: &[fencelock_core::Finding]| {
        findings
            .iter()
            .filter(|f| f.level == fencelock_core::Level::Failure)
            .map(|f| f.text.clone())
            .collect::<Vec<_>>()
    };
    let report = backend.diagnose().await;
    assert_eq!(failures(&report.findings), [""; 0]);
    assert!(report.findings[0].text.contains("3 masters serve all 16384 hash slots"), "{report:?}");
    assert_eq!(report.servers.len(), 3, "{report:?}");
    for server in &report.servers {
        assert_eq!(server.topology, fencelock_core::Topology::ClusterNode, "{report:?}");
        let lacking: Vec<_> = server.features.iter().filter(|f| !f.works).map(|f| f.name).collect();
        assert_eq!(lacking, ["quarantine"], "{report:?}");
    }
    for node in &cluster.nodes {
        node.command(&["CONFIG", "SET", "cluster-require-full-coverage", "no"]);
    }
    let owner = cluster.owner_of(100);
    for node in &cluster.nodes {
        node.command(&["CLUSTER", "DELSLOTS", "100"]);
    }
    let begun = tokio::time::Instant::now();
    loop {
        let findings = backend.diagnose().await.findings;
        if failures(&findings).first().is_some_and(|text| text.contains("16383 of 16384")) {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{owner}: {findings:?}");
    }
}

/// A node that was removed from the cluster and still runs.
#[tokio::test(flavor = "multi_thread")]
async fn the_map_of_a_node_that_serves_nothing_is_ignored() {
    let Some(mut cluster) = ClusterNodes::start_or_skip(3, 1) else { return };
    let lonely = RedisServer::options().args(["--cluster-enabled", "yes"]).start().unwrap();
    let port = cluster.nodes[0].port();
    let url = format!("redis+cluster://127.0.0.1:{},127.0.0.1:{port}", lonely.port());
    let backend = connect(&url).await.unwrap();
    granted(&backend, &held("a", Mode::Exclusive)).await;
    // For some time, the remaining nodes report that the cluster is down.
    cluster.nodes[0].kill();
    for key in ["b", "c", "d", "e", "f", "g"] {
        granted(&backend, &held(key, Mode::Exclusive)).await;
    }
    let alone = connect(&format!("redis+cluster://127.0.0.1:{}", lonely.port())).await;
    let Err(ConnectError::Unknown(unknown)) = alone else { panic!("{alone:?}") };
    assert!(unknown.to_string().contains("serve no slots"), "{unknown}");
}

/// Each node of the kit has its own certificate authority, so there is only one node.
#[tokio::test(flavor = "multi_thread")]
async fn nodes_are_used_over_tls() {
    // Otherwise nodes announce their ports without TLS.
    let options = RedisServer::options().tls().args(["--tls-cluster", "yes"]);
    let Some(cluster) = ClusterNodes::start_with_or_skip(&options, 1, 0) else { return };
    let node = &cluster.nodes[0];
    let tls = node.tls_url().replace("rediss://", "rediss+cluster://");
    let backend = connect(&format!("{tls}?ca={}", node.tls_files().ca.display())).await.unwrap();
    assert_eq!(backend.name(), tls);
    // The node announces its TLS port, which rejects clients without TLS.
    let (first, waiter) = (held("k", Mode::Exclusive), waiting("k"));
    granted(&backend, &first).await;
    queued(&backend, &waiter, 0).await;
    release(&backend, &first).await;
    tokens(&poll(&backend, &waiter).await);
    assert!(connect(&tls).await.unwrap_err().to_string().contains("certificate is not trusted"));
    let plain = connect(&tls.replace("rediss", "redis")).await.unwrap_err().to_string();
    assert!(plain.contains("uses TLS"), "{plain}");
}
