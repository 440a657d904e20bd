//! Faults of the masters of a cluster.

use super::cluster::{ClusterNemesis, Injected};
use super::failover::probe_anew;
use crate::Failure;
use crate::fault::Fault;
use crate::nodes::held_at;
use crate::partition::CutOff;
use crate::phases::Clients;
use crate::plan::ScheduledFault;
use crate::pulse::key_beside;
use crate::recorder::{micros, now};
use crate::recovery;
use std::sync::Arc;
use std::time::Duration;

/// A master may own one key only, whose holder the replica knows, and which is held for a while.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);

impl ClusterNemesis {
    /// Chooses a master that owns keys which are in use all the time.
    pub(super) fn with_master(&mut self, step: &ScheduledFault) -> Result<Injected, Failure> {
        let owners: Vec<usize> = self.clients.keys.iter().map(|key| self.owner_of(key)).collect();
        let busy: Vec<usize> = self.busy.iter().map(|key| self.owner_of(key)).collect();
        let owning: Vec<usize> = self.masters.iter().copied().filter(|master| busy.contains(master)).collect();
        let master = owning[step.victim % owning.len()];
        let with_owner = self.clients.keys.iter().zip(&owners);
        let keys: Vec<String> = with_owner.filter(|(_, owner)| **owner == master).map(|(key, _)| key.clone()).collect();
        let mut until = None;
        match step.fault {
            Fault::PartitionMaster => until = Some(self.cut_off(step, master, &keys)?),
            Fault::FreezeServer => {
                self.cluster.nodes[master].freeze();
                std::thread::sleep(step.lasts);
                self.cluster.nodes[master].thaw();
                self.demand_pulse(&keys, step.fault);
            }
            Fault::ClusterFailover => {
                self.cluster.fail_over(self.replica_of(master)?);
                self.demand_pulse(&keys, step.fault);
            }
            _ => self.replace(step, master, &keys)?,
        }
        Ok((format!("node {master}"), keys, until))
    }

    fn replica_of(&self, master: usize) -> Result<usize, Failure> {
        Ok(self.cluster.replica_of(master).ok_or("a master without a replica")?)
    }

    /// The other masters promote a replica. Then the old master returns.
    fn replace(&mut self, step: &ScheduledFault, master: usize, keys: &[String]) -> Result<(), Failure> {
        let replica = self.replica_of(master)?;
        if step.fault == Fault::KillMaster {
            self.cluster.stop_replication(replica);
            self.await_lock_of(master, replica, keys, step.fault);
            self.cluster.nodes[master].kill();
        } else {
            self.cluster.nodes[master].freeze();
        }
        self.cluster.wait_for_another_than(master);
        self.demand_pulse(keys, step.fault);
        self.while_probed(|nemesis| {
            std::thread::sleep(step.lasts);
            if step.fault == Fault::KillMaster {
                nemesis.cluster.resume_replication(replica);
                return Ok(nemesis.cluster.nodes[master].restart()?);
            }
            nemesis.cluster.nodes[master].thaw();
            Ok(())
        })
    }

    /// The other masters are disconnected from it and promote its replica, while clients reach both. Returns when it
    /// stopped: from then on it grants and renews nothing, so there is no excuse.
    fn cut_off(&mut self, step: &ScheduledFault, master: usize, keys: &[String]) -> Result<u64, Failure> {
        let replica = self.replica_of(master)?;
        let mut alone = CutOff::of(&self.cluster.nodes[master], &keys[0])?;
        self.cluster.cut_off(master);
        let (victim, recorder) = (format!("node {master}"), &self.clients.recorder);
        // The clients may hold their keys for longer than the master continues to grant. Other keys on them are acquired continuously.
        let watched: Vec<_> = keys.iter().flat_map(|key| [key.clone(), key_beside(key)]).collect();
        let stopped_us = std::thread::scope(|scope| {
            let stopped = scope.spawn(|| alone.await_stop(&victim, recorder));
            self.await_lock_of(master, replica, &watched, step.fault);
            self.cluster.wait_for_another_than(master);
            self.demand_pulse(keys, step.fault);
            stopped.join().map_err(|_| "the wait for a master that is cut off panicked")?
        })?;
        self.while_probed(|nemesis| {
            alone.stay_stopped(step.lasts)?;
            nemesis.cluster.reconnect();
            Ok(())
        })?;
        Ok(stopped_us)
    }

    /// Meanwhile, a client that has never used the old master uses all keys.
    fn while_probed(&mut self, work: impl FnOnce(&mut Self) -> Result<(), Failure>) -> Result<(), Failure> {
        let Clients { topology, ttl, .. } = self.clients;
        let (url, bound) = (self.cluster.url(&topology.options(ttl)), recovery::bound(ttl, 0, 0));
        let (all, recorder) = (self.clients.keys.clone(), Arc::clone(&self.clients.recorder));
        std::thread::scope(|scope| {
            scope.spawn(|| probe_anew(&url, topology, &all, ttl, &recorder, bound));
            work(self)
        })
    }

    /// Waits until a lock is held that the replica does not have, which proves the fault.
    fn await_lock_of(&self, master: usize, replica: usize, keys: &[String], fault: Fault) {
        let is_unknown = |key: &String| {
            let held = held_at(&self.cluster.nodes[master], key);
            held.is_some_and(|(value, _)| self.cluster.get_at(replica, key).as_ref() != Some(&value))
        };
        let until = now() + micros(LOCK_TIMEOUT);
        while now() < until {
            if keys.iter().any(is_unknown) {
                return fault.proof().into_iter().for_each(|proof| self.clients.recorder.seen(proof));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
