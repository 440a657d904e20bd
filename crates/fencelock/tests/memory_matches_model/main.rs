//! The memory backend against the model of the scripts (`fencelock_model`): every answer, hand-off and token is
//! the same. So one key has two models, the abstract one of the searches and this one.
//!
//! Waiters poll whenever time passes, as clients do: when a waiter that does not is forgotten, both may choose. Both may also choose
//! which waiters a claim that conflicts is compared with, all or the last one. So the clients of a sequence have exclusive locks and
//! one class of others, or two classes of others; and where exclusive claims wait too, no limit is changed.
#![allow(missing_docs, clippy::unwrap_used)]

mod memory;
mod model;

use fencelock::backends::{ManualClock, Memory};
use fencelock_core::{Backend, Clock, Event, HolderId, Intent, Key, Listener, Mode, TokenBlock};
use fencelock_model::{Delivery, HandOff, KeyModel, Name, Server};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use std::cell::RefCell;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const HAND_OFF_MS: u64 = 3000;
/// For each holder: its lease in milliseconds, and the number of tokens that it requests.
const HOLDERS: [(u64, u32); 4] = [(700, 1), (1000, 3), (5000, 1), (9000, 50)];

#[derive(Debug, Clone)]
enum Op {
    Claim(usize, Intent),
    Renew(usize, u64),
    Release(usize),
    Downgrade(usize),
    Resize(u32),
    /// By so much above the last token, or below it.
    Raise(usize, i64),
    Inspect,
    /// All holders, or one of them.
    Evict(Option<usize>),
    Wait(u64),
}

fn steps(resizes: bool) -> impl Strategy<Value = Vec<Op>> {
    let holder = 0..HOLDERS.len();
    let intent = prop_oneof![Just(Intent::Try), Just(Intent::Enqueue), Just(Intent::Poll)];
    let step = prop_oneof![
        6 => (holder.clone(), intent).prop_map(|(holder, intent)| Op::Claim(holder, intent)),
        2 => (holder.clone(), 100..6000_u64).prop_map(|(holder, ms)| Op::Renew(holder, ms)),
        3 => holder.clone().prop_map(Op::Release),
        1 => holder.clone().prop_map(Op::Downgrade),
        u32::from(resizes) => (1..5_u32).prop_map(Op::Resize),
        1 => (holder.clone(), -5..50_i64).prop_map(|(holder, by)| Op::Raise(holder, by)),
        1 => Just(Op::Inspect),
        1 => prop::option::of(holder).prop_map(Op::Evict),
        3 => (1..1500_u64).prop_map(Op::Wait),
    ];
    prop::collection::vec(step, 1..80)
}

/// What both say, in one form. Holders are in the order of their ids.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Said {
    Granted {
        last: u64,
        count: u64,
    },
    Queued {
        ahead: u64,
        last_fence: u64,
        by: Vec<u128>,
        ttl_ms: u64,
    },
    Busy {
        by: Vec<u128>,
        ttl_ms: u64,
    },
    /// Each with its rest, token and permits.
    Held {
        by: Vec<(u128, u64, u64, u32)>,
        waiters: u64,
    },
    Handed {
        to: u128,
        last: u64,
        count: u64,
        lease_ms: u64,
    },
    /// With a class of claims that has this limit.
    Conflict(Option<u32>),
    Renewed(u64),
    Downgraded(u64),
    Resized {
        before: u32,
        limit: u64,
        used: u64,
        holders: u64,
    },
    Taken(Vec<u128>),
    Nobody,
    Yes,
    No,
}

/// Both, side by side.
struct Pair {
    clock: Arc<ManualClock>,
    memory: Memory,
    model: KeyModel,
    key: Key,
    /// Of each holder.
    modes: [Mode; 4],
    events: Arc<Events>,
    /// What the next raise raises to.
    to: u64,
}

#[derive(Debug, Default)]
struct Events(Mutex<Vec<Said>>);

impl Listener for Events {
    fn event(&self, event: &Event) {
        if let Event::Handed { holder, tokens, claim_ttl, .. } = event {
            let (last, count) = block(*tokens);
            self.0.lock().unwrap().push(Said::Handed { to: id(holder), last, count, lease_ms: ms(*claim_ttl) });
        }
    }
}

impl Pair {
    fn new(modes: [Mode; 4]) -> Self {
        let clock = Arc::new(ManualClock::at(Duration::from_secs(1_780_000_000)));
        let clock_of_memory: Arc<dyn Clock> = clock.clone();
        let (memory, events) = (Memory::with_leases(clock_of_memory), Arc::new(Events::default()));
        let listener: Arc<dyn Listener> = events.clone();
        memory.listen(listener);
        Self { clock, memory, model: KeyModel::default(), key: Key::new("k").unwrap(), modes, events, to: 1 }
    }

