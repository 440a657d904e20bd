//! Searching a system whose nodes and attempts are alike: of states that differ in names only, one is kept.

use fencelock_search::{Explored, System, explore};
use std::fmt::Debug;
use std::hash::Hash;

/// A system with finitely many states, in which names mean nothing.
pub(crate) trait Model: Debug {
    type State: Copy + Eq + Hash;
    type Action: Copy;

    fn initial(&self) -> Self::State;
    fn actions(&self, state: &Self::State, into: &mut Vec<Self::Action>);
    fn next(&self, state: &Self::State, action: Self::Action) -> Self::State;
    /// The representative of all states that differ from `state` only in names.
    fn reduced(&self, state: Self::State) -> Self::State;
    fn landmarks(&self, before: &Self::State, action: Self::Action, after: &Self::State) -> u32;
    fn describe(&self, before: &Self::State, action: Self::Action, after: &Self::State) -> String;
}

/// Above what any search here needs.
const LIMIT: usize = 60_000_000;

/// No state is sought, and the search has reached its landmarks.
#[track_caller]
pub(crate) fn holds<M: Model>(model: &M, landmarks: u32, sought: impl Fn(&M::State) -> bool) {
    let found = search(model, false, sought);
    assert!(found.trace.is_none(), "a promise is broken; the steps are printed above");
    assert_eq!(found.landmarks & landmarks, landmarks, "the search never came where it matters");
}

/// A state is sought, and found at the earliest after this many steps.
#[track_caller]
pub(crate) fn breaks<M: Model>(model: &M, steps: usize, sought: impl Fn(&M::State) -> bool) {
    let trace = search(model, false, sought).trace.expect("what is broken on purpose went unnoticed");
    assert_eq!(trace.len(), steps, "the shortest way is not the known one");
}

/// After how many steps a sought state is found if names do mean something: for checking that leaving them out changes nothing.
pub(crate) fn with_names<M: Model>(model: &M, sought: impl Fn(&M::State) -> bool) -> Option<usize> {
    search(model, true, sought).trace.map(|trace| trace.len())
}

/// Searches, and describes what was found, with the names of the first state.
fn search<M: Model>(model: &M, has_names: bool, sought: impl Fn(&M::State) -> bool) -> Explored<M::Action, M::State> {
    #[allow(clippy::disallowed_methods, reason = "how long a search took is for the reader, no lock depends on it")]
    let start = std::time::Instant::now();
    let reduced = Reduced { model, has_names };
    let found = explore(&reduced, LIMIT, sought);
    println!("{model:?}");
    println!("  {} states, {} steps deep, {:.1} s", found.states, found.depth, start.elapsed().as_secs_f32());
    let steps = found.trace.iter().flat_map(|trace| reduced.retell(trace.iter().map(|(_, state)| *state)));
    for (step, text) in (1..).zip(steps) {
        println!("  {step:>3}. {text}");
    }
    found
}

struct Reduced<'m, M> {
    model: &'m M,
    has_names: bool,
}

impl<M: Model> System for Reduced<'_, M> {
    type State = M::State;
    type Action = M::Action;

    fn initial(&self) -> M::State {
        self.reduced(self.model.initial())
    }
    fn actions(&self, state: &M::State, into: &mut Vec<M::Action>) {
        self.model.actions(state, into);
    }
    fn step(&self, state: &M::State, action: M::Action) -> (M::State, u32) {
        let after = self.reduced(self.model.next(state, action));
        (after, self.model.landmarks(state, action, &after))
    }
}

impl<M: Model> Reduced<'_, M> {
    fn reduced(&self, state: M::State) -> M::State {
        if self.has_names { state } else { self.model.reduced(state) }
    }

    /// Walks the path again without renaming anything on the way.
    fn retell(&self, path: impl Iterator<Item = M::State>) -> Vec<String> {
        let mut at = self.model.initial();
        let mut steps = Vec::new();
        for goal in path {
            let mut actions = Vec::new();
            self.model.actions(&at, &mut actions);
            let taken = actions.into_iter().find(|&action| self.reduced(self.model.next(&at, action)) == goal);
            let action = taken.expect("names mean nothing, so what one state can do all like it can");
            let next = self.model.next(&at, action);
            steps.push(self.model.describe(&at, action, &next));
            at = next;
        }
        steps
    }
}

fn renamed<T: Copy>(of: [T; 3], order: &[usize; 3]) -> [T; 3] {
    let mut new = of;
    order.iter().zip(of).for_each(|(&to, item)| new[to] = item);
    new
}

/// Of the states that differ only in the names of nodes and of the first `alike` attempts, the one with both in ascending order.
/// `links` are what a node has of each attempt.
pub(crate) fn least<A: Copy + Ord, N: Copy + Ord, L: Copy, const K: usize>(
    attempts: [A; 3],
    nodes: [N; K],
    alike: usize,
    links: impl Fn(&mut N) -> &mut [L; 3],
) -> ([A; 3], [N; K]) {
    const ORDERS: [[usize; 3]; 6] = [[0, 1, 2], [1, 0, 2], [0, 2, 1], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    // Where attempts are equal, several orders sort them.
    let sorting =
        ORDERS[..(1..=alike).product::<usize>()].iter().filter(|order| renamed(attempts, order)[..alike].is_sorted());
    let states = sorting.map(|order| {
        let mut nodes = nodes;
        for node in &mut nodes {
            let links = links(node);
            *links = renamed(*links, order);
        }
        nodes.sort_unstable();
        (renamed(attempts, order), nodes)
    });
    states.min().expect("some order sorts them")
}
