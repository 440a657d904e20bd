//! The common case of a script, which stands before it, must do what the rest of the script does. Here is what the random
//! sequences do not have: fences that are no tokens, keys of other types, denied commands, and a clock beyond the last token.

use super::RUN_ID;
use super::differential::{START_US, names};
use super::real::Real;
use super::sent::{Changes, Mutant, Sent};
use crate::redis::quarantine::{EpochCheck, Quarantine};
use crate::redis::script::{self, ACQUIRE_FAST, Call, RELEASE_FAST, RENEW_FAST};
use fencelock_conformance::model::{CAP, FENCE_MAX};
use fencelock_core::{Claim, Holder, HolderId, Intent, Key, Owner, Ttl};
use fencelock_testkit::Reply;
use std::num::NonZeroU32;
use std::time::Duration;

const TTL: Duration = Duration::from_secs(30);
/// The text of [`holder`].
const ID: &str = "00000000000000000000000000000007";

/// Written before the script runs. `ID` is the holder, QUORUM the quorum of a quarantine; LOCK, FENCE, LINE and MARKER are the keys.
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
    &["SET LOCK ID:host:1 PX 10000", "SET FENCE 1780000000000000 PX 5000"],
    &["SET LOCK ID:host:1 PX 90000"],
    &["SET LOCK ID:host:1 PX 10000", "SET LINE a"],
    &["SET LOCK ID:host:1 PX 10000", "HSET FENCE a 1"],
    &["SET LOCK ID:host:1 PX 10000", "SETRANGE LOCK 400 x"],
    &["SET LOCK ID:host:1 PX 10000", "HSET MARKER epoch RUN until 1780000005000 quorum QUORUM"],
];
/// Commands that the user may not call, one at a time. The common case needs fewer commands than the rest, so only those that it has.
const DENIED: &[&str] = &["", "exists", "zcard", "get", "time", "set", "del", "pttl", "pexpire"];

/// A change of the common case that must be noticed here.
const MUTANTS: &[(&str, Mutant)] = &[
    ("any text is a fence", Mutant { from: "if now and previous and", to: "if now and" }),
    ("a fence may be negative", Mutant { from: "and previous >= 0 and", to: "and" }),
    ("a fence may be a fraction", Mutant { from: "previous + 1 <= now", to: "previous < now" }),
    ("a fence goes beyond 2^53", Mutant { from: " and now <= 9007199254740991", to: "" }),
    (
        "a fence of another type is an error",
        Mutant { from: "redis.pcall('GET', KEYS[2])", to: "redis.call('GET', KEYS[2])" },
    ),
    ("a denied time is an error", Mutant { from: "redis.pcall('TIME'), ", to: "redis.call('TIME'), " }),
    ("a lock of another type is an error", Mutant { from: "redis.pcall('GETRANGE'", to: "redis.call('GETRANGE'" }),
    (
        "a queue of another type is an error",
        Mutant { from: "redis.pcall('ZCARD', KEYS[3])", to: "redis.call('ZCARD', KEYS[3])" },
    ),
    (
        "a release in a quarantine needs no time",
        Mutant { from: "if not KEYS[8] then\n  -- As much", to: "if true then\n  -- As much" },
    ),
];

/// A script on a key in some state, without a right.
#[derive(Debug)]
struct Case<'a> {
    denied: &'a str,
    state: &'a [&'a str],
    /// Its number in [`calls`].
    script: usize,
}

fn holder() -> HolderId {
    HolderId::from_bytes(7_u128.to_be_bytes())
}

fn quarantine(name: &str) -> Quarantine {
    Quarantine::alone(name, Ttl::default(), false)
}

/// The scripts with a common case, which is the second.
fn calls(name: &str) -> Vec<(Call, &'static str)> {
    let epoch_check = EpochCheck::without_marker(RUN_ID);
    let acquire = |intent, tokens| {
        let holder = Holder { id: holder(), owner: Owner::from_text("host:1") };
        let claim = Claim::new(Key::new(name).unwrap(), holder, Ttl::new(TTL).unwrap(), intent);
        let claim = claim.with_block(NonZeroU32::new(tokens).unwrap());
        (script::acquire(name, &claim, START_US, "-", epoch_check), ACQUIRE_FAST)
    };
    vec![
        acquire(Intent::Try, 1),
        acquire(Intent::Enqueue, 64),
        acquire(Intent::Poll, 1),
        (script::release(name, &holder(), START_US, epoch_check), RELEASE_FAST),
        (script::release(name, &holder(), START_US, quarantine(name).epoch_check(RUN_ID)), RELEASE_FAST),
        (script::renew(name, &holder(), TTL, TTL), RENEW_FAST),
    ]
}

/// Writes the state of a key.
fn prepare(real: &mut Real, names: &[String; 8], state: &[&str]) {
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

/// What differs between a script with its common case and without it, if anything.
fn difference(real: &mut Real, case: &Case<'_>, mutant: Option<Mutant>) -> Option<String> {
    let keys = [names(0), names(1)];
    for key in &keys {
        prepare(real, key, case.state);
    }
    let changes = |mutant| Changes { mutant, cap: CAP };
    let (whole, _) = calls(&keys[0][0]).swap_remove(case.script);
    let (rest, fast) = calls(&keys[1][0]).swap_remove(case.script);
    let without = Mutant { from: fast, to: "" };
    let sent = [Sent::script(whole, changes(mutant)), Sent::script(rest, changes(Some(without)))];
    // The scripts run without this right; what they left is read with all rights.
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
    let [whole, rest] = [0, 1].map(|key| (described(&replies[key]), described(&states[key])));
    (whole != rest).then(|| format!("{case:?}\n  whole {whole:?}\n  rest  {rest:?}"))
}

/// An error names the digest of the script and a line of it, which differ.
fn described(reply: &Reply) -> String {
    let Reply::Error(why) = reply else { return format!("{reply:?}") };
    let words =
        why.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.bytes().any(|byte| byte.is_ascii_digit()));
    words.collect::<Vec<_>>().join(" ")
}

/// The first difference of all cases.
fn find(real: &mut Real, mutant: Option<Mutant>) -> Option<String> {
    let scripts = calls("k").len();
    let states = STATES.iter().flat_map(|state| (0..scripts).map(move |script| (*state, script)));
    real.begin(START_US);
    let denied =
        DENIED.iter().flat_map(|denied| states.clone().map(move |(state, script)| Case { denied, state, script }));
    if let Some(found) = denied.clone().find_map(|case| difference(real, &case, mutant)) {
        return Some(found);
    }
    // No token is left at this time.
    real.begin(FENCE_MAX + 1);
    denied.filter(|case| case.denied.is_empty()).find_map(|case| difference(real, &case, mutant))
}

#[test]
fn the_common_case_does_what_the_whole_script_does() {
    let Some(mut real) = Real::start(START_US) else { return };
    assert_eq!(find(&mut real, None), None);
}

#[test]
fn a_common_case_that_is_wrong_in_one_place_is_found() {
    let Some(mut real) = Real::start(START_US) else { return };
    let mut missed = Vec::new();
    for (name, mutant) in MUTANTS {
        let fast = [ACQUIRE_FAST, RELEASE_FAST, RENEW_FAST];
        assert!(fast.iter().any(|source| source.contains(mutant.from)), "{name}: no script has {:?}", mutant.from);
        match find(&mut real, Some(*mutant)) {
            Some(found) => println!("{name}: {found}"),
            None => missed.push(name),
        }
    }
    assert!(missed.is_empty(), "not found: {missed:#?}");
}
