//! Shared locks and permits on one Redis server: keys that other programs delete or overwrite, a full memory, and the number of
//! commands.
#![allow(missing_docs, clippy::unwrap_used, clippy::tests_outside_test_module)]

use fencelock::backends::connect;
use fencelock_core::{
    Acquire, Backend, Claim, Eviction, Fault, Holder, HolderId, Holding, Intent, Key, Mode, Owner, Release, Renew,
    Renewal, Resize, Resized, Ttl, Unknown,
};
use fencelock_testkit::{RedisServer, Reply, redis_or_skip};
use std::sync::Arc;
use std::time::Duration;

const HOLDS: &str = "fencelock:{k}:holds";
const HELD: &str = "fencelock:{k}:held";

fn key() -> Key {
    Key::new("k").unwrap()
}

fn id(number: u128) -> HolderId {
    HolderId::from_bytes(number.to_be_bytes())
}

fn claim(number: u128, mode: Mode, intent: Intent) -> Claim {
    let holder = Holder { id: id(number), owner: Owner::from_text("test:1") };
    Claim::new(key(), holder, Ttl::new(Duration::from_secs(30)).unwrap(), intent).with_mode(mode)
}

fn permits(weight: u32, limit: u32) -> Mode {
    Mode::permits(weight, limit).unwrap()
}

async fn start() -> Option<(RedisServer, Arc<dyn Backend>)> {
    let server = redis_or_skip()?;
    let backend = connect(&format!("{}?timeout=10000", server.url())).await.unwrap();
    Some((server, backend))
}

async fn takes(backend: &dyn Backend, number: u128, mode: Mode) -> u64 {
    match backend.acquire(&claim(number, mode, Intent::Try)).await.answer.unwrap() {
        Acquire::Granted { tokens } => tokens.last().get(),
        other => panic!("{other:?}"),
    }
}

async fn waits(backend: &dyn Backend, number: u128, mode: Mode) -> u32 {
    match backend.acquire(&claim(number, mode, Intent::Enqueue)).await.answer.unwrap() {
        Acquire::Queued { ahead, .. } => ahead,
        other => panic!("{other:?}"),
    }
}

async fn is_busy(backend: &dyn Backend, number: u128, mode: Mode) -> bool {
    matches!(backend.acquire(&claim(number, mode, Intent::Try)).await.answer.unwrap(), Acquire::Busy(_))
}

async fn renews(backend: &dyn Backend, number: u128) -> Result<Renew, Unknown> {
    backend.renew(&[Renewal::new(key(), id(number), Ttl::default())]).await.remove(0)
}

async fn releases(backend: &dyn Backend, number: u128) -> Release {
    backend.release(&key(), &id(number)).await.unwrap()
}

async fn seen(backend: &dyn Backend) -> Option<Holding> {
    backend.inspect(&key()).await.unwrap()
}

fn number(reply: &Reply) -> i64 {
    match reply {
        Reply::Int(number) => *number,
        other => panic!("{other:?}"),
    }
}

fn now_ms(server: &RedisServer) -> u64 {
    let Reply::Array(time) = server.command(&["TIME"]) else { panic!("no time") };
    time[0].text().unwrap().parse::<u64>().unwrap() * 1000
}

/// Adds holds of readers `1 << 64` and following, which end at this time.
fn add_holds(server: &RedisServer, many: u32, end_ms: u64) {
    const ADD: &str = "for i = ARGV[1], ARGV[2] do local id = string.format('%016x%016x', 1, i) \
        redis.call('ZADD', KEYS[1], ARGV[3], id) redis.call('HSET', KEYS[2], id, '1 7 gone:1') end";
    // On a busy machine, one script for all would take seconds, in which the server answers nobody.
    for first in (1..=many).step_by(5000) {
        let [first, last] = [first, many.min(first + 4999)].map(|number| number.to_string());
        let reply = server.command(&["EVAL", ADD, "2", HOLDS, HELD, &first, &last, &end_ms.to_string()]);
        assert!(!matches!(reply, Reply::Error(_) | Reply::NoAnswer(_)), "{reply:?}");
    }
}

