//! Every order in which one claim to three nodes, its release, its timers and the loss of its caller can follow each other: no
//! node keeps a lock of a call that was not won and taken, or that was released. The same for a writer that downgrades: it
//! reads with a token that a majority has confirmed, and no node frees the key in between.
//!
//! The calls are those that production drives. A node answers late or never, and its request may be carried out after the
//! call counts it as unanswered. Time does not pass, so no lease helps by ending.
#![allow(missing_docs, clippy::unwrap_used, clippy::tests_outside_test_module)]

mod act;
mod downgrade;
mod driver;
mod model;
mod world;

use downgrade::{DowngradeMutant, Downgrading, NodeState};
use model::{Damage, Search};
use world::{Before, Mutant, World};

/// The number of node timers that may fire before a late answer. A search for damage has as many as it needs.
const LATE: u8 = 2;

/// The nodes are alike, so their order does not matter.
fn starts() -> impl Iterator<Item = [Before; 3]> {
    let all = [Before::Free, Before::Ahead, Before::Taken];
    let pairs = (0..3).flat_map(move |a| (a..3).flat_map(move |b| (b..3).map(move |c| [a, b, c])));
    pairs.map(move |nodes| nodes.map(|node| all[node]))
}

fn search_claims(mutant: Option<Mutant>, late: u8) -> Result<Search, Damage> {
    model::search(starts().map(|start| (format!("{start:?}"), World::new(start, mutant, late))))
}

#[test]
fn nothing_is_left_on_any_node_in_any_order_of_answers_timers_and_drops() {
    let search = search_claims(None, LATE).unwrap_or_else(|damage| panic!("{damage:#?}"));
    println!("{} states, {} ends", search.states, search.ends);
    assert!(search.states > 100_000 && search.ends > 100, "{} states", search.states);
    assert!(search.raised > 0 && search.released > 0, "a search that has not seen everything proves nothing");
}

#[track_caller]
fn is_found(mutant: Mutant, late: u8, text: &str, acts: usize) {
    check(search_claims(Some(mutant), late), text, acts);
}

/// The nearest damage is this one, after so many acts.
#[track_caller]
fn check(found: Result<Search, Damage>, text: &str, acts: usize) {
    let Err(damage) = found else { panic!("the damage is not found") };
    println!("{} acts: {damage:#?}", damage.acts());
    assert!(damage.broken.starts_with(text), "{damage:#?}");
    assert_eq!(damage.acts(), acts, "the shortest way is not the known one: {damage:#?}");
}

#[test]
fn a_release_sent_before_its_claim_has_ended_leaves_a_lock() {
    is_found(Mutant::ReleaseAtLimit, 1, "node", 14);
}

#[test]
fn a_drop_that_is_not_reported_leaves_a_call_that_never_ends() {
    is_found(Mutant::SilentDrop, 0, "the claim never ends", 7);
}

#[test]
fn an_abandoned_result_that_is_kept_leaves_a_lock() {
    is_found(Mutant::KeptUntaken, 0, "node", 7);
}

#[test]
fn a_release_that_does_not_wait_for_a_late_claim_leaves_a_lock() {
    is_found(Mutant::ReleaseOvertakes, 0, "node", 14);
}

#[test]
fn a_won_call_that_releases_loses_its_majority() {
    is_found(Mutant::WonGivesBack, 0, "a majority", 6);
}

#[test]
fn a_release_only_where_a_grant_was_seen_leaves_a_lock() {
    is_found(Mutant::ReleaseOnlySeen, LATE, "node", 13);
}

/// A writer has its hold on a majority; the third node has it too, has nothing, or belongs to another client. Fences differ or
/// do not.
fn writers() -> impl Iterator<Item = ([NodeState; 3], [u64; 3])> {
    let thirds = [NodeState::Exclusive, NodeState::Nothing, NodeState::Taken];
    let fences = [[1, 1, 1], [1, 1, 9], [1, 9, 9], [8, 9, 9]];
    thirds.into_iter().flat_map(move |third| {
        fences.into_iter().map(move |fences| ([NodeState::Exclusive, NodeState::Exclusive, third], fences))
    })
}

fn search_downgrades(mutant: Option<DowngradeMutant>, late: u8) -> Result<Search, Damage> {
    let start = |(nodes, fences)| (format!("{nodes:?} {fences:?}"), Downgrading::new(nodes, fences, mutant, late));
    model::search(writers().map(start))
}

#[test]
fn a_downgrade_keeps_a_majority_and_leaves_nothing_in_any_order_of_answers_timers_and_drops() {
    let search = search_downgrades(None, 1).unwrap_or_else(|damage| panic!("{damage:#?}"));
    println!("{} states, {} ends", search.states, search.ends);
    assert!(search.states > 100_000 && search.ends > 100, "{} states", search.states);
    assert!(search.raised > 0 && search.released > 0, "a search that has not seen everything proves nothing");
}

#[track_caller]
fn damages(mutant: DowngradeMutant, late: u8, text: &str, acts: usize) {
    check(search_downgrades(Some(mutant), late), text, acts);
}

#[test]
fn a_downgrade_that_adds_a_hold_leaves_one_behind() {
    damages(DowngradeMutant::Creates, 0, "node", 13);
}

#[test]
fn a_downgrade_without_a_raise_reads_with_an_unconfirmed_token() {
    damages(DowngradeMutant::NoRaise, 0, "a majority must have the hold", 6);
}

#[test]
fn a_repeated_downgrade_that_frees_the_key_loses_the_hold() {
    damages(DowngradeMutant::FreesTheSecondTime, LATE, "a node must not lose", 6);
}
