//! Rounds of faults on real servers. They wait for leases and failovers most of the time, so they run at the same time,
//! regardless of the number of cores.
//!
//! `FENCELOCK_CHAOS_SEED=N` runs another schedule.
#![allow(missing_docs, clippy::unwrap_used)]

mod cluster;
mod objects;
mod sentinel;
mod topologies;

use fencelock_chaos::checker::Check;
use fencelock_chaos::history::{HistoryLine, Op};
use fencelock_chaos::{Fault, Run, Settings, Topology, run};
use std::path::Path;

/// The settings of a round of these faults, or of all that the topology has.
fn settings(topology: Topology, only: Option<Vec<Fault>>) -> Settings {
    let settings = Settings::new(seed(), topology, Path::new(env!("CARGO_BIN_EXE_fencelock-chaos")));
    Settings { only, ..settings }
}

/// Runs, and checks that the result is good, and that each fault was injected.
fn good_run(settings: &Settings) -> Run {
    let Settings { seed, topology, .. } = *settings;
    println!("seed {seed}");
    let run = run(settings).unwrap();
    println!("{}", run.results);
    assert!(run.results.is_good(), "seed {seed} on {topology}: {}", run.results);
    for fault in settings.faults() {
        assert!(
            faults(&run).any(|line| line.what.as_deref() == Some(fault.name())),
            "seed {seed}: no {}",
            fault.name()
        );
    }
    run
}

/// The faults that were injected.
fn faults(run: &Run) -> impl Iterator<Item = &HistoryLine> {
    run.history.lines.iter().filter(|line| line.op == Op::Fault)
}

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
