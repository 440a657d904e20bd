//! Readers and writers on a quorum: tokens of attempts that exclude each other are unique and ordered, and each protection is
//! needed for it.

use crate::fence::{Fences, Flaw, Scope, State, breach, landmark};
use crate::fence_tests::{self, breaks, holds};
use crate::search;

/// A writer and a reader on nodes that forget nothing; a client proposes what it likes.
const SMALL: Scope = Scope { readers: 1, ..fence_tests::SMALL };
const TWO_READERS: Scope = Scope { attempts: 3, readers: 2, proposals: &[2], ..SMALL };
const TWO_WRITERS: Scope = Scope { attempts: 3, readers: 1, proposals: &[2], ..SMALL };

const TOKENS: u8 = breach::ORDER | breach::UNIQUE;
const USUAL: u32 = landmark::ALL_WON | landmark::WON_BY_RAISE | landmark::ORPHAN | landmark::LATE_VOTE;
const TOGETHER: u32 = USUAL | landmark::BESIDE;

/// Even a reader that begins after another has won has a greater token.
#[test]
fn tokens_are_unique_and_ordered_between_a_reader_and_a_writer() {
    holds::<3>(TOKENS, Scope { spare_runs: 2, ..SMALL }, USUAL | landmark::GRANTED_TWICE);
}

#[test]
fn tokens_are_unique_and_ordered_on_one_two_and_five_nodes() {
    let alone = landmark::ALL_WON | landmark::BESIDE;
    holds::<1>(TOKENS, Scope { spare_runs: 2, ..TWO_READERS }, alone);
    holds::<2>(TOKENS, TWO_READERS, alone | landmark::WON_BY_RAISE);
    holds::<5>(TOKENS, Scope { proposals: &[2], ..SMALL }, USUAL);
}

#[test]
fn tokens_are_unique_and_ordered_among_a_reader_and_two_writers() {
    holds::<3>(TOKENS, TWO_WRITERS, USUAL);
}

#[test]
#[ignore = "17 million states: a minute and a half, and 1.4 GB"]
fn tokens_are_unique_and_ordered_among_three_who_propose_at_odds() {
    holds::<3>(TOKENS, Scope { proposals: &[0, 2], ..TWO_READERS }, TOGETHER);
    holds::<3>(TOKENS, Scope { proposals: &[0, 2], ..TWO_WRITERS }, USUAL);
}

#[test]
#[ignore = "58 million states: six minutes, and 4.7 GB"]
fn tokens_are_unique_and_ordered_among_three_where_a_claim_runs_twice() {
    holds::<3>(TOKENS, Scope { spare_runs: 1, ..TWO_READERS }, TOGETHER | landmark::GRANTED_TWICE);
    holds::<3>(TOKENS, Scope { spare_runs: 1, ..TWO_WRITERS }, USUAL | landmark::GRANTED_TWICE);
}

#[test]
fn every_token_of_a_block_of_readers_is_unique_and_ordered() {
    holds::<3>(TOKENS, Scope { block: 2, ..SMALL }, USUAL | landmark::WON_SEVERAL);
}

#[test]
fn tokens_of_readers_and_writers_survive_the_loss_of_a_node() {
    let time = crate::fence::Time { error: 0, quarantine: 1, horizon: 2 };
    let scope = Scope { crashes: 1, proposals: &[0], time: Some(time), ..SMALL };
    holds::<3>(TOKENS, scope, landmark::ALL_WON | landmark::WON_AFTER_LOSS);
}

/// Allowed: they claim at the same time, and each node has granted to both.
#[test]
fn two_readers_may_win_one_token() {
    breaks::<3>(breach::SAME_AS_A_READER, None, Scope { readers: 2, ..SMALL }, 12);
}

/// The rule of exclusive locks is safe for readers too, but they stop each other.
#[test]
fn a_raise_refused_below_the_fence_stops_a_reader_because_of_another() {
    let model = |scope| Fences::<3> { scope, flaw: Some(Flaw::RefusesBelowTheFence) };
    search::breaks(&model(Scope { readers: 2, ..SMALL }), 12, State::refuses_for_a_reader);
    search::holds(&model(Scope { spare_runs: 1, ..SMALL }), 0, |state| state.broken() & TOKENS != 0);
}

/// `scripts/search` runs these.
mod larger {
    use super::*;

    #[test]
    #[ignore = "2 million states: 6 seconds"]
    fn tokens_are_unique_and_ordered_among_two_readers_and_a_writer() {
        holds::<3>(TOKENS, TWO_READERS, TOGETHER);
    }
}
