use crate::kit::{PATIENCE, PATIENT, backend, elsewhere, granted, held, poll, queued, release, tokens, waiting};
use fencelock::backends::connect;
use fencelock_core::{Acquire, Backend, Claim, Event, Listener, Mode};
use fencelock_testkit::{ClusterNodes, RedisServer, Reply};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::timeout;

#[derive(Debug, Default)]
struct EventLog {
    events: Mutex<Vec<Event>>,
    more: Notify,
}

impl Listener for EventLog {
    fn event(&self, event: &Event) {
        self.events.lock().unwrap().push(event.clone());
        self.more.notify_one();
    }
}

impl EventLog {
    async fn until(&self, wanted: impl Fn(&Event) -> bool) {
        let arrived = async {
            while !self.events.lock().unwrap().iter().any(&wanted) {
                self.more.notified().await;
            }
        };
        timeout(PATIENCE, arrived).await.unwrap_or_else(|_| panic!("{:?}", self.events));
    }
}

async fn listening(url: &str) -> (Arc<dyn Backend>, Arc<EventLog>) {
    let (backend, events) = (connect(url).await.unwrap(), Arc::new(EventLog::default()));
    backend.listen(Arc::<EventLog>::clone(&events));
    (backend, events)
}

/// A hand-off message that the waiter can use without a poll.
fn is_handed(event: &Event, claim: &Claim) -> bool {
    matches!(event, Event::Handed { holder, claim_ttl, .. } if *holder == claim.holder.id && !claim_ttl.is_zero())
}

