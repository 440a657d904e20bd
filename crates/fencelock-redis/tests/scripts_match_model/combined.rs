//! For each of several locks, the combined script must do what the script of that lock does, in any state of the other locks.

use super::RUN_ID;
use super::differential::{START_US, names};
use super::fast_path::{STATES, claim, described, holder, prepare};
use super::mutants::find_each;
use super::real::Real;
use super::sent::{Changes, Mutant, Mutants, Sent};
use crate::scripts::combined::{self, Common};
use crate::scripts::quarantine::EpochCheck;
use crate::scripts::script::{self, Path, Requested};
use fencelock_core::Intent;
use fencelock_model::{CAP, FENCE_MAX};
use fencelock_testkit::Reply;

/// The commands of the script. Each is denied in turn.
const DENIED: &[&str] = &["", "exists", "time", "set", "getrange", "del"];

/// Mutants of the script that must be detected.
const MUTANTS: Mutants = &[
    ("a release ignores the value", "== ARGV[1 + i]", "~= ''"),
    ("a release checks one queue for all locks", "idle or redis.pcall('EXISTS', KEYS[releases + i]) == 0", "idle"),
    ("a release ignores the queue", "(idle or redis.pcall('EXISTS', KEYS[releases + i]) == 0)", "true"),
    ("a release checks only the first queue", "releases + 1, 2 * releases", "releases + 1, releases + 1"),
    ("a lock of another type is an error", "redis.pcall('GETRANGE'", "redis.call('GETRANGE'"),
    (
        "a denied release is reported as done",
        "redis.pcall('DEL', unpack(held)) == #held",
        "redis.pcall('DEL', unpack(held))",
    ),
    ("a denied release is an error", "redis.pcall('DEL'", "redis.call('DEL'"),
    ("all locks are released", "unpack(held)", "unpack(KEYS, 1, releases)"),
    ("a claim ignores the lock", "first + 1, first + 2 * claims", "first + claims + 1, first + 2 * claims"),
    ("a claim ignores the queue", "first + 1, first + 2 * claims", "first + 1, first + claims"),
    ("a claim checks one lock for all locks", "free or redis.pcall('EXISTS', lock, line) == 0", "true"),
    ("a claim does not check its own keys", "free or redis.pcall('EXISTS', lock, line) == 0", "free"),
    ("a denied time is an error", "redis.pcall('TIME')", "redis.call('TIME')"),
    ("a fence exceeds 2^53", " and now <= 9007199254740991", ""),
    ("any text is a fence", "if previous and previous >= 0", "if previous >= 0"),
    ("a fence may be negative", "and previous >= 0 and", "and"),
    ("a fence may be a fraction", "previous + 1 <= now", "previous < now"),
    ("a fence of another type is an error", "redis.pcall('SET', fence, last", "redis.call('SET', fence, last"),
    ("a fence that is ahead of the clock is overwritten", "type(text) == 'string'", "false"),
    ("fewer tokens than requested are reported as all", "count == wanted and now or {", "now or {"),
    ("fewer tokens than requested are counted as all", "(count == wanted and 1 or 0)", "1"),
    ("one request for all is enough", "common == releases + claims", "common > 0"),
    ("claims are answered as releases", "claims > 0 and now or 1", "1"),
    ("a release counts though its lock was not deleted", "common = common + #held", "common = common + releases"),
    ("one that is no common case has no answer", "answers[i] = answers[i] or 0", "answers[i] = answers[i]"),
    ("the first claim of a lock has more than one token", "previous == 0 and 1 or", ""),
    ("a claim uses the arguments of the previous one", "argument = argument + 3", ""),
];

/// A request for a lock in some state.
#[derive(Debug, Clone, Copy)]
enum Request {
    Claim(u32),
    Release,
}

#[derive(Debug)]
struct Case<'a> {
    denied: &'a str,
    state: &'a [&'a str],
    request: Request,
}

