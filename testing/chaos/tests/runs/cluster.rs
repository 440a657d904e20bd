//! Slots of a real cluster that move, and masters that are replaced, with clients in several processes.

use crate::{assert_flagged, good_run, settings};
use fencelock_chaos::checker::Check;
use fencelock_chaos::history::{HistoryLine, Op};
use fencelock_chaos::{Fault, Run, Settings, Topology, outages};
use fencelock_testkit::redis_or_skip;

fn cluster_run(topology: Topology, only: Option<Vec<Fault>>) -> Option<Run> {
    redis_or_skip()?;
    let run = good_run(&Settings { workers: 2, ..settings(topology, only) });
    for outages in outages(&run.history) {
        println!("{outages}");
    }
    assert_flagged(&run, &[(Check::C3, "control-forgotten")]);
    Some(run)
}

#[test]
fn slots_that_move_lose_no_lock() {
    let Some(run) = cluster_run(Topology::ClusterMoves, None) else { return };
    assert!(run.results.excused.is_empty(), "nothing excuses {:?}", run.results.excused);
}

#[test]
fn failovers_and_moves_violate_exclusion_only_where_writes_were_lost() {
    let replacing = [Fault::ClusterFailover, Fault::KillMaster, Fault::PartitionMaster];
    let faults = [Fault::MoveSlot, Fault::HalfMoveSlot].into_iter().chain(replacing).collect();
    let Some(run) = cluster_run(Topology::Cluster, Some(faults)) else { return };
    for control in ["control-promoted", "control-cut-off"] {
        assert!(run.results.flagged.contains(&(Check::C3, control.to_owned())), "{control} was not flagged");
    }
    let excusing = run.history.lines.iter().filter(|line| line.op == Op::Fault && !line.excuses.is_empty());
    for fault in excusing.filter_map(|line| line.what.as_deref()) {
        let is_replacing = ["kill master", "partition master", "unplanned failover"].contains(&fault);
        assert!(is_replacing, "{fault} excuses something");
    }
    let is = |line: &&HistoryLine, op, what| line.op == op && line.what.as_deref() == Some(what);
    let stops = run.history.lines.iter().filter(|line| is(line, Op::Seen, "a master that was cut off and stopped"));
    let stops: Vec<u64> = stops.map(|line| line.return_us).collect();
    assert!(!stops.is_empty(), "no master was cut off");
    for fault in run.history.lines.iter().filter(|line| is(line, Op::Fault, "partition master")) {
        assert!(stops.contains(&fault.return_us), "an excuse ends when the master has stopped: {fault:?}");
    }
}

#[test]
#[ignore = "a round of all faults takes two minutes; use longer runs instead"]
fn all_faults_violate_exclusion_only_where_writes_were_lost() {
    cluster_run(Topology::Cluster, None);
}
