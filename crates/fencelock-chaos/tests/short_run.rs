//! One round of every fault on one real Redis, with clients in several processes.
//!
//! `FENCELOCK_CHAOS_SEED=N` runs another schedule.
#![allow(missing_docs, clippy::unwrap_used)]

use fencelock_chaos::checker::Check;
use fencelock_chaos::history::{Op, Outcome};
use fencelock_chaos::{Fault, Plan, Settings, run};
use fencelock_conformance::redis_or_skip;
use std::path::Path;

fn seed() -> u64 {
    std::env::var("FENCELOCK_CHAOS_SEED").map_or(1, |seed| seed.parse().expect("FENCELOCK_CHAOS_SEED is a number"))
}

#[test]
fn one_redis_keeps_its_promises_through_every_fault() {
    if redis_or_skip().is_none() {
        return;
    }
    let seed = seed();
    println!("seed {seed}");
    let settings = Settings::new(seed, Path::new(env!("CARGO_BIN_EXE_fencelock-chaos")));
    let run = run(&settings).unwrap();
    println!("{}", run.verdict);
    assert!(run.verdict.is_good(), "seed {seed}: {}", run.verdict);

    let flagged = &run.verdict.flagged;
    for (check, key) in
        [(Check::C3, "control-forgotten"), (Check::C3, "control-jumped"), (Check::C5, "unguarded-control")]
    {
        assert!(flagged.contains(&(check, key.to_owned())), "seed {seed}: no {check} on {key}, only {flagged:?}");
    }

    let played = run.history.lines.iter().filter(|line| line.op == Op::Fault).filter_map(|line| line.what.as_deref());
    let planned = Plan::new(seed, settings.nodes, settings.workers).take(Fault::ALL.len());
    assert!(played.eq(planned.map(|step| step.fault.name())), "seed {seed}: the schedule follows from the seed");

    let count = |op, result| run.history.lines.iter().filter(|line| line.op == op && line.result == result).count();
    assert!(count(Op::Acquire, Outcome::Ok) > 200, "seed {seed}: too few grants to mean anything");
    assert!(count(Op::Write, Outcome::Fail) > 0, "seed {seed}: the gate never refused");
}