#[tokio::test]
async fn many_holders_are_listed_in_part_and_evicted_together() {
    let Some((server, backend)) = start().await else { return };
    takes(&*backend, 1, Mode::Shared).await;
    add_holds(&server, 100_000, now_ms(&server) + 600_000);
    let holding = seen(&*backend).await.unwrap();
    assert_eq!((holding.holders.count(), holding.holders.iter().count()), (100_001, 20));
    let busy = backend.acquire(&claim(2, Mode::Exclusive, Intent::Try)).await.answer.unwrap();
    assert!(matches!(&busy, Acquire::Busy(by) if by.holders.count() == 100_001), "{busy:?}");
    takes(&*backend, 3, Mode::Shared).await;
    assert_eq!(releases(&*backend, 3).await, Release::Released);
    assert_eq!(backend.evict(&holding).await.unwrap(), Eviction::Evicted);
    assert_eq!(number(&server.command(&["EXISTS", "k", HOLDS, HELD])), 0);
}

#[tokio::test]
async fn a_hundred_thousand_ended_holds_are_removed_together_or_in_short_steps() {
    let Some((server, backend)) = start().await else { return };
    takes(&*backend, 1, permits(1, 2)).await;
    add_holds(&server, 100_000, 1);
    server.command(&["CONFIG", "RESETSTAT"]);
    takes(&*backend, 2, permits(1, 2)).await;
    let info = server.command(&["INFO", "commandstats"]);
    let scripts = info.text().unwrap().lines().find(|line| line.starts_with("cmdstat_evalsha:")).unwrap().to_owned();
    assert!(scripts.starts_with("cmdstat_evalsha:calls=3126,"), "{scripts}");
    assert_eq!(number(&server.command(&["ZCARD", HOLDS])), 2);

    releases(&*backend, 1).await;
    server.command(&["DEL", HOLDS]);
    add_holds(&server, 100_000, 1);
    server.command(&["CONFIG", "RESETSTAT"]);
    takes(&*backend, 3, Mode::Exclusive).await;
    let info = server.command(&["INFO", "commandstats"]);
    assert!(info.text().unwrap().contains("cmdstat_evalsha:calls=1,"), "{info:?}");
    assert_eq!(number(&server.command(&["EXISTS", HOLDS, HELD])), 0);
}

#[tokio::test]
async fn missing_side_keys_or_ones_of_another_type_never_admit_too_many() {
    for (side, kind) in [(HELD, None), (HELD, Some("SET")), (HELD, Some("RPUSH"))] {
        let Some((server, backend)) = start().await else { return };
        takes(&*backend, 1, permits(1, 2)).await;
        server.command(&["DEL", side]);
        if let Some(kind) = kind {
            server.command(&[kind, side, "x"]);
        }
        assert!(is_busy(&*backend, 2, permits(1, 2)).await, "{kind:?}: the number in use is unknown");
        assert!(matches!(renews(&*backend, 1).await.unwrap(), Renew::Renewed { .. }), "{kind:?}");
        assert!(seen(&*backend).await.unwrap().has(id(1)), "{kind:?}");
        assert_eq!(releases(&*backend, 1).await, Release::Released, "{kind:?}");
        takes(&*backend, 2, permits(2, 2)).await;
    }
    for kind in [None, Some("SET"), Some("RPUSH")] {
        let Some((server, backend)) = start().await else { return };
        takes(&*backend, 1, Mode::Shared).await;
        server.command(&["DEL", HOLDS]);
        if let Some(kind) = kind {
            server.command(&[kind, HOLDS, "x"]);
        }
        assert_eq!(renews(&*backend, 1).await.unwrap(), Renew::Absent, "{kind:?}: the holders are lost");
        assert_eq!(seen(&*backend).await, None, "{kind:?}");
        takes(&*backend, 2, Mode::Exclusive).await;
        assert_eq!(number(&server.command(&["EXISTS", HOLDS, HELD])), 0, "{kind:?}");
    }
    let Some((server, backend)) = start().await else { return };
    takes(&*backend, 1, Mode::Shared).await;
    server.command(&["SET", HELD, "x"]);
    let token = takes(&*backend, 2, Mode::Shared).await;
    let polled = backend.acquire(&claim(2, Mode::Shared, Intent::Poll)).await.answer.unwrap();
    assert!(matches!(polled, Acquire::Granted { tokens } if tokens.last().get() == token));
}

