//! Runs the core of the library in simulated worlds: no seed violates a guarantee, and each missing protection is detected.
//!
//! `FENCELOCK_SIM_SEEDS=N` runs N seeds for each number of nodes; `FENCELOCK_SIM_FIRST=N` is the first seed. By default, there are
//! as many as each batch needs to cover all of its events, and some more. `scripts/search` runs 800 of each.
#![allow(missing_docs, clippy::unwrap_used)]

use fencelock_chaos::checker::{Check, check};
use fencelock_chaos::sim::{Batch, Coverage, Mix, Mutant, Scenario, Trace, batch, simulate};
use fencelock_core::Ttl;
use std::thread;
use std::time::Duration;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

fn run(nodes: usize, seeds: u64) -> Batch {
    run_mix(nodes, Mix::Exclusive, seeds)
}

fn run_mix(nodes: usize, mix: Mix, seeds: u64) -> Batch {
    let seeds = number("FENCELOCK_SIM_SEEDS", seeds);
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let batch = batch(number("FENCELOCK_SIM_FIRST", 0), seeds, nodes, mix, None, threads).unwrap();
    println!(
        "{nodes} nodes, {mix}: {} seeds, {} events, {} grants: {}",
        batch.seeds, batch.events, batch.grants, batch.covered
    );
    if let Some(first) = batch.found.first() {
        let command = format!("./scripts/chaos simulate --nodes {nodes} --mix {mix} --seed {} --trace", first.seed);
        panic!("{} of {seeds} seeds violated a guarantee: {}\n    {command}", batch.found.len(), first.words);
    }
    batch
}

#[test]
fn three_nodes_violate_no_guarantee_in_any_world() {
    let batch = run(3, 300);
    assert_eq!(batch.covered.missing(), [], "the batch must cover all events");
}

#[test]
fn one_node_violates_no_guarantee_in_any_world() {
    let batch = run(1, 100);
    assert!(batch.covered.of(Coverage::Quarantine) > 0 && batch.covered.of(Coverage::Raise) == 0);
}

#[test]
fn two_nodes_violate_no_guarantee_in_any_world() {
    assert!(run(2, 50).covered.of(Coverage::RefusedRaise) > 0);
}

#[test]
fn four_nodes_violate_no_guarantee_in_any_world() {
    assert!(run(4, 50).covered.of(Coverage::RefusedRaise) > 0);
}

#[test]
fn five_nodes_violate_no_guarantee_in_any_world() {
    assert!(run(5, 50).covered.of(Coverage::RefusedRaise) > 0);
}

#[test]
fn readers_and_writers_violate_no_guarantee_in_any_world() {
    let covered = run_mix(1, Mix::Readers, 300).covered;
    let missing: Vec<_> = Coverage::OF_MODES.into_iter().filter(|it| covered.of(*it) == 0).collect();
    assert_eq!(missing, [Coverage::TooFewPermits], "the batch must cover all events of readers");
}

#[test]
fn readers_and_writers_of_a_quorum_violate_no_guarantee_in_any_world() {
    let covered = run_mix(3, Mix::Readers, 160).covered;
    let missing: Vec<_> = Coverage::OF_MODES.into_iter().filter(|it| covered.of(*it) == 0).collect();
    assert_eq!(missing, [Coverage::TooFewPermits], "the batch must cover all events of readers");
    for (nodes, seeds) in [(2, 25), (5, 25)] {
        let covered = run_mix(nodes, Mix::Readers, seeds).covered;
        assert!(covered.of(Coverage::Raise) > 0 && covered.of(Coverage::Downgraded) > 0, "{covered}");
    }
}

#[test]
fn permits_violate_no_guarantee_in_any_world() {
    let covered = run_mix(1, Mix::Permits, 100).covered;
    assert!(covered.of(Coverage::Together) > 0 && covered.of(Coverage::TooFewPermits) > 0, "{covered}");
}

#[test]
fn a_queue_and_leases_that_tasks_share_violate_no_guarantee_in_any_world() {
    let covered = run_mix(1, Mix::Queue, 60).covered;
    let missing: Vec<_> = Coverage::OF_QUEUES.into_iter().filter(|it| covered.of(*it) == 0).collect();
    assert_eq!(missing, [], "the batch must cover all events of queues");
    // A lease that ends late, by a slow clock, was evicted and passed on.
    assert_eq!(batch(3095, 1, 1, Mix::Queue, None, 1).unwrap().found, []);
}

#[test]
fn a_seed_gives_the_same_history_byte_for_byte() {
    for (nodes, mix) in [(3, Mix::Exclusive), (1, Mix::Queue)] {
        let text = |seed, trace| {
            let run = simulate(&Scenario::of(seed, nodes).unwrap().with(mix), trace);
            let mut bytes = Vec::new();
            run.history.write(&mut bytes).unwrap();
            bytes
        };
        for seed in 0..5 {
            assert_eq!(text(seed, Trace::Off), text(seed, Trace::On), "seed {seed}, {mix}");
        }
        assert_ne!(text(1, Trace::Off), text(2, Trace::Off));
    }
}

fn is_killed(mutant: Mutant, seeds: u64, by: &[Check]) {
    is_killed_in(3, Mix::Exclusive, mutant, seeds, by);
}

