//! The common case of a script, which precedes it, must do what the rest of the script does. These tests cover what the random
//! sequences lack: fences that are not tokens, keys of other types, denied commands, and a clock beyond the last token.

use super::RUN_ID;
use super::differential::{START_US, names};
use super::mutants::find_each;
use super::real::Real;
use super::sent::{Changes, Mutant, Mutants, Sent};
use crate::scripts::lua::Lua;
use crate::scripts::quarantine::{EpochCheck, Quarantine};
use crate::scripts::script::{self, ACQUIRE_FAST, Call, Path, RELEASE_FAST, RENEW_FAST, Requested};
use fencelock_core::{Claim, Holder, HolderId, Intent, Key, Owner, Ttl};
use fencelock_model::{CAP, FENCE_MAX};
use fencelock_testkit::Reply;
use std::num::NonZeroU32;
use std::sync::LazyLock;
use std::time::Duration;

const TTL: Duration = Duration::from_secs(30);
/// The text of [`holder`].
const ID: &str = "00000000000000000000000000000007";

/// Written before the script runs. `ID` is the holder, QUORUM the quorum of a quarantine; LOCK, FENCE, LINE and MARKER are the keys.
pub(super) const STATES: &[&[&str]] = &[
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
    &["SET LOCK ID:host:1 PX 10000", "SET FENCE 1780000000000000 PX 5000"],
    &["SET LOCK ID:host:1 PX 90000"],
    &["SET LOCK ID:host:1 PX 10000", "SET LINE a"],
    &["SET LOCK ID:host:1 PX 10000", "ZADD LINE 5 ab"],
    &["ZADD LINE 5 ab"],
    &["SET LOCK ID:host:1 PX 10000", "HSET FENCE a 1"],
    &["SET LOCK ID:host:1 PX 10000", "SETRANGE LOCK 400 x"],
    &["SET LOCK ID:host:1 PX 10000", "HSET MARKER epoch RUN until 1780000005000 quorum QUORUM"],
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
/// Commands that are denied, one at a time: those of the common case, which needs fewer commands than the rest.
const OF_ACQUIRE: &[&str] = &["", "exists", "time", "set", "hmget"];
const OF_RELEASE: &[&str] = &["", "zcard", "time", "del"];
const OF_RENEW: &[&str] = &["", "exists", "zcard", "get", "time", "set", "del", "pttl", "pexpire"];

/// Mutants of the common case that must be detected.
const MUTANTS: Mutants = &[
    ("any text is a fence", "if previous and previous >= 0", "if previous >= 0"),
    ("a fence may be negative", "and previous >= 0 and", "and"),
    ("a fence may be a fraction", "previous + 1 <= now", "previous < now"),
    ("a fence exceeds 2^53", " and now <= 9007199254740991", ""),
    ("a fence of another type is an error", "redis.pcall('SET', KEYS[2], last", "redis.call('SET', KEYS[2], last"),
    (
        "a fence that is ahead of the clock is overwritten",
        "if type(text) == 'string' then redis.call('SET', KEYS[2]",
        "if false then redis.call('SET', KEYS[2]",
    ),
    ("a denied time is an error", "redis.pcall('TIME')\n  -- Not", "redis.call('TIME')\n  -- Not"),
    ("a lock of another type is an error", "redis.pcall('GETRANGE'", "redis.call('GETRANGE'"),
    ("a queue of another type is an error", "redis.pcall('ZCARD', KEYS[3])", "redis.call('ZCARD', KEYS[3])"),
    ("a claim ignores the marker", "if marker and open then", "if false then"),
    ("a claim with few keys ignores the marker", "KEYS[8] or not KEYS[5] and KEYS[4]", "KEYS[8]"),
    ("a claim accepts any run", "and found[1] == run_id and", "and"),
    ("a claim accepts any set", "and found[3] == quorum\n", "\n"),
    ("a claim accepts a marker of any version", "found[4] == '1'", "true"),
    ("a quarantine ends a millisecond early", "till <= math.floor(now / 1000)", "till <= math.floor(now / 1000) + 1"),
    ("a marker needs no end", "open = not found or till and till <=", "open = not found or (till or 0) <="),
];

/// A script on a key in some state, without a right.
#[derive(Debug)]
struct Case<'a> {
    denied: &'a str,
    state: &'a [&'a str],
    /// Its index in [`subjects`].
    script: usize,
}

