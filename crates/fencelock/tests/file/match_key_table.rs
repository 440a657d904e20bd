//! The backends of this crate against [`KeyTable`], the specification of a key: in random histories both answer the same. Their
//! tokens are in the same order: each has a clock of its own.

use crate::kit::{Scratch, key, now, permits};
use fencelock::backends::Memory;
use fencelock_core::{
    Acquire, Backend, Claim, ClockReading, Downgrade, FencingToken, Holder, HolderId, HolderInfo, Holders, Holding,
    Intent, Key, KeyStep, KeyTable, Mode, Occupied, Owner, Release, Renew, Renewal, Resize, Ttl, Unknown,
};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

#[derive(Debug, Clone)]
enum Op {
    Claim(usize, Intent),
    Renew(usize),
    Release(usize),
    Downgrade(usize),
    Resize(u32),
    Inspect,
}

const HOLDERS: usize = 4;
const X: Mode = Mode::Exclusive;
const R: Mode = Mode::Shared;

fn history() -> impl Strategy<Value = Vec<Op>> {
    let holder = 0..HOLDERS;
    let intent = prop_oneof![3 => Just(Intent::Try), 3 => Just(Intent::Enqueue), 1 => Just(Intent::Poll)];
    let op = prop_oneof![
        6 => (holder.clone(), intent).prop_map(|(holder, intent)| Op::Claim(holder, intent)),
        1 => holder.clone().prop_map(Op::Renew),
        3 => holder.clone().prop_map(Op::Release),
        1 => holder.prop_map(Op::Downgrade),
        1 => (1..5_u32).prop_map(Op::Resize),
        1 => Just(Op::Inspect),
    ];
    prop::collection::vec(op, 1..40)
}

/// An answer without tokens and durations, and the token that it returns.
type Said = (String, Option<FencingToken>);

/// Whose claims and their modes.
struct Claimants {
    key: Key,
    modes: [Mode; HOLDERS],
    queues: bool,
}

impl Claimants {
    fn claim(&self, number: usize, intent: Intent) -> Claim {
        let owner = Owner::new("box", 1, None).unwrap();
        let holder = Holder { id: HolderId::from_bytes((number as u128).to_be_bytes()), owner };
        // Without a queue, the intents are one.
        let intent = if self.queues { intent } else { Intent::Try };
        Claim::new(self.key.clone(), holder, Ttl::default(), intent).with_mode(self.modes[number])
    }

    fn renewal(&self, number: usize) -> Renewal {
        Renewal::new(self.key.clone(), self.claim(number, Intent::Try).holder.id, Ttl::default())
    }

    /// What the table answers.
    fn expect(&self, table: &mut KeyTable, op: &Op) -> Said {
        let step = |key: &mut KeyStep<'_>| match op {
            Op::Claim(number, intent) => of_claim(key.claim(&self.claim(*number, *intent), None)),
            Op::Renew(number) => (of_renewal(&key.renew(&self.renewal(*number))), None),
            Op::Release(number) => (of_release(&key.release(&self.renewal(*number).holder).unwrap()), None),
            Op::Downgrade(number) => of_downgrade(key.downgrade(&self.renewal(*number), None)),
            Op::Resize(limit) => (of_resize(key.resize(*limit).unwrap()), None),
            Op::Inspect => (of_holding(key.inspect()), None),
        };
        table.step(&self.key, ClockReading::from_micros(1), step)
    }

    /// What the backend answers.
    fn ask(&self, backend: &dyn Backend, op: &Op) -> Said {
        match op {
            Op::Claim(number, intent) => of_claim(now(backend.acquire(&self.claim(*number, *intent))).answer),
            Op::Renew(number) => (of_renewal(&now(backend.renew(&[self.renewal(*number)])).remove(0).unwrap()), None),
            Op::Release(number) => {
                (of_release(&now(backend.release(&self.key, &self.renewal(*number).holder)).unwrap()), None)
            }
            Op::Downgrade(number) => of_downgrade(now(backend.downgrade(&self.renewal(*number)))),
            Op::Resize(limit) => (of_resize(now(backend.resize(&self.key, *limit)).unwrap()), None),
            Op::Inspect => (of_holding(now(backend.inspect(&self.key)).unwrap()), None),
        }
    }
}

fn of_claim(answer: Result<Acquire, Unknown>) -> Said {
    let by = |occupied: &Occupied| format!("{} until {:?}", ids(&occupied.holders), occupied.expiry);
    let text = match answer {
        Ok(Acquire::Granted { tokens }) => return ("granted".into(), Some(tokens.last())),
        Ok(Acquire::Busy(occupied)) => format!("busy: {}", by(&occupied)),
        Ok(Acquire::Queued { ahead, occupied, .. }) => format!("queued: {ahead}, {}", by(&occupied)),
        Ok(Acquire::Gone) => "gone".into(),
        Ok(Acquire::Conflict(mode)) => format!("conflict: {:?}", mode.limit()),
        Err(cause) => panic!("{cause}"),
    };
    (text, None)
}

