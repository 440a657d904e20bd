//! Simulated data of a later version on the server.

use crate::current::{Current, id, key};
use crate::log::Log;
use crate::{ALIVE, KEY, LINE, MARKER, WAITERS, channel};
use fencelock::backends::{connect, init, lazy};
use fencelock_core::{
    Acquire, Eviction, Fault, Finding, Holders, Intent, Key, Level, Occupant, Release, Renew, Unknown,
};
use fencelock_testkit::{RedisServer, Reply, redis_or_skip};

const FAR: &str = "9000000000000";

/// A client waits in the queue.
fn join(server: &RedisServer, ticket: u32, number: u128, entry: &str) {
    let (ticket, id) = (ticket.to_string(), format!("{number:032x}"));
    server.command(&["ZADD", LINE, &ticket, &id]);
    server.command(&["ZADD", ALIVE, FAR, &id]);
    server.command(&["HSET", WAITERS, &id, entry]);
}

/// The entry of a claim that this version can read in part.
fn shared(number: u128) -> String {
    format!("30000 1 {} {number:032x} later:1\t2 r 1 4", channel(&format!("{number:032x}")))
}

fn rank(server: &RedisServer, number: u128) -> Reply {
    server.command(&["ZRANK", LINE, &format!("{number:032x}")])
}

async fn finding(server: &RedisServer, subject: &str) -> Finding {
    let findings = lazy(&server.url()).await.unwrap().diagnose().await.findings;
    findings.into_iter().find(|finding| finding.subject == subject).unwrap()
}

fn detail(unknown: &Unknown) -> (Fault, String) {
    (unknown.nodes()[0].fault, unknown.to_string())
}

#[tokio::test]
async fn an_unreadable_entry_keeps_its_position_and_others_are_served() {
    let Some(server) = redis_or_skip() else { return };
    let (holder, next) = (Current::new(&server, 1).await, Current::new(&server, 3).await);
    holder.granted(Intent::Try).await;
    join(&server, 1, 2, "{\"ttl\": 30000}");
    assert_eq!(next.waits().await, 1);
    server.command(&["ZADD", ALIVE, FAR, &id(3).to_string()]);
    assert_eq!(holder.release().await, Release::Released);
    assert_eq!(holder.holder().await, Some(id(3)));
    assert_eq!(rank(&server, 2), Reply::Int(0));
    assert_eq!(next.release().await, Release::Released);
    assert_eq!(holder.holder().await, None);
    assert_eq!(rank(&server, 2), Reply::Int(0), "a free lock is no reason to remove it");
    let warning = finding(&server, "wire").await;
    assert_eq!(warning.level, Level::Warning);
    for part in ["\"k\"", "00000000", "{\\\"ttl\\\": 30000}"] {
        assert!(warning.text.contains(part), "{part}: {warning:?}");
    }
    assert!(warning.advice.contains("later fencelock") && warning.advice.contains(WAITERS), "{warning:?}");

    // Its own client can read it, and writes it again.
    join(&server, 1, 2, &shared(2));
    holder.granted(Intent::Try).await;
    server.command(&["HSET", WAITERS, &id(2).to_string(), "soon"]);
    server.command(&["ZADD", ALIVE, "1", &id(2).to_string()]);
    assert_eq!(holder.release().await, Release::Released);
    assert_eq!(rank(&server, 2), Reply::Nil, "its lifetime has ended");
    assert_eq!(finding(&server, "wire").await.level, Level::Fine);
}

#[tokio::test]
async fn unreadable_entries_are_logged_once_for_each_key() {
    let Some(server) = redis_or_skip() else { return };
    let current = Current::new(&server, 1).await;
    let log = Log::begin();
    for _ in 0..3 {
        current.granted(Intent::Try).await;
        join(&server, 1, 2, "soon");
        current.release().await;
    }
    assert_eq!(log.warnings("in the queue of").len(), 1);
    let other = Key::new("other").unwrap();
    server.command(&["ZADD", "fencelock:{other}:line", "1", &id(2).to_string()]);
    server.command(&["ZADD", "fencelock:{other}:alive", FAR, &id(2).to_string()]);
    current.backend.release(&other, &id(1)).await.unwrap();
    assert_eq!(log.warnings("in the queue of \"other\"").len(), 1);
}

