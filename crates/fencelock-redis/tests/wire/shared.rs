//! Shared locks and permits of this version, and clients of version 0, which do not know them, on one key.

use crate::before::{ALIVE, Before, HELD, HOLDS, KEY, LINE, Version, WAITERS};
use crate::current::{Current, id, key};
use crate::mixed::{stand_still, value, waits};
use fencelock_core::{Acquire, Downgrade, Event, Eviction, Intent, Mode, Occupant, Release, Renew, Resize};
use fencelock_testkit::{RedisServer, Reply, redis_or_skip, redlock_url, servers_or_skip};
use std::time::Duration;

async fn reader(server: &RedisServer, number: u128) -> Current {
    Current::new(server, number).await.in_mode(Mode::Shared)
}

#[tokio::test]
async fn a_client_of_version_0_waits_for_all_readers_and_is_not_overtaken() {
    let Some(server) = redis_or_skip() else { return };
    let (first, second, late) = (reader(&server, 1).await, reader(&server, 2).await, reader(&server, 3).await);
    let mut before = Before::new(Version::Zero, &server, 9);
    first.granted(Intent::Try).await;
    second.granted(Intent::Try).await;
    assert_eq!(before.acquire("try").0, "busy");
    assert_eq!((before.renew().as_str(), before.release().as_str()), ("taken", "taken"));
    waits(&mut before);
    assert_eq!(late.waits().await, 1);
    stand_still(&server);
    assert_eq!(first.release().await, Release::Released);
    assert_eq!(before.acquire("poll").0, "queued");
    stand_still(&server);
    assert_eq!(second.release().await, Release::Released);
    stand_still(&server);
    before.granted("poll");
    assert_eq!(value(&server), format!("{:032x} before:1", 9));
}

#[tokio::test]
async fn a_reader_that_version_0_serves_holds_the_lock_alone() {
    let Some(server) = redis_or_skip() else { return };
    let (first, second) = (reader(&server, 1).await, reader(&server, 2).await);
    let mut before = Before::new(Version::Zero, &server, 9);
    before.granted("try");
    assert_eq!((first.waits().await, second.waits().await), (0, 1));
    stand_still(&server);
    assert_eq!(before.release(), "released");
    stand_still(&server);
    assert_eq!(first.next_event().await, Event::Changed { key: key() }, "a hint to poll");
    first.granted(Intent::Poll).await;
    let Occupant::Holder(holder) = first.occupant().await else { panic!("{}", value(&server)) };
    assert_eq!((holder.id, holder.owner.as_str()), (id(1), "current:1"), "without what follows the tab");
    assert!(matches!(second.acquire(Intent::Poll).await, Acquire::Queued { ahead: 0, .. }));
    assert!(matches!(first.renew().await, Renew::Renewed { waiters: 1 }));
    stand_still(&server);
    assert_eq!(first.release().await, Release::Released);
    assert!(value(&server).starts_with("fencelock:1:r:0:"), "this version shares again: {}", value(&server));
}

#[tokio::test]
async fn readers_behind_a_waiter_of_version_0_that_gives_up_go_on_with_their_next_poll() {
    let Some(server) = redis_or_skip() else { return };
    let (first, second, third) = (reader(&server, 1).await, reader(&server, 2).await, reader(&server, 3).await);
    let mut before = Before::new(Version::Zero, &server, 9);
    first.granted(Intent::Try).await;
    waits(&mut before);
    assert_eq!((second.waits().await, third.waits().await), (1, 2));
    stand_still(&server);
    assert_eq!(before.release(), "taken");
    second.granted(Intent::Poll).await;
    let seen = first.seen().await.unwrap();
    assert!((1..=3).all(|number| seen.has(id(number))), "one poll serves all of them: {seen:?}");
    assert_eq!(server.command(&["EXISTS", LINE, WAITERS, ALIVE]), Reply::Int(0));
}

#[tokio::test]
async fn permits_behind_a_holder_of_version_0_are_handed_over_one_by_one() {
    let Some(server) = redis_or_skip() else { return };
    let permit = Mode::permits(1, 2).unwrap();
    let (first, second) =
        (Current::new(&server, 1).await.in_mode(permit), Current::new(&server, 2).await.in_mode(permit));
    let mut before = Before::new(Version::Zero, &server, 9);
    before.granted("try");
    assert_eq!((first.waits().await, second.waits().await), (0, 1));
    stand_still(&server);
    before.release();
    stand_still(&server);
    first.granted(Intent::Poll).await;
    assert_eq!(before.acquire("try").0, "busy");
    assert_eq!(first.release().await, Release::Released);
    stand_still(&server);
    second.granted(Intent::Poll).await;
    first.granted(Intent::Try).await;
    assert_eq!(first.seen().await.unwrap().holders.count(), 2);
}

#[tokio::test]
async fn a_plain_client_cannot_take_what_readers_hold_and_an_eviction_by_version_0_ends_them_all() {
    let Some(server) = redis_or_skip() else { return };
    let (first, second) = (reader(&server, 1).await, reader(&server, 2).await);
    first.granted(Intent::Try).await;
    second.granted(Intent::Try).await;
    assert_eq!(server.command(&["SET", KEY, "plain", "NX", "PX", "30000"]), Reply::Nil);
    let mut before = Before::new(Version::Zero, &server, 9);
    assert_eq!(before.evict(&value(&server)), Reply::Array(vec![Reply::Int(1), Reply::Int(0)]));
    assert_eq!(first.renew().await, Renew::Absent);
    assert_eq!(second.release().await, Release::Absent);
    before.granted("try");
    assert!(matches!(first.release().await, Release::TakenBy(_)), "a late release frees nothing");
    assert_eq!(before.release(), "released");
    first.granted(Intent::Try).await;
    assert_eq!(server.command(&["ZCARD", HOLDS]), Reply::Int(1), "nothing is left of the old holds");
}

