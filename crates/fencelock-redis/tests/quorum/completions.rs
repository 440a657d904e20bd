//! Completions: how long a server keeps them, unreadable ones, and a quorum with nodes that are unavailable or have lost them.

use crate::kit::{Road, TestQuorum, claim, ms};
use fencelock::backends::Redis;
use fencelock_core::{
    Acquire, Backend, Claim, ClearCompletion, Completion, CountedSuccess, FencingToken, Key, Owner, Unknown,
    WriteCompletion,
};
use fencelock_testkit::{RedisServer, Reply, redis_or_skip};
use std::time::Duration;

const SECOND: u64 = 1_000_000;
const HOUR: u64 = 3600 * SECOND;
const LONG: Duration = Duration::from_secs(60);

fn key() -> Key {
    Key::new("k").unwrap()
}

fn completion(until_micros: u64, token: u64) -> Completion {
    Completion::new(until_micros, FencingToken::new(token).unwrap(), 1, Owner::from_text("web-1:42 nightly"))
}

async fn now(backend: &dyn Backend) -> u64 {
    backend.read_completion(&key()).await.unwrap().now_micros
}

async fn read(backend: &dyn Backend) -> Option<Completion> {
    backend.read_completion(&key()).await.unwrap().completion
}

async fn write(backend: &dyn Backend, claim: &Claim, completion: &Completion) -> Result<WriteCompletion, Unknown> {
    backend.write_completion(&key(), &claim.holder.id, completion).await
}

async fn takes(backend: &dyn Backend) -> Claim {
    let claim = claim("k", LONG);
    assert!(matches!(backend.acquire(&claim).await.answer, Ok(Acquire::Granted { .. })));
    claim
}

fn command(server: &RedisServer, words: &[&str]) -> Reply {
    let reply = server.command(words);
    assert!(!matches!(reply, Reply::Error(_)), "{words:?}: {reply:?}");
    reply
}

const STORED: &str = "fencelock:{k}:once";

#[tokio::test]
async fn an_unreadable_completion_is_refused_and_unchanged() {
    let Some(server) = redis_or_skip() else { return };
    let redis = Redis::open(&format!("{}?timeout=5000", server.url())).await.unwrap();
    let held = takes(&redis).await;
    let long = format!("2 5 7 5 {}", "x".repeat(400));
    let stored: [&[&str]; 15] = [
        &["SET", STORED, "3 1780000000000000 7 1780000000000000 web-1:42"],
        &["SET", STORED, "2 1780000000000000 7 web-1:42"],
        &["SET", STORED, "2 1780000000000000 7 0 web-1:42"],
        &["SET", STORED, "2 1780000000000000 7 99999999999999999 web-1:42"],
        &["SET", STORED, "done"],
        &["SET", STORED, ""],
        &["SET", STORED, &long],
        &["SET", STORED, "2 99999999999999999 7 5 web-1:42"],
        &["SET", STORED, "1 5 7 5 web-1:42"],
        &["SET", STORED, "2 05 7 5 web-1:42"],
        &["SET", STORED, "2 5 0 5 web-1:42"],
        &["SET", STORED, "2 5 12345678901234567 5 web-1:42"],
        &["SET", STORED, "2 5 7 5"],
        &["HSET", STORED, "a", "b"],
        &["RPUSH", STORED, "a"],
    ];
    for put in stored {
        command(&server, &["DEL", STORED]);
        command(&server, put);
        let before = command(&server, &["DUMP", STORED]);
        let refusals = [
            redis.read_completion(&key()).await.map(drop),
            write(&redis, &held, &completion(u64::MAX >> 11, 9)).await.map(drop),
        ];
        for refused in refusals {
            let refused = refused.unwrap_err();
            assert!(refused.is_permanent(), "{put:?}: {refused}");
            assert!(
                refused.to_string().contains(STORED) && refused.to_string().contains("nothing was changed"),
                "{refused}"
            );
        }
        let seen = redis.clear_completion(&key(), &completion(1, 1)).await;
        assert_eq!(seen, Ok(ClearCompletion::Changed), "{put:?}");
        assert_eq!(command(&server, &["DUMP", STORED]), before, "{put:?}");
    }
}

#[tokio::test]
async fn a_server_in_quarantine_does_not_report_that_nothing_is_done() {
    let Some(server) = redis_or_skip() else { return };
    let redis = Redis::open(&format!("{}?timeout=5000&quarantine=on&max_ttl=60000", server.url())).await.unwrap();
    let refused = redis.read_completion(&key()).await.unwrap_err();
    assert!(refused.is_quarantine(), "{refused}");
    fencelock::backends::init(&format!("{}?timeout=5000&quarantine=on&max_ttl=60000", server.url()), true)
        .await
        .unwrap();
    assert_eq!(read(&redis).await, None);
}

#[tokio::test(start_paused = true)]
async fn a_completion_is_cleared_on_every_node_or_on_none() {
    let test = TestQuorum::new(3);
    let quorum = &*test.quorum;
    let done = completion(now(quorum).await + HOUR, 7);
    quorum.confirm_completion(&key(), &CountedSuccess::new(done.clone(), done.until_micros)).await.unwrap();
    tokio::time::sleep(ms(200)).await;
    test.nodes[2].road(Road::Refusing);
    assert!(quorum.clear_completion(&key(), &done).await.is_err(), "a later read would restore it");
    assert_eq!(read(quorum).await.as_ref(), Some(&done), "nothing was removed");
    test.nodes[2].road(Road::Open);
    assert_eq!(quorum.clear_completion(&key(), &done).await, Ok(ClearCompletion::Cleared));
    assert_eq!((read(quorum).await, quorum.clear_completion(&key(), &done).await), (None, Ok(ClearCompletion::Absent)));
}
