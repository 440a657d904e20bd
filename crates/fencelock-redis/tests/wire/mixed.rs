//! The present client and the first one of this version lock one key.

use crate::before::{ALIVE, ALONE, Before, Handed, KEY, LINE, MARKER, WAITERS};
use crate::current::{Current, id, key};
use fencelock::backends::init;
use fencelock_core::{Acquire, Event, Eviction, HolderId, Intent, Occupant, Release, Renew};
use fencelock_testkit::{RedisServer, Reply, Shift, WallClock, redis_or_skip, redlock_url, servers_or_skip};
use std::collections::BTreeMap;
use std::time::Duration;

/// Long enough that no waiter and no lease expires on a slow machine.
pub(crate) fn stand_still(server: &RedisServer) {
    let far = "9000000000000";
    let script = "for _, id in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do redis.call('ZADD', KEYS[2], ARGV[1], id) end \
                  redis.call('PEXPIRE', KEYS[3], 600000)";
    server.command(&["EVAL", script, "3", LINE, ALIVE, KEY, far]);
}

pub(crate) fn waits(before: &mut Before) {
    assert_eq!(before.acquire("enqueue").0, "queued");
}

pub(crate) fn value(server: &RedisServer) -> String {
    server.command(&["GET", KEY]).text().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn both_share_one_queue_and_hand_over_to_each_other() {
    let Some(server) = redis_or_skip() else { return };
    let holder = Current::new(&server, 9).await;
    let (mut first, second) = (Before::new(&server, 1), Current::new(&server, 2).await);
    let (mut third, fourth) = (Before::new(&server, 3), Current::new(&server, 4).await);
    let mut tokens = vec![holder.granted(Intent::Try).await];
    waits(&mut first);
    assert_eq!(second.waits().await, 1);
    waits(&mut third);
    assert_eq!(fourth.waits().await, 3);
    stand_still(&server);

    assert_eq!(holder.release().await, Release::Released);
    stand_still(&server);
    match &first.received()[..] {
        [Some(Handed { id, .. })] if *id == first.id => {}
        other => panic!("{other:?}"),
    }
    tokens.push(first.granted("poll"));

    assert_eq!(first.release(), "released");
    stand_still(&server);
    assert!(matches!(second.next_event().await, Event::Handed { key: of, .. } if of == key()));
    tokens.push(second.granted(Intent::Poll).await);

    assert_eq!(second.release().await, Release::Released);
    stand_still(&server);
    tokens.push(third.granted("poll"));

    assert_eq!(third.release(), "released");
    stand_still(&server);
    tokens.push(fourth.granted(Intent::Poll).await);

    assert_eq!(fourth.release().await, Release::Released);
    assert_eq!(server.command(&["EXISTS", KEY, LINE, WAITERS, ALIVE]), Reply::Int(0));
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
}

/// How long each waiter has waited, as the present client shows it.
async fn waits_shown(client: &Current) -> Vec<(HolderId, Option<Duration>)> {
    let queue = client.seen().await.unwrap().queue.unwrap();
    queue.into_iter().map(|waiter| (waiter.holder.id, waiter.waited)).collect()
}

#[tokio::test]
async fn the_wait_of_a_first_client_is_unknown_wherever_it_stands_in_the_queue() {
    let Some(server) = redis_or_skip() else { return };
    let holder = Current::new(&server, 9).await;
    holder.granted(Intent::Try).await;
    for number in [1, 2, 3, 4, 5, 6] {
        if [2, 5].contains(&number) {
            Current::new(&server, number).await.waits().await;
        } else {
            waits(&mut Before::new(&server, number));
        }
        stand_still(&server);
    }
    let shown = waits_shown(&holder).await;
    assert_eq!(shown.iter().map(|(of, _)| *of).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6].map(id));
    for (number, (_, waited)) in (1..).zip(shown) {
        let is_sane = waited.is_some_and(|waited| waited < Duration::from_secs(600));
        assert!(if [2, 5].contains(&number) { is_sane } else { waited.is_none() }, "{number}: {waited:?}");
    }
}