/// Searches for a world in which the mutant violates one of these guarantees.
fn is_killed_in(nodes: usize, mix: Mix, mutant: Mutant, seeds: u64, by: &[Check]) {
    for seed in 0..seeds {
        let scenario = Scenario::of(seed, nodes).unwrap().with(mix).without(Some(mutant));
        let results = check(&simulate(&scenario, Trace::Off).history);
        if let Some(broken) = results.broken.iter().find(|violation| by.contains(&violation.check)) {
            println!("mutant {mutant} violates {}, found by seed {seed}: {}", broken.check, broken.text);
            return;
        }
    }
    panic!("{seeds} seeds did not detect the mutant {mutant}");
}

const TOKENS: &[Check] = &[Check::C1, Check::C2];
const HOLDS: &[Check] = &[Check::C3];

#[test]
fn without_a_raise_tokens_are_not_ordered() {
    is_killed(Mutant::NoRound2, 200, TOKENS);
}

#[test]
fn fences_without_a_clock_repeat_when_nodes_lose_their_data() {
    is_killed(Mutant::CounterOnly, 200, TOKENS);
}

#[test]
fn a_node_that_lost_its_data_without_quarantine_breaks_exclusion() {
    is_killed(Mutant::NoQuarantine, 200, HOLDS);
}

#[test]
fn a_node_that_serves_right_after_its_restart_breaks_exclusion() {
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
fn a_lease_counted_from_the_reply_breaks_exclusion() {
    is_killed(Mutant::ValidityFromReply, 300, HOLDS);
}

#[test]
fn one_vote_less_than_a_majority_breaks_exclusion() {
    is_killed(Mutant::MajorityOff, 200, HOLDS);
}

#[test]
fn rounds_without_rollback_block_each_other() {
    is_killed(Mutant::NoRollback, 200, &[Check::C8]);
}

#[test]
fn a_hold_revived_by_a_late_renewal_breaks_exclusion() {
    is_killed(Mutant::LateExtendRevives, 500, HOLDS);
}

#[test]
fn permits_that_are_not_counted_are_too_many() {
    is_killed_in(1, Mix::Permits, Mutant::UncountedPermits, 50, HOLDS);
}

#[test]
fn permits_that_are_freed_twice_are_too_many() {
    is_killed_in(1, Mix::Permits, Mutant::FreesTwice, 300, HOLDS);
}

#[test]
fn a_shared_key_that_ends_with_its_first_hold_lets_a_writer_in() {
    is_killed_in(1, Mix::Readers, Mutant::EndsWithItsFirst, 300, HOLDS);
}

#[test]
fn readers_that_are_admitted_during_a_writer_break_exclusion() {
    is_killed_in(1, Mix::Readers, Mutant::ReadsBesideWriters, 50, HOLDS);
}

#[test]
fn a_writer_that_counts_as_one_until_the_reply_to_its_downgrade_breaks_exclusion() {
    is_killed_in(1, Mix::Readers, Mutant::DowngradesWithReply, 300, HOLDS);
}

#[test]
fn without_a_raise_tokens_of_readers_and_writers_are_not_ordered() {
    is_killed_in(3, Mix::Readers, Mutant::NoRound2, 200, TOKENS);
}

#[test]
fn readers_that_all_nodes_admit_during_a_writer_break_exclusion() {
    is_killed_in(3, Mix::Readers, Mutant::ReadsBesideWriters, 100, HOLDS);
}

#[test]
fn a_writer_that_counts_as_one_until_a_majority_has_replied_breaks_exclusion() {
    is_killed_in(3, Mix::Readers, Mutant::DowngradesWithReply, 300, HOLDS);
}

#[test]
fn nodes_that_forgot_readers_break_exclusion_without_quarantine() {
    is_killed_in(3, Mix::Readers, Mutant::NoQuarantine, 300, HOLDS);
}

#[test]
fn a_gate_with_one_number_refuses_valid_readers() {
    is_killed_in(1, Mix::Readers, Mutant::OneNumberGate, 100, &[Check::C5]);
}

#[test]
fn a_node_that_forgot_readers_breaks_exclusion_without_quarantine() {
    is_killed_in(1, Mix::Readers, Mutant::NoQuarantine, 200, HOLDS);
}

#[test]
fn a_node_that_forgot_permits_grants_too_many_without_quarantine() {
    is_killed_in(1, Mix::Permits, Mutant::NoQuarantine, 200, HOLDS);
}

#[test]
fn a_grant_that_is_taken_after_the_end_of_its_lease_breaks_exclusion() {
    is_killed_in(1, Mix::Queue, Mutant::HandOffIsLease, 60, HOLDS);
}

#[test]
fn a_holder_that_ignores_the_message_of_its_loss_is_found() {
    is_killed_in(1, Mix::Queue, Mutant::IgnoresLoss, 60, &[Check::C9]);
}

#[test]
fn a_client_that_keeps_an_idle_lease_although_it_was_told_of_a_waiter_is_found() {
    is_killed_in(1, Mix::Queue, Mutant::IgnoresWaiters, 60, &[Check::C9]);
}

/// Each node has the permits, so three majorities of three nodes can grant two permits to three holders.
#[test]
fn permits_counted_by_a_majority_of_nodes_are_too_many() {
    for seed in 0..200 {
        let scenario = Scenario::of(seed, 3).unwrap().with(Mix::Permits);
        let results = check(&simulate(&scenario, Trace::Off).history);
        if let Some(broken) = results.broken.iter().find(|it| it.check == Check::C3) {
            println!("seed {seed}: {}", broken.text);
            return;
        }
    }
    panic!("no world had too many permits");
}

/// Fast nodes, slow clients, and holds until the end of the lease: only the drift allowance separates them.
#[test]
fn a_lease_without_drift_allowance_breaks_exclusion_with_skewed_clocks() {
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
