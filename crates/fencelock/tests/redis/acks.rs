//! One Redis with a replica that must confirm, and a network between the two that is cut off.

use crate::common::{eventually, ms, secs};
use crate::support::{calls, client, command, is_free, number, server, text, waiting};
use fencelock::{Client, Error, Fault, Level};
use fencelock_testkit::{Proxy, RedisServer};
use tokio::time::Instant;

/// A server, its replica, and the network between them.
struct Pair {
    master: RedisServer,
    replica: RedisServer,
    link: Proxy,
}

/// With subcommands from Redis 7 on, without before.
fn is_own_line(line: &str) -> bool {
    ["cmd=client|list ", "cmd=client "].iter().any(|command| line.contains(command))
}

impl Pair {
    fn start() -> Option<Self> {
        let (master, replica) = (server()?, RedisServer::start().unwrap());
        let link = Proxy::to(master.port()).unwrap();
        replica.follow(link.port());
        command(&master, &["CONFIG", "RESETSTAT"]);
        Some(Self { master, replica, link })
    }

    async fn client(&self, options: &str) -> Client {
        client(&format!("{}{options}", self.master.url())).await
    }

    /// The master dies, and the replica takes over with what it has.
    async fn fail_over(&mut self) -> Client {
        self.master.kill();
        self.replica.promote();
        client(&self.replica.url()).await
    }

    fn waits(&self) -> usize {
        calls(&self.master, "wait")
    }

    /// Those of clients.
    fn connections(&self) -> usize {
        let listed = text(&self.master, &["CLIENT", "LIST"]).unwrap();
        // Neither the replica nor this connection.
        listed.lines().filter(|line| !line.contains("flags=S") && !is_own_line(line)).count()
    }

    /// Until a `WAIT` holds a connection up.
    async fn until_waiting(&self) {
        let blocked = || text(&self.master, &["INFO", "clients"]).unwrap().contains("blocked_clients:1");
        eventually("a connection waits for the replica", async || blocked()).await;
    }
}

#[tokio::test]
async fn without_acks_a_failover_loses_a_lock_and_the_next_token_is_greater() {
    let Some(mut pair) = Pair::start() else { return };
    let first = pair.client("").await;
    pair.link.hold();
    let lost = first.lock("k").await.unwrap();
    let second = pair.fail_over().await;
    let taken = second.lock("k").try_acquire().await.unwrap().expect("the replica knows of no lock");
    assert!(taken.fencing_token() > lost.fencing_token(), "{} then {}", lost.fencing_token(), taken.fencing_token());
}

#[tokio::test]
async fn a_lock_that_no_replica_confirms_fails_at_once_and_leaves_nothing() {
    let Some(mut pair) = Pair::start() else { return };
    let first = pair.client("?acks=1&acks_timeout=200").await;
    pair.link.hold();
    let Err(error) = first.lock("k").await else { panic!("the replica cannot have it") };
    assert!(matches!(error, Error::NotReplicated { confirmed: 0, wanted: 1, .. }), "{error:?}");
    let words = format!("{error:#}");
    assert!(words.starts_with("the lock on k does not count: redis://127.0.0.1:"), "{words}");
    assert!(words.ends_with("not replicated: 0 of 1 replicas confirmed (within 200 ms)"), "{words}");
    assert!(is_free(&pair.master, "k"), "it was given back");
    let fence: u64 = text(&pair.master, &["GET", "fencelock:{k}:fence"]).unwrap().parse().unwrap();
    let second = pair.fail_over().await;
    let taken = second.lock("k").try_acquire().await.unwrap().expect("the key is free");
    assert!(taken.fencing_token().get() > fence);
}

#[tokio::test]
async fn a_lock_that_a_replica_confirmed_survives_the_failover_to_it() {
    let Some(mut pair) = Pair::start() else { return };
    let first = pair.client("?acks=1&acks_timeout=20000").await;
    for round in 0..20 {
        first.lock(format!("other-{round}")).await.unwrap().release().await.unwrap();
    }
    let held = first.lock("k").ttl(secs(60)).await.unwrap();
    // What was not copied by now is lost.
    pair.link.hold();
    let second = pair.fail_over().await;
    assert!(second.lock("k").try_acquire().await.unwrap().is_none(), "it is still held");
    let seen = second.inspect("k").await.unwrap().unwrap();
    assert_eq!(seen.first().fence, Some(held.fencing_token()));
    second.evict(&seen).await.unwrap();
    assert!(second.lock("k").await.unwrap().fencing_token() > held.fencing_token());
}

