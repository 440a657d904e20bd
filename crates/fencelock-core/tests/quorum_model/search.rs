//! Searching a system whose nodes and attempts are alike: of states that differ in names only, one is kept.

use fencelock_search::{System, explore};
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

/// The result of a search.
pub(crate) struct Explored {
    pub(crate) states: usize,
    pub(crate) depth: usize,
    pub(crate) landmarks: u32,
    /// The shortest way to a sought state; `None` if no state was sought.
    pub(crate) trace: Option<Vec<String>>,
}

/// Searches, and describes what was found, with the names of the first state.
pub(crate) fn search<M: Model>(model: &M, limit: usize, sought: impl Fn(&M::State) -> bool) -> Explored {
    #[allow(clippy::disallowed_methods, reason = "how long a search took is for the reader, no lock depends on it")]
    let start = std::time::Instant::now();
    let found = explore(&Reduced(model), limit, sought);
    let trace = found.trace.map(|way| retell(model, way.into_iter().map(|(_, state)| state)));
    let found = Explored { states: found.states, depth: found.depth, landmarks: found.landmarks, trace };
    println!("{model:?}");
    println!("  {} states, {} steps deep, {:.1} s", found.states, found.depth, start.elapsed().as_secs_f32());
    for (step, text) in (1..).zip(found.trace.iter().flatten()) {
        println!("  {step:>3}. {text}");
    }
    found
}

struct Reduced<'m, M>(&'m M);

impl<M: Model> System for Reduced<'_, M> {
    type State = M::State;
    type Action = M::Action;

    fn initial(&self) -> M::State {
        self.0.reduced(self.0.initial())
    }
    fn actions(&self, state: &M::State, into: &mut Vec<M::Action>) {
        self.0.actions(state, into);
    }
    fn step(&self, state: &M::State, action: M::Action) -> (M::State, u32) {
        let after = self.0.reduced(self.0.next(state, action));
        (after, self.0.landmarks(state, action, &after))
    }
}

/// Walks the path again without renaming anything on the way.
fn retell<M: Model>(model: &M, path: impl Iterator<Item = M::State>) -> Vec<String> {
    let mut at = model.initial();
    let mut steps = Vec::new();
    for goal in path {
        let mut actions = Vec::new();
        model.actions(&at, &mut actions);
        let taken = actions.into_iter().find(|&action| model.reduced(model.next(&at, action)) == goal);
        let action = taken.expect("names mean nothing, so what one state can do all like it can");
        let next = model.next(&at, action);
        steps.push(model.describe(&at, action, &next));
        at = next;
    }
    steps
}

/// The new numbers that bring the first `count` of three into ascending order, every way that does: the others need not be
/// tried to find the representative.
pub(crate) fn sorting<T: Copy + Ord>(of: [T; 3], count: usize) -> impl Iterator<Item = &'static [usize; 3]> {
    const ORDERS: [[usize; 3]; 6] = [[0, 1, 2], [1, 0, 2], [0, 2, 1], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    let possible = if count < 2 { 1 } else { (1..=count).product() };
    ORDERS[..possible].iter().filter(move |order| {
        let mut sorted = of;
        order.iter().zip(of).for_each(|(&to, item)| sorted[to] = item);
        sorted[..count].is_sorted()
    })
}

/// A model in which names do mean something: for checking that leaving them out changes nothing.
#[derive(Debug)]
pub(crate) struct Named<M>(pub(crate) M);

impl<M: Model> Model for Named<M> {
    type State = M::State;
    type Action = M::Action;

    fn initial(&self) -> M::State {
        self.0.initial()
    }
    fn actions(&self, state: &M::State, into: &mut Vec<M::Action>) {
        self.0.actions(state, into);
    }
    fn next(&self, state: &M::State, action: M::Action) -> M::State {
        self.0.next(state, action)
    }
    fn reduced(&self, state: M::State) -> M::State {
        state
    }
    fn landmarks(&self, before: &M::State, action: M::Action, after: &M::State) -> u32 {
        self.0.landmarks(before, action, after)
    }
    fn describe(&self, before: &M::State, action: M::Action, after: &M::State) -> String {
        self.0.describe(before, action, after)
    }
}
