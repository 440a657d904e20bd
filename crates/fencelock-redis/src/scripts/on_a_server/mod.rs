//! What no answer of the backend shows: the common case of a script, alone and for several locks, does what the rest of the script does,
//! in any state of the keys, without any right, and beyond the last token; how long keys live; scripts that run twice; a quarantine to
//! the millisecond.

mod waiters;

use super::combined::{self, Common};
use super::quarantine::{EpochCheck, Quarantine};
use super::reply::Evicting;
use super::script::{self, ACQUIRE_FAST, Call, RELEASE_FAST, RENEW_FAST, Requested, SIDE};
use super::side_key::side_key;
use super::wire::WIRE;
use fencelock_core::{Claim, Completion, FencingToken, Holder, HolderId, Intent, Key, Mode, Owner, Ttl};
use fencelock_testkit::{RedisServer, Reply, WallClock, stopped_or_skip};
use redis::{Arg, Cmd, Connection, Value};
use std::num::NonZeroU32;
use std::time::Duration;

const NOW: u64 = 1_780_000_000_000_000;
const RUN_ID: &str = "0123456789abcdef";
/// The text of [`holder`].
const ID: &str = "00000000000000000000000000000007";
const TTL: Duration = Duration::from_secs(30);
const HELD: &str = "SET LOCK ID:host:1 PX 10000";

/// Written before a script runs, with these words for the keys, the holder, and what a client with a quarantine expects.
const STATES: &[&[&str]] = &[
    &[],
    &["SET FENCE 0"],
    &["SET FENCE 1.5"],
    &["SET FENCE -5"],
    &["SET FENCE soon"],
    &["SET FENCE nan"],
    &["SET FENCE inf"],
    &["SET FENCE 0x10"],
    &["SET FENCE 1779999999999990"],
    &["SET FENCE 1779999999999999"],
    &["SET FENCE 1779999999999999.5"],
    &["SET FENCE 1780000000000000"],
    &["SET FENCE 9007199254740991"],
    &["HSET FENCE a 1"],
    &["SET LINE a"],
    &["SET LOCK another"],
    &["HSET LOCK a 1"],
    &["SET LOCK ID"],
    &["SET LOCK IDx"],
    &["SET LOCK ID: PX 10000"],
    &[HELD, "SET FENCE 1780000000000000 PX 5000"],
    &["SET LOCK ID:host:1 PX 90000"],
    &["SET LOCK ID:host:1 PX 30500"],
    &[HELD, "SET LINE a"],
    &[HELD, "ZADD LINE 5 ab"],
    &["ZADD LINE 5 ab"],
    &[HELD, "HSET FENCE a 1"],
    &[HELD, "SETRANGE LOCK 400 x"],
    &[HELD, "HSET MARKER epoch RUN until 1780000005000 quorum QUORUM"],
    &["HSET MARKER epoch RUN until 0 quorum QUORUM version 1"],
    &["HSET MARKER epoch RUN until 0 quorum QUORUM"],
    &["HSET MARKER epoch RUN until 0 quorum QUORUM version 2"],
    &["HSET MARKER epoch RUN until 1779999999999 quorum QUORUM version 1"],
    &["HSET MARKER epoch RUN until 1780000000000 quorum QUORUM version 1"],
    &["HSET MARKER epoch RUN until 1780000000001 quorum QUORUM version 1"],
    &["HSET MARKER epoch RUN until soon quorum QUORUM version 1"],
    &["HSET MARKER epoch RUN quorum QUORUM version 1"],
    &["HSET MARKER epoch another until 0 quorum QUORUM version 1"],
    &["HSET MARKER epoch RUN until 0 quorum another version 1"],
    &["SET MARKER a"],
];

#[derive(Debug, Clone, Copy)]
enum What {
    Claim(Intent, u32),
    Release,
    Renew,
}

/// What the common cases can do, whether the client has a quarantine, and whether the script derives the names of keys.
const SUBJECTS: [(What, bool, bool); 10] = [
    (What::Claim(Intent::Try, 1), false, false),
    (What::Claim(Intent::Enqueue, 64), false, true),
    (What::Claim(Intent::Enqueue, 1), true, false),
    (What::Claim(Intent::Try, 64), true, true),
    (What::Release, false, false),
    (What::Release, false, true),
    (What::Release, true, true),
    (What::Release, true, false),
    (What::Renew, false, false),
    // Never a common case.
    (What::Claim(Intent::Poll, 1), false, true),
];