#[tokio::test]
async fn a_renewal_that_no_replica_confirms_does_not_count() {
    let Some(pair) = Pair::start() else { return };
    let client = pair.client("?acks=1&acks_timeout=1500").await;
    let guard = client.lock("k").ttl(secs(6)).await.unwrap();
    pair.link.hold();
    // A renewal may have been confirmed just before; the next is not.
    tokio::time::sleep(ms(300)).await;
    let (seen, left) = (Instant::now(), guard.remaining());
    assert!(left > ms(1000), "{left:?}");
    guard.lost().await;
    let took = seen.elapsed();
    assert!(took + ms(20) >= left, "lost after {took:?}, before its time of {left:?}");
    assert!(took < left + secs(3), "lost after {took:?}, past its time of {left:?}");
    let on_master = number(&pair.master, &["PTTL", "k"]);
    let late = i64::try_from(took.saturating_sub(left).as_millis()).unwrap();
    assert!(on_master + late > 500, "the master had renewed it: {on_master} ms");
}

#[tokio::test]
async fn a_hold_outlives_renewals_that_were_not_confirmed_if_a_later_one_is() {
    let Some(pair) = Pair::start() else { return };
    let client = pair.client("?acks=1&acks_timeout=1500").await;
    let guard = client.lock("k").ttl(secs(9)).await.unwrap();
    eventually("the first renewal is over", async || pair.waits() >= 3).await;
    pair.link.hold();
    let before = pair.waits();
    eventually("a renewal fails", async || pair.waits() >= before + 2).await;
    pair.link.forward();
    eventually("a later one is confirmed", async || guard.remaining() > secs(8)).await;
    assert!(guard.is_held());
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_claim_cancelled_while_replicas_are_waited_for_leaves_no_lock() {
    let Some(pair) = Pair::start() else { return };
    let client = pair.client("?acks=1&acks_timeout=60000").await;
    pair.link.hold();
    let claim = tokio::spawn(client.lock("k").acquire());
    pair.until_waiting().await;
    assert!(!is_free(&pair.master, "k"));
    claim.abort();
    eventually("it is given back, long before that wait is over", async || is_free(&pair.master, "k")).await;
}

#[tokio::test]
async fn waiting_for_replicas_delays_no_other_request() {
    let Some(pair) = Pair::start() else { return };
    let neighbour = pair.client("").await;
    let _theirs = neighbour.lock("theirs").await.unwrap();
    let client = pair.client("?acks=1&acks_timeout=60000").await;
    pair.link.hold();
    let claim = tokio::spawn(client.lock("k").acquire());
    pair.until_waiting().await;
    let others = async {
        assert!(client.inspect("k").await.unwrap().is_some());
        assert!(client.lock("theirs").try_acquire().await.unwrap().is_none());
    };
    tokio::time::timeout(secs(20), others).await.expect("answers on the other connection");
    assert!(!claim.is_finished());
    pair.link.forward();
    claim.await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn those_who_come_together_wait_together() {
    let Some(pair) = Pair::start() else { return };
    let client = pair.client("?acks=1&acks_timeout=1500").await;
    pair.link.hold();
    let before = pair.waits();
    let claims: Vec<_> = (0..30).map(|i| tokio::spawn(client.lock(format!("k{i}")).acquire())).collect();
    for claim in claims {
        let claim = claim.await.unwrap();
        assert!(matches!(claim, Err(Error::NotReplicated { .. })), "{claim:?}");
    }
    let waits = pair.waits() - before;
    assert!((1..10).contains(&waits), "{waits} for 30 claims");
}

#[tokio::test]
async fn a_waiter_does_not_begin_on_a_hand_off_that_no_replica_has() {
    let Some(pair) = Pair::start() else { return };
    for options in ["?acks=1&acks_timeout=1500", "?acks=1&acks_timeout=1500&protocol=resp2"] {
        let client = pair.client(options).await;
        let held = client.lock("k").await.unwrap();
        let next = waiting(&pair.master, "k", client.lock("k")).await;
        held.release().await.unwrap();
        let held = next.await.unwrap();
        let next = tokio::spawn(client.lock("k").acquire());
        eventually("in line", async || crate::support::in_line(&pair.master, "k") == 1).await;
        pair.link.hold();
        held.release().await.unwrap();
        let next = next.await.unwrap();
        assert!(matches!(next, Err(Error::NotReplicated { .. })), "{options}: {next:?}");
        assert!(is_free(&pair.master, "k"), "{options}");
        pair.link.forward();
        eventually("replicated again", async || number(&pair.master, &["WAIT", "1", "10"]) == 1).await;
    }
}

#[tokio::test]
async fn a_lease_that_was_over_before_the_replica_confirmed_is_not_held() {
    let Some(pair) = Pair::start() else { return };
    let client = pair.client("?acks=1&acks_timeout=60000").await;
    pair.link.hold();
    let claim = tokio::spawn(client.lock("k").ttl(secs(1)).try_acquire());
    pair.until_waiting().await;
    tokio::time::sleep(ms(1100)).await;
    pair.link.forward();
    let claim = claim.await.unwrap();
    assert!(matches!(claim, Err(Error::Unreachable { .. })), "{claim:?}");
    eventually("free", async || is_free(&pair.master, "k")).await;
}

#[tokio::test]
async fn a_proof_that_is_renewed_or_resumed_without_a_replica_is_kept() {
    let Some(pair) = Pair::start() else { return };
    let client = pair.client("?acks=1&acks_timeout=1500&timeout=10000").await;
    let holder = client.lock("k").ttl(secs(60)).await.unwrap().into_holder();
    pair.link.hold();
    let renewed = client.renew("k", holder, secs(60)).await;
    assert!(matches!(renewed, Err(Error::NotReplicated { .. })), "{renewed:?}");
    let resumed = client.lock("k").resume(holder).await;
    assert!(matches!(resumed, Err(Error::NotReplicated { .. })), "{resumed:?}");
    assert!(!is_free(&pair.master, "k"), "it was not new, so it is not given back");
}

#[tokio::test]
async fn every_renewal_is_written_even_if_it_changes_nothing() {
    // Otherwise the replica would confirm an older write, which it may have although it lacks the lock.
    let Some(pair) = Pair::start() else { return };
    let client = pair.client("").await;
    let holder = client.lock("k").ttl(secs(60)).await.unwrap().into_holder();
    let written = || {
        let info = text(&pair.master, &["INFO", "replication"]).unwrap();
        info.lines().find_map(|line| line.strip_prefix("master_repl_offset:")).unwrap().parse::<u64>().unwrap()
    };
    for _ in 0..3 {
        let (before, left) = (written(), number(&pair.master, &["PTTL", "k"]));
        client.renew("k", holder, secs(5)).await.unwrap();
        // A ping to the replica, every 10 s, is shorter.
        assert!(written() > before + 40, "it was not written");
        assert!(number(&pair.master, &["PTTL", "k"]) > left - 5000, "it was not shortened");
    }
}

#[tokio::test]
async fn scripts_are_loaded_again_into_a_server_that_lost_them() {
    let Some(pair) = Pair::start() else { return };
    let client = pair.client("?acks=1&acks_timeout=20000").await;
    let guard = client.lock("k").ttl(secs(60)).await.unwrap();
    for _ in 0..3 {
        command(&pair.master, &["SCRIPT", "FLUSH"]);
        let before = pair.waits();
        client.renew("k", guard.holder(), secs(60)).await.unwrap();
        assert!(pair.waits() >= before + 2, "what was sent again is confirmed again");
        command(&pair.master, &["SCRIPT", "FLUSH"]);
        client.lock("other").await.unwrap().release().await.unwrap();
    }
}

#[tokio::test]
async fn a_connection_for_confirmed_writes_that_broke_is_replaced() {
    let Some(pair) = Pair::start() else { return };
    for options in ["?acks=1&acks_timeout=20000", "?acks=1&acks_timeout=20000&protocol=resp2"] {
        let client = pair.client(options).await;
        let guard = client.lock("k").ttl(secs(60)).await.unwrap();
        crate::support::kill_connections(&pair.master);
        assert!(client.lock("other").await.unwrap().is_held());
        client.renew("k", guard.holder(), secs(60)).await.unwrap();
        guard.release().await.unwrap();
    }
}

#[tokio::test]
async fn a_hold_deleted_by_another_program_is_reported_immediately_with_acks_too() {
    let Some(pair) = Pair::start() else { return };
    let client = pair.client("?acks=1&acks_timeout=20000").await;
    let guard = client.lock("k").ttl(secs(600)).await.unwrap();
    eventually("the first renewal is over", async || pair.waits() >= 3).await;
    command(&pair.master, &["DEL", "k"]);
    tokio::time::timeout(secs(20), guard.lost()).await.expect("long before the lease ends");
}

#[tokio::test]
async fn an_idle_hold_is_not_renewed_repeatedly() {
    let Some(pair) = Pair::start() else { return };
    let client = pair.client("?acks=1&acks_timeout=20000").await;
    let _guard = client.lock("k").ttl(secs(600)).await.unwrap();
    eventually("the first renewal is over", async || pair.waits() >= 3).await;
    tokio::time::sleep(ms(300)).await;
    assert_eq!(pair.waits(), 3, "at connecting, at the claim, and at the first renewal");
}

#[tokio::test]
async fn without_acks_there_is_no_wait_and_no_second_connection() {
    let Some(pair) = Pair::start() else { return };
    for (options, connections) in [("", 1), ("?acks=0", 1), ("?acks=1&acks_timeout=20000", 2)] {
        command(&pair.master, &["CONFIG", "RESETSTAT"]);
        let client = pair.client(options).await;
        let guard = client.lock("k").await.unwrap();
        client.renew("k", guard.holder(), secs(60)).await.unwrap();
        // A connection that was replaced, or that another test left to this port, is listed until the server has closed it.
        eventually(&format!("{connections} with {options:?}"), async || pair.connections() == connections).await;
        assert_eq!(pair.waits() > 0, connections == 2, "{options:?}");
        guard.release().await.unwrap();
        drop(client);
        eventually("its connections are closed", async || pair.connections() == 0).await;
    }
}

#[tokio::test]
async fn a_server_that_does_not_wait_is_refused_at_the_connection() {
    let Some(pair) = Pair::start() else { return };
    command(&pair.master, &["ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all", "-wait"]);
    let url = format!("redis://app:pw@127.0.0.1:{}", pair.master.port());
    let denied = Client::connect(&format!("{url}?acks=1")).await.unwrap_err();
    assert!(matches!(denied, Error::Config(_)), "{denied:?}");
    assert!(denied.to_string().contains("acks=1 needs WAIT"), "{denied}");
    assert!(client(&url).await.lock("k").await.is_ok(), "without acks it is not needed");
    let Err(Error::Unreachable { cause, .. }) = Client::connect(&format!("{}?acks=1", pair.replica.url())).await else {
        panic!("a replica has no replicas to wait for")
    };
    assert_eq!(cause.nodes()[0].fault, Fault::ReadOnly);
}

#[tokio::test]
async fn the_doctor_counts_the_replicas() {
    let Some(pair) = Pair::start() else { return };
    for (options, level, words) in [
        ("", Level::Note, "a master with 1 replica that copies it asynchronously: a failover may lose a lock"),
        ("?acks=1", Level::Fine, "a lock counts when 1 of 1 replicas have it"),
        ("?acks=2", Level::Failure, "acks=2, but only 1 is online"),
    ] {
        let findings = pair.client(options).await.diagnose().await.findings;
        let found = findings.iter().find(|finding| ["role", "replicas"].contains(&finding.subject)).unwrap();
        assert_eq!(found.level, level, "{options:?}: {found:?}");
        assert!(found.text.contains(words), "{options:?}: {found:?}");
    }
}
