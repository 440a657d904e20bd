//! Tokens on a quorum are unique and ordered, and each protection is needed for it.

use crate::fence::{Fences, Flaw, Scope, State, breach, landmark};
use crate::search::{Explored, Named, search};

/// Two attempts on nodes that forget nothing; a client proposes what it likes.
pub(crate) const SMALL: Scope = Scope {
    attempts: 2,
    readers: 0,
    proposals: &[0, 2],
    block: 1,
    spare_runs: 0,
    leases: false,
    crashes: 0,
    partial: false,
    time: None,
};

/// Above what any search here needs.
pub(crate) const LIMIT: usize = 60_000_000;

const TOKENS: u8 = breach::ORDER | breach::UNIQUE;

/// No promise is broken anywhere, and the search has been everywhere it should.
pub(crate) fn holds<const N: usize>(promises: u8, scope: Scope, landmarks: u32) {
    let model = Fences::<N> { scope, flaw: None };
    let found = search(&model, LIMIT, |state: &State<N>| state.broken() & promises != 0);
    assert!(found.trace.is_none(), "a promise is broken; the steps are printed above");
    assert_eq!(found.landmarks & landmarks, landmarks, "the search never came where it matters");
}

/// The promise is broken, at the earliest after this many steps.
pub(crate) fn breaks<const N: usize>(promise: u8, flaw: Option<Flaw>, scope: Scope, steps: usize) {
    let Explored { trace, .. } = search(&Fences::<N> { scope, flaw }, LIMIT, |state| state.broken() & promise != 0);
    let trace = trace.expect("what is broken on purpose went unnoticed");
    assert_eq!(trace.len(), steps, "the shortest way is not the known one");
}

/// After how many steps the promise is broken, in a search in which names mean something.
pub(crate) fn with_names(flaw: Option<Flaw>, scope: Scope, promise: u8) -> Option<usize> {
    let model = Named(Fences::<3> { scope, flaw });
    search(&model, LIMIT, |state| state.broken() & promise != 0).trace.map(|trace| trace.len())
}

/// The landmarks of every search without memory loss.
const USUAL: u32 = landmark::ALL_WON | landmark::WON_BY_RAISE | landmark::ORPHAN;
const TWICE: u32 = USUAL | landmark::GRANTED_TWICE;
const LATE: u32 = USUAL | landmark::LATE_VOTE;

#[test]
fn tokens_are_unique_and_ordered_between_two_where_claims_run_twice() {
    holds::<3>(TOKENS, Scope { spare_runs: 2, ..SMALL }, TWICE | LATE);
}

#[test]
fn tokens_are_unique_and_ordered_among_three() {
    holds::<3>(TOKENS, Scope { attempts: 3, ..SMALL }, LATE);
}

#[test]
fn tokens_are_unique_and_ordered_on_one_node() {
    let scope = Scope { attempts: 3, proposals: &[0, 1, 3], spare_runs: 3, ..SMALL };
    holds::<1>(TOKENS, scope, landmark::ALL_WON | landmark::ORPHAN | landmark::GRANTED_TWICE);
}

#[test]
fn tokens_are_unique_and_ordered_on_two_nodes() {
    holds::<2>(TOKENS, Scope { attempts: 3, spare_runs: 2, ..SMALL }, TWICE);
}

#[test]
fn tokens_are_unique_and_ordered_on_four_nodes() {
    holds::<4>(TOKENS, SMALL, LATE);
}

#[test]
fn tokens_are_unique_and_ordered_on_five_nodes() {
    holds::<5>(TOKENS, SMALL, LATE);
}

#[test]
#[ignore = "5 million states: a quarter of a minute and half a GB"]
fn tokens_are_unique_and_ordered_where_every_claim_runs_twice() {
    holds::<3>(TOKENS, Scope { spare_runs: 6, ..SMALL }, TWICE | LATE);
}

#[test]
#[ignore = "4 million states: a quarter of a minute and half a GB"]
fn tokens_are_unique_and_ordered_among_three_where_one_claim_runs_twice() {
    holds::<3>(TOKENS, Scope { attempts: 3, proposals: &[2], spare_runs: 1, ..SMALL }, TWICE | LATE);
}

#[test]
#[ignore = "4 million states: 10 seconds and half a GB"]
fn tokens_are_unique_and_ordered_among_three_who_propose_at_odds() {
    holds::<3>(TOKENS, Scope { attempts: 3, proposals: &[0, 1, 3], ..SMALL }, LATE);
}

const ALL: u8 = TOKENS | breach::COMPLETION;

#[test]
fn with_leases_tokens_grow_even_in_the_order_of_completion() {
    holds::<3>(ALL, Scope { leases: true, spare_runs: 1, ..SMALL }, TWICE);
}