pub(super) fn holder() -> HolderId {
    HolderId::from_bytes(7_u128.to_be_bytes())
}

pub(super) fn claim(name: &str, intent: Intent, wanted: u32) -> Claim {
    let holder = Holder { id: holder(), owner: Owner::from_text("host:1") };
    let claim = Claim::new(Key::new(name).unwrap(), holder, Ttl::new(TTL).unwrap(), intent);
    claim.with_block(NonZeroU32::new(wanted).unwrap())
}

fn quarantine(name: &str) -> Quarantine {
    Quarantine::alone(name, Ttl::default(), false)
}

/// A script with a common case.
#[derive(Debug)]
struct Subject {
    call: Call,
    fast: &'static str,
    denied: &'static [&'static str],
    /// The number of tokens that the call requests.
    wanted: u32,
}

impl Subject {
    /// The reply without the abbreviation of the common case.
    fn in_full(&self, reply: Reply) -> Reply {
        let word = |word: &str| Reply::Text(word.to_owned());
        match reply {
            Reply::Int(last) if self.fast == ACQUIRE_FAST => {
                Reply::Array(vec![word("granted"), Reply::Text(last.to_string()), Reply::Int(self.wanted.into())])
            }
            Reply::Int(1) if self.fast == RELEASE_FAST => Reply::Array(vec![word("released"), Reply::Int(0)]),
            reply => reply,
        }
    }
}

fn subjects(name: &str) -> Vec<Subject> {
    let (alone, quarantine) = (EpochCheck::without_marker(RUN_ID), quarantine(name));
    let guarded = quarantine.epoch_check(RUN_ID);
    let acquire = |intent, wanted, epoch_check| {
        let call = script::acquire(
            name,
            &claim(name, intent, wanted),
            Path::Fast,
            Requested::Own(START_US),
            None,
            epoch_check,
        );
        Subject { call, fast: ACQUIRE_FAST, denied: OF_ACQUIRE, wanted }
    };
    let release = |epoch_check| {
        let call = script::release(name, &holder(), START_US, epoch_check);
        Subject { call, fast: RELEASE_FAST, denied: OF_RELEASE, wanted: 0 }
    };
    let renew = script::renew(name, &holder(), TTL, TTL);
    vec![
        acquire(Intent::Try, 1, alone),
        acquire(Intent::Enqueue, 64, alone.deriving_keys(true)),
        acquire(Intent::Poll, 1, alone.deriving_keys(true)),
        acquire(Intent::Try, 64, guarded.deriving_keys(true)),
        acquire(Intent::Enqueue, 1, guarded),
        release(alone),
        release(alone.deriving_keys(true)),
        release(guarded.deriving_keys(true)),
        release(guarded),
        Subject { call: renew, fast: RENEW_FAST, denied: OF_RENEW, wanted: 0 },
    ]
}

/// Writes the state of a key.
pub(super) fn prepare(real: &mut Real, names: &[String; 8], state: &[&str]) {
    let [lock, fence, line, .., marker] = names;
    real.command(&[&["DEL"][..], &names.each_ref().map(String::as_str)].concat());
    for command in state {
        let word = |word: &str| match word {
            "LOCK" => lock.clone(),
            "FENCE" => fence.clone(),
            "LINE" => line.clone(),
            "MARKER" => marker.clone(),
            "RUN" => RUN_ID.to_owned(),
            "QUORUM" => quarantine(lock).quorum,
            word => word.replace("ID", ID).replace(':', " "),
        };
        let words: Vec<String> = command.split(' ').map(word).collect();
        let reply = real.command(&words.iter().map(String::as_str).collect::<Vec<_>>());
        assert!(!matches!(reply, Reply::Error(_)), "{command}: {reply:?}");
    }
}