/// The commands that scripts have run so far, with their numbers, without those that clients send.
fn commands(server: &RedisServer) -> BTreeMap<String, u64> {
    let stats = server.command(&["INFO", "commandstats"]).text().unwrap().to_owned();
    let count = |line: &str| {
        let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        Some((name.to_owned(), rest.split(',').next()?.parse().ok()?))
    };
    let sent = ["eval", "evalsha", "info", "time", "client|caching"];
    stats.lines().filter_map(count).filter(|(name, _)| !sent.contains(&name.as_str())).collect()
}

#[tokio::test]
async fn to_join_the_queue_costs_the_server_no_more_than_for_a_first_client() {
    let Some(server) = redis_or_skip() else { return };
    Current::new(&server, 9).await.granted(Intent::Try).await;
    let (mut first, second) = (Before::new(&server, 1), Current::new(&server, 2).await);
    // What a connection sends is over, and what only the first waiter of a queue needs.
    second.seen().await.unwrap();
    waits(&mut Before::new(&server, 3));
    let mut counts = vec![commands(&server)];
    waits(&mut first);
    counts.push(commands(&server));
    second.waits().await;
    counts.push(commands(&server));
    let of = |step: usize| {
        let more = |(name, count): (&String, &u64)| (name.clone(), count - counts[step].get(name).unwrap_or(&0));
        counts[step + 1].iter().map(more).filter(|(_, count)| *count > 0).collect::<BTreeMap<_, _>>()
    };
    let (before, now) = (of(0), of(1));
    assert!(now.iter().all(|(name, count)| before.get(name) >= Some(count)), "{before:?} {now:?}");
    assert!(now["zadd"] == 2 && now.len() > 5, "{now:?}");
}

#[tokio::test]
async fn waiters_stay_in_their_order_when_the_clock_of_the_server_goes_back() {
    if redis_or_skip().is_none() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let clock = WallClock::new(dir.path(), "clock").unwrap();
    let server = RedisServer::options().wall_clock(&clock).start().unwrap();
    let holder = Current::new(&server, 9).await;
    holder.granted(Intent::Try).await;
    Current::new(&server, 1).await.waits().await;
    clock.set(Shift::Back(Duration::from_secs(60))).unwrap();
    Current::new(&server, 2).await.waits().await;
    stand_still(&server);
    assert_eq!(waits_shown(&holder).await, [(id(1), None), (id(2), None)], "both arrive in the future");
    clock.set(Shift::None).unwrap();
    let shown = waits_shown(&holder).await;
    assert_eq!(shown.iter().map(|(of, _)| *of).collect::<Vec<_>>(), [id(1), id(2)]);
    let is_sane = |waited: &Option<Duration>| waited.is_some_and(|waited| waited < Duration::from_secs(60));
    assert!(shown.iter().all(|(_, waited)| is_sane(waited)), "{shown:?}");
}

#[tokio::test]
async fn a_waiter_that_gives_up_leaves_the_order_of_both() {
    let Some(server) = redis_or_skip() else { return };
    let holder = Current::new(&server, 9).await;
    holder.granted(Intent::Try).await;
    let (mut first, second) = (Before::new(&server, 1), Current::new(&server, 2).await);
    let (mut third, fourth) = (Before::new(&server, 3), Current::new(&server, 4).await);
    waits(&mut first);
    second.waits().await;
    waits(&mut third);
    fourth.waits().await;
    stand_still(&server);
    assert_eq!(first.release(), "taken");
    assert!(matches!(second.release().await, Release::TakenBy(_)));
    holder.release().await;
    stand_still(&server);
    assert_eq!(holder.holder().await, Some(id(3)));
    assert_eq!(third.release(), "released");
    assert_eq!(holder.holder().await, Some(id(4)));
}

