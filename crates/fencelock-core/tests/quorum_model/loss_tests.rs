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

#[test]
fn without_each_protection_a_token_is_given_twice() {
    let at = |time| Scope { time: Some(time), ..SMALL };
    // Without clocks, fences start again from 1.
    breaks::<3>(UNIQUE, None, SMALL, 9);
    breaks::<1>(UNIQUE, None, SMALL, 7);
    // However long the quarantine: a claim may be sent before the crash and arrive after it.
    breaks::<3>(UNIQUE, Some(Flaw::ClientClock), at(clocks(0, 3, 5)), 12);
    breaks::<3>(UNIQUE, Some(Flaw::ClientClock), at(clocks(1, 5, 6)), 14);
    // A quarantine of exactly twice the error, also after a failover.
    breaks::<3>(UNIQUE, None, at(clocks(1, 2, 5)), 11);
    breaks::<1>(UNIQUE, None, at(clocks(1, 2, 5)), 9);
    // A script takes a microsecond at least, so a fence never runs ahead of the time by more than its error.
    breaks::<3>(UNIQUE, Some(Flaw::TwoGrantsATick), Scope { attempts: 3, ..at(clocks(0, 1, 3)) }, 13);
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