/// A common case as it is sent.
fn as_sent(fast: &str) -> &'static str {
    const ALL: [&str; 3] = [ACQUIRE_FAST, RELEASE_FAST, RENEW_FAST];
    static SENT: LazyLock<[Lua; 3]> = LazyLock::new(|| ALL.map(Lua::alone));
    SENT[ALL.iter().position(|one| *one == fast).unwrap()].source()
}

/// The difference between a script with its common case and without it, if any.
fn difference(real: &mut Real, case: &Case<'_>, mutant: Option<Mutant>) -> Option<String> {
    let keys = [names(0), names(1)];
    for key in &keys {
        prepare(real, key, case.state);
    }
    let changes = |mutant| Changes { mutant, cap: CAP };
    let subject = subjects("k").swap_remove(case.script);
    let without = Mutant { from: as_sent(subject.fast), to: "" };
    let [sent_whole, sent_rest] = keys.each_ref().map(|[lock, ..]| subjects(lock).swap_remove(case.script).call);
    let sent = [Sent::script(sent_whole, changes(mutant)), Sent::script(sent_rest, changes(Some(without)))];
    assert!(sent[1].is_changed(), "the script has no common case");
    // The scripts run without this right; the resulting state is read with all rights.
    let right = |real: &mut Real, sign| match case.denied {
        "" => {}
        command => {
            assert_eq!(real.command(&["ACL", "SETUSER", "default", &format!("{sign}{command}")]).text(), Some("OK"));
        }
    };
    right(real, '-');
    let replies = real.play(&sent, &[]).replies;
    right(real, '+');
    let states = real.play(&[], &keys).states;
    let whole_reply = |key: usize| subject.in_full(replies[key].clone());
    let [whole, rest] = [0, 1].map(|key| (described(&whole_reply(key)), described(&states[key])));
    (whole != rest).then(|| format!("{case:?}\n  whole {whole:?}\n  rest  {rest:?}"))
}

/// An error names the digest of the script and a line of it, which differ.
pub(super) fn described(reply: &Reply) -> String {
    let Reply::Error(why) = reply else { return format!("{reply:?}") };
    let words =
        why.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.bytes().any(|byte| byte.is_ascii_digit()));
    words.collect::<Vec<_>>().join(" ")
}

/// The first difference of all cases.
fn find(real: &mut Real, mutant: Option<Mutant>) -> Option<String> {
    real.begin(START_US);
    let cases = || {
        let subjects = subjects("k").into_iter().enumerate();
        let denied = subjects.flat_map(|(script, of)| of.denied.iter().map(move |denied| (script, *denied)));
        denied.flat_map(|(script, denied)| STATES.iter().map(move |state| Case { denied, state, script }))
    };
    if let Some(found) = cases().find_map(|case| difference(real, &case, mutant)) {
        return Some(found);
    }
    // No token is left at this time.
    real.begin(FENCE_MAX + 1);
    cases().filter(|case| case.denied.is_empty()).find_map(|case| difference(real, &case, mutant))
}

#[test]
fn the_common_case_does_what_the_whole_script_does() {
    let Some(mut real) = Real::start(START_US) else { return };
    assert_eq!(find(&mut real, None), None);
}

#[test]
fn every_mutant_of_a_common_case_is_detected() {
    let Some(mut real) = Real::start(START_US) else { return };
    let fast = [ACQUIRE_FAST, RELEASE_FAST, RENEW_FAST].map(as_sent);
    find_each(MUTANTS, &fast, |mutant| find(&mut real, Some(mutant)));
}