/// Commands that are denied, one at a time: a common case needs fewer than the rest.
const OF_CLAIM: &[&str] = &["", "exists", "time", "set", "hmget"];
const OF_RELEASE: &[&str] = &["", "zcard", "time", "del"];
const OF_RENEWAL: &[&str] = &["", "exists", "zcard", "get", "time", "set", "del", "pttl", "pexpire"];
const OF_SEVERAL: &[&str] = &["", "exists", "time", "set", "getrange", "del"];

/// The server's time, a command that it denies, and the state of the keys.
#[derive(Debug, Clone, Copy)]
struct Case {
    now: u64,
    denied: &'static str,
    state: &'static [&'static str],
}

fn holder() -> HolderId {
    HolderId::from_bytes(7_u128.to_be_bytes())
}

fn claim(name: &str, intent: Intent, wanted: u32) -> Claim {
    let holder = Holder { id: holder(), owner: Owner::from_text("host:1") };
    let claim = Claim::new(Key::new(name).unwrap(), holder, Ttl::new(TTL).unwrap(), intent);
    claim.with_block(NonZeroU32::new(wanted).unwrap())
}

impl What {
    fn call(self, name: &str, is_marked: bool, derives_keys: bool) -> Call {
        let quarantine = Quarantine::alone(name, Ttl::default(), false);
        let mark = is_marked.then_some(&quarantine);
        let check = EpochCheck { derives_keys, mark, ..EpochCheck::without_marker(RUN_ID) };
        match self {
            Self::Claim(intent, wanted) => {
                let claim = claim(name, intent, wanted);
                script::acquire(name, &claim, script::is_common(&claim), Requested::Own(NOW), None, check)
            }
            Self::Release => script::release(name, &holder(), NOW, check),
            Self::Renew => script::renew(name, &holder(), TTL, TTL),
        }
    }

    fn common(self, name: &str) -> Common {
        match self {
            Self::Claim(intent, wanted) => Common::claim(name, &claim(name, intent, wanted)),
            _ => Common::release(name, &holder()),
        }
    }

    /// The reply without the abbreviation of the common case. An error names the digest of the script and a line of it, which differ.
    fn said(self, reply: &redis::RedisResult<Value>) -> String {
        let word = |word: &str| Value::BulkString(word.into());
        let whole = match (self, reply) {
            (Self::Claim(_, wanted), Ok(Value::Int(last))) => {
                vec![word("granted"), word(&last.to_string()), Value::Int(wanted.into())]
            }
            (Self::Release, Ok(Value::Int(1))) => vec![word("released"), Value::Int(0)],
            (_, Ok(reply)) => return format!("{reply:?}"),
            (_, Err(error)) => {
                let text = error.to_string();
                let words = text.split(|c: char| !c.is_alphanumeric());
                return words.filter(|word| !word.bytes().any(|byte| byte.is_ascii_digit())).collect();
            }
        };
        format!("{:?}", Value::Array(whole))
    }
}

/// A script in full, without its common case.
fn without_common_case(call: &Call) -> Cmd {
    let full = call.in_full();
    let words: Vec<_> = full.args_iter().map(|arg| if let Arg::Simple(word) = arg { word } else { b"" }).collect();
    let source = std::str::from_utf8(words[1]).unwrap();
    let rest = [ACQUIRE_FAST, RELEASE_FAST, RENEW_FAST]
        .iter()
        .fold(source.to_owned(), |source, fast| source.replace(&fast.replace("WIRE", WIRE), ""));
    assert_ne!(rest, source, "the script has no common case");
    let mut cmd = redis::cmd("EVAL");
    cmd.arg(rest).arg(&words[2..]);
    cmd
}

/// A lock, its side keys and its marker.
fn names(name: &str) -> Vec<String> {
    let side = SIDE.iter().map(|what| side_key(name, what));
    [name.to_owned()].into_iter().chain(side).chain([Quarantine::alone(name, Ttl::default(), false).marker]).collect()
}

