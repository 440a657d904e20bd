//! An exact breadth-first search. It compares whole states, so counts are exact, and the first violation is the
//! shortest.

use crate::fault::Faults;
use crate::model::Model;
use crate::model::state::{Action, State};
use crate::property::Property;
use crate::scheme::Scheme;
use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};

/// The result of a search.
#[derive(Debug, Clone)]
pub(crate) struct Explored {
    /// The number of distinct states.
    pub(crate) states: usize,
    /// The shortest way to each violated property.
    pub(crate) broken: Vec<(Property, Vec<Action>)>,
}

impl Explored {
    pub(crate) fn way(&self, property: Property) -> Option<&[Action]> {
        self.broken.iter().find(|(broken, _)| *broken == property).map(|(_, way)| way.as_slice())
    }
}

/// Visits every reachable state with these faults, in breadth-first order.
pub(crate) fn explore(scheme: &Scheme, faults: Faults) -> Explored {
    let model = Model { scheme, faults };
    let mut states = vec![State::default()];
    let mut known: HashSet<State, BuildHasherDefault<Mix>> = HashSet::default();
    known.insert(State::default());
    // The predecessor of each state, and the action between them.
    let mut parents: Vec<(u32, Action)> = vec![(0, Action::Tick)];
    let mut broken = Vec::new();
    let mut seen = 0;
    let mut actions = Vec::new();
    let mut at = 0;
    while at < states.len() {
        let state = states[at];
        actions.clear();
        model.actions(&state, &mut actions);
        for &action in &actions {
            let step = model.step(&state, action);
            for property in Property::ALL.into_iter().filter(|property| step.broken & !seen & property.bit() != 0) {
                broken.push((property, retrace(&parents, at, action)));
            }
            seen |= step.broken;
            if known.insert(step.after) {
                states.push(step.after);
                parents.push((u32::try_from(at).unwrap_or(u32::MAX), action));
            }
        }
        at += 1;
    }
    Explored { states: states.len(), broken }
}

fn retrace(parents: &[(u32, Action)], mut at: usize, last: Action) -> Vec<Action> {
    let mut way = vec![last];
    while at != 0 {
        let (parent, action) = parents[at];
        way.push(action);
        at = parent as usize;
    }
    way.reverse();
    way
}

/// A multiplicative hash: the default hasher takes most of the time of a search, and the input is trusted.
#[derive(Debug, Default)]
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
    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }
    fn write_isize(&mut self, discriminant: isize) {
        self.write_u64(discriminant.cast_unsigned() as u64);
    }
    fn finish(&self) -> u64 {
        // The hash table uses bits from both ends.
        self.0 ^ self.0.rotate_left(26)
    }
}
