//! A client of a master that is demoted finds the new master, where the address leads to it.
#![allow(missing_docs, clippy::unwrap_used, clippy::tests_outside_test_module)]

use fencelock::backends::connect;
use fencelock_core::{
    Acquire, Backend, Claim, Event, Holder, HolderId, Intent, Key, Listener, Owner, Renew, Renewal, Ttl,
};
use fencelock_testkit::{Proxy, RedisServer, Reply, redis_or_skip};
use std::sync::{Arc, mpsc};
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

    /// The master becomes a replica that keeps its connections, as Redis does unless somebody closes them. It does not
    /// get as far as to hear what the other knows.
    fn fail_over(&self) {
        self.master.command(&["REPLICAOF", "127.0.0.1", "1"]);
        self.address.forward_to(self.other.port());
    }
}

fn claim(number: u128) -> Claim {
    let holder = Holder { id: HolderId::from_bytes(number.to_be_bytes()), owner: Owner::from_text("test:1") };
    Claim::new(Key::new("k").unwrap(), holder, Ttl::new(Duration::from_secs(30)).unwrap(), Intent::Try)
}

const TRIES: u32 = 300;
const NAP: Duration = Duration::from_millis(50);

#[tokio::test]
async fn a_claim_finds_the_new_master_after_read_only_answers() {
    let Some(pair) = Pair::new().await else { return };
    let claim = claim(1);
    pair.fail_over();
    let mut granted = false;
    for _ in 0..TRIES {
        granted = matches!(pair.client.acquire(&claim).await, Ok(Acquire::Granted { .. }));
        if granted {
            break;
        }
        sleep(NAP).await;
    }
    assert!(granted, "the client stays with a server that takes nothing");
    assert!(pair.other.command(&["GET", "k"]).text().is_some());
}

#[tokio::test]
async fn a_renewal_finds_the_new_master_after_read_only_answers() {
    let Some(pair) = Pair::new().await else { return };
    let claim = claim(2);
    assert!(matches!(pair.client.acquire(&claim).await, Ok(Acquire::Granted { .. })));
    pair.fail_over();
    let renewal = Renewal::new(claim.key.clone(), claim.holder.id, claim.ttl);
    let mut last = None;
    for _ in 0..TRIES {
        last = pair.client.renew(std::slice::from_ref(&renewal)).await.pop();
        if matches!(last, Some(Ok(_))) {
            break;
        }
        sleep(NAP).await;
    }
    // The new master never heard of the lock: that is told, and nothing is created.
    assert!(matches!(last, Some(Ok(Renew::Absent))), "{last:?}");
    assert_eq!(pair.other.command(&["GET", "k"]).text(), None);
}

#[derive(Debug)]
struct Ear(mpsc::Sender<Event>);

impl Listener for Ear {
    fn event(&self, event: &Event) {
        let _ = self.0.send(event.clone());
    }
}

/// A waiter at a master that becomes the replica of its replica, where the lock is released then. What the waiter hears;
/// `None` if that took longer than it counts as alive.
async fn heard_at_the_old_master(options: &str) -> Option<Event> {
    let (old, new) = (RedisServer::start().unwrap(), RedisServer::start().unwrap());
    new.follow(old.port());
    let waiting = connect(&format!("{}{options}", old.url())).await.unwrap();
    let (events, inbox) = mpsc::channel();
    let ear: Arc<dyn Listener> = Arc::new(Ear(events));
    waiting.listen(Arc::clone(&ear));
    let (held, waits) = (claim(3), claim(4).with_intent(Intent::Enqueue));
    assert!(matches!(waiting.acquire(&held).await, Ok(Acquire::Granted { .. })));
    assert!(matches!(waiting.acquire(&waits).await, Ok(Acquire::Queued { .. })));
    while new.command(&["ZCARD", "fencelock:{k}:line"]) != Reply::Int(1) {
        sleep(NAP / 10).await;
    }
    new.promote();
    old.follow(new.port());
    let elsewhere = connect(&new.url()).await.unwrap();
    elsewhere.release(&held.key, &held.holder.id).await.unwrap();
    let handed = |event: &Event| matches!(event, Event::Handed { .. });
    for _ in 0..80 {
        if let Some(event) = inbox.try_iter().find(handed) {
            return Some(event);
        }
        sleep(NAP).await;
    }
    None
}

async fn a_message_from_elsewhere_is_only_a_hint(options: &str) {
    if redis_or_skip().is_none() {
        return;
    }
    for _ in 0..5 {
        if let Some(event) = heard_at_the_old_master(options).await {
            assert!(matches!(event, Event::Handed { claim_ttl: Duration::ZERO, .. }), "{event:?}");
            return;
        }
    }
    panic!("the old master passes nothing on");
}

#[tokio::test]
async fn what_a_new_master_publishes_grants_nothing_to_clients_of_the_old_one() {
    a_message_from_elsewhere_is_only_a_hint("").await;
}

#[tokio::test]
async fn what_a_new_master_publishes_grants_nothing_to_clients_of_the_old_one_over_resp2() {
    a_message_from_elsewhere_is_only_a_hint("?protocol=resp2").await;
}
