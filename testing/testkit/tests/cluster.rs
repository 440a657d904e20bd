//! Starts real clusters, and checks the functions that other tests rely on.
#![allow(missing_docs, clippy::unwrap_used)]

use fencelock_testkit::{ClusterNodes, RedisServer, Reply, redis_or_skip};
use std::time::Duration;

/// Sends a command to the owner of the key, which is the first argument.
fn at_owner(cluster: &ClusterNodes, words: &[&str]) -> Reply {
    cluster.nodes[cluster.owner_of(cluster.slot_of(words[1]))].command(words)
}

fn another_master(cluster: &ClusterNodes, than: usize) -> usize {
    cluster.masters().into_iter().find(|master| *master != than).unwrap()
}

/// Waits until the replicas have all writes to this key.
fn replicate(cluster: &ClusterNodes, key: &str) {
    let mut owner = cluster.nodes[cluster.owner_of(cluster.slot_of(key))].connect().unwrap();
    owner.command(&["SET", key, "replicated"]);
    assert_eq!(owner.command(&["WAIT", "1", "4000"]), Reply::Int(1));
}

fn error(reply: &Reply) -> &str {
    match reply {
        Reply::Error(why) => why.split(' ').next().unwrap(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_slot_on_its_way_has_its_keys_at_both_masters() {
    let Some(cluster) = ClusterNodes::start_or_skip(3, 0) else { return };
    let slot = cluster.slot_of("{tag}");
    for key in ["{tag}1", "{tag}2"] {
        at_owner(&cluster, &["SET", key, "v"]);
    }
    let source = cluster.owner_of(slot);
    let target = another_master(&cluster, source);
    cluster.begin_move(slot, target, 1).unwrap();
    assert_eq!(cluster.owner_of(slot), source);
    let node = &cluster.nodes[source];
    let mut errors: Vec<_> = ["{tag}1", "{tag}2"].map(|key| node.command(&["GET", key])).into();
    errors.retain(|reply| *reply != Reply::Text("v".into()));
    assert_eq!(errors.iter().map(error).collect::<Vec<_>>(), ["ASK"]);
    let mut client = cluster.nodes[target].connect().unwrap();
    client.command(&["ASKING"]);
    assert_eq!(error(&client.command(&["MGET", "{tag}1", "{tag}2"])), "TRYAGAIN");
    cluster.end_move(slot, target).unwrap();
    let both = at_owner(&cluster, &["MGET", "{tag}1", "{tag}2"]);
    assert_eq!((cluster.owner_of(slot), both), (target, Reply::Array(vec![Reply::Text("v".into()); 2])));
    cluster.wait_until_settled();
}

#[test]
fn a_master_that_is_cut_off_is_replaced_stops_to_serve_and_follows_when_it_is_back() {
    if redis_or_skip().is_none() {
        return;
    }
    let timeout = Duration::from_secs(2);
    let cluster = ClusterNodes::start_with_proxies(&RedisServer::options(), 3, 1, timeout).unwrap();
    replicate(&cluster, "k");
    let slot = cluster.slot_of("k");
    let master = cluster.owner_of(slot);
    let replica = cluster.replica_of(master).unwrap();
    cluster.cut_off(master);
    let mut node = cluster.nodes[master].connect().unwrap();
    // Clients reach it, and for a while it continues to write. What it writes then is lost.
    assert_eq!(node.command(&["SET", "k", "lost"]).text(), Some("OK"));
    assert_eq!(cluster.get_at(replica, "k").as_deref(), Some("replicated"));
    cluster.wait_for_another_than(master);
    assert_eq!(cluster.owner_of(slot), replica);
    let refusal = loop {
        let reply = node.command(&["SET", "k", "lost"]);
        if reply.text() != Some("OK") {
            break reply;
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    assert_eq!(error(&refusal), "CLUSTERDOWN");
    for _ in 0..20 {
        std::thread::sleep(timeout / 20);
        assert_eq!(error(&node.command(&["SET", "k", "lost"])), "CLUSTERDOWN", "it serves again, alone");
    }
    cluster.reconnect();
    cluster.wait_until_settled();
    assert_eq!((cluster.owner_of(slot), cluster.replica_of(replica)), (replica, Some(master)));
    assert_eq!(at_owner(&cluster, &["GET", "k"]), Reply::Text("replicated".into()));
}