#[test]
#[ignore = "7 million states: a quarter of a minute and 0.6 GB"]
fn with_leases_tokens_grow_even_in_the_order_of_completion_among_three() {
    holds::<3>(ALL, Scope { leases: true, attempts: 3, ..SMALL }, USUAL);
}

/// The last answer of an attempt can be delayed past another's whole life: only the order of beginnings can be promised.
#[test]
fn without_leases_tokens_do_not_grow_in_the_order_of_completion() {
    breaks::<3>(breach::COMPLETION, None, SMALL, 9);
}

#[test]
fn without_a_raise_a_token_is_given_twice() {
    breaks::<3>(breach::UNIQUE, Some(Flaw::NoRaise), SMALL, 10);
}

#[test]
fn without_a_raise_the_order_breaks_among_three() {
    breaks::<3>(breach::ORDER, Some(Flaw::NoRaise), Scope { attempts: 3, ..SMALL }, 12);
}

#[test]
fn a_raise_for_any_client_gives_a_token_twice() {
    breaks::<3>(breach::UNIQUE, Some(Flaw::AcksForAnybody), SMALL, 14);
}

/// A grant that its client does not know, with a fence beyond the raise, must not confirm it.
#[test]
fn a_raise_acked_below_the_fence_gives_a_token_twice() {
    breaks::<3>(breach::UNIQUE, Some(Flaw::AcksBelowItsFence), SMALL, 17);
}

#[test]
fn counting_nodes_that_reached_a_fence_grants_a_token_twice() {
    breaks::<3>(breach::UNIQUE, Some(Flaw::CountsReached), SMALL, 15);
}

/// Asking only those that granted does not help where a claim runs twice, as client libraries make it.
#[test]
fn a_raise_acked_below_the_fence_by_those_that_granted_gives_a_token_twice_where_claims_run_twice() {
    let scope = Scope { spare_runs: 2, ..SMALL };
    breaks::<3>(breach::UNIQUE, Some(Flaw::AcksBelowItsFenceIfGranted), scope, 15);
    breaks::<3>(breach::UNIQUE, Some(Flaw::AcksBelowItsFenceIfGranted), Scope { proposals: &[2], ..scope }, 17);
}

/// The searches take states for one that differ in names only. With names they find the same, and no sooner.
#[test]
fn leaving_out_names_changes_no_verdict() {
    let with_names = |flaw, promise| with_names(flaw, SMALL, promise);
    assert_eq!(with_names(None, TOKENS), None);
    assert_eq!(with_names(None, breach::COMPLETION), Some(9));
    assert_eq!(with_names(Some(Flaw::NoRaise), breach::UNIQUE), Some(10));
    assert_eq!(with_names(Some(Flaw::AcksForAnybody), breach::UNIQUE), Some(14));
    assert_eq!(with_names(Some(Flaw::CountsReached), breach::UNIQUE), Some(15));
    assert_eq!(with_names(Some(Flaw::AcksBelowItsFence), breach::UNIQUE), Some(17));
}

const SEVERAL: u32 = LATE | landmark::WON_SEVERAL;

#[test]
fn every_token_of_a_block_is_unique_and_ordered() {
    holds::<3>(TOKENS, Scope { block: 2, ..SMALL }, SEVERAL);
    holds::<2>(TOKENS, Scope { block: 3, spare_runs: 2, ..SMALL }, TWICE | landmark::WON_SEVERAL);
    holds::<1>(TOKENS, Scope { block: 3, attempts: 3, spare_runs: 1, ..SMALL }, landmark::WON_SEVERAL);
}

#[test]
fn every_token_of_a_block_is_unique_and_ordered_where_a_claim_runs_twice() {
    holds::<3>(TOKENS, Scope { block: 2, proposals: &[2], spare_runs: 1, ..SMALL }, SEVERAL | TWICE);
}

#[test]
#[ignore = "some million states: half a minute and a GB"]
fn every_token_of_a_block_is_unique_and_ordered_among_three() {
    holds::<3>(TOKENS, Scope { block: 2, attempts: 3, proposals: &[2], ..SMALL }, SEVERAL);
}

/// A raised node had granted a smaller token; the tokens in between belong to an earlier holder.
#[test]
fn a_block_after_a_raise_gives_a_token_twice() {
    breaks::<3>(breach::UNIQUE, Some(Flaw::BlockAfterRaise), Scope { block: 2, ..SMALL }, 11);
}

#[test]
fn the_greatest_of_equal_blocks_gives_a_token_twice() {
    breaks::<3>(breach::UNIQUE, Some(Flaw::GreatestBlock), Scope { block: 2, ..SMALL }, 9);
}

/// `scripts/search` runs these.
mod larger {
    use super::*;

    #[test]
    #[ignore = "a million states: 5 seconds"]
    fn every_token_of_a_block_is_unique_and_ordered_where_clients_propose_at_odds() {
        holds::<3>(TOKENS, Scope { block: 2, proposals: &[0, 1, 3], ..SMALL }, SEVERAL);
    }
}
