//! The cost of an uncontended lock on the server.
#![allow(missing_docs, clippy::unwrap_used, clippy::tests_outside_test_module)]

use fencelock::backends::connect;
use fencelock_core::{Acquire, Claim, Holder, HolderId, Intent, Key, Owner, Release, Renew, Renewal, Ttl};
use fencelock_testkit::{RedisServer, redis_or_skip};
use std::collections::BTreeMap;
use std::time::Duration;

const TIMES: u64 = 100;

/// How often the server has carried out each command for scripts, and the scripts.
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

#[tokio::test]
async fn an_uncontended_lock_costs_nine_commands_in_two_scripts_and_a_renewal_six_in_one() {
    let Some(server) = redis_or_skip() else { return };
    let place = connect(&server.url()).await.unwrap();
    let holder = Holder { id: HolderId::from_bytes([7; 16]), owner: Owner::from_text("test:1") };
    let (key, id, ttl) = (Key::new("k").unwrap(), holder.id, Ttl::new(Duration::from_secs(30)).unwrap());
    let claim = Claim::new(key.clone(), holder, ttl, Intent::Try);
    let renewal = [Renewal::new(key.clone(), id, ttl)];
    let acquire = async || assert!(matches!(place.acquire(&claim).await.unwrap(), Acquire::Granted { .. }));
    let release = async || assert_eq!(place.release(&key, &id).await.unwrap(), Release::Released);
    let renew = async || {
        let renewed = place.renew(&renewal).await.pop().unwrap().unwrap();
        assert!(matches!(renewed, Renew::Renewed { .. }), "{renewed:?}");
    };
    // The server knows the scripts from then on, and the key has a fence.
    acquire().await;
    renew().await;
    release().await;

    server.command(&["CONFIG", "RESETSTAT"]);
    for _ in 0..TIMES {
        acquire().await;
        release().await;
    }
    let acquired = [("exists", 1), ("zcard", 1), ("time", 1), ("get", 1), ("set", 2)];
    let released = [("getrange", 1), ("del", 1)];
    let mut cycle = expected(&[&acquired[..], &released, &[("evalsha", 2)]].concat());
    // Both look at the queue.
    *cycle.get_mut("zcard").unwrap() += TIMES;
    assert_eq!(calls(&server), cycle);

    acquire().await;
    server.command(&["CONFIG", "RESETSTAT"]);
    for _ in 0..TIMES {
        renew().await;
    }
    let renewed = [("evalsha", 1), ("getrange", 1), ("zcard", 1), ("pttl", 1), ("pexpire", 2), ("get", 1)];
    assert_eq!(calls(&server), expected(&renewed));
}
