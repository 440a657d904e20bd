//! The common cases of several locks in one script must do what the script of each lock does, whatever the other locks are like.

use super::RUN_ID;
use super::differential::{START_US, names};
use super::fast_path::{STATES, claim, described, holder, prepare};
use super::real::Real;
use super::sent::{Changes, Mutant, Sent};
use crate::redis::combined::{self, Common};
use crate::redis::quarantine::EpochCheck;
use crate::redis::script::{self, Path};
use fencelock_conformance::model::{CAP, FENCE_MAX};
use fencelock_core::Intent;
use fencelock_testkit::Reply;

/// The commands of the script, which the user may not call, one at a time.
const DENIED: &[&str] = &["", "exists", "time", "set", "getrange", "del"];

/// A change of the script that must be noticed.
const MUTANTS: &[(&str, Mutant)] = &[
    ("a release looks at no value", Mutant { from: "== ARGV[1 + i]", to: "~= ''" }),
    (
        "a release looks at one queue for all",
        Mutant { from: "idle or redis.pcall('EXISTS', KEYS[releases + i]) == 0", to: "idle" },
    ),
    (
        "a release looks at no queue",
        Mutant { from: "(idle or redis.pcall('EXISTS', KEYS[releases + i]) == 0)", to: "true" },
    ),
    (
        "a release looks at the first queue only",
        Mutant { from: "releases + 1, 2 * releases", to: "releases + 1, releases + 1" },
    ),
    ("a lock of another type is an error", Mutant { from: "redis.pcall('GETRANGE'", to: "redis.call('GETRANGE'" }),
    (
        "a release that is denied is done",
        Mutant { from: "redis.pcall('DEL', unpack(held)) == #held", to: "redis.pcall('DEL', unpack(held))" },
    ),
    ("a release that is denied is an error", Mutant { from: "redis.pcall('DEL'", to: "redis.call('DEL'" }),
    ("all locks are released", Mutant { from: "unpack(held)", to: "unpack(KEYS, 1, releases)" }),
    (
        "a claim looks at no lock",
        Mutant { from: "first + 1, first + 2 * claims", to: "first + claims + 1, first + 2 * claims" },
    ),
    ("a claim looks at no queue", Mutant { from: "first + 1, first + 2 * claims", to: "first + 1, first + claims" }),
    (
        "a claim looks at one lock for all",
        Mutant { from: "free or redis.pcall('EXISTS', lock, line) == 0", to: "true" },
    ),
    ("a claim does not look for itself", Mutant { from: "free or redis.pcall('EXISTS', lock, line) == 0", to: "free" }),
    ("a denied time is an error", Mutant { from: "redis.pcall('TIME')", to: "redis.call('TIME')" }),
    ("a fence goes beyond 2^53", Mutant { from: " and now <= 9007199254740991", to: "" }),
    ("any text is a fence", Mutant { from: "if previous and previous >= 0", to: "if previous >= 0" }),
    ("a fence may be negative", Mutant { from: "and previous >= 0 and", to: "and" }),
    ("a fence may be a fraction", Mutant { from: "previous + 1 <= now", to: "previous < now" }),
    (
        "a fence of another type is an error",
        Mutant { from: "redis.pcall('SET', fence, last", to: "redis.call('SET', fence, last" },
    ),
    ("a fence that is not behind the time is overwritten", Mutant { from: "type(text) == 'string'", to: "false" }),
    ("fewer tokens count as all", Mutant { from: "count == wanted and now or {", to: "now or {" }),
    ("the first claim of a lock has more than one token", Mutant { from: "previous == 0 and 1 or", to: "" }),
    ("the arguments of a claim are those of the one before", Mutant { from: "argument = argument + 3", to: "" }),
];

/// What is asked of the lock that is in some state.
#[derive(Debug, Clone, Copy)]
enum Asked {
    Claim(u32),
    Release,
}

#[derive(Debug)]
struct Case<'a> {
    denied: &'a str,
    state: &'a [&'a str],
    asked: Asked,
}

impl Asked {
    fn common(self, name: &str) -> Common {
        match self {
            Self::Claim(wanted) => Common::claim(name, &claim(name, Intent::Try, wanted)),
            Self::Release => Common::release(name, &holder()),
        }
    }

    /// The script of the lock.
    fn alone(self, name: &str) -> Sent {
        let epoch_check = EpochCheck::without_marker(RUN_ID).deriving_keys(true);
        let call = match self {
            Self::Claim(wanted) => {
                let claim = claim(name, Intent::Try, wanted);
                script::acquire(name, &claim, Path::Fast, START_US, "-", epoch_check)
            }
            Self::Release => script::release(name, &holder(), START_US, epoch_check),
        };
        Sent::script(call, Changes { mutant: None, cap: CAP })
    }

    /// The reply without the abbreviation of the common case.
    fn in_full(self, reply: Reply) -> Reply {
        let word = |word: &str| Reply::Text(word.to_owned());
        match (self, reply) {
            (Self::Claim(wanted), Reply::Int(last)) => {
                Reply::Array(vec![word("granted"), Reply::Text(last.to_string()), Reply::Int(wanted.into())])
            }
            (Self::Release, Reply::Int(1)) => Reply::Array(vec![word("released"), Reply::Int(0)]),
            (_, reply) => reply,
        }
    }
}

