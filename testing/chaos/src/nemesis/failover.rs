//! Faults of a master with sentinels.

use super::clients::ClientNemesis;
use super::sentinels::{SentinelNemesis, isolate_replicas};
use super::{POLLS, SLICE, reply};
use crate::Failure;
use crate::fault::Fault;
use crate::nodes::held_at;
use crate::phases::Clients;
use crate::plan::ScheduledFault;
use crate::recorder::{Recorder, micros, now};
use crate::recovery::Recovery;
use crate::topology::Topology;
use fencelock::blocking::Client;
use std::sync::Arc;
use std::time::Duration;

impl SentinelNemesis {
    pub(super) fn with_clients<T>(
        &mut self,
        work: impl FnOnce(&mut ClientNemesis<'_>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let master = &self.sentinels.servers[self.master];
        work(&mut self.clients.nemesis(&|key: &str| held_at(master, key).into_iter().collect(), 1))
    }

    /// The master returns before the sentinels consider it to be down, if the machine is fast enough.
    pub(super) fn restart(&mut self, fault: Fault) -> Result<(), Failure> {
        let server = &mut self.sentinels.servers[self.master];
        // No other program writes this key, so it shows whether the server has lost data.
        server.command(&["SET", "chaos:memory", "1"]);
        if fault == Fault::RestartEmpty {
            server.restart_empty()?;
        } else {
            server.restart()?;
        }
        let kept = server.command(&["EXISTS", "chaos:memory"]) == reply(1);
        server.command(&["DEL", "chaos:memory"]);
        self.clients.recorder.seen(if kept { "data that was kept" } else { "data that was lost" });
        self.expect_quarantine();
        Ok(())
    }

    /// Another server becomes the master. Then the old one returns.
    pub(super) fn fail_over(&mut self, step: &ScheduledFault) -> Result<(), Failure> {
        let old = self.master;
        self.provoke(step)?;
        self.sentinels.wait_for_another_than(old);
        let (named_us, new) = (now(), self.sentinels.master());
        self.expect_quarantine();
        let resumption = self.resumption(new, named_us);
        let Clients { topology, ttl, .. } = self.clients;
        let (url, bound) = (self.sentinels.url(&topology.options(ttl)), self.bound(named_us));
        let (keys, recorder) = (self.clients.keys.clone(), Arc::clone(&self.clients.recorder));
        let epoch = std::thread::scope(|scope| {
            scope.spawn(|| resumption.measure());
            scope.spawn(|| probe_anew(&url, topology, &keys, ttl, &recorder, bound));
            let epoch = self.sentinels.config_epoch();
            self.restore(step, old).map(|()| epoch)
        })?;
        self.sentinels.wait_until_settled();
        // In case of another failover, the new master was replaced before it could grant.
        if self.sentinels.config_epoch() == epoch {
            resumption.demand();
        }
        Ok(())
    }

    fn provoke(&mut self, step: &ScheduledFault) -> Result<(), Failure> {
        let old = self.master;
        match step.fault {
            Fault::KillMaster | Fault::WipeMaster => {
                isolate_replicas(&self.sentinels, old);
                self.await_lock_of(old);
                self.sentinels.servers[old].kill();
            }
            Fault::FreezeMaster => self.sentinels.servers[old].freeze(),
            Fault::FreezeSentinel => {
                self.sentinels.freeze_sentinel(step.victim);
                self.sentinels.fail_over();
            }
            Fault::FreezeClientInFailover => {
                self.with_clients(|clients| clients.freeze_holder(step.victim))?;
                self.sentinels.fail_over();
            }
            _ => {
                self.sentinels.fail_over();
                let role = self.sentinels.servers[old].command(&["INFO", "replication"]);
                if role.text().is_some_and(|info| info.contains("role:master")) {
                    self.clients.recorder.seen("a replaced master that does not know it");
                }
            }
        }
        Ok(())
    }

    /// Waits until a lock is held that only this server has.
    fn await_lock_of(&self, server: usize) {
        let value = |index: usize, key: &String| held_at(&self.sentinels.servers[index], key).map(|(value, _)| value);
        let replicas = || (0..self.sentinels.servers.len()).filter(|index| *index != server);
        let is_unknown = |key: &String| {
            value(server, key).is_some_and(|held| replicas().all(|index| value(index, key).as_ref() != Some(&held)))
        };
        if (0..POLLS).any(|_| self.clients.keys.iter().any(is_unknown)) {
            self.clients.recorder.seen("a promotion that lost a lock");
        }
    }

    fn restore(&mut self, step: &ScheduledFault, old: usize) -> Result<(), Failure> {
        let server = &mut self.sentinels.servers[old];
        if step.fault == Fault::FreezeClientInFailover {
            std::thread::sleep(self.clients.ttl);
        }
        std::thread::sleep(step.lasts);
        match step.fault {
            // It still considers itself the master.
            Fault::KillMaster => server.restart()?,
            Fault::WipeMaster => server.restart_empty()?,
            Fault::FreezeMaster => server.thaw(),
            Fault::FreezeSentinel => self.sentinels.thaw_sentinel(step.victim),
            Fault::FreezeClientInFailover => self.clients.workers.thaw(step.victim)?,
            _ => {}
        }
        Ok(())
    }
}

/// A client that starts after the failover has never used the old master, so its holds overlap those of clients that
/// still use it.
pub(super) fn probe_anew(
    url: &str,
    topology: Topology,
    keys: &[String],
    ttl: Duration,
    recorder: &Recorder,
    bound: Duration,
) {
    let until = now() + micros(bound);
    while now() < until {
        if let Ok(client) = Client::connect(url) {
            Recovery { client: &client, recorder, keys, ttl, topology }.probe(bound);
            // No lock is held any more.
            let _ = client.close(Duration::from_secs(1));
            return;
        }
        std::thread::sleep(SLICE);
    }
}
