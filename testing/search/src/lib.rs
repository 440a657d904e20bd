//! An exhaustive breadth-first search of a system with finitely many states.
//!
//! A [`System`] is an initial state, the actions that are possible in a state, and the state after each of them. [`explore`] visits
//! every reachable state. It keeps and compares whole states, so counts are exact, and every way that it finds is a shortest one.
//! A [`Frontier`] keeps only digests, for millions of large states.
//!
//! ```
//! use fencelock_search::{System, explore};
//!
//! /// Two clients that read a stock and write it back, minus one, without a lock.
//! struct Sale;
//!
//! impl System for Sale {
//!     /// The stock, and what each client has read.
//!     type State = (u8, [Option<u8>; 2]);
//!     /// The step of a client.
//!     type Action = usize;
//!
//!     fn initial(&self) -> Self::State {
//!         (2, [None; 2])
//!     }
//!     fn actions(&self, _: &Self::State, into: &mut Vec<usize>) {
//!         into.extend([0, 1]);
//!     }
//!     fn step(&self, &(stock, mut read): &Self::State, client: usize) -> (Self::State, u32) {
//!         match read[client].take() {
//!             Some(seen) => ((seen - 1, read), u32::from(seen != stock)),
//!             None if stock == 0 => ((stock, read), 0),
//!             None => {
//!                 read[client] = Some(stock);
//!                 ((stock, read), 0)
//!             }
//!         }
//!     }
//! }
//!
//! let found = explore(&Sale, 1000, |_| false);
//! let (_, lost_update) = &found.ways[0];
//! assert_eq!(lost_update, &[0, 1, 0, 1]);
//! ```
#![forbid(unsafe_code)]

mod digest;

pub use digest::{ByDigest, digest};

use std::collections::{HashSet, VecDeque};
use std::hash::Hash;

/// A system with finitely many states, described by its steps.
pub trait System {
    /// A state.
    type State: Clone + Eq + Hash;
    /// An action that leads from one state to another.
    type Action: Copy;

    /// The first state.
    fn initial(&self) -> Self::State;
    /// Adds every action that is possible in `state` to `into`.
    fn actions(&self, state: &Self::State, into: &mut Vec<Self::Action>);
    /// The state after `action`, and the landmarks that this step reaches, as bits. A search that never reaches a landmark
    /// has not checked what depends on it.
    fn step(&self, state: &Self::State, action: Self::Action) -> (Self::State, u32);
}

/// The result of a search.
#[derive(Debug, Clone)]
pub struct Explored<A, S> {
    /// The number of distinct states.
    pub states: usize,
    /// The number of steps to the last of them.
    pub depth: usize,
    /// All landmarks that were reached.
    pub landmarks: u32,
    /// The shortest way to each landmark, in the order in which they were reached. A step may reach several at once.
    pub ways: Vec<(u32, Vec<A>)>,
    /// The shortest way to a sought state, with the state after each action; `None` if no state was sought.
    pub trace: Option<Vec<(A, S)>>,
}

/// Visits every reachable state, the nearest first, and stops at the first one that is `sought`.
///
/// # Panics
/// After `limit` or 2^32 states: an unfinished search must not count as a complete one.
pub fn explore<Y: System>(
    system: &Y,
    limit: usize,
    sought: impl Fn(&Y::State) -> bool,
) -> Explored<Y::Action, Y::State> {
    let mut seen = Seen::new(system.initial());
    let mut found = Explored { states: 1, depth: 0, landmarks: 0, ways: Vec::new(), trace: None };
    let (mut at, mut layer_end, mut actions) = (0, 1, Vec::new());
    while at < seen.states.len() {
        if at == layer_end {
            (found.depth, layer_end) = (found.depth + 1, seen.states.len());
        }
        let state = seen.states[at].clone();
        if sought(&state) {
            found.trace = Some(retrace(system, &seen, at));
            break;
        }
        actions.clear();
        system.actions(&state, &mut actions);
        for &action in &actions {
            let (after, landmarks) = system.step(&state, action);
            let new = landmarks & !found.landmarks;
            if new != 0 {
                let way = retrace(system, &seen, at).into_iter().map(|(action, _)| action);
                found.ways.push((new, way.chain([action]).collect()));
                found.landmarks |= new;
            }
            seen.insert(after, at);
        }
        assert!(seen.states.len() <= limit, "more than {limit} states: the search is not exhaustive");
        at += 1;
    }
    found.states = seen.states.len();
    found
}

