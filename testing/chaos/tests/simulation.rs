//! The production core in simulated worlds: every seed keeps every promise, and every protection that is left out is missed.
//!
//! `FENCELOCK_SIM_SEEDS=N` runs so many seeds for each number of nodes; `FENCELOCK_SIM_FIRST=N` begins there.
#![allow(missing_docs, clippy::unwrap_used)]

use fencelock_chaos::checker::{Check, check};
use fencelock_chaos::sim::{Batch, Mutant, Scenario, Sight, Trace, batch, simulate};
use fencelock_core::Ttl;
use std::thread;
use std::time::Duration;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

fn run(nodes: usize, seeds: u64) -> Batch {
    let seeds = number("FENCELOCK_SIM_SEEDS", seeds);
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let batch = batch(number("FENCELOCK_SIM_FIRST", 0), seeds, nodes, None, threads).unwrap();
    println!(
        "{nodes} nodes: {} seeds, {} events, {} grants: {}",
        batch.seeds, batch.events, batch.grants, batch.sights
    );
    if let Some(first) = batch.found.first() {
        let command = format!("./scripts/chaos simulate --nodes {nodes} --seed {} --trace", first.seed);
        panic!("{} of {seeds} seeds broke a promise: {}\n    {command}", batch.found.len(), first.words);
    }
    batch
}

#[test]
fn three_nodes_keep_every_promise_in_every_world() {
    let batch = run(3, 800);
    assert_eq!(batch.sights.missing(), [], "a batch that has not seen everything proves nothing");
}

#[test]
fn one_node_keeps_every_promise_in_every_world() {
    let batch = run(1, 200);
    assert!(batch.sights.of(Sight::Quarantine) > 0 && batch.sights.of(Sight::Raise) == 0);
}

#[test]
fn two_nodes_keep_every_promise_in_every_world() {
    assert!(run(2, 150).sights.of(Sight::RefusedRaise) > 0);
}

#[test]
fn four_nodes_keep_every_promise_in_every_world() {
    assert!(run(4, 150).sights.of(Sight::RefusedRaise) > 0);
}

#[test]
fn five_nodes_keep_every_promise_in_every_world() {
    assert!(run(5, 200).sights.of(Sight::RefusedRaise) > 0);
}

#[test]
fn a_seed_gives_the_same_history_byte_for_byte() {
    let text = |seed, trace| {
        let run = simulate(&Scenario::of(seed, 3).unwrap(), trace);
        let mut bytes = Vec::new();
        run.history.write(&mut bytes).unwrap();
        bytes
    };
    for seed in 0..5 {
        assert_eq!(text(seed, Trace::Off), text(seed, Trace::On), "seed {seed}");
    }
    assert_ne!(text(1, Trace::Off), text(2, Trace::Off));
}

/// Looks for a world in which the mutant breaks one of these promises.
fn is_killed(mutant: Mutant, seeds: u64, by: &[Check]) {
    for seed in 0..seeds {
        let scenario = Scenario::of(seed, 3).unwrap().without(Some(mutant));
        let verdict = check(&simulate(&scenario, Trace::Off).history);
        if let Some(broken) = verdict.broken.iter().find(|violation| by.contains(&violation.check)) {
            println!("mutant {mutant} violates {}, found by seed {seed}: {}", broken.check, broken.text);
            return;
        }
    }
    panic!("{seeds} seeds did not find what is wrong with {mutant}");
}

const TOKENS: &[Check] = &[Check::C1, Check::C2];
const HOLDS: &[Check] = &[Check::C3];

#[test]
fn without_a_raise_tokens_break() {
    is_killed(Mutant::NoRound2, 200, TOKENS);
}

#[test]
fn fences_without_a_clock_break_where_nodes_forget() {
    is_killed(Mutant::CounterOnly, 200, TOKENS);
}

#[test]
fn a_node_that_forgot_and_is_not_kept_out_breaks_exclusion() {
    is_killed(Mutant::NoQuarantine, 200, HOLDS);
}

#[test]
fn a_node_that_is_let_in_as_soon_as_it_is_back_breaks_exclusion() {
    is_killed(Mutant::ImmediateRestart, 200, HOLDS);
}

#[test]
fn a_holder_id_used_for_two_attempts_breaks_exclusion() {
    is_killed(Mutant::TokenReuse, 200, HOLDS);
}

#[test]
fn a_release_that_does_not_compare_breaks_exclusion() {
    is_killed(Mutant::PlainDel, 200, HOLDS);
}

#[test]
fn a_lease_that_counts_from_the_answer_breaks_exclusion() {
    is_killed(Mutant::ValidityFromReply, 300, HOLDS);
}

#[test]
fn one_grant_less_than_a_majority_breaks_exclusion() {
    is_killed(Mutant::MajorityOff, 200, HOLDS);
}

#[test]
fn rounds_that_give_nothing_back_stand_in_each_others_way() {
    is_killed(Mutant::NoRollback, 200, &[Check::C8]);
}

#[test]
fn a_hold_that_a_late_renewal_revives_breaks_exclusion() {
    is_killed(Mutant::LateExtendRevives, 500, HOLDS);
}

/// Nodes that run fast, clients that run slow, and holds that go on to their end: nothing but the drift is in between.
#[test]
fn a_lease_without_drift_breaks_exclusion_where_clocks_run_apart() {
    let scenario = Scenario {
        ttl: Ttl::new(Duration::from_secs(2)).unwrap(),
        rate_ppm: 4000,
        apart: true,
        overrun_ppm: 1_000_000,
        crashes: false,
        pauses: false,
        cuts: false,
        jump_us: 0,
        ..Scenario::of(1, 3).unwrap()
    };
    let whole = check(&simulate(&scenario, Trace::Off).history);
    assert!(whole.is_good(), "{whole}");
    let broken = check(&simulate(&scenario.without(Some(Mutant::NoDrift)), Trace::Off).history);
    assert!(broken.broken_of(Check::C3) > 0, "{broken}");
}
