//! A client of a demoted master finds the new master if the address leads to it.
#![allow(missing_docs, clippy::unwrap_used, clippy::tests_outside_test_module)]

use fencelock::backends::connect;
use fencelock_conformance::EventRecorder;
use fencelock_core::{Acquire, Backend, Claim, Event, Intent, Renew, Renewal};
use fencelock_testkit::{Proxy, RedisServer, Reply, redis_or_skip};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

/// Two servers, and a client of the first through an address that can be moved.
struct Pair {
    master: RedisServer,
    other: RedisServer,
    address: Proxy,
    client: Arc<dyn Backend>,
}

impl Pair {
    async fn new() -> Option<Self> {
        let master = redis_or_skip()?;
        let other = RedisServer::start().unwrap();
        let address = Proxy::to(master.port()).unwrap();
        let client = connect(&address.url()).await.unwrap();
        Some(Self { master, other, address, client })
    }

    /// The master becomes a replica and keeps its connections, as Redis does by default. It does not synchronize with the
    /// other server.
    fn fail_over(&self) {
        self.master.command(&["REPLICAOF", "127.0.0.1", "1"]);
        self.address.forward_to(self.other.port());
    }
}

fn claim() -> Claim {
    fencelock_testkit::claim("k", Duration::from_secs(30))
}

const TRIES: u32 = 300;
const PAUSE: Duration = Duration::from_millis(50);

#[tokio::test]
async fn a_claim_finds_the_new_master_after_read_only_answers() {
    let Some(pair) = Pair::new().await else { return };
    let claim = claim();
    pair.fail_over();
    let mut granted = false;
    for _ in 0..TRIES {
        granted = matches!(pair.client.acquire(&claim).await.answer, Ok(Acquire::Granted { .. }));
        if granted {
            break;
        }
        sleep(PAUSE).await;
    }
    assert!(granted, "the client stays connected to a read-only server");
    assert!(pair.other.command(&["GET", "k"]).text().is_some());
}

#[tokio::test]
async fn a_renewal_finds_the_new_master_after_read_only_answers() {
    let Some(pair) = Pair::new().await else { return };
    let claim = claim();
    assert!(matches!(pair.client.acquire(&claim).await.answer, Ok(Acquire::Granted { .. })));
    pair.fail_over();
    let renewal = Renewal::new(claim.key.clone(), claim.holder.id, claim.ttl);
    let mut last = None;
    for _ in 0..TRIES {
        last = pair.client.renew(std::slice::from_ref(&renewal)).await.pop();
        if matches!(last, Some(Ok(_))) {
            break;
        }
        sleep(PAUSE).await;
    }
    // The new master does not know the lock. The renewal reports that and creates nothing.
    assert!(matches!(last, Some(Ok(Renew::Absent))), "{last:?}");
    assert_eq!(pair.other.command(&["GET", "k"]).text(), None);
}

/// A client waits at a master that becomes a replica of its own replica, where the lock is then released. Returns the
/// message that hands over the lock; `None` if it takes longer than a waiter counts as alive.
async fn received_at_the_old_master(options: &str) -> Option<Event> {
    let (old, new) = (RedisServer::start().unwrap(), RedisServer::start().unwrap());
    new.follow(old.port());
    let waiting = connect(&format!("{}{options}", old.url())).await.unwrap();
    let recorder = EventRecorder::listening_to(&*waiting);
    let (held, waits) = (claim(), claim().with_intent(Intent::Enqueue));
    assert!(matches!(waiting.acquire(&held).await.answer, Ok(Acquire::Granted { .. })));
    assert!(matches!(waiting.acquire(&waits).await.answer, Ok(Acquire::Queued { .. })));
    while new.command(&["ZCARD", "fencelock:{k}:line"]) != Reply::Int(1) {
        sleep(PAUSE / 10).await;
    }
    new.promote();
    old.follow(new.port());
    let elsewhere = connect(&new.url()).await.unwrap();
    elsewhere.release(&held.key, &held.holder.id).await.unwrap();
    let handed = |event: &Event| matches!(event, Event::Handed { .. }).then(|| event.clone());
    recorder.wait_for(80 * PAUSE, handed).await
}

async fn a_message_of_another_server_is_only_a_hint(options: &str) {
    if redis_or_skip().is_none() {
        return;
    }
    for _ in 0..5 {
        if let Some(event) = received_at_the_old_master(options).await {
            assert!(matches!(event, Event::Handed { claim_ttl: Duration::ZERO, .. }), "{event:?}");
            return;
        }
    }
    panic!("the old master does not forward the message");
}

#[tokio::test]
async fn messages_of_a_new_master_grant_nothing_to_clients_of_the_old_one() {
    a_message_of_another_server_is_only_a_hint("").await;
}

#[tokio::test]
async fn messages_of_a_new_master_grant_nothing_to_clients_of_the_old_one_over_resp2() {
    a_message_of_another_server_is_only_a_hint("?protocol=resp2").await;
}
