//! Tokens on a quorum are unique and ordered, and each protection is needed for it.

use crate::explorer::Explored;
use crate::fence::{Fences, Flaw, Scope, State, Time, breach, landmark};
use crate::search::search;

/// Two attempts on nodes that forget nothing; a client proposes what it likes.
const SMALL: Scope =
    Scope { attempts: 2, proposals: &[0, 2], spare_runs: 0, leases: false, crashes: 0, partial: false, time: None };

/// Above what any search here needs.
const LIMIT: usize = 60_000_000;

const TOKENS: u8 = breach::ORDER | breach::UNIQUE;

/// No promise is broken anywhere, and the search has been everywhere it should.
fn holds<const N: usize>(promises: u8, scope: Scope, landmarks: u32) {
    let model = Fences::<N> { scope, flaw: None };
    let found = search(&model, LIMIT, |state: &State<N>| state.broken() & promises != 0);
    assert!(found.trace.is_none(), "a promise is broken; the steps are printed above");
    assert_eq!(found.landmarks & landmarks, landmarks, "the search never came where it matters");
}

/// The promise is broken, at the earliest after this many steps.
fn breaks<const N: usize>(promise: u8, flaw: Option<Flaw>, scope: Scope, steps: usize) {
    let Explored { trace, .. } = search(&Fences::<N> { scope, flaw }, LIMIT, |state| state.broken() & promise != 0);
    let trace = trace.expect("what is broken on purpose went unnoticed");
    assert_eq!(trace.len(), steps, "the shortest way is not the known one");
}

const USUAL: u32 = landmark::ALL_WON | landmark::WON_BY_RAISE | landmark::ORPHAN;

#[test]
fn tokens_are_unique_and_ordered_on_three_nodes() {
    holds::<3>(TOKENS, SMALL, USUAL);
}

#[test]
fn f3() {
    holds::<3>(TOKENS, Scope { attempts: 3, ..SMALL }, USUAL);
}
#[test]
fn f2d1() {
    holds::<3>(TOKENS, Scope { spare_runs: 1, ..SMALL }, USUAL);
}
#[test]
fn f2d2() {
    holds::<3>(TOKENS, Scope { spare_runs: 2, ..SMALL }, USUAL);
}
#[test]
fn t1() {
    holds::<3>(TOKENS, Scope { crashes: 1, time: Some(Time { error: 0, quarantine: 1, horizon: 3 }), ..SMALL }, USUAL);
}
#[test]
fn ce1() {
    breaks::<3>(breach::COMPLETION, None, SMALL, 9);
}
#[test]
fn ce2() {
    breaks::<3>(breach::UNIQUE, Some(Flaw::NoRaise), SMALL, 10);
}
#[test]
fn ce3() {
    breaks::<3>(breach::UNIQUE, Some(Flaw::AcksForAnybody), SMALL, 14);
}
#[test]
fn ce4() {
    breaks::<3>(breach::UNIQUE, Some(Flaw::AcksBelowItsFence), SMALL, 17);
}
