//! Tokens across nodes that forget: a quarantine of more than twice the error of a fence is enough, and less is not.

use crate::fence::breach::{ORDER, UNIQUE};
use crate::fence::{Flaw, Scope, Time, landmark};
use crate::fence_tests::{self, breaks, holds};

const SMALL: Scope = Scope { proposals: &[0], crashes: 1, ..fence_tests::SMALL };

const fn clocks(error: u8, quarantine: u8, horizon: u8) -> Time {
    Time { error, quarantine, horizon }
}

const LOSS: u32 = landmark::ALL_WON | landmark::WON_BY_RAISE | landmark::WON_AFTER_LOSS;

#[test]
fn tokens_survive_the_loss_of_a_node_among_three() {
    holds::<3>(ORDER | UNIQUE, Scope { attempts: 3, time: Some(clocks(0, 1, 2)), ..SMALL }, LOSS);
}

#[test]
fn tokens_survive_the_failover_of_a_single_node_with_clocks_that_err() {
    let alone = landmark::ALL_WON | landmark::WON_AFTER_LOSS;
    holds::<1>(ORDER | UNIQUE, Scope { attempts: 3, partial: true, time: Some(clocks(1, 3, 5)), ..SMALL }, alone);
    holds::<1>(ORDER | UNIQUE, Scope { attempts: 3, partial: true, time: Some(clocks(2, 5, 6)), ..SMALL }, alone);
}

#[test]
#[ignore = "23 million states: more than a minute and 2 GB"]
fn tokens_survive_the_loss_of_a_node_with_clocks_that_err() {
    holds::<3>(ORDER | UNIQUE, Scope { time: Some(clocks(1, 3, 4)), ..SMALL }, LOSS);
}

#[test]
#[ignore = "15 million states: a minute and 1.3 GB"]
fn tokens_survive_the_loss_of_a_majority_with_clocks_that_err() {
    holds::<3>(ORDER | UNIQUE, Scope { crashes: 2, time: Some(clocks(1, 3, 3)), ..SMALL }, LOSS);
}

/// Fences that only count start again from 1.
#[test]
fn without_clocks_a_node_that_lost_its_data_gives_a_token_twice() {
    breaks::<3>(UNIQUE, None, SMALL, 9);
}

#[test]
fn without_clocks_a_single_node_that_lost_its_data_gives_a_token_twice() {
    breaks::<1>(UNIQUE, None, SMALL, 7);
}

/// However long the quarantine: a claim may be sent before the crash and arrive after it.
#[test]
fn a_proposal_by_the_clients_clock_alone_gives_a_token_twice() {
    breaks::<3>(UNIQUE, Some(Flaw::ClientClock), Scope { time: Some(clocks(0, 3, 5)), ..SMALL }, 12);
    breaks::<3>(UNIQUE, Some(Flaw::ClientClock), Scope { time: Some(clocks(1, 5, 6)), ..SMALL }, 14);
}

#[test]
fn a_quarantine_of_exactly_twice_the_error_gives_a_token_twice() {
    breaks::<3>(UNIQUE, None, Scope { time: Some(clocks(1, 2, 5)), ..SMALL }, 11);
}

#[test]
fn a_quarantine_of_exactly_twice_the_error_after_a_failover_gives_a_token_twice() {
    breaks::<1>(UNIQUE, None, Scope { time: Some(clocks(1, 2, 5)), ..SMALL }, 9);
}

/// A script takes a microsecond at least, so a fence never runs ahead of the time by more than its error.
#[test]
fn two_grants_within_a_microsecond_would_give_a_token_twice() {
    let scope = Scope { attempts: 3, time: Some(clocks(0, 1, 3)), ..SMALL };
    breaks::<3>(UNIQUE, Some(Flaw::TwoGrantsATick), scope, 13);
}

/// Not promised: no rule of one master can order its tokens with those of another.
#[test]
fn two_masters_give_a_token_twice() {
    breaks::<2>(UNIQUE, Some(Flaw::TwoMasters), Scope { crashes: 0, time: Some(clocks(0, 1, 2)), ..SMALL }, 6);
}

/// `scripts/search` runs these.
mod larger {
    use super::*;

    #[test]
    #[ignore = "3 million states: 11 seconds"]
    fn tokens_survive_the_loss_of_two_nodes_to_any_older_fence() {
        holds::<3>(ORDER | UNIQUE, Scope { crashes: 2, partial: true, time: Some(clocks(0, 1, 3)), ..SMALL }, LOSS);
    }

    #[test]
    #[ignore = "3 million states: 9 seconds"]
    fn tokens_survive_the_loss_of_one_of_two_nodes_with_clocks_that_err() {
        holds::<2>(ORDER | UNIQUE, Scope { attempts: 3, time: Some(clocks(1, 3, 4)), ..SMALL }, LOSS);
    }
}
