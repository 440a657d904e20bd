//! The tokens of a backend that decides alone, searched exhaustively over the code that draws them in production
//! ([`next_block`]): every order of grants of every size, of microseconds that pass, and of losses of memory.
//!
//! The clock never goes back. A loss takes longer than the earlier grants that were ahead of the clock.
//! Under these assumptions no token repeats or falls, for every token is at most as far ahead of the time as there were
//! grants ahead of it. Each mutant breaks one of the two.

#![allow(clippy::unwrap_used, clippy::tests_outside_test_module, reason = "a test")]

use fencelock_core::{TokenBlock, next_block};
use fencelock_search::{Explored, System, explore};
use std::num::NonZeroU32;

/// How the next tokens are drawn, given the last one, the time, and how many are wanted.
type Rule = fn(u64, u64, u32) -> TokenBlock;

const SIZES: [u32; 4] = [1, 2, 3, 7];
/// The clock does not begin at 0, or there would be no room for a token that is wrongly below it.
const START: u64 = 20;
const END: u64 = START + 16;
const MOST_GRANTS: u8 = 9;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct State {
    now: u64,
    /// What the backend remembers; 0 is nothing.
    fence: u64,
    /// The greatest token that was ever granted.
    greatest: u64,
    /// Grants for which no microsecond of their own has passed yet.
    backlog: u64,
    grants: u8,
    /// What the last step broke.
    broken: Option<Broken>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Grant(u32),
    Tick,
    Forget,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Broken {
    /// A token is not greater than one before it.
    Order,
    /// A token is further ahead of the time than there were grants.
    AheadOfTime,
}

fn own(previous: u64, now: u64, wanted: u32) -> TokenBlock {
    next_block(previous, now, NonZeroU32::new(wanted).unwrap()).unwrap()
}

/// A backend that draws its tokens by a rule.
struct TestBackend(Rule);

impl System for TestBackend {
    type State = State;
    type Action = Action;

    fn initial(&self) -> State {
        State { now: START, fence: 0, greatest: 0, backlog: 0, grants: 0, broken: None }
    }

    fn actions(&self, state: &State, into: &mut Vec<Action>) {
        if state.grants < MOST_GRANTS {
            into.extend(SIZES.map(Action::Grant));
        }
        if state.now < END {
            into.push(Action::Tick);
        }
        // The next grant after the loss is at a later microsecond than any that is spoken for.
        if state.fence > 0 && state.now + state.backlog.max(1) <= END {
            into.push(Action::Forget);
        }
    }

    fn step(&self, &state: &State, action: Action) -> (State, u32) {
        let after = match action {
            Action::Tick => State { now: state.now + 1, backlog: state.backlog.saturating_sub(1), ..state },
            Action::Forget => State { now: state.now + state.backlog.max(1), fence: 0, backlog: 0, ..state },
            Action::Grant(wanted) => {
                let tokens = self.0(state.fence, state.now, wanted);
                let last = tokens.last().get();
                let broken = if tokens.first().get() <= state.greatest {
                    Some(Broken::Order)
                } else {
                    (last > state.now + state.backlog).then_some(Broken::AheadOfTime)
                };
                let (backlog, grants) = (state.backlog + 1, state.grants + 1);
                State { fence: last, greatest: last, backlog, grants, broken, ..state }
            }
        };
        (after, 0)
    }
}

/// Above what any search here needs.
const LIMIT: usize = 1_000_000;

fn search(rule: Rule, sought: impl Fn(&State) -> bool) -> Explored<Action, State> {
    let found = explore(&TestBackend(rule), LIMIT, sought);
    println!("{} states, {} steps deep", found.states, found.depth);
    found
}

/// The promise that is broken first, and the fewest steps to it.
fn refuted(rule: Rule) -> (Broken, usize) {
    let found = [Broken::Order, Broken::AheadOfTime].map(|broken| {
        let trace = search(rule, |state| state.broken == Some(broken)).trace;
        trace.map(|trace| (broken, trace.len()))
    });
    found.into_iter().flatten().min_by_key(|(_, steps)| *steps).expect("the search finds the mistake")
}

#[test]
fn tokens_are_never_ahead_of_the_time_and_never_fall_over_a_loss_of_memory() {
    let found = search(own, |state| state.broken.is_some());
    assert_eq!(found.trace, None, "an order of events breaks the rule");
    assert!(found.states > 1_000, "the search has visited only {} states", found.states);
}

#[test]
fn a_block_that_reaches_above_the_time_is_refuted() {
    let above = |previous: u64, now: u64, wanted: u32| {
        let last = now.max(previous + u64::from(wanted));
        TokenBlock::ending(last.token(), NonZeroU32::new(wanted).unwrap())
    };
    assert_eq!(refuted(above), (Broken::AheadOfTime, 2));
}

#[test]
fn a_block_that_reaches_down_without_a_memory_is_refuted() {
    let below = |previous: u64, now: u64, wanted: u32| {
        let last = now.max(previous + 1);
        let count = u64::from(wanted).min(last - previous).try_into().unwrap();
        TokenBlock::ending(last.token(), NonZeroU32::new(count).unwrap())
    };
    assert_eq!(refuted(below), (Broken::Order, 3));
}

#[test]
fn a_proposal_that_is_ahead_of_the_time_is_refuted() {
    let proposed = |previous: u64, now: u64, _: u32| TokenBlock::from((now + 2).max(previous + 1).token());
    assert_eq!(refuted(proposed), (Broken::AheadOfTime, 1));
}

#[test]
fn a_counter_that_begins_anew_is_refuted() {
    let counted = |previous: u64, _: u64, _: u32| TokenBlock::from((previous + 1).token());
    assert_eq!(refuted(counted), (Broken::Order, 3));
}

#[test]
fn the_time_alone_is_refuted() {
    let time = |_: u64, now: u64, _: u32| TokenBlock::from(now.token());
    assert_eq!(refuted(time), (Broken::Order, 2));
}

/// For the mutants.
trait Number {
    fn token(self) -> fencelock_core::FencingToken;
}

impl Number for u64 {
    fn token(self) -> fencelock_core::FencingToken {
        fencelock_core::FencingToken::new(self).unwrap()
    }
}
