//! Compares the scripts of a completion on a real server with a model: one key, commands of clients and of other programs, a
//! clock that moves forward and back, and a missing right.

use super::RUN_ID;
use super::differential::START_US;
use super::mutants::find_each;
use super::real::Real;
use super::sent::{Changes, Mutant, Mutants, Sent};
use super::step::Around;
use crate::scripts::quarantine::EpochCheck;
use crate::scripts::script::{self, CLEAR_COMPLETION, Call, READ_COMPLETION, WRITE_COMPLETION};
use fencelock_core::{Completion, FencingToken, HolderId, Owner};
use fencelock_model::CAP;
use fencelock_testkit::Reply;
use fencelock_testkit::SplitMix as Rng;

const LOCK: &str = "k";
const STORED: &str = "fencelock:{k}:once";
/// The text of [`holder`].
const ID: &str = "00000000000000000000000000000007";
const READ_STATE: &str = "local kind = redis.call('TYPE', KEYS[1]).ok
    return {kind, kind == 'string' and redis.call('GET', KEYS[1]) or '', redis.call('PTTL', KEYS[1])}";
const SEQUENCES: u64 = 1000;
const STEPS: u64 = 40;

/// Mutants of the scripts that must be detected.
const MUTANTS: Mutants = &[
    ("a later run is replaced", "if stored_token > token then new = text end", ""),
    ("an earlier run stays", "stored_token > token then", "true then"),
    ("a later run is not stored", "is_later and stored_token", "stored_token"),
    ("a later end is not stored", "is_later and stored_token >= token", "stored_token >= token"),
    ("the later end of an earlier run is lost", "if is_later then till = stored_till end", ""),
    ("only the expiry has the later end", "new = string.gsub(new,", "string.gsub(new,"),
    ("the same run is written again", "and stored_token >= token then", "and stored_token > token then"),
    (
        "what lies in the future is merged",
        "if stored_till and is_ahead(text) == is_ahead(new) then",
        "if stored_till then",
    ),
    ("what lies in the future replaces", "elseif stored_till and is_ahead(new) then", "elseif false then"),
    ("an hour is too far in the future", "> now + ARGV[5] * 1000", ">= now + ARGV[5] * 1000"),
    ("seconds of the future are too far", "> now + ARGV[5] * 1000", "> now + ARGV[5]"),
    ("the end tells the future", "'^2 %d+ %d+ (%d+) ')", "'^2 (%d+) ')"),
    ("the same end is written again", "tonumber(stored_till) >= ", "tonumber(stored_till) > "),
    ("the lock may belong to another client", "if ARGV[1] ~= '-' then", "if false then"),
    (
        "a value with the prefix of the holder id belongs to the holder",
        "if #value == 33 and string.sub(value, 33) ~= ' ' then return {'absent'} end",
        "",
    ),
    ("a lock of another type is an error", "redis.pcall('GETRANGE', KEYS[1]", "redis.call('GETRANGE', KEYS[1]"),
    ("a completion ends with its window", "/ 1000) + ARGV[5]", "/ 1000)"),
    ("a fraction of a millisecond is lost", "math.ceil((till", "math.floor((till"),
    ("the time has no microseconds", "* 1000000 + time[2]", "* 1000000"),
    ("a completion that has ended is stored", "if left > 0 then", "if true then"),
    ("an unreadable completion is replaced", "if kind then return {'unread', kind, text} end", ""),
    ("a later version is read", "'^2 ([1-9]", "'^[23] ([1-9]"),
    ("an end may begin with zero", "'^2 ([1-9]%d*)", "'^2 (%d+)"),
    ("a token may be zero", "'^2 ([1-9]%d*) ([1-9]%d*)", "'^2 ([1-9]%d*) (%d+)"),
    ("a grant may be zero", "([1-9]%d*) ([1-9]%d*) ([1-9]%d*) '", "([1-9]%d*) ([1-9]%d*) (%d+) '"),
    ("an owner may be missing", "([1-9]%d*) ([1-9]%d*) ([1-9]%d*) '", "([1-9]%d*) ([1-9]%d*) ([1-9]%d*)'"),
    ("an earlier version is read", "'^2 ([1-9]", "'^[12] ([1-9]"),
    ("a text of any length is read", "#text > LONGEST or ", ""),
    ("an end has any number of digits", "#till > 16 or ", ""),
    ("a token has any number of digits", "#token > 16 or ", ""),
    ("a grant has any number of digits", " or #granted > 16", ""),
    ("an unreadable text is not truncated", "string.sub(text, 1, 60)", "text"),
    ("an empty text is no completion", " and redis.call('EXISTS', KEYS[2]) == 0", ""),
    ("a completion of another type is an error", "if not string.find(text.err, 'WRONGTYPE', 1, true)", "if true"),
    ("that of a later run is cleared", "> tonumber(ARGV[1])", "> tonumber(ARGV[1]) + 9e15"),
    ("that of the same run is not cleared", "> tonumber(ARGV[1])", ">= tonumber(ARGV[1])"),
    ("that of an earlier run is not cleared", "> tonumber(ARGV[1])", "~= tonumber(ARGV[1])"),
    ("a completion is not cleared", "redis.call('DEL', KEYS[2])", ""),
];