impl Request {
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
                script::acquire(name, &claim, Path::Fast, Requested::Own(START_US), None, epoch_check)
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

/// The other locks of the batch, with the content of their keys: one to claim and one to release before the lock of the case, and
/// the same after it.
const AROUND: [(Request, &[&str]); 4] = [
    (Request::Claim(1), &["SET FENCE 5"]),
    (Request::Release, &["SET LOCK ID:host:1 PX 10000"]),
    (Request::Claim(64), &["SET FENCE 5"]),
    (Request::Release, &["SET LOCK ID:host:1 PX 10000"]),
];

/// The difference between the combined script and the scripts of each lock, if any.
fn difference(real: &mut Real, case: &Case<'_>, mutant: Option<Mutant>) -> Option<String> {
    // The first half is sent as one batch, the second half one by one.
    let requests: Vec<_> = [&AROUND[..2], &[(case.request, case.state)], &AROUND[2..]].concat();
    let count = requests.len();
    let keys: Vec<_> = (0..2 * count).map(names).collect();
    for (number, key) in keys.iter().enumerate() {
        prepare(real, key, requests[number % count].1);
    }
    let together: Vec<_> =
        requests.iter().zip(&keys).map(|((request, _), [lock, ..])| Some(request.common(lock))).collect();
    let (call, positions) = combined::call(&together);
    let right = |real: &mut Real, sign| match case.denied {
        "" => {}
        command => {
            assert_eq!(real.command(&["ACL", "SETUSER", "default", &format!("{sign}{command}")]).text(), Some("OK"));
        }
    };
    right(real, '-');
    let reply = real.play(&[Sent::script(call, Changes { mutant, cap: CAP })], &[]).replies.remove(0);
    let answers: Vec<_> = match reply {
        Reply::Array(answers) if answers.len() == count => answers,
        // As the client reads it: each is the common case, and all claims have the same last token.
        Reply::Int(last) => {
            let mut answers = vec![Reply::Int(last); count];
            for (number, (request, _)) in requests.iter().enumerate() {
                if matches!(request, Request::Release) {
                    answers[positions[number]] = Reply::Int(1);
                }
            }
            answers
        }
        reply => {
            right(real, '+');
            return Some(format!("{case:?}\n  {reply:?}"));
        }
    };
    let mut alone = Vec::new();
    for (number, (request, _)) in requests.iter().enumerate() {
        let [lock, ..] = &keys[count + number];
        alone.push(real.play(&[request.alone(lock)], &[]).replies.remove(0));
    }
    let mut combined = Vec::new();
    for (number, (request, _)) in requests.iter().enumerate() {
        let [lock, ..] = &keys[number];
        combined.push(match &answers[positions[number]] {
            // As the client does.
            Reply::Int(0) => real.play(&[request.alone(lock)], &[]).replies.remove(0),
            answer => answer.clone(),
        });
    }
    right(real, '+');
    let states = real.play(&[], &keys).states;
    let differs = (0..count).find_map(|number| {
        let request = requests[number].0;
        let [combined, alone] = [(&combined[number], number), (&alone[number], count + number)]
            .map(|(reply, key)| (described(&request.in_full(reply.clone())), described(&states[key])));
        (combined != alone)
            .then(|| format!("{case:?}, request {number}\n  together {combined:?}\n  alone    {alone:?}"))
    });
    // Each of the other locks is a common case.
    let common = |number: &usize| *number == 2 || answers[positions[*number]] != Reply::Int(0);
    let sent_alone = (case.denied.is_empty() && !(0..count).all(|number| common(&number)))
        .then(|| format!("{case:?}\n  another lock is sent alone: {answers:?}"));
    differs.or(sent_alone)
}

/// The first difference of all cases.
fn find(real: &mut Real, mutant: Option<Mutant>) -> Option<String> {
    real.begin(START_US);
    let request = [Request::Claim(1), Request::Claim(64), Request::Release];
    let cases = || {
        let denied = request.into_iter().flat_map(|request| DENIED.iter().map(move |denied| (request, *denied)));
        denied.flat_map(|(request, denied)| STATES.iter().map(move |state| Case { denied, state, request }))
    };
    if let Some(found) = cases().find_map(|case| difference(real, &case, mutant)) {
        return Some(found);
    }
    // No token is left at this clock time, so no claim is a common case.
    real.begin(FENCE_MAX + 1);
    let beyond = |case: Case<'_>| difference(real, &case, mutant).filter(|what| !what.contains("is sent alone"));
    cases().filter(|case| case.denied.is_empty()).find_map(beyond)
}

#[test]
fn several_locks_in_one_script_behave_as_each_alone() {
    let Some(mut real) = Real::start(START_US) else { return };
    assert_eq!(find(&mut real, None), None);
}

#[test]
fn every_mutant_of_the_script_of_several_locks_is_detected() {
    let Some(mut real) = Real::start(START_US) else { return };
    find_each(MUTANTS, &[script::COMBINED.source()], |mutant| find(&mut real, Some(mutant)));
}