async fn is_woken(cluster: &ClusterNodes, waiting_url: &str) {
    let (other, (backend, events)) = (backend(cluster).await, listening(waiting_url).await);
    for key in ["a", "b", "c", "d"] {
        let (first, waiter) = (held(key, Mode::Exclusive), waiting(key));
        granted(&other, &first).await;
        queued(&backend, &waiter, 0).await;
        release(&other, &first).await;
        events.until(|event| is_handed(event, &waiter)).await;
        release(&backend, &waiter).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_is_woken_by_the_node_of_its_key() {
    let Some(cluster) = ClusterNodes::start_or_skip(3, 0) else { return };
    is_woken(&cluster, &cluster.url(PATIENT)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_with_resp2_is_woken_too() {
    let Some(cluster) = ClusterNodes::start_or_skip(3, 0) else { return };
    is_woken(&cluster, &cluster.url("protocol=resp2&timeout=5000")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_without_sharded_channels_is_woken_on_a_channel_of_the_cluster() {
    let Some(cluster) = ClusterNodes::start_or_skip(3, 0) else { return };
    for node in &cluster.nodes {
        let allowed = ["ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all"];
        assert_eq!(node.command(&allowed).text(), Some("OK"));
        // Redis 6.2 has no such command.
        node.command(&["ACL", "SETUSER", "app", "-ssubscribe"]);
    }
    is_woken(&cluster, &cluster.url(PATIENT).replace("://", "://app:pw@")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_does_not_subscribe_polls() {
    let Some(cluster) = ClusterNodes::start_or_skip(3, 0) else { return };
    let (one, other) = (backend(&cluster).await, connect(&cluster.url("push=off&timeout=5000")).await.unwrap());
    let (first, waiter) = (held("k", Mode::Exclusive), waiting("k"));
    granted(&one, &first).await;
    queued(&other, &waiter, 0).await;
    release(&one, &first).await;
    tokens(&poll(&other, &waiter).await);
}

/// Since Redis 7.0.
fn has_shards(cluster: &ClusterNodes) -> bool {
    let found = cluster.nodes[0].command(&["COMMAND", "INFO", "SSUBSCRIBE"]);
    matches!(found, Reply::Array(found) if matches!(found.first(), Some(Reply::Array(_))))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_waiters_of_a_moved_slot_poll_at_once() {
    let Some(cluster) = ClusterNodes::start_or_skip(3, 0) else { return };
    let (other, (backend, events)) = (backend(&cluster).await, listening(&cluster.url(PATIENT)).await);
    let (first, waiter) = (held("k", Mode::Exclusive), waiting("k"));
    granted(&other, &first).await;
    queued(&backend, &waiter, 0).await;
    let slot = cluster.slot_of("k");
    cluster.move_slots([slot], elsewhere(&cluster, slot)).unwrap();
    if has_shards(&cluster) {
        events.until(|event| matches!(event, Event::Changed { key } if *key == waiter.key)).await;
    }
    // The poll subscribes on the new node.
    assert!(matches!(poll(&backend, &waiter).await, Acquire::Queued { ahead: 0, .. }));
    release(&other, &first).await;
    events.until(|event| is_handed(event, &waiter)).await;
}

/// The subscription ends when the slot leaves a node, and is not restored when the slot returns. The client is still connected.
#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_whose_slot_returns_keeps_its_position() {
    let Some(cluster) = ClusterNodes::start_or_skip(3, 0) else { return };
    let (one, other) = (backend(&cluster).await, backend(&cluster).await);
    let (first, waiter, next) = (held("k", Mode::Exclusive), waiting("k"), waiting("k"));
    granted(&one, &first).await;
    queued(&other, &waiter, 0).await;
    queued(&one, &next, 1).await;
    let slot = cluster.slot_of("k");
    let owner = cluster.owner_of(slot);
    cluster.move_slots([slot], elsewhere(&cluster, slot)).unwrap();
    cluster.move_slots([slot], owner).unwrap();
    release(&one, &first).await;
    tokens(&poll(&other, &waiter).await);
    assert!(matches!(poll(&one, &next).await, Acquire::Queued { ahead: 0, .. }));
}

/// The work of a node: the commands of clients, and the messages from other nodes.
fn work(node: &RedisServer) -> (u64, u64) {
    let number = |reply: &Reply, field: &str| -> u64 {
        let text = reply.text().unwrap();
        let value = text.lines().find_map(|line| line.strip_prefix(field)).unwrap_or("0");
        value.trim().parse().unwrap()
    };
    let commands = number(&node.command(&["INFO", "stats"]), "total_commands_processed:");
    let info = node.command(&["CLUSTER", "INFO"]);
    let published =
        ["publish", "publishshard"].map(|kind| number(&info, &format!("cluster_stats_messages_{kind}_received:")));
    (commands, published.iter().sum())
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_node_of_the_key_processes_a_hand_off() {
    let Some(cluster) = ClusterNodes::start_or_skip(3, 0) else { return };
    let (one, other) = (backend(&cluster).await, backend(&cluster).await);
    let mut holder = held("k", Mode::Exclusive);
    granted(&one, &holder).await;
    let owner = cluster.owner_of(cluster.slot_of("k"));
    let others: Vec<&RedisServer> = (0..3).filter(|node| *node != owner).map(|node| &cluster.nodes[node]).collect();
    let before: Vec<_> = others.iter().map(|node| work(node)).collect();
    for number in 0..100 {
        let waiter = waiting("k");
        let backend = if number % 2 == 0 { &other } else { &one };
        queued(backend, &waiter, 0).await;
        release(&one, &holder).await;
        tokens(&poll(backend, &waiter).await);
        holder = waiter;
    }
    for (node, (commands, published)) in others.iter().zip(before) {
        let now = work(node);
        // The commands of this test.
        assert!(now.0 - commands < 10, "{} commands", now.0 - commands);
        if has_shards(&cluster) {
            assert_eq!(now.1, published, "messages from other nodes");
        } else {
            assert!(now.1 > published, "Redis 6.2 forwards messages to all nodes");
        }
    }
}

/// Waiters poll, and are woken again as soon as a new connection is open.
#[tokio::test(flavor = "multi_thread")]
async fn a_lost_connection_for_wake_ups_is_reopened() {
    let Some(cluster) = ClusterNodes::start_or_skip(3, 0) else { return };
    let (other, (backend, events)) = (backend(&cluster).await, listening(&cluster.url(PATIENT)).await);
    let (mut holder, owner) = (held("k", Mode::Exclusive), cluster.owner_of(cluster.slot_of("k")));
    granted(&other, &holder).await;
    for _ in 0..3 {
        let waiter = waiting("k");
        queued(&backend, &waiter, 0).await;
        assert!(matches!(cluster.nodes[owner].command(&["CLIENT", "KILL", "TYPE", "pubsub"]), Reply::Int(1..)));
        events.until(|event| *event == Event::Reset).await;
        events.events.lock().unwrap().clear();
        // A client does this once a second.
        let polled = async {
            loop {
                assert!(matches!(poll(&backend, &waiter).await, Acquire::Queued { ahead: 0, .. }));
                match cluster.nodes[owner].command(&["CLIENT", "LIST", "TYPE", "pubsub"]) {
                    Reply::Text(clients) if !clients.is_empty() => return,
                    _ => tokio::time::sleep(Duration::from_millis(50)).await,
                }
            }
        };
        timeout(PATIENCE, polled).await.unwrap();
        release(&other, &holder).await;
        events.until(|event| is_handed(event, &waiter)).await;
        tokens(&poll(&backend, &waiter).await);
        holder = waiter;
    }
}
