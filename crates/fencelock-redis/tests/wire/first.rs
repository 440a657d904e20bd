//! Shared locks, permits and completions of the present client and the first one of this version.

use crate::before::{Before, HELD, KEY, ONCE};
use crate::current::{Current, id, key};
use crate::mixed::{stand_still, value};
use fencelock_core::{
    Acquire, ClearCompletion, Completion, Downgrade, Eviction, FencingToken, Intent, Mode, Owner, Release, Renew,
    Resize, WriteCompletion,
};
use fencelock_testkit::{RedisServer, Reply, redis_or_skip};

fn first(server: &RedisServer, number: u128) -> Before {
    Before::new(server, number)
}

async fn in_mode(server: &RedisServer, number: u128, mode: Mode) -> Current {
    Current::new(server, number).await.in_mode(mode)
}

#[tokio::test]
async fn both_read_together_and_admit_each_other_behind_a_writer() {
    let Some(server) = redis_or_skip() else { return };
    let (mut before, mut second) = (first(&server, 1), first(&server, 2));
    let (reader, other) = (in_mode(&server, 3, Mode::Shared).await, in_mode(&server, 4, Mode::Shared).await);
    before.granted_in("try", "r 1 0");
    reader.granted(Intent::Try).await;
    assert_eq!(reader.seen().await.unwrap().holders.count(), 2);
    assert_eq!(before.renew(), "renewed");
    assert!(matches!(reader.renew().await, Renew::Renewed { .. }));
    assert_eq!(before.release(), "released");

    let writer = Current::new(&server, 5).await;
    writer.waits().await;
    assert_eq!(second.claim("enqueue", "r 1 0", "1").0, "queued");
    assert_eq!(other.waits().await, 2);
    stand_still(&server);
    assert_eq!(reader.release().await, Release::Released);
    stand_still(&server);
    writer.granted(Intent::Poll).await;
    assert_eq!(writer.release().await, Release::Released);
    let seen = other.seen().await.unwrap();
    assert!(seen.has(id(2)) && seen.has(id(4)), "one release admits both: {seen:?}");
    second.granted_in("poll", "r 1 0");
    other.granted(Intent::Poll).await;
}

#[tokio::test]
async fn both_count_the_same_permits_and_follow_each_others_limits() {
    let Some(server) = redis_or_skip() else { return };
    let mut before = first(&server, 1);
    let current = in_mode(&server, 2, Mode::permits(2, 3).unwrap()).await;
    before.granted_in("try", "s 2 3");
    assert!(matches!(current.acquire(Intent::Enqueue).await, Acquire::Queued { ahead: 0, .. }));
    stand_still(&server);
    assert_eq!(before.resize(4), "resized");
    current.granted(Intent::Poll).await;
    assert_eq!(server.command(&["HGET", HELD, "#used"]).text(), Some("4"));
    let Resize::Resized(resized) = current.resize(5).await else { panic!("not resized") };
    assert_eq!((resized.before, resized.used), (4, 4));
    assert!(value(&server).starts_with("fencelock:1:s:5:"), "{}", value(&server));
    assert_eq!(before.release(), "released");
    assert_eq!(current.release().await, Release::Released);
    assert_eq!(server.command(&["EXISTS", KEY, HELD]), Reply::Int(0));
}

#[tokio::test]
async fn each_joins_the_readers_that_a_downgrade_of_the_other_admits() {
    let Some(server) = redis_or_skip() else { return };
    let (mut before, current) = (first(&server, 1), in_mode(&server, 2, Mode::Shared).await);
    let token = before.granted("try");
    current.waits().await;
    stand_still(&server);
    assert!(before.downgrade() > token);
    current.granted(Intent::Poll).await;
    assert_eq!((before.release().as_str(), current.release().await), ("released", Release::Released));

    let (writer, mut reader) = (Current::new(&server, 3).await, first(&server, 4));
    writer.granted(Intent::Try).await;
    assert_eq!(reader.claim("enqueue", "r 1 0", "1").0, "queued");
    stand_still(&server);
    assert!(matches!(writer.downgrade().await, Downgrade::Downgraded { .. }));
    reader.granted_in("poll", "r 1 0");
    assert_eq!(writer.seen().await.unwrap().holders.count(), 2);
}

#[tokio::test]
async fn each_evicts_one_of_several_holds_of_the_other() {
    let Some(server) = redis_or_skip() else { return };
    let (mut before, current) = (first(&server, 1), in_mode(&server, 2, Mode::Shared).await);
    current.granted(Intent::Try).await;
    let of_current = current.seen().await.unwrap();
    before.granted_in("try", "r 1 0");
    let token = of_current.first().fence.unwrap();
    assert_eq!(
        before.evict_as(&format!("{} {token}", id(2)), "holds"),
        Reply::Array(vec![Reply::Int(1), Reply::Int(0)])
    );
    assert!(matches!(current.renew().await, Renew::TakenBy(_)));
    assert_eq!(current.evict(&current.seen().await.unwrap()).await, Eviction::Evicted);
    assert_eq!((before.renew().as_str(), value(&server)), ("absent", String::new()));
}

#[tokio::test]
async fn a_completion_of_the_first_client_is_read_and_replaced_and_the_first_client_refuses_the_new_one() {
    let Some(server) = redis_or_skip() else { return };
    let (mut before, current) = (first(&server, 1), Current::new(&server, 2).await);
    let until = 9_000_000_000_000_000;
    let token = before.granted("try");
    assert_eq!(before.write_completion(until, token), "written");
    before.release();
    let read = current.backend.read_completion(&key()).await.unwrap().completion.unwrap();
    assert_eq!(read.to_wire(), before.read_completion());
    assert_eq!((read.until_micros, read.granted_micros), (until, None));

    let token = FencingToken::new(current.granted(Intent::Try).await).unwrap();
    let completion = Completion::new(until - 1, token, 1_780_000_000_000_000, Owner::from_text("current:1"));
    let written = current.backend.write_completion(&key(), &id(2), &completion).await.unwrap();
    assert_eq!(written, WriteCompletion::Written);
    let stored = format!("2 {until} {token} 1780000000000000 current:1");
    assert_eq!(server.command(&["GET", ONCE]).text(), Some(stored.as_str()), "it is kept until the later end");
    assert_eq!(current.release().await, Release::Released);

    // As the text of another version, which it reports: it runs nothing and overwrites nothing.
    assert_eq!(before.read_completion(), stored[..stored.len().min(60)]);
    let token = before.granted("try");
    assert_eq!(before.write_completion(until + 1, token), "unread");
    assert_eq!(current.backend.clear_completion(&key(), &completion).await.unwrap(), ClearCompletion::Cleared);
    assert_eq!(before.read_completion(), "");
}