#[tokio::test]
async fn a_hold_that_the_other_handed_over_is_renewed_and_released() {
    let Some(server) = redis_or_skip() else { return };
    let (mut before, current) = (Before::new(&server, 1), Current::new(&server, 2).await);
    current.granted(Intent::Try).await;
    waits(&mut before);
    stand_still(&server);
    current.release().await;
    assert_eq!(value(&server), format!("{:032x} before:1", 1));
    assert_eq!(before.renew(), "renewed");

    current.waits().await;
    stand_still(&server);
    assert_eq!(before.release(), "released");
    let Occupant::Holder(holder) = current.occupant().await else { panic!("{}", value(&server)) };
    assert_eq!(holder.owner.as_str(), "current:1", "the first client writes more than that");
    assert!(matches!(current.renew().await, Renew::Renewed { .. }));
    assert_eq!(current.release().await, Release::Released);
}

#[tokio::test]
async fn neither_renews_or_frees_what_the_other_holds() {
    let Some(server) = redis_or_skip() else { return };
    let (mut before, current) = (Before::new(&server, 1), Current::new(&server, 2).await);
    before.granted("try");
    assert!(matches!(current.renew().await, Renew::TakenBy(_)));
    assert!(matches!(current.release().await, Release::TakenBy(_)));
    assert_eq!(before.acquire("try").0, "yours");
    assert_eq!(before.release(), "released");

    current.granted(Intent::Try).await;
    assert_eq!((before.renew().as_str(), before.release().as_str()), ("taken", "taken"));
    assert_eq!(before.acquire("try").0, "busy");
    assert_eq!(current.holder().await, Some(id(2)));
}

#[tokio::test]
async fn each_breaks_the_lock_of_the_other_and_the_queue_continues() {
    let Some(server) = redis_or_skip() else { return };
    let (mut before, current) = (Before::new(&server, 1), Current::new(&server, 2).await);
    before.granted("try");
    current.waits().await;
    stand_still(&server);
    let seen = current.seen().await.unwrap();
    assert_eq!(current.evict(&seen).await, Eviction::Evicted);
    assert_eq!(current.holder().await, Some(id(2)));

    waits(&mut before);
    stand_still(&server);
    let Reply::Array(seen) = before.inspect() else { panic!("nothing is held") };
    assert_eq!(seen[4], Reply::Int(1), "one waits");
    let seen = seen[0].text().unwrap().to_owned();
    assert_eq!(before.evict(&seen), Reply::Array(vec![Reply::Int(1), Reply::Int(0)]));
    assert_eq!(current.holder().await, Some(id(1)));
}

#[tokio::test]
async fn a_dead_waiter_of_either_is_skipped_by_the_other() {
    let Some(server) = redis_or_skip() else { return };
    let (mut before, current) = (Before::new(&server, 1), Current::new(&server, 2).await);
    let (mut old_waiter, new_waiter) = (Before::new(&server, 3), Current::new(&server, 4).await);
    let dies = |number: u128| server.command(&["ZADD", ALIVE, "1", &format!("{number:032x}")]);
    current.granted(Intent::Try).await;
    waits(&mut old_waiter);
    waits(&mut before);
    stand_still(&server);
    dies(3);
    current.release().await;
    assert_eq!(current.holder().await, Some(id(1)));

    new_waiter.waits().await;
    current.waits().await;
    stand_still(&server);
    dies(4);
    assert_eq!(before.release(), "released");
    assert_eq!(current.holder().await, Some(id(2)));
}