struct Server {
    process: RedisServer,
    clock: WallClock,
    /// Has all rights.
    operator: Connection,
    client: Connection,
}

impl Server {
    fn start() -> Option<Self> {
        let user = ["--user", "operator", "on", ">x", "~*", "&*", "+@all"];
        let (server, clock) = stopped_or_skip(NOW, &user)?;
        let open = |url: &str| redis::Client::open(url).unwrap().get_connection().unwrap();
        let (operator, client) = (open(&server.url().replace("://", "://operator:x@")), open(&server.url()));
        Some(Self { process: server, clock, operator, client })
    }

    /// Calls `check` in each state, without each of these commands, and at a time that leaves no token.
    fn in_each_case(&mut self, denied: &[&'static str], mut check: impl FnMut(&mut Self, Case)) {
        for (now, denied) in denied.iter().map(|denied| (NOW, *denied)).chain([(FencingToken::MAX + 1, "")]) {
            self.clock.stop_at(now).unwrap();
            let right = if denied.is_empty() { "+@all".to_owned() } else { format!("-{denied}") };
            redis::cmd("ACL").arg(&["SETUSER", "default", "+@all", &right]).exec(&mut self.operator).unwrap();
            for state in STATES {
                check(self, Case { now, denied, state });
            }
        }
    }

    fn prepare(&mut self, name: &str, state: &[&str]) {
        let names = names(name);
        redis::cmd("DEL").arg(&names).exec(&mut self.operator).unwrap();
        for command in state {
            let mut words = command.split(' ').map(|word| match word {
                "LOCK" => names[0].clone(),
                "FENCE" => names[1].clone(),
                "LINE" => names[2].clone(),
                "ALIVE" => names[4].clone(),
                "HOLDS" => names[5].clone(),
                "HELD" => names[6].clone(),
                "MARKER" => names[7].clone(),
                "RUN" => RUN_ID.to_owned(),
                "QUORUM" => Quarantine::alone(name, Ttl::default(), false).quorum,
                word if word.starts_with("fencelock") => word.to_owned(),
                word if word.starts_with("1:") => word.replace(':', " "),
                word => word.replace("ID", ID).replacen(':', " ", 1),
            });
            redis::cmd(&words.next().unwrap()).arg(words.collect::<Vec<_>>()).exec(&mut self.operator).unwrap();
        }
    }

    /// The content and the TTL of a lock, its side keys and its marker.
    fn state(&mut self, name: &str) -> Vec<String> {
        const READ: &str = "local all = {} for i = 1, #KEYS do local dump = redis.call('DUMP', KEYS[i])
            all[i] = (dump and redis.sha1hex(dump) or 'none') .. redis.call('PTTL', KEYS[i]) end return all";
        let names = names(name);
        redis::cmd("EVAL").arg(READ).arg(names.len()).arg(names).query(&mut self.operator).unwrap()
    }

    fn send(&mut self, what: What, call: &Cmd) -> String {
        what.said(&call.query(&mut self.client))
    }
}

#[test]
fn a_common_case_does_what_the_rest_of_its_script_does() {
    let Some(mut server) = Server::start() else { return };
    for (what, is_marked, derives_keys) in SUBJECTS {
        let denied = match what {
            What::Claim(..) => OF_CLAIM,
            What::Release => OF_RELEASE,
            What::Renew => OF_RENEWAL,
        };
        server.in_each_case(denied, |server, case| {
            server.prepare("a", case.state);
            server.prepare("b", case.state);
            let whole = server.send(what, &what.call("a", is_marked, derives_keys).in_full());
            let rest = server.send(what, &without_common_case(&what.call("b", is_marked, derives_keys)));
            assert_eq!((whole, server.state("a")), (rest, server.state("b")), "{what:?}, {case:?}");
        });
    }
}

/// Each of the others in the batch is a common case.
#[test]
fn several_locks_in_one_script_behave_as_each_alone() {
    let Some(mut server) = Server::start() else { return };
    let [one, block] = [1, 64].map(|wanted| What::Claim(Intent::Try, wanted));
    let (free, held): (&[_], &[_]) = (&["SET FENCE 5"], &[HELD]);
    server.in_each_case(OF_SEVERAL, |server, case| {
        for what in [one, block, What::Release] {
            let batch = [(one, free), (What::Release, held), (what, case.state), (block, free), (What::Release, held)];
            let names = |number: usize| ['a', 'b'].map(|prefix| format!("{prefix}{number}"));
            for (number, (_, state)) in batch.iter().enumerate() {
                for name in &names(number) {
                    server.prepare(name, state);
                }
            }
            let common: Vec<_> =
                batch.iter().enumerate().map(|(number, (what, _))| what.common(&names(number)[0])).collect();
            let (call, positions) = combined::call(&common);
            let reply: Value = call.in_full().query(&mut server.client).expect("it raises no error");
            for (number, (what, _)) in batch.into_iter().enumerate() {
                let ([a, b], is_release) = (names(number), matches!(what, What::Release));
                let alone =
                    |server: &mut Server, name: &str| server.send(what, &what.call(name, false, true).in_full());
                let answer = combined::answer(&reply, positions[number], is_release).unwrap().unwrap();
                let together = if answer == combined::NOT_COMMON {
                    assert!(
                        number == 2 || !case.denied.is_empty() || case.now > NOW,
                        "{case:?}: {number} is sent alone"
                    );
                    alone(server, &a)
                } else {
                    what.said(&Ok(answer))
                };
                let alone = alone(server, &b);
                assert_eq!((together, server.state(&a)), (alone, server.state(&b)), "{case:?}, {number} of {what:?}");
            }
        }
    });
}

/// Milliseconds.
const SECOND: i64 = 1000;
const HOUR: i64 = 3600 * SECOND;
const DAY: i64 = 24 * HOUR;

/// The lock and its side keys.
const K: &str = "k";

impl Server {
    fn at(&self, millis: i64) {
        self.clock.stop_at(NOW.saturating_add_signed(1000 * millis)).unwrap();
    }

