//! Faults of a cluster: slots move, and masters are replaced.

use super::SLICE;
use crate::Failure;
use crate::fault::Fault;
use crate::history::{HistoryLine, Op};
use crate::machine::errors;
use crate::nodes::held_at;
use crate::phases::Clients;
use crate::plan::ScheduledFault;
use crate::pulse;
use crate::recorder::{micros, now};
use crate::resumption::PROMISE;
use crate::topology::Topology;
use fencelock_testkit::ClusterNodes;
use std::time::Duration;

/// How many of the first keys of a slot stay behind or move first.
const KEYS_AHEAD: usize = 3;
/// The errors of a node that does not have all keys of a lock; Redis 6.2 differs from later versions.
const REFUSALS: &[&str] = &["TRYAGAIN", "ASK"];
/// A failover that the schedule did not cause.
const UNPLANNED: &str = "unplanned failover";

/// The victim of a fault, the keys that it affects, and, if it ends before the nodes agree again, the end of its effect
/// on them.
pub(super) type Injected = (String, Vec<String>, Option<u64>);

/// The nodes and clients of a run.
#[derive(Debug)]
pub(crate) struct ClusterNemesis {
    pub(crate) cluster: ClusterNodes,
    /// The masters, outside of failovers.
    pub(super) masters: Vec<usize>,
    settled_us: u64,
    pub(crate) clients: Clients,
    /// The keys that are in use all the time.
    pub(super) busy: Vec<String>,
}

impl ClusterNemesis {
    pub(crate) fn new(cluster: ClusterNodes, clients: Clients, busy: Vec<String>) -> Self {
        Self { masters: cluster.masters(), settled_us: now(), cluster, clients, busy }
    }

    /// Injects a fault. When this returns, the nodes agree about all slots.
    pub(crate) fn inject(&mut self, step: &ScheduledFault) -> Result<(), Failure> {
        self.note_unplanned()?;
        let began = now();
        let (victim, keys, until) = match step.fault {
            Fault::FreezeClient | Fault::KillClient => {
                self.with_clients(step)?;
                (format!("worker {}", step.victim), Vec::new(), None)
            }
            fault if fault.moves_a_slot() => self.move_slot(step)?,
            _ => self.with_master(step)?,
        };
        self.settle();
        let span = (began, until.unwrap_or_else(now));
        self.note(span, &victim, step.fault.name(), &keys, step.fault.excuses(self.clients.topology));
        if step.fault.replaces_a_master() || step.fault == Fault::ClusterFailover {
            self.masters = self.cluster.masters();
        }
        self.note_unplanned()
    }

    /// A line for each affected key: the fault does not excuse the others.
    fn note(&self, (began, until): (u64, u64), victim: &str, what: &str, keys: &[String], excuses: &[&str]) {
        let none = [String::new()];
        for key in if keys.is_empty() { &none } else { keys } {
            let line = HistoryLine::new(victim, key, Op::Fault, began, until).what(what);
            self.clients.recorder.note(&line.excuses(excuses));
        }
    }

    fn settle(&mut self) {
        self.cluster.wait_until_settled();
        self.settled_us = now();
    }

    /// On a busy machine, the nodes may replace a master because it is slow.
    fn note_unplanned(&mut self) -> Result<(), Failure> {
        let masters = self.cluster.masters();
        if masters == self.masters {
            return Ok(());
        }
        if self.clients.topology == Topology::ClusterMoves {
            return Err(
                format!("the masters were {:?} and are {masters:?} in a run without failovers", self.masters).into()
            );
        }
        let began = self.settled_us;
        self.settle();
        self.masters = self.cluster.masters();
        self.note((began, now()), "cluster", UNPLANNED, &[], Fault::FreezeMaster.excuses(self.clients.topology));
        Ok(())
    }

    pub(super) fn owner_of(&self, key: &str) -> usize {
        self.cluster.owner_of(self.cluster.slot_of(key))
    }

    /// Keys without waiters are granted at once, or when a lease expires whose holder got no reply to its release.
    pub(super) fn demand_pulse(&self, keys: &[String], fault: Fault) {
        let at = now();
        for key in keys {
            let mut line = HistoryLine::new("run", &pulse::key_beside(key), Op::Heal, at, at).what(fault.name());
            line.bound_us = Some(micros(PROMISE + self.clients.ttl));
            self.clients.recorder.note(&line);
        }
    }

    fn with_clients(&mut self, step: &ScheduledFault) -> Result<(), Failure> {
        let keys = self.clients.keys.iter();
        let owners: Vec<(String, usize)> = keys.map(|key| (key.clone(), self.owner_of(key))).collect();
        let cluster = &self.cluster;
        let inspect = |key: &str| {
            let owner = owners.iter().find(|(of, _)| of == key);
            owner.and_then(|(_, owner)| held_at(&cluster.nodes[*owner], key)).into_iter().collect()
        };
        self.clients.nemesis(&inspect, 1).inject(step)
    }
}

/// Moves of slots.
impl ClusterNemesis {
    /// Moves the slot of a key that clients use.
    fn move_slot(&self, step: &ScheduledFault) -> Result<Injected, Failure> {
        let key = &self.busy[step.victim % self.busy.len()];
        let slot = self.cluster.slot_of(key);
        for master in &self.masters {
            self.cluster.nodes[*master].command(&["CONFIG", "RESETSTAT"]);
        }
        let turns = step.victim / self.busy.len();
        if step.fault == Fault::HalfMoveSlot {
            let to = self.another_master(self.cluster.owner_of(slot), turns);
            // None of the keys, or the first few.
            self.cluster.begin_move(slot, to, turns / 2 % 2 * KEYS_AHEAD)?;
            std::thread::sleep(step.lasts);
            self.cluster.end_move(slot, to)?;
        } else {
            self.move_back_and_forth(slot, turns, step.lasts)?;
        }
        self.demand_pulse(std::slice::from_ref(key), step.fault);
        let refusals: &[&str] = if step.fault == Fault::MoveSlot { &["MOVED"] } else { REFUSALS };
        let has_refused = |master: &usize| refusals.iter().any(|name| errors(&self.cluster.nodes[*master], name) > 0);
        if self.masters.iter().any(has_refused) {
            step.fault.proof().into_iter().for_each(|proof| self.clients.recorder.seen(proof));
        }
        Ok((format!("slot {slot}"), vec![key.clone()], None))
    }

    fn move_back_and_forth(&self, slot: u16, turns: usize, lasts: Duration) -> Result<(), Failure> {
        let until = now() + micros(lasts);
        for turn in turns.. {
            let from = self.cluster.owner_of(slot);
            self.cluster.move_slots([slot], self.another_master(from, turn))?;
            // It stays, or returns before clients have noticed that it has left.
            if turn % 2 == 0 {
                self.cluster.move_slots([slot], from)?;
            }
            if now() >= until {
                break;
            }
            std::thread::sleep(SLICE);
        }
        Ok(())
    }

    fn another_master(&self, than: usize, turn: usize) -> usize {
        let others: Vec<usize> = self.masters.iter().copied().filter(|master| *master != than).collect();
        others[turn % others.len()]
    }
}