#[tokio::test]
async fn either_reads_the_marker_of_the_other() {
    let Some(server) = redis_or_skip() else { return };
    let url = format!("{}?quarantine=on&trust_empty=true", server.url());
    let mut before = Before::guarded(&server, 1);
    let written = before.handshake();
    assert!(matches!(&written, Reply::Array(words) if words[1].text() == Some(ALONE)), "{written:?}");
    let current = Current::at(&url, 2).await;
    current.granted(Intent::Try).await;
    current.release().await;
    assert_eq!(server.command(&["HGET", MARKER, "version"]).text(), Some("1"));

    server.command(&["DEL", MARKER]);
    drop(current);
    let current = Current::at(&url, 3).await;
    current.granted(Intent::Try).await;
    current.release().await;
    assert_eq!(server.command(&["HGET", MARKER, "version"]).text(), Some("1"));
    before.granted("try");
}

#[tokio::test]
async fn either_registers_a_server_with_the_marker_of_the_other() {
    let Some(server) = redis_or_skip() else { return };
    let url = format!("{}?quarantine=on&trust_empty=true", server.url());
    let mut before = Before::guarded(&server, 1);
    assert_eq!(before.init(), "new");
    init(&url, true).await.unwrap();
    let current = Current::at(&url, 2).await;
    current.granted(Intent::Try).await;
    assert_eq!(before.init(), "unchanged");
    assert_eq!(before.acquire("try").0, "busy", "its marker is as it was");
    assert_eq!(server.command(&["HGET", MARKER, "version"]).text(), Some("1"));
    assert_eq!(current.release().await, Release::Released);
    before.granted("try");
}

#[tokio::test]
async fn claims_that_share_a_script_respect_a_holder_and_a_waiter_of_the_other() {
    let Some(server) = redis_or_skip() else { return };
    let (mut holder, mut waiter) = (Before::new(&server, 1), Before::new(&server, 2));
    holder.granted("try");
    assert!(matches!(Current::new(&server, 8).await.try_together(&server).await, Acquire::Busy(_)));
    holder.release();

    let current = Current::new(&server, 9).await;
    assert!(matches!(current.try_together(&server).await, Acquire::Granted { .. }));
    waits(&mut waiter);
    stand_still(&server);
    assert_eq!(current.release_together().await, Release::Released);
    assert_eq!(current.holder().await, Some(id(2)));

    waits(&mut holder);
    stand_still(&server);
    server.command(&["DEL", KEY]);
    let answer = Current::new(&server, 10).await.try_together(&server).await;
    assert!(matches!(answer, Acquire::Busy(_)), "no claim overtakes the queue: {answer:?}");
    assert_eq!(current.holder().await, Some(id(1)));
}

#[tokio::test]
async fn exclusive_claims_of_both_exclude_each_other_on_a_quorum() {
    let Some(servers) = servers_or_skip(3) else { return };
    let current = Current::at(&redlock_url(&servers, "trust_empty=true"), 1).await;
    let mut before: Vec<_> = servers.iter().map(|server| Before::new(server, 9)).collect();
    let token = current.granted(Intent::Try).await;
    until_all(&servers, true).await;
    for node in &mut before {
        let time = node.micros();
        assert_eq!(node.claim("try", "proposed", &time).0, "busy");
        assert_eq!(node.raise(token + 1), Reply::Int(0));
    }
    assert_eq!(current.release().await, Release::Released);
    until_all(&servers, false).await;

    let proposal = before[0].micros();
    let granted: Vec<u64> = before.iter_mut().map(|node| node.granted_with("try", "proposed", &proposal)).collect();
    let agreed = *granted.iter().max().unwrap();
    assert!(granted.iter().all(|granted| *granted > token), "{granted:?} after {token}");
    for node in &mut before {
        assert_eq!(node.raise(agreed), Reply::Int(1));
    }
    assert!(matches!(current.acquire(Intent::Try).await, Acquire::Busy(_)));
    for node in &mut before {
        assert_eq!(node.release(), "released");
    }
    assert!(current.granted(Intent::Try).await > agreed);
}

/// Two nodes decide, and the third one may be late.
async fn until_all(servers: &[RedisServer], is_held: bool) {
    while servers.iter().any(|server| server.command(&["EXISTS", KEY]) != Reply::Int(is_held.into())) {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
