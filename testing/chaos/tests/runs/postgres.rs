//! A PostgreSQL server with a standby, with clients in several processes, without a pooler and behind one.

use crate::{assert_flagged, seed};
use fencelock_chaos::checker::Check;
use fencelock_chaos::history::{HistoryLine, Op, Outcome};
use fencelock_chaos::{Pooler, Settings, Topology, run};
use fencelock_testkit::{PgBouncer, postgres_or_skip};
use std::path::Path;

/// Runs one round. Nothing excuses a violation.
fn violates_no_guarantee(pooler: Pooler) {
    let Some(server) = postgres_or_skip() else { return };
    if pooler != Pooler::Direct && PgBouncer::start_or_skip(&server, "session").is_none() {
        return;
    }
    drop(server);
    let topology = Topology::Postgres(pooler);
    let settings = Settings::new(seed(), topology, Path::new(env!("CARGO_BIN_EXE_fencelock-chaos")));
    let seed = settings.seed;
    println!("seed {seed}");
    let run = run(&settings).unwrap();
    println!("{}", run.results);
    assert!(run.results.is_good() && run.results.excused.is_empty(), "seed {seed} on {topology}: {}", run.results);
    assert_flagged(&run, &[(Check::C3, "control-forgotten")]);
    for fault in settings.faults() {
        let is_it = |line: &HistoryLine| line.op == Op::Fault && line.what.as_deref() == Some(fault.name());
        assert!(run.history.lines.iter().any(is_it), "seed {seed}: {} was injected", fault.name());
    }
    let grants = run.history.lines.iter().filter(|line| line.op == Op::Acquire && line.result == Outcome::Ok).count();
    assert!(grants > 200, "seed {seed}: {grants} grants");
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
