//! Rounds of faults on real servers. They wait for leases and failovers most of the time, so they run at the same time,
//! regardless of the number of cores.
//!
//! `FENCELOCK_CHAOS_SEED=N` runs another schedule.
#![allow(missing_docs, clippy::unwrap_used)]

mod cluster;
mod objects;
mod postgres;
mod sentinel;
mod topologies;

use fencelock_chaos::Run;
use fencelock_chaos::checker::Check;

/// These controls, and those of every run, must be flagged: otherwise a clean run proves nothing.
fn assert_flagged(run: &Run, more: &[(Check, &'static str)]) {
    let always = [
        (Check::C5, "control-unguarded"),
        (Check::C12, "control-cleared"),
        (Check::C12, "control-restarted"),
        (Check::C13, "control-observed"),
        (Check::C13, "control-mixed"),
    ];
    let flagged = &run.results.flagged;
    for (check, key) in always.iter().chain(more) {
        assert!(flagged.contains(&(*check, (*key).to_owned())), "no {check} on {key}, only {flagged:?}");
    }
}

fn seed() -> u64 {
    std::env::var("FENCELOCK_CHAOS_SEED").map_or(1, |seed| seed.parse().expect("FENCELOCK_CHAOS_SEED is a number"))
}