    /// The remaining milliseconds of the lock, and of these side keys.
    fn left(&self, sides: &[&str]) -> Vec<i64> {
        let names = [K.to_owned()].into_iter().chain(sides.iter().map(|side| side_key(K, side)));
        let left = |name: String| match self.process.command(&["PTTL", &name]) {
            Reply::Int(left) => left,
            other => panic!("{other:?}"),
        };
        names.map(left).collect()
    }

    fn acquire(&mut self, number: u128, mode: Mode, intent: Intent) -> String {
        let mut claim = claim(K, intent, 1).with_mode(mode);
        claim.holder.id = HolderId::from_bytes(number.to_be_bytes());
        let check = EpochCheck::without_marker(RUN_ID);
        self.run(&script::acquire(K, &claim, false, Requested::Own(NOW), None, check))
    }

    fn renew(&mut self, ttl: i64, assumed: i64) -> String {
        let [ttl, assumed] = [ttl, assumed].map(|millis| Duration::from_millis(millis.unsigned_abs()));
        self.run(&script::renew(K, &holder(), ttl, assumed))
    }

    /// The words of the reply, or the error.
    fn run(&mut self, call: &Call) -> String {
        fn words(reply: &Value) -> String {
            match reply {
                Value::Array(all) => all.iter().map(words).collect::<Vec<_>>().join(" "),
                Value::Int(number) => number.to_string(),
                Value::BulkString(text) => String::from_utf8_lossy(text).into_owned(),
                other => format!("{other:?}"),
            }
        }
        call.in_full().query(&mut self.client).map_or_else(|error| error.to_string(), |reply| words(&reply))
    }

    fn release(&mut self, number: u128, check: EpochCheck<'_>) -> String {
        self.run(&script::release(K, &HolderId::from_bytes(number.to_be_bytes()), NOW, check))
    }

    fn downgrade(&mut self) -> String {
        self.run(&script::downgrade(K, &holder(), TTL, Requested::Own(NOW), EpochCheck::without_marker(RUN_ID)))
    }

