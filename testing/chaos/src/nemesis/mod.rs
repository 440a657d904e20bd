//! Injects a fault, and ends it.

mod clients;
mod cluster;
mod cluster_masters;
mod failover;
mod sentinels;
mod servers;

pub(crate) use clients::ClientNemesis;
pub(crate) use cluster::ClusterNemesis;
pub(crate) use sentinels::{SentinelNemesis, isolate_replicas};
pub(crate) use servers::{disturb, lose_replies, repeat};

use crate::Failure;
use crate::fault::Fault;
use crate::nodes::Nodes;
use crate::phases::Clients;
use crate::plan::ScheduledFault;
use crate::recorder::now;
use fencelock_testkit::{Shift, WallClock};
use std::time::Duration;

/// The maximum number of polls until a victim is in the right state.
const POLLS: u32 = 2000;
/// The interval between repetitions of a small fault.
pub(crate) const SLICE: Duration = Duration::from_millis(100);
/// How much too fast or too slow a clock runs, in millionths. The assumed drift is twice that.
const SKEW: i64 = 5000;

/// The servers, networks, clocks and clients of a run.
#[derive(Debug)]
pub(crate) struct Nemesis {
    pub(crate) nodes: Nodes,
    pub(crate) clients: Clients,
    /// The end of all quarantines.
    pub(crate) whole_at_us: u64,
}

impl Nemesis {
    /// How long a server that may have lost data does not grant.
    pub(super) fn quarantine(&self) -> Duration {
        self.clients.topology.quarantine(self.clients.ttl)
    }

    /// Injects a fault. It has ended when this returns.
    pub(crate) fn inject(&mut self, step: &ScheduledFault) -> Result<(), Failure> {
        let began = now();
        let outcome = match step.fault {
            Fault::FreezeClient | Fault::KillClient => {
                let nodes = &self.nodes;
                self.clients.nemesis(&|key: &str| nodes.inspect(key), nodes.quorum()).inject(step)
            }
            Fault::ClockForward | Fault::ClockBack | Fault::ClockFast | Fault::ClockSlow => {
                mislead(&self.nodes.all[step.victim].machine.clock, step, self.clients.ttl)
            }
            Fault::ForeignDelete => {
                self.delete();
                Ok(())
            }
            Fault::RestartEmpty | Fault::RestartFromDisk => self.restart(step),
            Fault::Failover => self.fail_over(step),
            Fault::Switchover => self.switch_over(step),
            _ => self.with_node(step),
        };
        let node = format!("node {}", step.victim);
        let server = if step.fault == Fault::ForeignDelete { "all nodes" } else { &node };
        self.clients.note(began, &self.clients.victim(step, server), step.fault);
        outcome
    }

    fn delete(&self) {
        for _ in 0..POLLS {
            let held = self.clients.keys.iter().find(|key| self.nodes.inspect(key).len() >= self.nodes.quorum());
            if let Some(key) = held {
                let gone =
                    self.nodes.all.iter().filter(|node| node.server().command(&["DEL", key]) == reply(1)).count();
                if gone >= self.nodes.quorum() {
                    self.clients.recorder.seen("a held key that was deleted");
                    break;
                }
            }
        }
    }
}

/// By how much the fault makes a clock jump: more than every lease.
pub(crate) fn jump(fault: Fault, ttl: Duration) -> Duration {
    if matches!(fault, Fault::ClockForward | Fault::ClockBack) { ttl * 3 / 2 } else { Duration::ZERO }
}

/// Sets a clock wrong for a while.
pub(crate) fn mislead(clock: &WallClock, step: &ScheduledFault, ttl: Duration) -> Result<(), Failure> {
    let jump = jump(step.fault, ttl);
    clock.set(match step.fault {
        Fault::ClockForward => Shift::Forward(jump),
        Fault::ClockBack => Shift::Back(jump),
        Fault::ClockFast => Shift::Rate(SKEW),
        _ => Shift::Rate(-SKEW),
    })?;
    std::thread::sleep(step.lasts);
    Ok(clock.set(Shift::None)?)
}

pub(crate) fn slices(lasts: Duration) -> u128 {
    lasts.as_millis().div_ceil(SLICE.as_millis())
}

const fn reply(number: i64) -> fencelock_testkit::Reply {
    fencelock_testkit::Reply::Int(number)
}