    /// Does the step on both, and compares what they say. Adds what was said to `replies`.
    fn play(&mut self, step: &Op, replies: &mut Vec<Said>) {
        let server = Server::at(self.clock.wall_micros());
        if let Op::Raise(_, by) = step {
            let fence = self.model.fence.map_or(1, |fence| fence.token);
            self.to = fence.saturating_add_signed(*by).max(1);
        }
        let mut handed = Vec::new();
        let expected = self.of_model(step, &server, &mut |hand_off| {
            let HandOff { to, fence, count, lease_ms, .. } = hand_off;
            handed.push(Said::Handed { to: named(&to), last: fence, count, lease_ms });
            Delivery::Received
        });
        let answer = self.of_memory(step);
        assert_eq!(answer, expected, "{step:?}");
        assert_eq!(std::mem::take(&mut *self.events.0.lock().unwrap()), handed, "{step:?}");
        replies.push(answer);
        replies.extend(handed);
        if let Op::Wait(_) = step {
            for waiting in self.model.queue.members.clone() {
                let holder = usize::try_from(named(&waiting.1)).unwrap();
                self.play(&Op::Claim(holder, Intent::Poll), replies);
            }
        }
    }
}

fn holder(number: usize) -> HolderId {
    HolderId::from_bytes((number as u128).to_be_bytes())
}

fn id(holder: &HolderId) -> u128 {
    u128::from_str_radix(std::str::from_utf8(&holder.hex()).unwrap(), 16).unwrap()
}

fn named(name: &Name) -> u128 {
    let Name::Holder(holder) = name else { panic!("{name:?}") };
    *holder
}

fn ms(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap()
}

fn block(tokens: TokenBlock) -> (u64, u64) {
    (tokens.last().get(), tokens.count().get().into())
}

fn sorted<T: Ord>(items: impl Iterator<Item = T>) -> Vec<T> {
    let mut items: Vec<_> = items.collect();
    items.sort_unstable();
    items
}

const X: Mode = Mode::Exclusive;
const R: Mode = Mode::Shared;

fn permits(weight: u32, limit: u32) -> Mode {
    Mode::permits(weight, limit).unwrap()
}

/// Something that has to be said.
type Wanted = (&'static str, fn(&Said) -> bool);

/// The sequences agree, and each of these was said in some of them.
fn agree(modes: impl Strategy<Value = [Mode; 4]>, resizes: bool, wanted: &[Wanted]) {
    let config = ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() };
    let missing = RefCell::new(wanted.to_vec());
    let played = TestRunner::new(config).run(&(modes, steps(resizes)), |(modes, steps)| {
        let (mut pair, mut replies) = (Pair::new(modes), Vec::new());
        for step in &steps {
            pair.play(step, &mut replies);
        }
        missing.borrow_mut().retain(|(_, is_it)| !replies.iter().any(is_it));
        Ok(())
    });
    played.unwrap_or_else(|failure| panic!("{failure}"));
    let missing: Vec<_> = missing.into_inner().into_iter().map(|(what, _)| what).collect();
    assert!(missing.is_empty(), "never said: {missing:?}");
}

const QUEUED: Wanted = ("queued", |said| matches!(said, Said::Queued { .. }));
const HANDED: Wanted = ("handed over", |said| matches!(said, Said::Handed { .. }));
const TAKEN: Wanted = ("taken", |said| matches!(said, Said::Taken(_)));
const SEVERAL: Wanted = ("several holders", |said| matches!(said, Said::Held { by, .. } if by.len() > 1));
const CONFLICT: Wanted = ("a conflict", |said| matches!(said, Said::Conflict(_)));
const DOWNGRADED: Wanted = ("downgraded", |said| matches!(said, Said::Downgraded(_)));
const RESIZED: Wanted = ("resized", |said| matches!(said, Said::Resized { .. }));
const TOO_MANY: Wanted =
    ("more permits than the limit", |said| matches!(said, Said::Resized { used, limit, .. } if used > limit));

#[test]
fn memory_answers_as_the_model_of_the_scripts() {
    agree(Just([X; 4]), false, &[QUEUED, HANDED, TAKEN, DOWNGRADED]);
}

#[test]
fn memory_answers_as_the_model_about_shared_locks() {
    let modes = [[R, R, R, X], [X, R, R, X], [R; 4]];
    agree(prop::sample::select(modes.to_vec()), false, &[QUEUED, HANDED, TAKEN, SEVERAL, DOWNGRADED]);
}

#[test]
fn memory_answers_as_the_model_about_permits() {
    let weights = prop::array::uniform3(1..3_u32).prop_map(|weights| weights.map(|weight| permits(weight, 3)));
    let modes = weights.prop_map(|[one, two, three]| [one, two, three, X]);
    agree(modes, false, &[QUEUED, HANDED, TAKEN, SEVERAL, CONFLICT, DOWNGRADED]);
}

#[test]
fn memory_answers_as_the_model_about_semaphores_that_are_resized() {
    let modes = [
        [permits(1, 2), permits(1, 2), permits(2, 2), permits(1, 2)],
        [permits(1, 2), permits(2, 2), permits(1, 3), permits(1, 3)],
        [permits(1, 2), permits(2, 3), R, R],
    ];
    let modes = prop::sample::select(modes.to_vec());
    agree(modes, true, &[QUEUED, HANDED, TAKEN, SEVERAL, CONFLICT, RESIZED, TOO_MANY]);
}