    /// Whether it has the lock alone.
    fn is_held_by(&self, number: u128) -> bool {
        self.process.command(&["GET", K]).text().is_some_and(|value| value.starts_with(&format!("{number:032x} ")))
    }
}

#[test]
fn keys_live_as_long_as_they_are_needed() {
    let Some(mut server) = Server::start() else { return };
    let check = EpochCheck::without_marker(RUN_ID);
    server.acquire(7, Mode::Exclusive, Intent::Try);
    assert_eq!(server.left(&["fence"]), [30 * SECOND, DAY]);
    server.acquire(8, Mode::Exclusive, Intent::Enqueue);
    assert_eq!(server.left(&["line", "waiters", "alive"])[1..], [HOUR; 3]);
    server.at(SECOND);
    server.renew(30 * SECOND, 30 * SECOND);
    assert_eq!(server.left(&["fence"]), [30 * SECOND, DAY]);
    server.release(7, check);
    assert_eq!(server.left(&["fence", "waiters"]), [3 * SECOND, DAY, -2], "it is handed over");
    server.release(8, check);

    server.acquire(7, Mode::Shared, Intent::Try);
    assert_eq!(server.left(&["holds", "held"]), [33_750, 93_750, 93_750]);
    for (now, lock, side) in [(2, 32_750, 92_750), (7, 33_750, 93_750)] {
        server.at(now * SECOND);
        server.renew(30 * SECOND, 30 * SECOND);
        assert_eq!(server.left(&["holds", "held"]), [lock, side, side], "few renewals write to the lock");
    }
    server.release(7, check);
    assert_eq!(server.left(&["fence", "holds", "held"]), [-2, DAY, -2, -2]);
    server.at(0);
    for (until, kept) in [(NOW - 2_000 * HOUR.unsigned_abs(), -2), (NOW + 1, HOUR + 1)] {
        let done = Completion::new(until, FencingToken::new(5).unwrap(), 1, Owner::from_text("host:1"));
        assert_eq!(server.run(&script::write_completion(K, None, &done)), "written");
        assert_eq!(server.left(&["once"])[1], kept);
        for state in ["SET LOCK IDx", "HSET LOCK a 1"] {
            server.prepare(K, &[state]);
            assert_eq!(server.run(&script::write_completion(K, Some(&holder()), &done)), "absent");
        }
    }
}

/// A network may repeat it after its client has given up.
#[test]
fn a_claim_that_arrives_again_extends_no_lease() {
    let Some(mut server) = Server::start() else { return };
    for mode in [Mode::Exclusive, Mode::Shared] {
        server.at(0);
        server.acquire(7, mode, Intent::Enqueue);
        let before = server.state(K);
        for intent in [Intent::Enqueue, Intent::Try] {
            server.at(SECOND);
            assert!(server.acquire(7, mode, intent).contains("yours"));
            server.at(0);
            assert_eq!(server.state(K), before);
        }
        server.release(7, EpochCheck::without_marker(RUN_ID));
    }
}

#[test]
fn a_renewal_shortens_only_what_a_clock_that_was_set_back_has_added() {
    let Some(mut server) = Server::start() else { return };
    for (waiters, mode) in [(0, Mode::Exclusive), (1, Mode::Exclusive), (0, Mode::Shared)] {
        server.at(0);
        server.process.command(&["FLUSHALL"]);
        server.acquire(7, mode, Intent::Try);
        (0..waiters).for_each(|_| drop(server.acquire(8, Mode::Exclusive, Intent::Enqueue)));
        server.at(-100 * SECOND);
        for (ttl, assumed, left) in [(30, 200, 130), (129, 0, 130), (30, 120, 120), (20, 30, 30), (40, 1, 40)] {
            server.renew(ttl * SECOND, assumed * SECOND);
            let ends = server.process.command(&["ZSCORE", &side_key(K, "holds"), ID]);
            let of_hold = ends.text().map(|ends| ends.parse::<i64>().unwrap() - i64::try_from(NOW / 1000).unwrap());
            let found = of_hold.map_or_else(|| server.left(&[])[0], |ends| ends + 100 * SECOND);
            assert_eq!(found, left * SECOND, "{waiters} waiters, {mode:?}, {ttl} s or {assumed} s");
        }
    }
}

#[test]
fn a_quarantine_grants_nothing_to_the_millisecond_and_a_marker_fits_one_run_and_one_set() {
    let Some(mut server) = Server::start() else { return };
    let quarantine = Quarantine::alone(K, Ttl::default(), false);
    let check = EpochCheck { mark: Some(&quarantine), ..EpochCheck::without_marker(RUN_ID) };
    let marker = quarantine.marker.clone();
    let span = i64::try_from(quarantine.span().as_millis()).unwrap();
    // A second one changes nothing.
    for _ in 0..2 {
        server.clock.stop_at(NOW + 1).unwrap();
        assert!(server.run(&script::handshake(&quarantine, RUN_ID)).starts_with(&format!("{span} ")));
    }
    server.acquire(7, Mode::Exclusive, Intent::Try);
    server.acquire(8, Mode::Exclusive, Intent::Enqueue);
    let granting = |name: &str| {
        let requested = Requested::Own(NOW);
        [
            script::acquire(name, &claim(name, Intent::Poll, 1), false, requested, None, check),
            script::downgrade(name, &holder(), TTL, requested, check),
            script::resize(name, 3, None, NOW, check),
        ]
    };
    let alive = side_key(K, "alive");
    server.process.command(&["ZADD", &alive, "9000000000000", &format!("{:032x}", 8)]);
    server.process.command(&["PERSIST", K]);
    let refuses = |server: &mut Server, why: &str| {
        for call in granting(K) {
            let refused = server.run(&call);
            assert!(refused.starts_with(why), "{why}: {refused}");
        }
        let raised = server.run(&script::raise(K, &holder(), FencingToken::new(FencingToken::MAX).unwrap(), check));
        assert_eq!(raised, "0", "{why}");
    };
    // The quarantine begins with the next millisecond after its handshake.
    server.clock.stop_at(NOW + 1000 * span.unsigned_abs() + 999).unwrap();
    refuses(&mut server, "quarantined 1");
    assert_eq!(server.run(&script::inspect("free", 10, check)), "quarantined 1");
    for (field, value, why) in
        [("epoch", "another", "handshake"), ("quorum", "another", "nodeset"), ("version", "2", "version")]
    {
        let Reply::Text(before) = server.process.command(&["HGET", &marker, field]) else { panic!("no {field}") };
        server.process.command(&["HSET", &marker, field, value]);
        refuses(&mut server, why);
        server.process.command(&["HSET", &marker, field, &before]);
    }
    // What ends a hold works, and hands nothing over.
    let value = format!("{ID} host:1");
    assert!(server.run(&script::evict(K, value.as_bytes(), Evicting::Ours, NOW, check)).starts_with("1 0"));
    assert_eq!(server.left(&[]), [-2]);
    server.process.command(&["SET", K, &value]);
    assert!(server.release(7, check).contains("released"));
    assert_eq!(server.left(&[]), [-2]);
    server.clock.stop_at(NOW + 1000 * span.unsigned_abs() + 1000).unwrap();
    server.release(7, check);
    assert_eq!(server.left(&[]), [3 * SECOND], "it is over, so the waiter has the lock");
}

#[test]
fn an_eviction_ends_only_what_was_seen() {
    let Some(mut server) = Server::start() else { return };
    let ours = format!("{ID} host:1");
    let (held, shared) = (format!("{ID} 5"), "fencelock:1:r:0:5");
    let a_reader = ["SET LOCK fencelock:1:r:0:5 PX 10000", "ZADD HOLDS 9000000000000 ID", "HSET HELD ID 1:5:a"];
    let cases: [(&[&str], &str, Evicting, bool); 14] = [
        (&["SET LOCK a PX 9000"], "a", Evicting::Foreign, true),
        (&["SET LOCK a"], "a", Evicting::Foreign, false),
        (&["SET LOCK a"], "a", Evicting::Endless, true),
        (&["SET LOCK a PX 9000"], "a", Evicting::Endless, false),
        (&["SET LOCK b PX 9000"], "a", Evicting::Foreign, false),
        (&["HSET LOCK a 1"], "", Evicting::Endless, false),
        (&[HELD], &ours, Evicting::Ours, false),
        (&[HELD, "SET FENCE 5"], &ours, Evicting::Ours, true),
        (&["SET LOCK fencelock:2:r:4:1 PX 9000"], "fencelock:2:r:4:1", Evicting::Foreign, false),
        (&["SET LOCK a PX 9000"], "a", Evicting::Shared, false),
        (&a_reader, shared, Evicting::Shared, true),
        (&a_reader, &held, Evicting::Holds, true),
        (&a_reader, &format!("{ID} 6"), Evicting::Holds, false),
        (&[HELD], &held, Evicting::Holds, false),
    ];
    for (state, seen, what, ends) in cases {
        server.prepare(K, state);
        let before = server.state(K);
        let reply = server.run(&script::evict(K, seen.as_bytes(), what, NOW, EpochCheck::without_marker(RUN_ID)));
        assert_eq!(reply, if ends { "1 0" } else { "0 0" }, "{state:?}, {seen}, {what:?}");
        assert_eq!(server.left(&["holds", "held"]) == [-2; 3], ends, "{state:?}, {seen}, {what:?}");
        assert!(ends || server.state(K) == before, "{state:?}");
    }
}

#[test]
fn a_value_that_is_almost_one_of_ours_belongs_to_another_program() {
    let Some(mut server) = Server::start() else { return };
    let values = ["IDx", "ID0:host:1", "fencelock:1:r:4:5", "fencelock:1:s:0:5", "fencelock:1:s:1000001:5"];
    for value in values {
        server.prepare(K, &[&format!("SET LOCK {value} PX 9000"), "ZADD HOLDS 9000000000000 ID", "HSET HELD ID 1:5:a"]);
        let check = EpochCheck::without_marker(RUN_ID);
        for intent in [Intent::Try, Intent::Poll] {
            let reply = server.acquire(7, Mode::Shared, intent);
            assert!(reply.starts_with(if intent == Intent::Try { "busy" } else { "gone" }), "{value}: {reply}");
        }
        assert!(server.renew(SECOND, SECOND).starts_with("taken"), "{value}");
        assert!(server.release(7, check).starts_with("taken"), "{value}");
        assert!(server.downgrade().starts_with("taken"), "{value}");
        assert_eq!(server.left(&[]), [9 * SECOND], "{value}");
    }
}

#[test]
fn a_reader_without_an_entry_gets_one_token_and_a_raise_of_it_lowers_no_fence() {
    let Some(mut server) = Server::start() else { return };
    server.acquire(7, Mode::Shared, Intent::Try);
    server.process.command(&["HDEL", &side_key(K, "held"), ID]);
    server.at(SECOND);
    let poll = |server: &mut Server| server.acquire(7, Mode::Shared, Intent::Poll);
    for _ in 0..2 {
        assert_eq!(poll(&mut server), format!("granted {} 1", NOW + 1_000_000));
    }
    server.at(3 * SECOND);
    server.acquire(8, Mode::Shared, Intent::Try);
    let (check, raised) = (EpochCheck::without_marker(RUN_ID), FencingToken::new(NOW + 2_000_000).unwrap());
    assert_eq!(server.run(&script::raise(K, &holder(), raised, check)), "1");
    assert_eq!(poll(&mut server), format!("granted {raised} 1"));
    let fence = server.process.command(&["GET", &side_key(K, "fence")]);
    assert_eq!(fence.text(), Some(&*(NOW + 3_000_000).to_string()), "that of the other reader");
}

/// Where `TIME` is denied, tokens follow the clocks of the clients, and nothing is shared. A fence that is used up is kept.
#[test]
fn without_the_servers_time_nothing_is_shared_and_without_a_token_nothing_is_granted() {
    let Some(mut server) = Server::start() else { return };
    let check = EpochCheck::without_marker(RUN_ID);
    // By the clock of the client, it has ended.
    let reader = ["SET LOCK fencelock:1:r:0:5 PX 10000", "ZADD HOLDS 1 ID", "HSET HELD ID 1:5:a"];
    let semaphore =
        ["SET LOCK fencelock:1:s:2:5 PX 10000", "ZADD HOLDS 9000000000000 ID", "HSET HELD ID 1:5:a #used 1"];
    server.acquire(7, Mode::Exclusive, Intent::Try);
    server.acquire(8, Mode::Shared, Intent::Enqueue);
    redis::cmd("ACL").arg(&["SETUSER", "default", "-time"]).exec(&mut server.operator).unwrap();
    server.release(7, check);
    assert!(server.is_held_by(8), "alone");
    server.prepare(K, &reader);
    for (number, mode, intent) in [(8, Mode::Shared, Intent::Try), (7, Mode::Shared, Intent::Poll)] {
        assert_eq!(server.acquire(number, mode, intent), "noclock");
    }
    assert!(server.acquire(8, Mode::Exclusive, Intent::Try).starts_with("busy"));
    assert!(server.release(7, check).contains("run"), "it may not run this command");
    assert_eq!(server.left(&["holds"])[1], -1);
    server.prepare(K, &semaphore);
    assert_eq!(server.run(&script::resize(K, 3, None, NOW, check)), "noclock");
    server.prepare(K, &[HELD]);
    assert_eq!(server.downgrade(), "noclock");
    server.prepare(K, &["SET FENCE 9007199254740991 PX 5000"]);
    let refused = server.acquire(7, Mode::Exclusive, Intent::Try);
    assert!(refused.contains("2^53"), "{refused}");
    assert_eq!(server.left(&["fence"]), [-2, DAY]);
}

#[test]
fn a_marker_changes_only_as_far_as_its_client_knows_it() {
    let Some(mut server) = Server::start() else { return };
    let quarantine = Quarantine::alone(K, Ttl::default(), false);
    let handshake = || script::handshake(&quarantine, RUN_ID);
    let init = |joins| script::init(&quarantine, RUN_ID, false, joins);
    let span = quarantine.span().as_millis();
    for (marker, call, reply) in [
        ("epoch another until 5 span 1 quorum another version 1", handshake(), "0 another a".to_owned()),
        ("epoch RUN until 0 span 1 quorum QUORUM version 2", handshake(), "version 2".to_owned()),
        ("epoch RUN until 0 span 1 quorum QUORUM version 1", init(false), "unchanged 0".to_owned()),
        ("epoch RUN until 0 span 1 quorum QUORUM version 1", init(true), format!("unchanged {span}")),
        ("epoch RUN until 0 span 90000 quorum QUORUM version 1", init(true), "unchanged 90000".to_owned()),
        ("epoch RUN until 0 span 1 quorum another version 1", init(false), "changed 0".to_owned()),
    ] {
        server.prepare(K, &[&format!("HSET MARKER {marker} nodes a")]);
        assert_eq!(server.run(&call), reply, "{marker}");
    }
}

#[test]
fn a_resize_keeps_the_lock_and_drops_waiters_that_can_never_be_granted() {
    let Some(mut server) = Server::start() else { return };
    let (check, permits) = (EpochCheck::without_marker(RUN_ID), |weight, limit| Mode::permits(weight, limit).unwrap());
    server.acquire(7, permits(4, 4), Intent::Try);
    for (number, weight) in [(8, 3), (9, 1)] {
        assert!(server.acquire(number, permits(weight, 4), Intent::Enqueue).starts_with("queued"));
    }
    let value = |server: &Server| server.process.command(&["GET", K]).text().unwrap().replace(":4:", ":2:");
    let before = value(&server);
    assert!(server.run(&script::resize(K, 2, None, NOW, check)).starts_with("resized 4 4 1 0"));
    assert_eq!(value(&server), before);
    assert_eq!(server.process.command(&["ZCARD", &side_key(K, "line")]), Reply::Int(1));
    assert!(server.run(&script::resize(K, 5, Some((4, "0")), NOW, check)).starts_with("taken"), "changed since");
    assert!(server.acquire(9, permits(3, 4), Intent::Poll).starts_with("class s 2"), "more than there are");
    server.prepare(K, &["SET LOCK fencelock:1:s:2:5 PX 9000", "ZADD LINE 5 ID", "ZADD ALIVE 9000000000000 ID"]);
    assert!(server.run(&script::resize(K, 3, None, NOW, check)).starts_with(&format!("absent {ID}")));
    // One call removes 32 of them.
    let holds = (100..133).fold("ZADD HOLDS 9e12 ID".to_owned(), |all, number| format!("{all} 1 {number:032x}"));
    server.prepare(K, &["SET LOCK fencelock:1:s:2:5", &holds, "HSET HELD #used 1"]);
    assert_eq!(server.run(&script::resize(K, 3, None, NOW, check)), "resized 2 1 1 1 0", "no ended hold counts");
}
