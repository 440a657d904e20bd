//! The states of a search, by what can still matter in them.

use crate::digest::relevant_digest;
use crate::scenario::Budget;
use crate::world::World;
use fencelock_search::{ByDigest, digest};
use std::collections::HashMap;

/// Whether states that differ only in what cannot matter count as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reduction {
    Off,
    On,
}

/// How much of everything is left. More is left in a state from which more can happen, and in which more is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Left([u8; 18]);

impl Left {
    fn new(world: &World) -> Self {
        let Budget {
            time,
            long,
            ends,
            lost,
            broken,
            unsent,
            duplicates,
            deletes,
            foreign,
            resets,
            reconnects,
            closes,
            refusals,
            stops,
            parks,
            haste,
        } = world.left;
        // Fewer promises are checked after trouble, or when time has passed.
        let (calm, early) = (u8::from(!world.ledger.troubled), u8::from(!world.ledger.time_passed));
        Self([
            time, long, ends, lost, broken, unsent, duplicates, deletes, foreign, resets, reconnects, closes, refusals,
            stops, parks, haste, calm, early,
        ])
    }

    fn covers(self, other: Self) -> bool {
        self.0.iter().zip(other.0).all(|(ours, theirs)| *ours >= theirs)
    }
}

#[derive(Debug)]
pub(crate) struct Visited {
    reduction: Reduction,
    seen: HashMap<u128, Vec<Left>, ByDigest>,
}

impl Visited {
    pub(crate) fn new(reduction: Reduction) -> Self {
        Self { reduction, seen: HashMap::default() }
    }

    /// Whether the state is new: none that was visited has the same digest, and at least as much left.
    pub(crate) fn insert(&mut self, world: &World) -> bool {
        if self.reduction == Reduction::Off {
            return self.seen.insert(digest(world), Vec::new()).is_none();
        }
        let left = Left::new(world);
        let visited = self.seen.entry(relevant_digest(world)).or_default();
        if visited.iter().any(|before| before.covers(left)) {
            return false;
        }
        visited.retain(|before| !left.covers(*before));
        visited.push(left);
        true
    }
}
