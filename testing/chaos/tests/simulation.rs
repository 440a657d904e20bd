//! Runs the client in simulated worlds: no seed violates a guarantee, and each missing protection is detected.
//!
//! `FENCELOCK_SIM_SEEDS=N` runs N seeds for each number of nodes; `FENCELOCK_SIM_FIRST=N` is the first seed. By default, there are
//! as many as each batch needs to cover all of its events, and some more. `scripts/search` runs 300 of each.
#![allow(missing_docs, clippy::unwrap_used)]

use fencelock_chaos::checker::{Check, check};
use fencelock_chaos::sim::{Mutant, Scenario, Trace, batch, simulate};
use fencelock_core::Ttl;
use std::ops::Range;
use std::thread;
use std::time::Duration;

/// Events of every world.
const EVERYWHERE: [&str; 22] = [
    "a claim refused in quarantine",
    "a clock that was set",
    "a downgrade",
    "a hold past its lease",
    "a leader of another process was observed",
    "a leader that lost its term",
    "a leader that resigned",
    "a lease passed on within a process",
    "a node that kept its data",
    "a node that lost its data",
    "a node that restored older data",
    "a node that was flushed",
    "a process that died",
    "a read was refused",
    "a write was refused",
    "holders of a key together",
    "lost by deletion",
    "lost by expiry",
    "lost to another",
    "renewed by the watchdog",
    "several keys of which one was released",
    "unreachable",
];

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

/// No seed violates a guarantee, and all of these events are covered.
fn run(nodes: usize, seeds: u64, events: &[&str]) {
    let seeds = number("FENCELOCK_SIM_SEEDS", seeds);
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let batch = batch(number("FENCELOCK_SIM_FIRST", 0), seeds, nodes, None, threads).unwrap();
    println!("{nodes} nodes: {} seeds, {} grants: {:#?}", batch.seeds, batch.grants, batch.covered);
    if let Some(first) = batch.found.first() {
        let command = format!("./scripts/chaos simulate --nodes {nodes} --seed {} --trace", first.seed);
        panic!("{} of {seeds} seeds violated a guarantee: {}\n    {command}", batch.found.len(), first.words);
    }
    let missing: Vec<_> = events.iter().filter(|event| !batch.covered.contains_key(**event)).collect();
    assert!(missing.is_empty(), "the batch must cover {missing:?}");
}

#[test]
fn one_server_violates_no_guarantee_in_any_world() {
    run(1, 60, &[&EVERYWHERE[..], &["a hand-off", "an eviction", "slots in use together"]].concat());
}

#[test]
fn three_nodes_violate_no_guarantee_in_any_world() {
    run(3, 30, &[&EVERYWHERE[..], &["a raise", "a raise that was refused"]].concat());
}

#[test]
fn any_number_of_nodes_violates_no_guarantee() {
    for nodes in [2, 4, 5] {
        run(nodes, 8, &["a raise", "a raise that was refused"]);
    }
}

#[test]
fn a_seed_gives_the_same_history_byte_for_byte() {
    for nodes in [1, 3] {
        let text = |seed, trace| {
            let mut bytes = Vec::new();
            simulate(&Scenario::of(seed, nodes).unwrap(), trace).unwrap().history.write(&mut bytes).unwrap();
            bytes
        };
        for seed in 0..3 {
            assert!(text(seed, Trace::Off) == text(seed, Trace::On), "seed {seed} of {nodes} nodes");
        }
        assert_ne!(text(1, Trace::Off), text(2, Trace::Off));
    }
}

/// Searches for a world in which the mutant violates one of these guarantees.
fn is_killed(nodes: usize, mutant: Mutant, seeds: Range<u64>, by: &[Check]) {
    for seed in seeds.clone() {
        let scenario = Scenario::of(seed, nodes).unwrap().without(Some(mutant));
        let results = check(&simulate(&scenario, Trace::Off).unwrap().history);
        if let Some(broken) = results.broken.iter().find(|violation| by.contains(&violation.check)) {
            println!("mutant {mutant:?} violates {}, found by seed {seed}: {}", broken.check, broken.text);
            return;
        }
    }
    panic!("the seeds {seeds:?} did not detect the mutant {mutant:?}");
}

#[test]
fn fences_without_a_clock_repeat_when_nodes_lose_their_data() {
    is_killed(3, Mutant::CounterOnly, 0..100, &[Check::C1, Check::C2]);
}

#[test]
fn a_node_that_lost_its_data_without_quarantine_breaks_exclusion() {
    is_killed(1, Mutant::NoQuarantine, 0..100, &[Check::C3]);
    is_killed(3, Mutant::NoQuarantine, 16..100, &[Check::C3]);
}

#[test]
fn a_node_that_serves_right_after_its_restart_breaks_exclusion() {
    is_killed(3, Mutant::ImmediateRestart, 16..100, &[Check::C3]);
}

/// Fast nodes and slow clients: only the drift allowance separates a holder from the next one.
#[test]
fn a_lease_without_drift_allowance_breaks_exclusion_with_skewed_clocks() {
    let scenario = Scenario {
        ttl: Ttl::new(Duration::from_secs(5)).unwrap(),
        length: Duration::from_secs(100),
        rate_ppm: 4000,
        apart: true,
        crashes: false,
        pauses: false,
        cuts: false,
        jump_us: 0,
        ..Scenario::of(1, 3).unwrap()
    };
    let whole = check(&simulate(&scenario, Trace::Off).unwrap().history);
    assert!(whole.is_good(), "{whole}");
    let broken = check(&simulate(&scenario.without(Some(Mutant::NoDrift)), Trace::Off).unwrap().history);
    assert!(broken.broken_of(Check::C3) > 0, "{broken}");
}
