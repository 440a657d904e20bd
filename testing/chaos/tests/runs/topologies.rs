//! One round of all faults on real servers, in each topology, with clients in several processes.

use crate::{assert_flagged, faults, good_run, settings};
use fencelock_chaos::checker::Check;
use fencelock_chaos::history::{HistoryLine, HoldMode, Op, Outcome};
use fencelock_chaos::{Plan, Run, Settings, Topology};
use fencelock_testkit::redis_or_skip;
use std::collections::HashMap;
use std::time::Duration;

/// Runs, and checks that the result is good and meaningful.
fn round(topology: Topology, settings: &Settings) -> Run {
    let run = good_run(settings);
    let seed = settings.seed;
    let played = faults(&run).filter_map(|line| line.what.as_deref());
    let planned = Plan::new(seed, topology, settings.workers).take(topology.faults().len());
    assert!(
        played.eq(planned.map(|step| step.fault.name())),
        "seed {seed} on {topology}: the seed determines the schedule"
    );

    let count = |op, result| run.history.lines.iter().filter(|line| line.op == op && line.result == result).count();
    assert!(count(Op::Acquire, Outcome::Ok) > 200, "seed {seed} on {topology}: too few grants");
    assert!(count(Op::Write, Outcome::Fail) > 0, "seed {seed} on {topology}: the gate rejected no write");
    run
}

/// A round on Redis servers. The topologies run in parallel, so each has few clients.
fn redis_round(topology: Topology) -> Option<Run> {
    redis_or_skip()?;
    // Most of a run waits for leases to end. Half the default TTL is still long compared to a request.
    let settings = Settings { ttl: Duration::from_millis(500), ..settings(topology, None) };
    let few = Settings { workers: 2, tasks: 4, ..settings.clone() };
    Some(round(topology, if topology == Topology::Single { &settings } else { &few }))
}

/// The controls of exclusion on servers behind proxies.
fn assert_overlaps_flagged(run: &Run, more: &[&'static str]) {
    let always = ["control-forgotten", "control-jumped", "control-skewed", "control-evicted"];
    let exclusion: Vec<_> = always.iter().chain(more).map(|key| (Check::C3, *key)).collect();
    assert_flagged(run, &exclusion);
}

/// With a quarantine, only clock jumps and other programs may admit a second holder.
fn assert_no_memory_excuses(run: &Run) {
    let admits_two = |line: &&HistoryLine| line.excuses.iter().any(|check| check != "C12");
    for fault in faults(run).filter(admits_two).filter_map(|line| line.what.as_deref()) {
        assert!(["clock forward", "clock back", "foreign delete"].contains(&fault), "{fault} excuses something");
    }
}

/// The number of grants while one node was unavailable.
fn grants_without_a_node(run: &Run) -> usize {
    let is_away = |line: &&HistoryLine| {
        let faults = ["cut network", "black hole", "freeze server", "restart empty"];
        line.op == Op::Fault && line.what.as_deref().is_some_and(|what| faults.contains(&what))
    };
    let away: Vec<_> = run.history.lines.iter().filter(is_away).collect();
    let is_in = |grant: &&HistoryLine| away.iter().any(|at| (at.invoke_us..at.return_us).contains(&grant.return_us));
    run.history.lines.iter().filter(|line| line.is(Op::Acquire) && line.fence.is_some()).filter(is_in).count()
}

/// The number of readers that held a key together with a reader of another process.
fn readers_of_two_processes(run: &Run) -> usize {
    let process = |line: &HistoryLine| line.client.split('.').next().map(str::to_owned);
    let mut reading: HashMap<&str, &HistoryLine> = HashMap::new();
    let mut together = 0;
    // A process that is killed ends nothing, so its readers count for the time of their first lease only.
    for line in run.history.lines.iter().filter(|line| line.key == "readers") {
        if line.is_grant() && line.mode == HoldMode::Shared {
            let is_other = |other: &&&HistoryLine| {
                process(other) != process(line) && other.valid_until_us.is_some_and(|until| until > line.return_us)
            };
            together += usize::from(reading.values().any(|other| is_other(&other)));
            reading.insert(&line.client, line);
        } else if matches!(line.op, Op::Yield | Op::Release | Op::Lost) {
            reading.remove(line.client.as_str());
        }
    }
    together
}

#[test]
fn a_single_redis_violates_no_guarantee() {
    let Some(run) = redis_round(Topology::Single) else { return };
    assert_overlaps_flagged(&run, &[]);
}

#[test]
fn a_failover_with_quarantine_violates_no_guarantee() {
    let Some(run) = redis_round(Topology::Replica) else { return };
    assert_overlaps_flagged(&run, &["control-promoted"]);
    assert_no_memory_excuses(&run);
}

#[test]
#[ignore = "similar to the run with a quarantine, and as long"]
fn a_failover_without_quarantine_violates_exclusion_only() {
    let Some(run) = redis_round(Topology::BareReplica) else { return };
    assert_overlaps_flagged(&run, &["control-promoted"]);
}

#[test]
fn a_quorum_of_three_violates_no_guarantee() {
    let Some(run) = redis_round(Topology::Quorum(3)) else { return };
    assert_overlaps_flagged(&run, &[]);
    assert_no_memory_excuses(&run);
    let through = grants_without_a_node(&run);
    assert!(through > 10, "{through} grants while a node was unavailable");
    let together = readers_of_two_processes(&run);
    assert!(together > 10, "{together} readers held a key together with one of another process");
}

#[test]
#[ignore = "the code is the same as for three nodes; use longer runs instead"]
fn no_fault_violates_a_guarantee_in_a_quorum_of_five() {
    let Some(run) = redis_round(Topology::Quorum(5)) else { return };
    assert_overlaps_flagged(&run, &[]);
    let through = grants_without_a_node(&run);
    assert!(through > 10, "{through} grants while a node was unavailable");
}

/// A PostgreSQL server with a standby, without a pooler or behind one.
mod postgres {
    use super::*;
    use fencelock_chaos::Pooler;
    use fencelock_postgres_testing::{PgBouncer, postgres_or_skip};

    fn violates_no_guarantee(pooler: Pooler) {
        let Some(server) = postgres_or_skip() else { return };
        if pooler != Pooler::Direct && PgBouncer::start_or_skip(&server, "session").is_none() {
            return;
        }
        drop(server);
        let topology = Topology::Postgres(pooler);
        let run = round(topology, &settings(topology, None));
        assert_flagged(&run, &[(Check::C3, "control-forgotten"), (Check::C3, "control-jumped")]);
        // Only a clock that jumps excuses a violation.
        for fault in faults(&run) {
            let jumps = matches!(fault.what.as_deref(), Some("clock forward" | "clock back"));
            assert_eq!(fault.excuses.is_empty(), !jumps, "{fault:?}");
        }
    }

    #[test]
    #[ignore = "a round of all faults takes a minute; scripts/test-servers runs it"]
    fn postgres_violates_no_guarantee() {
        violates_no_guarantee(Pooler::Direct);
    }

    #[test]
    #[ignore = "the code is the same as without a pooler; scripts/test-servers runs it"]
    fn a_pool_of_sessions_violates_no_guarantee() {
        violates_no_guarantee(Pooler::Session);
    }

    #[test]
    #[ignore = "a round of all faults takes a minute; scripts/test-servers runs it"]
    fn a_pool_of_transactions_violates_no_guarantee() {
        violates_no_guarantee(Pooler::Transaction);
    }
}