#[tokio::test]
async fn a_full_memory_refuses_claims_but_no_renewals_or_releases() {
    let Some((server, backend)) = start().await else { return };
    for reader in 1..=2 {
        takes(&*backend, reader, Mode::Shared).await;
    }
    waits(&*backend, 3, Mode::Exclusive).await;
    server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    for (holder, mode) in [(4, Mode::Shared), (5, Mode::Exclusive)] {
        let mut other = claim(holder, mode, Intent::Try);
        other.key = Key::new("other").unwrap();
        let refused = backend.acquire(&other).await.answer.unwrap_err();
        assert_eq!(refused.nodes()[0].fault, Fault::Full, "{refused}");
        assert_eq!(
            number(&server.command(&["EXISTS", "other", "fencelock:{other}:holds", "fencelock:{other}:held"])),
            0
        );
    }
    assert!(matches!(renews(&*backend, 1).await.unwrap(), Renew::Renewed { .. }));
    assert_eq!(releases(&*backend, 1).await, Release::Released);
    assert_eq!(releases(&*backend, 2).await, Release::Released);
    assert_eq!(seen(&*backend).await.unwrap().first().holder_id(), Some(id(3)), "the hand-off is carried out");
}

#[tokio::test]
async fn a_reader_among_many_costs_the_server_a_bounded_number_of_commands() {
    let Some((server, backend)) = start().await else { return };
    takes(&*backend, 1, Mode::Shared).await;
    add_holds(&server, 10_000, now_ms(&server) + 600_000);
    takes(&*backend, 2, Mode::Shared).await;
    server.command(&["CONFIG", "RESETSTAT"]);
    takes(&*backend, 3, Mode::Shared).await;
    releases(&*backend, 3).await;
    let info = server.command(&["INFO", "commandstats"]);
    let calls = |line: &str| line.split(['=', ',']).nth(1)?.parse::<u64>().ok();
    let counted = info.text().unwrap().lines().filter(|line| !line.contains("config") && !line.contains("info"));
    let commands: u64 = counted.filter(|line| line.starts_with("cmdstat_")).filter_map(calls).sum();
    assert!(commands <= 30, "{commands}: {info:?}");
}

#[tokio::test]
async fn a_queue_longer_than_one_script_examines_is_resized() {
    const MANY: u128 = 100;
    let Some((server, backend)) = start().await else { return };
    takes(&*backend, 1, permits(2, 2)).await;
    for number in 0..MANY {
        waits(&*backend, 100 + number, permits(1, 2)).await;
    }
    let resized = backend.resize(&key(), 42).await.unwrap();
    assert_eq!(resized, Resize::Resized(Resized::new(2, 42, 42, 41)));
    let Reply::Array(entries) = server.command(&["HVALS", "fencelock:{k}:waiters"]) else { panic!("no entries") };
    assert_eq!(entries.len(), 60);
    assert!(entries.iter().all(|entry| entry.text().unwrap().ends_with("\t1 s 1 42")), "{entries:?}");
    assert_eq!(backend.resize(&key(), 1).await.unwrap(), Resize::Resized(Resized::new(42, 1, 42, 41)));
    let waiter = claim(199, permits(1, 2), Intent::Poll);
    assert!(matches!(backend.acquire(&waiter).await.answer.unwrap(), Acquire::Queued { ahead: 59, .. }));
}

#[tokio::test]
async fn a_quorum_refuses_to_resize_by_name() {
    let Some((server, _)) = start().await else { return };
    let url = format!("{}?trust_empty=true", server.url().replace("redis://", "redlock://"));
    let quorum = connect(&url).await.unwrap();
    let refused = quorum.resize(&key(), 5).await.unwrap_err();
    assert!(refused.is_permanent(), "{refused}");
}