fn of_renewal(answer: &Renew) -> String {
    match answer {
        Renew::Renewed { waiters } => format!("renewed, {waiters} wait"),
        Renew::Absent => "absent".into(),
        Renew::TakenBy(by) => format!("taken: {}", ids(by)),
    }
}

fn of_release(answer: &Release) -> String {
    match answer {
        Release::Released => "released".into(),
        Release::Absent => "absent".into(),
        Release::TakenBy(by) => format!("taken: {}", ids(by)),
    }
}

fn of_downgrade(answer: Result<Downgrade, Unknown>) -> Said {
    let text = match answer {
        Ok(Downgrade::Downgraded { token }) => return ("downgraded".into(), Some(token)),
        Ok(Downgrade::Absent) => "absent".into(),
        Ok(Downgrade::TakenBy(by)) => format!("taken: {}", ids(&by)),
        Err(cause) => panic!("{cause}"),
    };
    (text, None)
}

fn of_resize(answer: Resize) -> String {
    match answer {
        Resize::Resized(seen) => format!("{seen:?}"),
        Resize::Free => "free".into(),
        Resize::OtherMode { mode, holders } => format!("other mode: {mode:?}, {}", ids(&holders)),
    }
}

/// The holders in the order of their tokens, with their modes.
fn of_holding(seen: Option<Holding>) -> String {
    let Some(seen) = seen else { return "free".into() };
    assert!(seen.holders.iter().is_sorted_by_key(|hold| hold.fence), "{seen:?}");
    let hold = |hold: &HolderInfo| format!("{:?} {:?} {:?}", hold.holder_id().unwrap(), hold.mode, hold.expiry);
    format!("held: {:?}, {} wait", seen.holders.iter().map(hold).collect::<Vec<_>>(), seen.waiters)
}

fn ids(holders: &Holders) -> String {
    format!("{:?}", holders.iter().map(|by| by.holder_id().unwrap()).collect::<Vec<_>>())
}

const MODES: [[Mode; HOLDERS]; 4] = [[X; 4], [R, R, R, X], [R; 4], [X, X, R, R]];

/// The histories agree, and `wanted` begins some answer in one of them.
fn agree<S>(cases: u32, queues: bool, backends: impl Fn() -> ([Arc<dyn Backend>; 2], S), wanted: &[&str]) {
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    let permits = [[permits(1, 3), permits(2, 3), permits(3, 3), X], [permits(1, 2), permits(2, 2), permits(1, 3), R]];
    let modes = prop::sample::select(MODES.into_iter().chain(permits).collect::<Vec<_>>());
    let said = RefCell::new(BTreeSet::new());
    let played = TestRunner::new(config).run(&(modes, history()), |(modes, history)| {
        let claimants = Claimants { key: key("k"), modes, queues };
        let (both, _kept) = backends();
        let (mut table, mut tokens) = (KeyTable::new("table"), BTreeMap::new());
        for (round, op) in history.iter().enumerate() {
            let (expected, token_of_table) = claimants.expect(&mut table, op);
            let backend = match op {
                Op::Claim(by, _) | Op::Renew(by) | Op::Release(by) | Op::Downgrade(by) => &both[by % 2],
                _ => &both[round % 2],
            };
            let (answer, token) = claimants.ask(&**backend, op);
            assert_eq!(answer, expected, "{op:?}");
            if let Some((token_of_table, token)) = token_of_table.zip(token) {
                assert_eq!(*tokens.entry(token_of_table).or_insert(token), token, "the same grant");
                assert!(tokens.values().is_sorted_by(|one, next| one < next), "{tokens:?}");
            }
            said.borrow_mut().insert(answer);
        }
        Ok(())
    });
    played.unwrap_or_else(|failure| panic!("{failure}"));
    let never = |wanted: &&&str| !said.borrow().iter().any(|answer| answer.starts_with(**wanted));
    assert_eq!(wanted.iter().filter(never).collect::<Vec<_>>(), [&""; 0]);
}

const ALWAYS: [&str; 8] = ["granted", "busy", "conflict", "renewed", "taken", "downgraded", "Resized", "other mode"];

#[test]
fn memory_answers_as_the_table() {
    let memories = || {
        let memory: Arc<dyn Backend> = Arc::new(Memory::new());
        ([memory.clone(), memory], ())
    };
    agree(1000, true, memories, &[&ALWAYS[..], &["queued", "gone"]].concat());
}

#[test]
fn files_answer_as_the_table() {
    let files = || {
        let scratch = Scratch::new();
        ([Arc::new(scratch.locks()) as _, Arc::new(scratch.locks()) as _], scratch)
    };
    agree(300, false, files, &ALWAYS);
}
