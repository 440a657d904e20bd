//! Compares the parser of messages with its specification: messages of this version, of other versions, and almost of this
//! version.

use crate::scripts::message::{Grant, Message};
use fencelock_core::engine::Rng as _;
use fencelock_model::{self as model, Channel, HandOff, Name};
use fencelock_testkit::SplitMix as Rng;

const MESSAGES: usize = 20_000;
const WORDS: [&str; 12] =
    ["0", "1", "2", "01", "", "r", "x", "-1", "9007199254740991", "9007199254740992", "4294967296", "\t"];
const KEYS: [&str; 3] = ["k", "nightly report", "a b c d e f g"];

/// As the scripts write it, with up to two words changed, added or left out. In a tenth, the key follows no tab.
fn message(rng: &mut Rng) -> String {
    let to = Name::Holder(u128::from(rng.next_u64()) << 64 | u128::from(rng.next_u64()));
    let fence = 1_780_000_000_000_000 + rng.below(1_000_000);
    let hand_off = HandOff { channel: Channel(0), to, fence, count: 1 + rng.below(64), lease_ms: rng.below(3001) };
    let key = rng.pick(&KEYS);
    let text = hand_off.text("5e4f", key);
    if rng.percent(10) {
        return text.replace('\t', " ");
    }
    let (words, key) = text.split_once('\t').unwrap();
    let mut words: Vec<&str> = words.split(' ').collect();
    for _ in 0..rng.below(3) {
        let index = usize::try_from(rng.below(words.len() as u64)).unwrap();
        match rng.below(4) {
            0 => words.insert(index, rng.pick(&WORDS)),
            1 => words.push(rng.pick(&WORDS)),
            2 if words.len() > 1 => drop(words.remove(index)),
            _ => words[index] = rng.pick(&WORDS),
        }
    }
    format!("{}\t{key}", words.join(" "))
}

fn read(text: &str) -> model::Message {
    match Message::read(text) {
        Message::Grant(Grant { server, holder, tokens, lease, key }) => model::Message::Grant {
            run_id: server.to_owned(),
            holder: holder.to_string(),
            numbers: [tokens.last().get(), tokens.count().get().into(), u64::try_from(lease.as_millis()).unwrap()],
            key: key.to_owned(),
        },
        Message::Hint { key } => model::Message::Hint { key: key.to_owned() },
        Message::Garbage => model::Message::Garbage,
    }
}

/// Mutants of the parser.
type Wrong = fn(&str) -> String;

const WRONG: [(&str, Wrong); 4] = [
    ("a message of an unknown version is accepted", |text| match text.split_once(' ') {
        Some((_, rest)) if text.contains('\t') => format!("1 {rest}"),
        _ => text.to_owned(),
    }),
    ("fields of a later version are ignored", |text| match text.split_once('\t') {
        Some((words, key)) => format!("{}\t{key}", words.split(' ').take(6).collect::<Vec<_>>().join(" ")),
        None => text.to_owned(),
    }),
    ("the key may follow any space", |text| match text.rsplit_once(' ') {
        Some((words, key)) if !text.contains('\t') => format!("{words}\t{key}"),
        _ => text.to_owned(),
    }),
    ("a message that cannot be read is dropped", |text| match model::Message::read(text) {
        model::Message::Hint { .. } => String::new(),
        _ => text.to_owned(),
    }),
];

#[test]
fn messages_are_parsed_as_the_model_parses_them() {
    let mut rng = Rng::new(1);
    for _ in 0..MESSAGES {
        let text = message(&mut rng);
        assert_eq!(read(&text), model::Message::read(&text), "{text:?}");
    }
}

#[test]
fn every_mutant_of_the_parser_is_detected() {
    for (name, wrong) in WRONG {
        let mut rng = Rng::new(1);
        let found = (0..MESSAGES).any(|_| {
            let text = message(&mut rng);
            read(&wrong(&text)) != model::Message::read(&text)
        });
        assert!(found, "{name}");
    }
}
