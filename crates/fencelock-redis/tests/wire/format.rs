//! The bytes that this version writes. They may not change without a new version.

use crate::current::{Current, id, key};
use crate::{ALIVE, HELD, HOLDS, KEY, LINE, MARKER, ONCE, WAITERS, stand_still};
use fencelock_core::{Completion, FencingToken, HolderId, Intent, Mode, Owner};
use fencelock_testkit::{RedisServer, Reply, RespClient, Shift, WallClock, redis_or_skip};
use std::fmt::Write as _;
use std::time::Duration;

/// What was written, one line for each value, in the order of the table in `docs/design/redis.md`.
struct Written {
    server: RedisServer,
    run_id: String,
    text: String,
}

impl Written {
    fn new(server: RedisServer) -> Self {
        let info = server.command(&["INFO", "server"]);
        let run_id = info.text().unwrap().lines().find_map(|line| line.strip_prefix("run_id:")).unwrap().to_owned();
        Self { server, run_id, text: String::new() }
    }

    /// The parts of a reply, in order.
    fn note(&mut self, what: &str, reply: &Reply) {
        let mut parts = Vec::new();
        flatten(reply, &mut parts);
        let parts: Vec<_> = parts.iter().map(|part| constant(&part.replace(&self.run_id, "<run id>"))).collect();
        writeln!(self.text, "{what}: {}", parts.join(" | ")).unwrap();
    }

    fn read(&mut self, what: &str, command: &[&str]) {
        let reply = self.server.command(command);
        assert!(!matches!(reply, Reply::Error(_) | Reply::Nil), "{what}: {reply:?}");
        self.note(what, &reply);
    }
}

fn flatten(reply: &Reply, into: &mut Vec<String>) {
    match reply {
        Reply::Array(parts) => parts.iter().for_each(|part| flatten(part, into)),
        Reply::Int(number) => into.push(number.to_string()),
        other => into.push(other.text().unwrap().to_owned()),
    }
}

/// A time or token, a channel and a tab in a form that is the same in each run.
fn constant(text: &str) -> String {
    let mut constant = String::new();
    for word in text.replace('\t', "\u{2409}").split_inclusive([' ', ':', '\u{2409}']) {
        let bare = word.trim_end_matches([' ', ':', '\u{2409}']);
        let is_number = bare.bytes().all(|digit| digit.is_ascii_digit());
        let is_hex = bare.bytes().all(|digit| digit.is_ascii_hexdigit());
        constant += match bare.len() {
            16 if constant.ends_with("fencelock:wake:") && is_hex => "<16 hex>",
            16 if is_number => "<us>",
            13 if is_number => "<ms>",
            _ => bare,
        };
        constant += &word[bare.len()..];
    }
    constant
}

async fn waiter(url: &str, number: u128, mode: Mode) -> Current {
    let waiter = Current::at(url, number).await.in_mode(mode);
    waiter.waits().await;
    waiter
}

/// Hands over to the waiter, however slow the machine is.
async fn release(server: &RedisServer, holder: &Current) {
    stand_still(server);
    holder.release().await;
    stand_still(server);
}

/// The next message on the channel of a waiter's entry.
fn subscriber(server: &RedisServer, number: u128) -> RespClient {
    let entry = server.command(&["HGET", WAITERS, &id(number).to_string()]);
    let channel = entry.text().unwrap().split(' ').nth(2).unwrap().to_owned();
    let mut subscriber = server.connect().unwrap();
    assert!(matches!(subscriber.command(&["SUBSCRIBE", &channel]), Reply::Array(_)));
    subscriber
}

/// What several clients write in turn.
async fn written(server: RedisServer) -> String {
    let url = format!("{}?quarantine=on&trust_empty=true", server.url());
    let mut written = Written::new(server);
    let holder = Current::at(&url, 1).await;
    let token = holder.granted(Intent::Try).await;
    written.read("value, exclusive", &["GET", KEY]);
    written.read("fence", &["GET", "fencelock:{k}:fence"]);
    let exclusive = waiter(&url, 2, Mode::Exclusive).await;
    written.read("line", &["ZRANGE", LINE, "0", "-1", "WITHSCORES"]);
    written.read("alive", &["ZRANGE", ALIVE, "0", "-1", "WITHSCORES"]);
    written.read("entry, exclusive", &["HGETALL", WAITERS]);
    let mut subscriber = subscriber(&written.server, 2);
    let token = FencingToken::new(token).unwrap();
    let completion =
        Completion::new(9_000_000_000_000_000, token, 1_000_000_000_000_000, Owner::from_text("current:1"));
    holder.backend.write_completion(&key(), &id(1), &completion).await.unwrap();
    release(&written.server, &holder).await;
    let Reply::Array(message) = subscriber.receive() else { panic!("no message") };
    written.note("hand-off message", &message[2]);

    exclusive.granted(Intent::Poll).await;
    let reader = waiter(&url, 3, Mode::Shared).await;
    written.read("entry, shared", &["HGETALL", WAITERS]);
    release(&written.server, &exclusive).await;
    written.read("value, shared", &["GET", KEY]);
    written.read("holds, shared", &["ZRANGE", HOLDS, "0", "-1", "WITHSCORES"]);
    written.read("held, shared", &["HGETALL", HELD]);
    reader.release().await;
    holder.granted(Intent::Try).await;
    let _user = waiter(&url, 4, Mode::permits(2, 3).unwrap()).await;
    written.read("entry, permits", &["HGETALL", WAITERS]);
    release(&written.server, &holder).await;
    written.read("value, permits", &["GET", KEY]);
    written.read("held, permits", &["HGET", HELD, &id(4).to_string()]);
    written.read("held, permits in use", &["HGET", HELD, "#used"]);
    for field in ["version", "epoch", "until", "span", "quorum", "nodes"] {
        written.read(&format!("marker, {field}"), &["HGET", MARKER, field]);
    }
    written.read("marker, number of fields", &["HLEN", MARKER]);
    written.read("completion", &["GET", ONCE]);
    written.text
}

#[tokio::test]
async fn what_clients_write_does_not_change() {
    let Some(server) = redis_or_skip() else { return };
    let written = written(server).await;
    let path = format!("{}/tests/wire/format.txt", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("FENCELOCK_UPDATE").is_some() {
        std::fs::write(&path, &written).unwrap();
    }
    assert_eq!(written, std::fs::read_to_string(&path).unwrap(), "the format changed: see tests/wire/main.rs");
}

/// How long each waiter has waited, as the present client shows it.
async fn waits_shown(client: &Current) -> Vec<(HolderId, Option<Duration>)> {
    let queue = client.seen().await.unwrap().queue.unwrap();
    queue.into_iter().map(|waiter| (waiter.holder.id, waiter.waited)).collect()
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
