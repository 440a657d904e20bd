//! Failovers of a master with real sentinels, with clients in several processes.

use crate::{assert_flagged, seed};
use fencelock_chaos::checker::Check;
use fencelock_chaos::history::{HistoryLine, Op};
use fencelock_chaos::{Fault, Run, Settings, Topology, resumption_summary, resumptions, run};
use fencelock_testkit::redis_or_skip;
use std::path::Path;
use std::time::Duration;

/// Runs one round, and checks that the result is good and meaningful.
fn good_run(topology: Topology, only: Option<Vec<Fault>>) -> Option<Run> {
    redis_or_skip()?;
    let mut settings = Settings::new(seed(), topology, Path::new(env!("CARGO_BIN_EXE_fencelock-chaos")));
    settings.only = only;
    (settings.workers, settings.tasks) = (2, 4);
    let seed = settings.seed;
    println!("seed {seed}");
    let run = run(&settings).unwrap();
    println!("{}{}", run.results, resumption_summary(&run.history).unwrap_or_default());
    assert!(run.results.is_good(), "seed {seed} on {topology}: {}", run.results);
    assert_flagged(&run, &[(Check::C3, "control-promoted")]);
    let faults: Vec<&HistoryLine> = run.history.lines.iter().filter(|line| line.op == Op::Fault).collect();
    assert!(faults.len() >= settings.faults().len(), "seed {seed}: each fault was injected");
    assert!(!resumptions(&run.history).is_empty(), "seed {seed}: a new master has granted a lock");
    if topology.has_quarantine() {
        let excuses = faults.iter().flat_map(|fault| &fault.excuses);
        // A quarantine does not protect the record of work that is done.
        assert!(excuses.into_iter().all(|check| check == "C12"), "seed {seed}: nothing excuses an overlap");
    }
    Some(run)
}

#[test]
fn failovers_with_a_quarantine_violate_no_guarantee() {
    let faults = vec![Fault::SentinelFailover, Fault::KillMaster];
    let Some(run) = good_run(Topology::Sentinels, Some(faults)) else { return };
    // The quarantine ends when the last lease of the old master has ended, and not before.
    let quarantine = Topology::Sentinels.quarantine(Duration::from_secs(1));
    assert!(resumptions(&run.history).iter().all(|time| *time > quarantine / 2), "grants wait for the quarantine");
}

#[test]
#[ignore = "a round of all faults takes three minutes; use longer runs instead"]
fn all_faults_with_a_quarantine_violate_no_guarantee() {
    good_run(Topology::Sentinels, None);
}

#[test]
#[ignore = "a round of all faults takes two minutes; use longer runs instead"]
fn all_faults_without_a_quarantine_violate_exclusion_only() {
    good_run(Topology::BareSentinels, None);
}