/// The stored value: of another type, or a text with its expiry in milliseconds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
enum Stored {
    #[default]
    Nothing,
    Hash,
    Text(String, Option<u64>),
}

#[derive(Debug, Clone)]
enum Step {
    Read,
    /// By the holder, or to restore it.
    Write(bool, Completion),
    Clear(Completion),
    /// Another program.
    Foreign(Vec<String>),
    Time(u64),
    Denied(bool),
}

#[derive(Debug, Default)]
struct Model {
    now_us: u64,
    time_refused: bool,
    is_ours: bool,
    stored: Stored,
}

impl Model {
    fn expire(&mut self) {
        if matches!(self.stored, Stored::Text(_, Some(end)) if self.now_us / 1000 > end) {
            self.stored = Stored::Nothing;
        }
    }

    /// The stored text; if it cannot be read, its type and its beginning.
    fn text(&self) -> Result<Option<&str>, [&str; 2]> {
        match &self.stored {
            Stored::Nothing => Ok(None),
            Stored::Hash => Err(["hash", ""]),
            Stored::Text(text, _) if parts(text).is_some() => Ok(Some(text)),
            Stored::Text(text, _) => Err(["string", &text[..text.len().min(60)]]),
        }
    }

    /// The reply; `None` for an error.
    fn play(&mut self, step: &Step) -> Option<Vec<String>> {
        let words = |words: &[&str]| Some(words.iter().map(|word| (*word).to_owned()).collect());
        match step {
            Step::Read if self.time_refused => None,
            Step::Read => {
                let now = self.now_us.to_string();
                match self.text() {
                    Ok(text) => words(&[text.unwrap_or_default(), "", &now]),
                    Err([kind, begins]) => words(&[begins, kind, &now]),
                }
            }
            Step::Write(as_holder, _) if *as_holder && !self.is_ours => words(&["absent"]),
            Step::Write(_, completion) => {
                let stored = match self.text() {
                    Ok(text) => text.map(|text| (text.to_owned(), parts(text).unwrap())),
                    Err([kind, begins]) => return words(&["unread", kind, begins]),
                };
                if self.time_refused {
                    return None;
                }
                let (mut text, mut until) = (completion.to_wire(), completion.until_micros);
                let ahead = |text: &str| grant(text) > self.now_us + 3_600_000_000;
                let both = stored.as_ref().map(|(stored, _)| (ahead(stored), ahead(&text)));
                if both == Some((false, true)) {
                    return words(&["written"]);
                }
                if let Some((stored, (end, token))) = stored.filter(|_| both != Some((true, false))) {
                    let (keeps_run, keeps_end) = (token >= completion.token.get(), end >= until);
                    if keeps_run && keeps_end {
                        return words(&["written"]);
                    }
                    until = until.max(end);
                    let run = if token > completion.token.get() { stored } else { text };
                    text = format!("2 {until} {}", run.splitn(3, ' ').nth(2).unwrap());
                }
                // Rounded up to a millisecond, plus an hour.
                let left = (i128::from(until) - i128::from(self.now_us) + 999).div_euclid(1000) + 3_600_000;
                if let Some(left) = u64::try_from(left).ok().filter(|left| *left > 0) {
                    self.stored = Stored::Text(text, Some(self.now_us / 1000 + left));
                }
                words(&["written"])
            }
            Step::Clear(seen) => match self.text().map(|text| text.and_then(parts)) {
                Ok(None) => words(&["absent"]),
                Ok(Some((_, token))) if token <= seen.token.get() => {
                    self.stored = Stored::Nothing;
                    words(&["cleared"])
                }
                Ok(Some(_)) | Err(_) => words(&["changed"]),
            },
            Step::Foreign(command) => {
                self.foreign(command);
                words(&[])
            }
            Step::Time(now_us) => {
                self.now_us = *now_us;
                words(&[])
            }
            Step::Denied(refused) => {
                self.time_refused = *refused;
                words(&[])
            }
        }
    }

