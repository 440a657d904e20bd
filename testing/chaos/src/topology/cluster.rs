//! A cluster.

use crate::Failure;
use crate::control::{held_by_a_master_alone, moved_without_its_keys, promoted_by_the_cluster};
use crate::history::{History, HistoryLine, HoldMode, Op};
use crate::nemesis::ClusterNemesis;
use crate::nodes::held_at;
use crate::phases::{self, Clients, Frame};
use crate::pulse::{self, Pulse};
use crate::recorder::{self, Recorder, now};
use crate::workload;
use fencelock_testkit::{ClusterNodes, RedisServer};
use std::path::Path;
use std::time::Duration;

const MASTERS: usize = 3;
/// Generous for a busy machine, but short.
const NODE_TIMEOUT: Duration = Duration::from_secs(2);
/// Longer than any node is unresponsive, so no master is replaced.
const PATIENT_NODE_TIMEOUT: Duration = Duration::from_secs(120);
/// Expected in a run whose faults must not lose a lock.
const NOTHING_LOST: &str = "a run in which no client lost a lock";

pub(super) fn perform(run: &Frame<'_>) -> Result<(), Failure> {
    let settings = run.settings;
    let loses_nothing = settings.topology == super::Topology::ClusterMoves;
    let options = RedisServer::options();
    let mut cluster = if loses_nothing {
        ClusterNodes::start_with_timeout(&options, MASTERS, 1, PATIENT_NODE_TIMEOUT)?
    } else {
        ClusterNodes::start_with_proxies(&options, MASTERS, 1, NODE_TIMEOUT)?
    };
    let url = cluster.url(settings.topology.trusting());
    let holds = run.holds(&url);
    moved_without_its_keys(&holds, &cluster)?;
    if !loses_nothing {
        promoted_by_the_cluster(&holds, &mut cluster)?;
        held_by_a_master_alone(&holds, &cluster)?;
    }
    holds.common()?;

    let url = cluster.url(&settings.topology.options(settings.ttl));
    let clients = Clients::start(run, &url)?;
    // The keys of the tasks are on all masters. More pulses would only cost time.
    let measured = workload::keys(settings.keys, settings.topology);
    let pulse = Pulse::start(&clients.client, &measured, settings.ttl, &run.recorder);
    let beside: Vec<_> = measured.iter().map(|key| pulse::key_beside(key)).collect();
    let mut nemesis = ClusterNemesis::new(cluster, clients, measured);
    phases::play(settings, |step| {
        nemesis.inject(step)?;
        nemesis.clients.recover(step, 0);
        Ok(())
    })?;
    let ClusterNemesis { cluster, mut clients, .. } = nemesis;
    clients.await_expected(settings)?;
    drop(pulse);
    clients.keys.extend(beside);
    clients.finish(run, &|key| {
        let owner = cluster.owner_of(cluster.slot_of(key));
        held_at(&cluster.nodes[owner], key).into_iter().collect()
    })?;
    if loses_nothing {
        demand_no_loss(run.histories, &run.recorder)?;
    }
    Ok(())
}

/// The checker reports expected events that did not occur.
fn demand_no_loss(histories: &Path, recorder: &Recorder) -> Result<(), Failure> {
    let at = now();
    recorder.note(&HistoryLine::new("", "", Op::Expect, at, at).what(NOTHING_LOST));
    let history = recorder::collect(histories)?;
    let lost: Vec<&HistoryLine> = history.lines.iter().filter(|line| line.op == Op::Lost).collect();
    let unexplained = lost
        .iter()
        .filter(|lost| !is_taken_by_a_reader_of_its_process(&history, lost) && !was_released(&history, lost));
    match unexplained.count() {
        0 => recorder.seen(NOTHING_LOST),
        count => eprintln!("{count} locks were lost without a reason"),
    }
    Ok(())
}

/// The holder itself has released the key, without the guard that was notified.
fn was_released(history: &History, lost: &HistoryLine) -> bool {
    let is_same =
        |line: &HistoryLine| (&line.client, &line.holder, line.fence) == (&lost.client, &lost.holder, lost.fence);
    history.lines.iter().any(|line| line.is(Op::Release) && line.key == lost.key && is_same(line))
}

/// Tasks of a process that read together share a hold, and lose it if one of them detaches it.
fn is_taken_by_a_reader_of_its_process(history: &History, lost: &HistoryLine) -> bool {
    let process = lost.client.split('.').next().unwrap_or_default();
    let names_it = lost.what.as_deref().is_some_and(|why| why.contains(&format!("({process})")));
    let is_shared = |line: &HistoryLine| {
        line.is(Op::Acquire)
            && line.holder == lost.holder
            && line.client != lost.client
            && line.mode == HoldMode::Shared
    };
    names_it && history.lines.iter().any(is_shared)
}
