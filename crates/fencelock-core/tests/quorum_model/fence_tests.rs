//! Tokens on a quorum are unique and ordered, and each protection is needed for it.

use crate::fence::breach::{COMPLETION, ORDER, UNIQUE};
use crate::fence::{Fences, Flaw, Scope, State, landmark};
use crate::search;

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

const TOKENS: u8 = ORDER | UNIQUE;

fn broken<const N: usize>(promises: u8) -> impl Fn(&State<N>) -> bool {
    move |state| state.broken() & promises != 0
}

/// No promise is broken anywhere, and the search has been everywhere it should.
#[track_caller]
pub(crate) fn holds<const N: usize>(promises: u8, scope: Scope, landmarks: u32) {
    search::holds(&Fences::<N> { scope, flaw: None }, landmarks, broken::<N>(promises));
}

/// The promise is broken, at the earliest after this many steps.
#[track_caller]
pub(crate) fn breaks<const N: usize>(promise: u8, flaw: Option<Flaw>, scope: Scope, steps: usize) {
    search::breaks(&Fences::<N> { scope, flaw }, steps, broken::<N>(promise));
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
fn tokens_are_unique_and_ordered_on_one_two_four_and_five_nodes() {
    let scope = Scope { attempts: 3, proposals: &[0, 1, 3], spare_runs: 3, ..SMALL };
    holds::<1>(TOKENS, scope, landmark::ALL_WON | landmark::ORPHAN | landmark::GRANTED_TWICE);
    holds::<2>(TOKENS, Scope { attempts: 3, spare_runs: 2, ..SMALL }, TWICE);
    holds::<4>(TOKENS, SMALL, LATE);
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

const ALL: u8 = TOKENS | COMPLETION;

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
    breaks::<3>(COMPLETION, None, SMALL, 9);
}

/// Without each of these rules a token is given twice, at the earliest after so many steps.
const RULES: [(Flaw, usize); 4] = [
    (Flaw::NoRaise, 10),
    (Flaw::AcksForAnybody, 14),
    (Flaw::CountsReached, 15),
    // A grant that its client does not know, with a fence beyond the raise, must not confirm it.
    (Flaw::AcksBelowItsFence, 17),
];

#[test]
fn without_a_rule_of_raises_a_token_is_given_twice() {
    for (flaw, steps) in RULES {
        breaks::<3>(UNIQUE, Some(flaw), SMALL, steps);
    }
    // Asking only those that granted does not help where a claim runs twice, as client libraries make it.
    let scope = Scope { spare_runs: 2, ..SMALL };
    breaks::<3>(UNIQUE, Some(Flaw::AcksBelowItsFenceIfGranted), scope, 15);
    breaks::<3>(UNIQUE, Some(Flaw::AcksBelowItsFenceIfGranted), Scope { proposals: &[2], ..scope }, 17);
    breaks::<3>(ORDER, Some(Flaw::NoRaise), Scope { attempts: 3, ..SMALL }, 12);
}

#[test]
fn without_a_rule_of_raises_a_reader_and_a_writer_have_one_token() {
    for (flaw, steps) in RULES {
        breaks::<3>(UNIQUE, Some(flaw), Scope { readers: 1, ..SMALL }, steps);
    }
}

/// The searches take states for one that differ in names only. With names they find the same, and no sooner.
#[test]
fn leaving_out_names_changes_no_verdict() {
    let with_names = |flaw, scope, promises| search::with_names(&Fences::<3> { scope, flaw }, broken::<3>(promises));
    assert_eq!(with_names(None, SMALL, TOKENS), None);
    assert_eq!(with_names(None, SMALL, COMPLETION), Some(9));
    for (flaw, steps) in RULES {
        assert_eq!(with_names(Some(flaw), SMALL, UNIQUE), Some(steps));
    }
    let reading = Scope { readers: 1, proposals: &[2], ..SMALL };
    assert_eq!(with_names(None, reading, TOKENS), None);
    assert_eq!(with_names(Some(Flaw::NoRaise), reading, UNIQUE), Some(10));
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

#[test]
fn a_block_after_a_raise_and_the_greatest_of_equal_blocks_give_a_token_twice() {
    // A raised node had granted a smaller token; the tokens in between belong to an earlier holder.
    breaks::<3>(UNIQUE, Some(Flaw::BlockAfterRaise), Scope { block: 2, ..SMALL }, 11);
    breaks::<3>(UNIQUE, Some(Flaw::GreatestBlock), Scope { block: 2, ..SMALL }, 9);
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
