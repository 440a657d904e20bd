//! An exact breadth-first explorer: whole states are kept and compared, so a count is a count and a trace is a shortest one.

use std::hash::{BuildHasher, BuildHasherDefault, Hash, Hasher};

/// A system with finitely many states, described by its steps.
pub(crate) trait System {
    type State: Copy + Eq + Hash;
    type Action: Copy;

    fn initial(&self) -> Self::State;
    /// Every step possible in `state`.
    fn actions(&self, state: &Self::State, into: &mut Vec<Self::Action>);
    fn next(&self, state: &Self::State, action: Self::Action) -> Self::State;
    /// What the step achieved, as bits: a run that never reaches a landmark has proved nothing about it.
    fn landmarks(&self, before: &Self::State, action: Self::Action, after: &Self::State) -> u32;
    fn describe(&self, before: &Self::State, action: Self::Action, after: &Self::State) -> String;
}

/// What a search found.
pub(crate) struct Explored {
    /// Different states reached.
    pub(crate) states: usize,
    /// Steps from the start to the farthest of them.
    pub(crate) depth: usize,
    /// Every landmark reached.
    pub(crate) landmarks: u32,
    /// The shortest way, in words, to a state that was looked for; `None` says that there is none.
    pub(crate) trace: Option<Vec<String>>,
}

/// Visits every reachable state, nearest first, and stops at the first one that is `sought`.
///
/// # Panics
/// After `limit` states: an unfinished search must not count as a complete one.
pub(crate) fn explore<S: System>(system: &S, limit: usize, sought: impl Fn(&S::State) -> bool) -> Explored {
    let mut seen = Seen::new(system.initial());
    let (mut at, mut layer_end, mut depth, mut landmarks) = (0, 1, 0, 0);
    let mut actions = Vec::new();
    while at < seen.states.len() {
        if at == layer_end {
            (depth, layer_end) = (depth + 1, seen.states.len());
        }
        let state = seen.states[at];
        if sought(&state) {
            let trace = Some(retrace(system, &seen, at));
            return Explored { states: seen.states.len(), depth, landmarks, trace };
        }
        actions.clear();
        system.actions(&state, &mut actions);
        for &action in &actions {
            let after = system.next(&state, action);
            landmarks |= system.landmarks(&state, action, &after);
            seen.insert(after, at);
        }
        assert!(seen.states.len() <= limit, "more than {limit} states: the search is not exhaustive");
        at += 1;
    }
    Explored { states: seen.states.len(), depth, landmarks, trace: None }
}

/// Tells how state number `at` was reached. Steps are not stored; the one that leads from parent to child is found again.
fn retrace<S: System>(system: &S, seen: &Seen<S::State>, mut at: usize) -> Vec<String> {
    let mut steps = Vec::new();
    while at != 0 {
        let (before, after) = (seen.states[seen.parents[at] as usize], seen.states[at]);
        let mut actions = Vec::new();
        system.actions(&before, &mut actions);
        let taken = actions.into_iter().find(|&action| system.next(&before, action) == after);
        steps.push(system.describe(&before, taken.expect("a child is one step from its parent"), &after));
        at = seen.parents[at] as usize;
    }
    steps.reverse();
    steps
}

/// The states met so far, each stored once, and the state each was first reached from.
struct Seen<T> {
    states: Vec<T>,
    parents: Vec<u32>,
    /// Open addressing: indices into `states`, found by hash, never more than half full.
    slots: Vec<u32>,
    hasher: BuildHasherDefault<Mix>,
}

const EMPTY: u32 = u32::MAX;

impl<T: Copy + Eq + Hash> Seen<T> {
    fn new(first: T) -> Self {
        let slots = vec![EMPTY; 1 << 10];
        let mut seen = Self { states: Vec::new(), parents: Vec::new(), slots, hasher: BuildHasherDefault::default() };
        seen.insert(first, 0);
        seen
    }

    fn insert(&mut self, state: T, parent: usize) {
        let slot = self.slot_of(&state);
        if self.slots[slot] != EMPTY {
            return;
        }
        self.slots[slot] = index(self.states.len());
        self.states.push(state);
        self.parents.push(index(parent));
        if self.states.len() * 2 > self.slots.len() {
            self.grow();
        }
    }

    /// The slot that holds `state`, or the empty one where it belongs.
    fn slot_of(&self, state: &T) -> usize {
        let mask = self.slots.len() - 1;
        #[allow(clippy::cast_possible_truncation, reason = "only the low bits are wanted")]
        let mut slot = self.hasher.hash_one(state) as usize & mask;
        while self.slots[slot] != EMPTY && self.states[self.slots[slot] as usize] != *state {
            slot = (slot + 1) & mask;
        }
        slot
    }

    fn grow(&mut self) {
        self.slots = vec![EMPTY; self.slots.len() * 2];
        for at in 0..self.states.len() {
            let slot = self.slot_of(&self.states[at]);
            self.slots[slot] = index(at);
        }
    }
}

/// A multiplicative hash: the default one takes most of the time of a search, and the keys of this table are trusted.
#[derive(Default)]
struct Mix(u64);

impl Hasher for Mix {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u8(byte);
        }
    }
    fn write_u8(&mut self, byte: u8) {
        self.write_u64(byte.into());
    }
    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95);
    }
    fn write_isize(&mut self, discriminant: isize) {
        self.write_u64(discriminant.cast_unsigned() as u64);
    }
    fn finish(&self) -> u64 {
        // The low bits choose the slot, and the high ones are the well mixed ones.
        self.0.rotate_left(26)
    }
}

fn index(at: usize) -> u32 {
    u32::try_from(at).expect("fewer than 2^32 states")
}
