//! Long or unusual data of other clients on a Redis server: it is processed in steps, truncated, or left unchanged.
#![allow(missing_docs, clippy::unwrap_used, clippy::tests_outside_test_module)]

use fencelock::backends::connect;
use fencelock_core::{Acquire, Backend, Claim, Eviction, Holder, HolderId, Holding, Intent, Key, Owner, Release, Ttl};
use fencelock_testkit::{RedisServer, Reply, redis_or_skip};
use std::sync::Arc;
use std::time::Duration;

const LINE: &str = "fencelock:{k}:line";
const ALIVE: &str = "fencelock:{k}:alive";
const WAITERS: &str = "fencelock:{k}:waiters";

/// Adds dead waiters to the front of the queue: the numbers of the first and the last, and until when they count as alive.
const ADD_DEAD: &str = "\
for i = ARGV[1], ARGV[2] do
  local id = string.format('%032x', i)
  redis.call('ZADD', KEYS[1], i, id)
  redis.call('ZADD', KEYS[2], ARGV[3], id)
  redis.call('HSET', KEYS[3], id, '3000 1 - ' .. id .. ' gone:1')
end";

fn key() -> Key {
    Key::new("k").unwrap()
}

fn claim(number: u128, intent: Intent) -> Claim {
    let holder = Holder { id: HolderId::from_bytes((number << 64).to_be_bytes()), owner: Owner::from_text("test:1") };
    Claim::new(key(), holder, Ttl::new(Duration::from_secs(30)).unwrap(), intent)
}

fn add_dead(server: &RedisServer, many: u32, alive_until_ms: u64) {
    // On a busy machine, one script for all would take seconds, in which the server answers nobody.
    for first in (1..=many).step_by(5000) {
        let [first, last] = [first, many.min(first + 4999)].map(|number| number.to_string());
        let words = ["EVAL", ADD_DEAD, "3", LINE, ALIVE, WAITERS, &first, &last, &alive_until_ms.to_string()];
        assert!(!matches!(server.command(&words), Reply::Error(_) | Reply::NoAnswer(_)), "{first}");
    }
}

fn number(server: &RedisServer, words: &[&str]) -> i64 {
    match server.command(words) {
        Reply::Int(number) => number,
        other => panic!("{words:?}: {other:?}"),
    }
}

/// The number of scripts that the server has executed since the counters were reset.
fn scripts(server: &RedisServer) -> u64 {
    let info = server.command(&["INFO", "commandstats"]);
    let line = info.text().unwrap().lines().find(|line| line.starts_with("cmdstat_evalsha:")).unwrap_or_default();
    line.split(['=', ',']).nth(1).and_then(|calls| calls.parse().ok()).unwrap_or(0)
}

async fn takes(backend: &dyn Backend, claim: &Claim) {
    let answer = backend.acquire(claim).await.answer.unwrap();
    assert!(matches!(answer, Acquire::Granted { .. }), "{answer:?}");
}

async fn seen(backend: &dyn Backend) -> Holding {
    backend.inspect(&key()).await.unwrap().expect("held")
}

async fn start() -> Option<(RedisServer, Arc<dyn Backend>)> {
    let server = redis_or_skip()?;
    let backend = connect(&format!("{}?timeout=30000", server.url())).await.unwrap();
    Some((server, backend))
}

#[tokio::test]
async fn a_hundred_thousand_dead_waiters_are_skipped_in_short_steps() {
    let Some((server, backend)) = start().await else { return };
    let (mut held, next) = (claim(1, Intent::Try), claim(2, Intent::Enqueue));
    // Longer than it takes to add the waiters.
    held.ttl = Ttl::new(Duration::from_secs(3600)).unwrap();
    takes(&*backend, &held).await;
    // They count as alive until the lock is released, like waiters that have just crashed, so no poll removes them.
    let soon = server.command(&["TIME"]);
    let Reply::Array(time) = soon else { panic!("{soon:?}") };
    let soon: u64 = time[0].text().unwrap().parse::<u64>().unwrap() * 1000 + 3_600_000;
    add_dead(&server, 100_000, soon);
    assert!(matches!(backend.acquire(&next).await.answer.unwrap(), Acquire::Queued { ahead: 100_000, .. }));
    add_dead(&server, 100_000, 1);
    // The waiter behind them is alive, however long this takes.
    server.command(&["ZADD", ALIVE, &soon.to_string(), &next.holder.id.to_string()]);
    assert_eq!(backend.release(&held.key, &held.holder.id).await.unwrap(), Release::Released);
    assert_eq!(seen(&*backend).await.first().holder_id(), Some(next.holder.id), "the waiter behind them has the key");
}

#[tokio::test]
async fn a_claim_of_a_free_key_passes_over_32_dead_waiters_a_call() {
    let Some((server, backend)) = start().await else { return };
    takes(&*backend, &claim(1, Intent::Try)).await;
    backend.release(&key(), &claim(1, Intent::Try).holder.id).await.unwrap();
    add_dead(&server, 1000, 1);
    server.command(&["CONFIG", "RESETSTAT"]);
    takes(&*backend, &claim(1, Intent::Try)).await;
    assert_eq!(scripts(&server), 32, "of 32 waiters each");
    assert_eq!(number(&server, &["EXISTS", LINE, ALIVE, WAITERS]), 0);
}

#[tokio::test]
async fn a_long_value_is_shown_truncated_and_never_evicted() {
    let Some((server, backend)) = start().await else { return };
    server.command(&["EVAL", "redis.call('SET', KEYS[1], string.rep('x', 34000000))", "1", "k"]);
    let holding = seen(&*backend).await;
    assert_eq!(holding.first().occupant.to_string(), "another program (a string of 34000000 bytes, \"xxxxxxxx\"...)");
    let busy = backend.acquire(&claim(1, Intent::Try)).await.answer.unwrap();
    assert!(matches!(busy, Acquire::Busy(_)), "{busy:?}");
    let ended = backend.evict(&holding).await.unwrap();
    assert!(matches!(&ended, Eviction::Refused(why) if why.contains("34000000")), "{ended:?}");
    assert_eq!(number(&server, &["STRLEN", "k"]), 34_000_000);
}

#[tokio::test]
async fn side_keys_of_another_type_do_not_prevent_a_release() {
    for side in ["fence", "line", "waiters", "alive"] {
        let Some((server, backend)) = start().await else { return };
        let (held, waiter) = (claim(1, Intent::Try), claim(2, Intent::Enqueue));
        takes(&*backend, &held).await;
        if side != "line" {
            assert!(matches!(backend.acquire(&waiter).await.answer.unwrap(), Acquire::Queued { .. }));
        }
        let name = format!("fencelock:{{k}}:{side}");
        server.command(&["DEL", &name]);
        let kind = if side == "fence" { &["RPUSH", &name, "x"] } else { &["SET", &name, "x"][..] };
        server.command(kind);
        assert_eq!(backend.release(&key(), &held.holder.id).await, Ok(Release::Released), "{side}");
        let again = backend.acquire(&claim(3, Intent::Enqueue)).await.answer;
        match side {
            // The fence is written again.
            "fence" => assert!(again.is_ok(), "{again:?}"),
            _ => drop(again),
        }
        let keep = backend.acquire(&claim(4, Intent::Enqueue)).await.answer;
        if side != "fence" {
            let why = keep.expect_err(side).to_string();
            assert!(why.contains("WRONGTYPE"), "{side}: {why}");
        }
    }
}
