//! The cost of an uncontended lock on the server.
#![allow(missing_docs, clippy::unwrap_used, clippy::tests_outside_test_module)]

use fencelock::backends::connect;
use fencelock_core::{Acquire, Backend, Claim, Holder, HolderId, Intent, Key, Owner, Release, Renew, Renewal, Ttl};
use fencelock_testkit::{RedisServer, redis_or_skip};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const TIMES: u64 = 100;

/// The number of calls of each command in scripts, and of the scripts.
fn calls(server: &RedisServer) -> BTreeMap<String, u64> {
    let info = server.command(&["INFO", "commandstats"]);
    let line = |line: &str| {
        let (command, counts) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        Some((command.to_owned(), counts.split(',').next()?.parse().ok()?))
    };
    let mut calls: BTreeMap<String, u64> = info.text().unwrap().lines().filter_map(line).collect();
    // Ours; the names of subcommands differ between versions.
    calls.retain(|command, _| !["config", "info", "client"].iter().any(|other| command.starts_with(other)));
    calls
}

fn expected(each: &[(&str, u64)]) -> BTreeMap<String, u64> {
    each.iter().map(|(command, calls)| ((*command).to_owned(), calls * TIMES)).collect()
}

/// A backend with one holder and its claim.
struct Contestant {
    backend: Arc<dyn Backend>,
    claim: Claim,
}

impl Contestant {
    async fn new(url: &str) -> Self {
        let holder = Holder { id: HolderId::from_bytes([7; 16]), owner: Owner::from_text("test:1") };
        let ttl = Ttl::new(Duration::from_secs(30)).unwrap();
        Self {
            backend: connect(url).await.unwrap(),
            claim: Claim::new(Key::new("k").unwrap(), holder, ttl, Intent::Try),
        }
    }

    async fn acquire(&self) {
        let answer = self.backend.acquire(&self.claim).await.answer.unwrap();
        assert!(matches!(answer, Acquire::Granted { .. }), "{answer:?}");
    }

    async fn release(&self) {
        let answer = self.backend.release(&self.claim.key, &self.claim.holder.id).await.unwrap();
        assert_eq!(answer, Release::Released);
    }

    async fn renew(&self) {
        let renewal = [Renewal::new(self.claim.key.clone(), self.claim.holder.id, self.claim.ttl)];
        let renewed = self.backend.renew(&renewal).await.pop().unwrap().unwrap();
        assert!(matches!(renewed, Renew::Renewed { .. }), "{renewed:?}");
    }

    /// The server load of some cycles, after one that caches the scripts and creates a fence.
    async fn cycles(&self, server: &RedisServer) -> BTreeMap<String, u64> {
        self.acquire().await;
        self.renew().await;
        self.release().await;
        server.command(&["CONFIG", "RESETSTAT"]);
        for _ in 0..TIMES {
            self.acquire().await;
            self.release().await;
        }
        calls(server)
    }
}

const ACQUIRED: [(&str, u64); 3] = [("exists", 1), ("time", 1), ("set", 2)];
const RELEASED: [(&str, u64); 3] = [("getrange", 1), ("zcard", 1), ("del", 1)];

#[tokio::test]
async fn an_uncontended_lock_costs_seven_commands_in_two_scripts_and_a_renewal_six_in_one() {
    let Some(server) = redis_or_skip() else { return };
    let contestant = Contestant::new(&server.url()).await;
    let cycle = [&ACQUIRED[..], &RELEASED, &[("evalsha", 2)]].concat();
    assert_eq!(contestant.cycles(&server).await, expected(&cycle));

    contestant.acquire().await;
    server.command(&["CONFIG", "RESETSTAT"]);
    for _ in 0..TIMES {
        contestant.renew().await;
    }
    let renewed = [("evalsha", 1), ("getrange", 1), ("zcard", 1), ("pttl", 1), ("pexpire", 2), ("get", 1)];
    assert_eq!(calls(&server), expected(&renewed));
}

#[tokio::test]
async fn a_quarantine_costs_an_uncontended_lock_one_command() {
    let Some(server) = redis_or_skip() else { return };
    let contestant = Contestant::new(&format!("{}?quarantine=on&trust_empty=true", server.url())).await;
    let cycle = [&ACQUIRED[..], &RELEASED, &[("evalsha", 2), ("hmget", 1)]].concat();
    assert_eq!(contestant.cycles(&server).await, expected(&cycle));
}
