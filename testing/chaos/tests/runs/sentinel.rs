//! Failovers of a master with real sentinels, with clients in several processes.

use crate::{assert_flagged, faults, good_run, settings};
use fencelock_chaos::checker::Check;
use fencelock_chaos::{Fault, Run, Settings, Topology, resumptions};
use fencelock_testkit::redis_or_skip;
use std::time::Duration;

fn sentinel_run(topology: Topology, only: Option<Vec<Fault>>) -> Option<Run> {
    redis_or_skip()?;
    let run = good_run(&Settings { workers: 2, tasks: 4, ..settings(topology, only) });
    assert_flagged(&run, &[(Check::C3, "control-promoted")]);
    assert!(!resumptions(&run.history).is_empty(), "a new master has granted a lock");
    if topology.has_quarantine() {
        let mut excuses = faults(&run).flat_map(|fault| &fault.excuses);
        // A quarantine does not protect the record of work that is done.
        assert!(excuses.all(|check| check == "C12"), "nothing excuses an overlap");
    }
    Some(run)
}

#[test]
fn failovers_with_a_quarantine_violate_no_guarantee() {
    let two = vec![Fault::SentinelFailover, Fault::KillMaster];
    let Some(run) = sentinel_run(Topology::Sentinels, Some(two)) else { return };
    // The quarantine ends when the last lease of the old master has ended, and not before.
    let quarantine = Topology::Sentinels.quarantine(Duration::from_secs(1));
    assert!(resumptions(&run.history).iter().all(|time| *time > quarantine / 2), "grants wait for the quarantine");
}

#[test]
#[ignore = "a round of all faults takes three minutes; use longer runs instead"]
fn all_faults_with_a_quarantine_violate_no_guarantee() {
    sentinel_run(Topology::Sentinels, None);
}

#[test]
#[ignore = "a round of all faults takes two minutes; use longer runs instead"]
fn all_faults_without_a_quarantine_violate_exclusion_only() {
    sentinel_run(Topology::BareSentinels, None);
}