#[tokio::test]
async fn a_hold_that_version_0_handed_over_is_downgraded_and_its_next_waiter_stays_first() {
    let Some(server) = redis_or_skip() else { return };
    let (writer, reader) = (Current::new(&server, 1).await, reader(&server, 2).await);
    let (mut before, mut last) = (Before::new(Version::Zero, &server, 8), Before::new(Version::Zero, &server, 9));
    before.granted("try");
    writer.waits().await;
    waits(&mut last);
    assert_eq!(reader.waits().await, 2);
    stand_still(&server);
    assert_eq!(before.release(), "released");
    stand_still(&server);
    assert!(value(&server).ends_with("current:1\t1"), "version 0 writes the whole entry: {}", value(&server));
    assert!(matches!(writer.downgrade().await, Downgrade::Downgraded { .. }));
    stand_still(&server);
    assert!(matches!(reader.acquire(Intent::Poll).await, Acquire::Queued { ahead: 1, .. }), "version 0 is in front");
    let Occupant::Holder(holder) = writer.occupant().await else { panic!("{}", value(&server)) };
    assert_eq!((holder.id, holder.owner.as_str()), (id(1), "current:1"), "without what follows the tab");
    let held = server.command(&["HGET", HELD, &id(1).to_string()]);
    assert!(held.text().unwrap().ends_with(" current:1"), "{held:?}");
    assert_eq!(writer.release().await, Release::Released);
    stand_still(&server);
    before_holds(&server, &mut last);
}

#[tokio::test]
async fn a_waiter_of_version_0_is_not_changed_by_a_new_limit_and_waits_for_all_permits() {
    let Some(server) = redis_or_skip() else { return };
    let permit = |weight| Mode::permits(weight, 2).unwrap();
    let holder = Current::new(&server, 1).await.in_mode(permit(2));
    let (next, mut before) =
        (Current::new(&server, 2).await.in_mode(permit(1)), Before::new(Version::Zero, &server, 9));
    holder.granted(Intent::Try).await;
    waits(&mut before);
    assert_eq!(next.waits().await, 1);
    stand_still(&server);
    let entry = server.command(&["HGET", WAITERS, &before.id]);
    assert!(matches!(holder.resize(5).await, Resize::Resized(_)));
    assert_eq!(server.command(&["HGET", WAITERS, &before.id]), entry);
    assert!(
        matches!(next.acquire(Intent::Poll).await, Acquire::Queued { ahead: 1, .. }),
        "there is room, but not its turn"
    );
    assert_eq!(holder.release().await, Release::Released);
    stand_still(&server);
    before_holds(&server, &mut before);
    assert_eq!(before.release(), "released");
    stand_still(&server);
    next.granted(Intent::Poll).await;
}

#[tokio::test]
async fn an_eviction_of_the_last_of_several_holds_serves_version_0() {
    let Some(server) = redis_or_skip() else { return };
    let (first, second) = (reader(&server, 1).await, reader(&server, 2).await);
    let mut before = Before::new(Version::Zero, &server, 9);
    first.granted(Intent::Try).await;
    let alone = first.seen().await.unwrap();
    second.granted(Intent::Try).await;
    waits(&mut before);
    stand_still(&server);
    assert_eq!(second.evict(&alone).await, Eviction::Evicted);
    assert_eq!(before.acquire("poll").0, "queued");
    stand_still(&server);
    assert_eq!(first.evict(&second.seen().await.unwrap()).await, Eviction::Evicted);
    stand_still(&server);
    before_holds(&server, &mut before);
}

fn before_holds(server: &RedisServer, before: &mut Before) {
    before.granted("poll");
    assert_eq!(value(server), format!("{} before:1", before.id));
}

#[tokio::test]
async fn on_a_quorum_version_0_waits_for_readers_and_cannot_raise_their_holds() {
    let Some(servers) = servers_or_skip(3) else { return };
    let url = redlock_url(&servers, "trust_empty=true");
    let (first, second) = (at_quorum(&url, 1).await, at_quorum(&url, 2).await);
    let mut before: Vec<_> = servers.iter().map(|server| Before::new(Version::Zero, server, 9)).collect();
    let token = first.granted(Intent::Try).await.max(second.granted(Intent::Try).await);
    // Two nodes decide, and the third one may be late.
    while servers.iter().any(|server| server.command(&["ZCARD", HOLDS]) != Reply::Int(2)) {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    for node in &mut before {
        assert_eq!((node.acquire("try").0.as_str(), node.raise(token + 1)), ("busy", Reply::Int(0)));
        assert_eq!((node.renew().as_str(), node.release().as_str()), ("taken", "taken"));
    }
    assert_eq!(first.release().await, Release::Released);
    assert_eq!(second.release().await, Release::Released);
    while servers.iter().any(|server| server.command(&["EXISTS", KEY]) != Reply::Int(0)) {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    for node in &mut before {
        assert!(node.granted("try") > token);
        assert_eq!(node.raise(token + 1_000_000_000), Reply::Int(1));
    }
    let late = at_quorum(&url, 3).await;
    assert!(matches!(late.acquire(Intent::Try).await, Acquire::Busy(_)));
    for node in &mut before {
        assert_eq!(node.release(), "released");
    }
    assert!(late.granted(Intent::Try).await > token + 1_000_000_000);
}

async fn at_quorum(url: &str, number: u128) -> Current {
    Current::at(url, number).await.in_mode(Mode::Shared)
}