    fn foreign(&mut self, command: &[String]) {
        let word = |at: usize| command.get(at).map_or("", String::as_str);
        match (word(0), word(1)) {
            ("SET", LOCK) => self.is_ours = word(2) == ID || word(2).starts_with(&format!("{ID} ")),
            ("DEL" | "HSET", LOCK) => self.is_ours = false,
            ("SET", _) => {
                let end = word(4).parse().ok().map(|left: u64| self.now_us / 1000 + left);
                self.stored = Stored::Text(word(2).to_owned(), end);
            }
            ("DEL", _) => self.stored = Stored::Nothing,
            _ => self.stored = Stored::Hash,
        }
    }

    /// As [`READ_STATE`] reports it.
    fn state(&self) -> Vec<String> {
        let (kind, text, left) = match &self.stored {
            Stored::Nothing => ("none", "", -2),
            Stored::Hash => ("hash", "", -1),
            Stored::Text(text, end) => {
                let left = |end: &u64| i64::try_from(*end).unwrap() - i64::try_from(self.now_us / 1000).unwrap();
                ("string", text.as_str(), end.as_ref().map_or(-1, left))
            }
        };
        vec![kind.to_owned(), text.to_owned(), left.to_string()]
    }
}

/// End and token of a completion that a script of this version reads.
fn parts(text: &str) -> Option<(u64, u64)> {
    let number = |digits: &str| {
        let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        (is_number && !digits.starts_with('0') && digits.len() <= 16).then(|| digits.parse().ok()).flatten()
    };
    let mut parts = text.split(' ');
    parts.next().filter(|version| *version == "2" && text.len() <= 320)?;
    let found = (number(parts.next()?)?, number(parts.next()?)?);
    (number(parts.next()?).is_some() && parts.next().is_some()).then_some(found)
}

/// When the run of a completion got the lock.
fn grant(text: &str) -> u64 {
    text.split(' ').nth(3).unwrap().parse().unwrap()
}

fn holder() -> HolderId {
    HolderId::from_bytes(7_u128.to_be_bytes())
}

/// There are few different ends and tokens, so that equal ones are common.
fn completion(rng: &mut Rng) -> Completion {
    let hour = 3_600_000_000_i64;
    let from_now = rng.pick(&[-2 * hour, -hour - 1000, -hour - 1, -hour, -1, 1, 999, 1000, 1_500_001, 400 * 24 * hour]);
    let token = rng.pick(&[1, 2, START_US, FencingToken::MAX]);
    let until_micros = START_US.saturating_add_signed(from_now);
    let owner = Owner::from_text(rng.pick(&["a", "web-1:42 nightly"]));
    Completion::new(
        until_micros,
        FencingToken::new(token).unwrap(),
        START_US + rng.pick(&[0, 1, hour, hour + 1, 3 * hour]).unsigned_abs(),
        owner,
    )
}

fn step(rng: &mut Rng) -> Step {
    let foreign = |words: &[&str]| Step::Foreign(words.iter().map(|word| (*word).to_owned()).collect());
    match rng.below(20) {
        0..=3 => Step::Read,
        4..=8 => Step::Write(rng.percent(70), completion(rng)),
        9..=10 => Step::Clear(completion(rng)),
        11..=12 => {
            let back = rng.percent(40);
            let by = rng.pick(&[1, 999, 1000, 1_000_000, 3_600_000_000, 3_600_001_000]);
            Step::Time(if back { START_US - by } else { START_US + by })
        }
        13 => Step::Denied(rng.percent(40)),
        14..=16 => match rng.below(4) {
            0 => foreign(&["DEL", LOCK]),
            1 => foreign(&["HSET", LOCK, "a", "1"]),
            _ => {
                let value = rng.pick(&["", " web-1:42", " ", "x", "x web-1:42"]);
                foreign(&["SET", LOCK, &format!("{ID}{value}")])
            }
        },
        _ => match rng.below(6) {
            0 => foreign(&["DEL", STORED]),
            1 => foreign(&["HSET", STORED, "a", "1"]),
            2 => foreign(&["SET", STORED, &completion(rng).to_wire(), "PX", "1"]),
            3 => foreign(&[
                "SET",
                STORED,
                &format!("2 {START_US} 7 5 {}", "x".repeat(rng.pick(&[296, 297, 298, 299, 300]))),
            ]),
            _ => foreign(&["SET", STORED, rng.pick(TEXTS)]),
        },
    }
}