/// The locks around that of the case: one to claim before it, one to release before it, and the same after it. With what is in
/// their keys.
const AROUND: [(Asked, &[&str]); 4] = [
    (Asked::Claim(1), &["SET FENCE 5"]),
    (Asked::Release, &["SET LOCK ID:host:1 PX 10000"]),
    (Asked::Claim(64), &["SET FENCE 5"]),
    (Asked::Release, &["SET LOCK ID:host:1 PX 10000"]),
];

/// What differs between the script of several locks and those of each lock, if anything.
fn difference(real: &mut Real, case: &Case<'_>, mutant: Option<Mutant>) -> Option<String> {
    // The first half is sent together, the second half is sent one by one.
    let requests: Vec<_> = [&AROUND[..2], &[(case.asked, case.state)], &AROUND[2..]].concat();
    let count = requests.len();
    let keys: Vec<_> = (0..2 * count).map(names).collect();
    for (number, key) in keys.iter().enumerate() {
        prepare(real, key, requests[number % count].1);
    }
    let together: Vec<_> =
        requests.iter().zip(&keys).map(|((asked, _), [lock, ..])| Some(asked.common(lock))).collect();
    let (call, positions) = combined::call(&together);
    let right = |real: &mut Real, sign| match case.denied {
        "" => {}
        command => {
            assert_eq!(real.command(&["ACL", "SETUSER", "default", &format!("{sign}{command}")]).text(), Some("OK"));
        }
    };
    right(real, '-');
    let reply = real.play(&[Sent::script(call, Changes { mutant, cap: CAP })], &[]).replies.remove(0);
    let Reply::Array(answers) = &reply else {
        right(real, '+');
        return Some(format!("{case:?}\n  {reply:?}"));
    };
    let mut alone = Vec::new();
    for (number, (asked, _)) in requests.iter().enumerate() {
        let [lock, ..] = &keys[count + number];
        alone.push(real.play(&[asked.alone(lock)], &[]).replies.remove(0));
    }
    let mut combined = Vec::new();
    for (number, (asked, _)) in requests.iter().enumerate() {
        let [lock, ..] = &keys[number];
        combined.push(match &answers[positions[number]] {
            // As the client does.
            Reply::Int(0) => real.play(&[asked.alone(lock)], &[]).replies.remove(0),
            answer => answer.clone(),
        });
    }
    right(real, '+');
    let states = real.play(&[], &keys).states;
    let differs = (0..count).find_map(|number| {
        let asked = requests[number].0;
        let [combined, alone] = [(&combined[number], number), (&alone[number], count + number)]
            .map(|(reply, key)| (described(&asked.in_full(reply.clone())), described(&states[key])));
        (combined != alone)
            .then(|| format!("{case:?}, request {number}\n  together {combined:?}\n  alone    {alone:?}"))
    });
    // Every lock around is a common case.
    let common = |number: &usize| *number == 2 || answers[positions[*number]] != Reply::Int(0);
    let sent_alone = (case.denied.is_empty() && !(0..count).all(|number| common(&number)))
        .then(|| format!("{case:?}\n  a lock around is sent alone: {answers:?}"));
    differs.or(sent_alone)
}

/// The first difference of all cases.
fn find(real: &mut Real, mutant: Option<Mutant>) -> Option<String> {
    real.begin(START_US);
    let asked = [Asked::Claim(1), Asked::Claim(64), Asked::Release];
    let cases = || {
        let denied = asked.into_iter().flat_map(|asked| DENIED.iter().map(move |denied| (asked, *denied)));
        denied.flat_map(|(asked, denied)| STATES.iter().map(move |state| Case { denied, state, asked }))
    };
    if let Some(found) = cases().find_map(|case| difference(real, &case, mutant)) {
        return Some(found);
    }
    // No token is left at this time, so no claim is a common case.
    real.begin(FENCE_MAX + 1);
    let beyond = |case: Case<'_>| difference(real, &case, mutant).filter(|what| !what.contains("is sent alone"));
    cases().filter(|case| case.denied.is_empty()).find_map(beyond)
}

#[test]
fn several_locks_in_one_script_are_like_each_alone() {
    let Some(mut real) = Real::start(START_US) else { return };
    assert_eq!(find(&mut real, None), None);
}

#[test]
fn a_script_of_several_locks_that_is_wrong_in_one_place_is_found() {
    let Some(mut real) = Real::start(START_US) else { return };
    let source = script::COMBINED.source();
    let mut missed = Vec::new();
    for (name, mutant) in MUTANTS {
        assert!(source.contains(mutant.from), "{name}: the script does not have {:?}", mutant.from);
        match find(&mut real, Some(*mutant)) {
            Some(found) => println!("{name}: {found}"),
            None => missed.push(name),
        }
    }
    assert!(missed.is_empty(), "not found: {missed:#?}");
}
