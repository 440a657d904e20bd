//! Why a quorum refuses permits: a majority for each permit does not limit the number of holders. A majority bounds how many nodes
//! two holders share, and says nothing about three.
//!
//! Each node counts correctly, and a holder keeps its nodes as long as it holds. So this is the best that nodes can do.

use fencelock_core::Quorum;
use fencelock_search::{System, explore};

/// A semaphore on several nodes. A holder needs `needed` of them.
#[derive(Debug, Clone, Copy)]
struct Permits {
    nodes: usize,
    needed: usize,
    limit: u8,
    weights: &'static [u8],
}

/// For each client, the nodes that have granted to it, as bits; and whether it holds.
type State = [(u8, bool); 4];

#[derive(Debug, Clone, Copy)]
enum Action {
    Grant(usize, usize),
    Free(usize, usize),
    Hold(usize),
    End(usize),
}

impl Permits {
    /// With a majority for each permit.
    fn by_majority(nodes: usize, limit: u8, weights: &'static [u8]) -> Self {
        Self { nodes, needed: Quorum::new(nodes).expect("a few nodes").majority(), limit, weights }
    }

    fn used(&self, of: impl Fn(usize) -> bool) -> u8 {
        self.weights.iter().enumerate().filter(|(who, _)| of(*who)).map(|(_, weight)| weight).sum()
    }

    /// The steps to more permits in use than there are.
    fn broken(self) -> Option<usize> {
        let found = explore(&self, 10_000_000, |state| self.used(|who| state[who].1) > self.limit);
        println!("{self:?}: {} states, {:?} steps", found.states, found.trace.as_ref().map(Vec::len));
        found.trace.map(|trace| trace.len())
    }
}

impl System for Permits {
    type State = State;
    type Action = Action;

    fn initial(&self) -> State {
        State::default()
    }

    fn actions(&self, state: &State, into: &mut Vec<Action>) {
        for (who, weight) in self.weights.iter().enumerate() {
            let (nodes, holds) = state[who];
            for node in 0..self.nodes {
                let here = nodes >> node & 1 == 1;
                let used = self.used(|other| state[other].0 >> node & 1 == 1);
                if !here && used + weight <= self.limit {
                    into.push(Action::Grant(who, node));
                }
                if here && !holds {
                    into.push(Action::Free(who, node));
                }
            }
            if !holds && nodes.count_ones() as usize >= self.needed {
                into.push(Action::Hold(who));
            }
            if holds {
                into.push(Action::End(who));
            }
        }
    }

    fn step(&self, state: &State, action: Action) -> (State, u32) {
        let mut next = *state;
        match action {
            Action::Grant(who, node) => next[who].0 |= 1 << node,
            Action::Free(who, node) => next[who].0 &= !(1 << node),
            Action::Hold(who) => next[who].1 = true,
            Action::End(who) => next[who].1 = false,
        }
        (next, 0)
    }
}

#[test]
fn three_hold_two_permits_by_majority() {
    assert_eq!(Permits::by_majority(3, 2, &[1, 1, 1]).broken(), Some(9));
    assert_eq!(Permits::by_majority(5, 2, &[1, 1, 1]).broken(), Some(12));
}

/// With more than nodes x limit / (limit + 1) nodes for each permit, one holder too many would need more grants than the nodes give. But
/// then few nodes may be down, and with a limit of as many permits as there are nodes none.
#[test]
fn more_than_a_majority_for_each_permit_would_limit_the_holders() {
    let four = Permits { nodes: 4, needed: 3, limit: 2, weights: &[1, 1, 1, 1] };
    assert_eq!(four.broken(), None);
    let five = Permits { nodes: 5, needed: 4, limit: 3, weights: &[2, 1, 1, 1] };
    assert_eq!(five.broken(), None);
    assert_eq!(Permits { limit: 2, weights: &[1, 1, 1], ..five }.broken(), None);
    assert_eq!(Permits { needed: 2, ..four }.broken(), Some(9), "one node less for each");
    assert_eq!(Permits { limit: 3, ..four }.broken(), Some(16), "three of four nodes for each of three permits");
}

#[test]
fn one_permit_by_majority_has_one_holder() {
    assert_eq!(Permits::by_majority(3, 1, &[1, 1, 1]).broken(), None);
}