const TEXTS: &[&str] = &[
    "",
    "1",
    "done",
    "1 5 7 5 a",
    "2 5 0 5 a",
    "2  5 7 5 a",
    "2 5e3 7 5 a",
    "2 9007199254740991 7 a",
    "2 9007199254740991 7 5 a",
    "2 9007199254740991 7 5",
    "2 9007199254740991 7 5 ",
    "2 05 7 5 a",
    "2 5 07 5 a",
    "2 5 7 0 a",
    "2 5 7 05 a",
    "2 5 7 12345678901234567 a",
    "2 12345678901234567 7 5 a",
    "2 5 12345678901234567 5 a",
    "3 5 7 5 a",
    "2 9999999999999999 9999999999999999 5 a",
];

fn call(step: &Step) -> Option<Call> {
    Some(match step {
        Step::Read => script::read_completion(LOCK, EpochCheck::without_marker(RUN_ID)),
        Step::Write(as_holder, completion) => {
            script::write_completion(LOCK, as_holder.then(holder).as_ref(), completion)
        }
        Step::Clear(seen) => script::clear_completion(LOCK, seen),
        Step::Foreign(_) | Step::Time(_) | Step::Denied(_) => return None,
    })
}

/// The reply of the server as words; `None` for an error.
fn words(reply: &Reply) -> Option<Vec<String>> {
    match reply {
        Reply::Error(_) => None,
        Reply::Array(all) => Some(all.iter().flat_map(|word| words(word).unwrap_or_default()).collect()),
        Reply::Int(number) => Some(vec![number.to_string()]),
        other => Some(vec![other.text().unwrap_or_default().to_owned()]),
    }
}

/// The difference in one sequence, if any.
fn difference(real: &mut Real, seed: u64, mutant: Option<Mutant>) -> Option<String> {
    real.begin(START_US);
    let (mut rng, mut model) = (Rng::new(seed), Model { now_us: START_US, ..Model::default() });
    let mut played = Vec::new();
    for _ in 0..STEPS {
        let step = step(&mut rng);
        let expected = model.play(&step);
        let around = Around { time_refused: model.time_refused, ..Around::CALM };
        real.become_so(&around, model.now_us);
        let found = match (call(&step), &step) {
            (Some(call), _) => words(&real.play(&[Sent::script(call, Changes { mutant, cap: CAP })], &[]).replies[0]),
            (None, Step::Foreign(command)) => {
                let words: Vec<&str> = command.iter().map(String::as_str).collect();
                real.command(&["DEL", if words[1] == LOCK { LOCK } else { STORED }]);
                assert!(!matches!(real.command(&words), Reply::Error(_)), "{command:?}");
                Some(Vec::new())
            }
            (None, _) => Some(Vec::new()),
        };
        model.expire();
        played.push(format!("{step:?} -> {found:?}"));
        let state = words(&real.command(&["EVAL", READ_STATE, "1", STORED])).unwrap_or_default();
        let expected = (expected, model.state());
        if expected != (found, state.clone()) {
            let played = played.join("\n  ");
            return Some(format!("seed {seed}:\n  {played}\n  expected {expected:?}\n  state {state:?}"));
        }
    }
    None
}

#[test]
fn the_scripts_of_a_completion_match_the_model() {
    let Some(mut real) = Real::start(START_US) else { return };
    for seed in 0..SEQUENCES {
        if let Some(found) = difference(&mut real, seed, None) {
            panic!("{found}");
        }
    }
}

#[test]
fn every_mutant_of_a_script_of_a_completion_is_detected() {
    let Some(mut real) = Real::start(START_US) else { return };
    let scripts = [&READ_COMPLETION, &WRITE_COMPLETION, &CLEAR_COMPLETION].map(|lua| lua.source());
    find_each(MUTANTS, &scripts, |mutant| {
        let seed = (0..SEQUENCES).find(|seed| difference(&mut real, *seed, Some(mutant)).is_some());
        seed.map(|seed| format!("detected by sequence {seed}"))
    });
}
