//! One round of every fault on real servers, in each form that locks can live in, with clients in several processes.
//!
//! `FENCELOCK_CHAOS_SEED=N` runs another schedule.
#![allow(missing_docs, clippy::unwrap_used)]

use fencelock_chaos::checker::Check;
use fencelock_chaos::history::{Line, Op, Outcome};
use fencelock_chaos::{Form, Plan, Run, Settings, run};
use fencelock_testkit::redis_or_skip;
use std::path::Path;
use std::time::Duration;

fn seed() -> u64 {
    std::env::var("FENCELOCK_CHAOS_SEED").map_or(1, |seed| seed.parse().expect("FENCELOCK_CHAOS_SEED is a number"))
}

/// The forms run side by side, so each has few clients.
fn settings(form: Form) -> Settings {
    let mut settings = Settings::new(seed(), Path::new(env!("CARGO_BIN_EXE_fencelock-chaos")));
    settings.form = form;
    // Most of a run is waiting for leases to end. Half the usual TTL is still long beside what a request takes.
    settings.ttl = Duration::from_millis(500);
    if form != Form::Single {
        (settings.workers, settings.tasks) = (2, 4);
    }
    settings
}

/// A run that was good, and worth something.
fn good_run(form: Form) -> Option<Run> {
    redis_or_skip()?;
    let settings = settings(form);
    let seed = settings.seed;
    println!("seed {seed}");
    let run = run(&settings).unwrap();
    println!("{}", run.verdict);
    assert!(run.verdict.is_good(), "seed {seed} on {form}: {}", run.verdict);

    let played = run.history.lines.iter().filter(|line| line.op == Op::Fault).filter_map(|line| line.what.as_deref());
    let planned = Plan::new(seed, form, settings.workers).take(form.faults().len());
    assert!(
        played.eq(planned.map(|step| step.fault.name())),
        "seed {seed} on {form}: the schedule follows from the seed"
    );

    let count = |op, result| run.history.lines.iter().filter(|line| line.op == op && line.result == result).count();
    assert!(count(Op::Acquire, Outcome::Ok) > 200, "seed {seed} on {form}: too few grants to mean anything");
    assert!(count(Op::Write, Outcome::Fail) > 0, "seed {seed} on {form}: the gate never refused");
    Some(run)
}

fn assert_flagged(run: &Run, more: &[&str]) {
    let always = ["control-forgotten", "control-jumped", "control-skewed", "control-evicted"];
    let exclusion = always.iter().chain(more).map(|key| (Check::C3, *key));
    for (check, key) in exclusion.chain([(Check::C5, "control-unguarded")]) {
        let flagged = &run.verdict.flagged;
        assert!(flagged.contains(&(check, key.to_owned())), "no {check} on {key}, only {flagged:?}");
    }
}

/// Where there is a quarantine only clocks that jump, and other programs, may let a second holder in.
fn assert_no_memory_excuses(run: &Run) {
    let excusing = run.history.lines.iter().filter(|line| line.op == Op::Fault && !line.excuses.is_empty());
    for fault in excusing.filter_map(|line| line.what.as_deref()) {
        assert!(["clock forward", "clock back", "foreign delete"].contains(&fault), "{fault} excuses something");
    }
}

/// How many grants fell into the times when one node was away.
fn grants_without_a_node(run: &Run) -> usize {
    let is_away = |line: &&Line| {
        let faults = ["cut network", "black hole", "freeze server", "restart empty"];
        line.op == Op::Fault && line.what.as_deref().is_some_and(|what| faults.contains(&what))
    };
    let away: Vec<_> = run.history.lines.iter().filter(is_away).collect();
    let is_in = |grant: &&Line| away.iter().any(|at| (at.invoke_us..at.return_us).contains(&grant.return_us));
    run.history.lines.iter().filter(|line| line.is(Op::Acquire) && line.fence.is_some()).filter(is_in).count()
}

/// At the same time, whatever the number of cores: most of a run is waiting.
#[test]
fn each_form_keeps_its_promises_through_every_fault() {
    std::thread::scope(|forms| {
        forms.spawn(one_redis_keeps_its_promises);
        forms.spawn(a_redis_with_a_quarantine_keeps_its_promises_also_when_its_replica_takes_its_place);
        forms.spawn(a_quorum_of_three_keeps_its_promises);
    });
}

fn one_redis_keeps_its_promises() {
    let Some(run) = good_run(Form::Single) else { return };
    assert_flagged(&run, &[]);
}

fn a_redis_with_a_quarantine_keeps_its_promises_also_when_its_replica_takes_its_place() {
    let Some(run) = good_run(Form::Replica) else { return };
    assert_flagged(&run, &["control-promoted"]);
    assert_no_memory_excuses(&run);
}

#[test]
#[ignore = "as with a quarantine, and as long"]
fn a_redis_that_is_replaced_by_its_replica_keeps_its_other_promises() {
    let Some(run) = good_run(Form::BareReplica) else { return };
    assert_flagged(&run, &["control-promoted"]);
}

fn a_quorum_of_three_keeps_its_promises() {
    let Some(run) = good_run(Form::Quorum(3)) else { return };
    assert_flagged(&run, &[]);
    assert_no_memory_excuses(&run);
    let through = grants_without_a_node(&run);
    assert!(through > 10, "{through} grants while a node was away");
}

#[test]
#[ignore = "the code is that of three, and the time is better spent on longer runs"]
fn a_quorum_of_five_keeps_its_promises_through_every_fault() {
    let Some(run) = good_run(Form::Quorum(5)) else { return };
    assert_flagged(&run, &[]);
    let through = grants_without_a_node(&run);
    assert!(through > 10, "{through} grants while a node was away");
}