/// The way to state number `at`. Actions are not stored; the one that leads from parent to child is found again.
fn retrace<Y: System>(system: &Y, seen: &Seen<Y::State>, mut at: usize) -> Vec<(Y::Action, Y::State)> {
    let mut way = Vec::new();
    while at != 0 {
        let parent = seen.parents[at] as usize;
        let mut actions = Vec::new();
        system.actions(&seen.states[parent], &mut actions);
        let taken = actions.into_iter().find(|&action| system.step(&seen.states[parent], action).0 == seen.states[at]);
        way.push((taken.expect("a child is one step from its parent"), seen.states[at].clone()));
        at = parent;
    }
    way.reverse();
    way
}

/// The states of a search, nearest first, of which only digests are stored: for millions of large states, and for searches that
/// check more than [`explore`] does. Two states with the same [`digest`] count as one.
#[derive(Debug)]
pub struct Frontier<S, A> {
    seen: HashSet<u128, ByDigest>,
    /// For each state the one before it, and the action in between; `None` for a start.
    ways: Vec<Option<(usize, A)>>,
    next: VecDeque<(S, usize)>,
}

impl<S: Hash, A: Copy> Frontier<S, A> {
    /// Begins with these states, which have the numbers from 0.
    ///
    /// # Panics
    /// If two of them are equal.
    pub fn new(starts: impl IntoIterator<Item = S>) -> Self {
        let mut frontier = Self { seen: HashSet::default(), ways: Vec::new(), next: VecDeque::new() };
        for start in starts {
            assert!(frontier.insert(start, None), "two starts are equal");
        }
        frontier
    }

    /// The nearest state that was not visited yet, with its number.
    pub fn visit(&mut self) -> Option<(S, usize)> {
        self.next.pop_front()
    }

    /// The state after `action` in the state with the number `from`, to be visited unless it is known.
    pub fn add(&mut self, state: S, from: usize, action: A) {
        self.insert(state, Some((from, action)));
    }

    fn insert(&mut self, state: S, way: Option<(usize, A)>) -> bool {
        let new = self.seen.insert(digest(&state));
        if new {
            self.next.push_back((state, self.ways.len()));
            self.ways.push(way);
        }
        new
    }

    /// The number of different states so far.
    pub const fn states(&self) -> usize {
        self.ways.len()
    }

    /// The number of the start and the actions of the shortest way to a state.
    pub fn way(&self, mut to: usize) -> (usize, Vec<A>) {
        let mut actions = Vec::new();
        while let Some((before, action)) = self.ways[to] {
            actions.push(action);
            to = before;
        }
        actions.reverse();
        (to, actions)
    }
}

/// The states so far, each stored once, and the state from which each was first reached.
struct Seen<T> {
    states: Vec<T>,
    parents: Vec<u32>,
    /// Open addressing: indices into `states`, found by hash, never more than half full.
    slots: Vec<u32>,
}

const EMPTY: u32 = u32::MAX;

impl<T: Eq + Hash> Seen<T> {
    fn new(first: T) -> Self {
        let slots = vec![EMPTY; 1 << 10];
        let mut seen = Self { states: Vec::new(), parents: Vec::new(), slots };
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
        let mut slot = digest(state) as usize & mask;
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

fn index(at: usize) -> u32 {
    u32::try_from(at).expect("fewer than 2^32 states")
}