#[tokio::test]
async fn a_queue_that_starts_with_unreadable_entries_is_a_refusal_with_the_reason() {
    let Some(server) = redis_or_skip() else { return };
    let (current, waiter) = (Current::new(&server, 1).await, Current::new(&server, 99).await);
    current.granted(Intent::Try).await;
    for number in 2..34 {
        join(&server, 1, number, "soon");
    }
    assert_eq!(waiter.waits().await, 32);
    server.command(&["ZADD", ALIVE, FAR, &id(99).to_string()]);
    assert_eq!(current.release().await, Release::Released);
    for intent in [Intent::Try, Intent::Enqueue, Intent::Poll] {
        let (fault, text) = detail(&current.send(intent).await.unwrap_err());
        assert_eq!(fault, Fault::Busy, "it is temporary: {text}");
        for part in ["\"k\"", "\"soon\"... of 4 bytes", "HGETALL", LINE] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
    assert_eq!(server.command(&["EXISTS", KEY]), Reply::Int(0));
    let (fault, text) = detail(&current.backend.inspect(&key()).await.unwrap_err());
    assert!(fault == Fault::Busy && text.contains("\"soon\"... of 4 bytes"), "it is not reported as free: {text}");
    let listed = current.backend.list().await.unwrap();
    assert!(matches!(&listed[0].first().occupant, Occupant::Foreign(foreign) if foreign.is_unread()), "{listed:?}");
    server.command(&["ZADD", ALIVE, "1", &id(20).to_string()]);
    assert_eq!(current.backend.inspect(&key()).await.unwrap(), None);
    assert_eq!(current.backend.list().await.unwrap(), []);
    assert!(matches!(current.acquire(Intent::Try).await, Acquire::Busy(_)), "the waiter behind them has the key");
    assert_eq!(current.holder().await, Some(id(99)));
}

#[tokio::test]
async fn a_value_of_a_later_version_is_busy_and_never_deleted() {
    let Some(server) = redis_or_skip() else { return };
    let current = Current::new(&server, 1).await;
    let value = "fencelock:2:r:4:1780000000000000";
    server.command(&["SET", KEY, value, "PX", "600000"]);
    let Acquire::Busy(occupied) = current.acquire(Intent::Try).await else { panic!("not busy") };
    assert!(
        occupied.holders.to_string().contains("a later version of fencelock, \"fencelock:2:r:4:1"),
        "{}",
        occupied.holders
    );
    assert!(matches!(current.renew().await, Renew::TakenBy(by) if is_foreign(&by)));
    assert!(matches!(current.release().await, Release::TakenBy(by) if is_foreign(&by)));
    let seen = current.seen().await.unwrap();
    let Eviction::Refused(why) = current.evict(&seen).await else { panic!("not refused") };
    assert!(why.contains("\"k\"") && why.contains("later version"), "{why}");
    assert_eq!(server.command(&["GET", KEY]).text(), Some(value));
    // A fence beside the lock.
    server.command(&["SET", "fencelock:{k}:fence", "7"]);
    let warning = finding(&server, "wire").await;
    assert!(warning.level == Level::Warning && warning.text.contains(&value[..20]), "{warning:?}");
}

#[tokio::test]
async fn a_marker_of_a_later_version_refuses_every_grant_and_stays_as_it_is() {
    let Some(server) = redis_or_skip() else { return };
    let url = format!("{}?quarantine=on&trust_empty=true", server.url());
    let current = Current::at(&url, 1).await;
    current.granted(Intent::Try).await;
    server.command(&["HSET", MARKER, "version", "2", "epoch", "whatever it means there"]);
    let before = server.command(&["HGETALL", MARKER]);
    current.release().await;
    let refused = current.send(Intent::Try).await.unwrap_err();
    let (fault, text) = detail(&refused);
    assert!(fault == Fault::Unsupported && refused.is_permanent(), "{text}");
    for part in ["fencelock:node", "\"2\"", "later fencelock", "fencelock init"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(connect(&url).await.is_err(), "connecting fails at once");
    let refused = init(&url, true).await.unwrap_err().to_string();
    assert!(refused.contains("later fencelock") && !refused.contains("repeat"), "{refused}");
    assert_eq!(server.command(&["HGETALL", MARKER]), before);
    let findings = lazy(&url).await.unwrap().diagnose().await.findings;
    assert!(
        findings.iter().any(|finding| finding.level == Level::Failure && finding.text.contains("version \"2\"")),
        "{findings:?}"
    );
}

#[tokio::test]
async fn a_marker_of_a_later_version_is_reported_without_a_quarantine_in_the_url() {
    let Some(server) = redis_or_skip() else { return };
    let reported = async || {
        let findings = lazy(&server.url()).await.unwrap().diagnose().await.findings;
        findings.into_iter().find(|finding| finding.subject == "quarantine")
    };
    server.command(&["HSET", MARKER, "version", "1", "epoch", "e", "until", "0", "quorum", "q", "nodes", "n"]);
    assert_eq!(reported().await, None);
    server.command(&["HSET", MARKER, "version", "2"]);
    let warning = reported().await.unwrap();
    assert_eq!(warning.level, Level::Warning);
    for part in ["fencelock:node", "version \"2\"", "reads version 1"] {
        assert!(warning.text.contains(part), "{part}: {warning:?}");
    }
    assert!(warning.advice.contains("later fencelock"), "{warning:?}");
}

#[tokio::test]
async fn doctor_finds_completions_of_a_later_version_without_a_lock() {
    let Some(server) = redis_or_skip() else { return };
    server.command(&["SET", "fencelock:{job}:once", "2 1780000000000000 7 5 web-1:42"]);
    assert_eq!(finding(&server, "wire").await.level, Level::Fine);
    server.command(&["SET", "fencelock:{job}:once", "3 tomorrow"]);
    server.command(&["LPUSH", "fencelock:{list}:once", "x"]);
    let warning = finding(&server, "wire").await;
    assert_eq!(warning.level, Level::Warning);
    for part in
        ["2 locks", "fencelock:{job}:once", "a string", "\"3 tomorrow\"", "does not run", "fencelock:{list}:once"]
    {
        assert!(warning.text.contains(part), "{part}: {warning:?}");
    }
    assert!(warning.advice.contains("later fencelock") && warning.advice.contains("DEL"), "{warning:?}");
    assert_eq!(server.command(&["GET", "fencelock:{job}:once"]).text(), Some("3 tomorrow"), "it is left as it is");
}

#[tokio::test]
async fn doctor_says_that_it_may_not_search_for_other_versions() {
    let Some(server) = redis_or_skip() else { return };
    server.command(&["ACL", "SETUSER", "app", "on", "nopass", "~*", "&*", "+@all", "-scan"]);
    let url = server.url().replace("redis://", "redis://app:x@");
    let findings = lazy(&url).await.unwrap().diagnose().await.findings;
    let note = findings.into_iter().find(|finding| finding.subject == "wire").unwrap();
    assert!(note.level == Level::Note && note.text.contains("may not SCAN"), "{note:?}");
    assert!(note.advice.contains("operator"), "{note:?}");
}

fn is_foreign(holders: &Holders) -> bool {
    matches!(holders.first(), Occupant::Foreign(_))
}
