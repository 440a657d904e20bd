//! Faults of a master with sentinels, of its sentinels and of clients.

use crate::Failure;
use crate::fault::Fault;
use crate::history::{HistoryLine, Op};
use crate::phases::Clients;
use crate::plan::ScheduledFault;
use crate::recorder::{micros, now};
use crate::recovery;
use crate::resumption::Resumption;
use fencelock_testkit::Sentinels;
use std::sync::Arc;
use std::time::Duration;

/// A port without a listener.
const UNUSED_PORT: &str = "1";
/// How often all keys are probed after one fault, if the sentinels begin failovers of their own on a busy machine.
const REPEATS: u32 = 4;
/// A failover that the schedule did not cause.
const UNPLANNED: &str = "unplanned failover";

/// The servers, sentinels and clients of a run.
#[derive(Debug)]
pub(crate) struct SentinelNemesis {
    pub(crate) sentinels: Sentinels,
    /// The index of the master, outside of failovers.
    pub(crate) master: usize,
    /// Its configuration epoch.
    epoch: u64,
    settled_us: u64,
    /// The end of all quarantines.
    whole_at_us: u64,
    pub(crate) clients: Clients,
}

/// Stops the replication to all servers but this one. The sentinels correct this after seconds.
pub(crate) fn isolate_replicas(sentinels: &Sentinels, master: usize) {
    for (_, replica) in sentinels.servers.iter().enumerate().filter(|(index, _)| *index != master) {
        replica.command(&["REPLICAOF", "127.0.0.1", UNUSED_PORT]);
    }
}

impl SentinelNemesis {
    pub(crate) fn new(sentinels: Sentinels, clients: Clients) -> Self {
        let (master, epoch, settled_us) = (sentinels.master(), sentinels.config_epoch(), now());
        let this = Self { sentinels, master, epoch, settled_us, whole_at_us: 0, clients };
        // The checker demands grants of a key after its first one.
        this.resumption(master, settled_us).measure();
        this
    }

    fn quarantine(&self) -> Duration {
        self.clients.topology.quarantine(self.clients.ttl)
    }

    pub(super) fn resumption(&self, master: usize, named_us: u64) -> Resumption {
        Resumption {
            client: self.clients.client.clone(),
            recorder: Arc::clone(&self.clients.recorder),
            ttl: self.clients.ttl,
            quarantine: self.quarantine(),
            port: self.sentinels.servers[master].port(),
            named_us,
        }
    }

    /// A quarantine begins now, or a little later with the first claim.
    pub(super) fn expect_quarantine(&mut self) {
        self.whole_at_us = now() + micros(self.quarantine());
    }

    pub(super) fn bound(&self, healed_us: u64) -> Duration {
        recovery::bound(self.clients.ttl, healed_us, self.whole_at_us)
    }

    /// Injects a fault. When this returns, there is one master.
    pub(crate) fn inject(&mut self, step: &ScheduledFault) -> Result<(), Failure> {
        self.note_unplanned();
        let began = now();
        match step.fault {
            Fault::FreezeClient | Fault::KillClient => self.with_clients(|clients| clients.inject(step))?,
            Fault::RestartEmpty | Fault::RestartFromDisk => self.restart(step.fault)?,
            _ => self.fail_over(step)?,
        }
        self.settle();
        let mut excuses = step.fault.excuses(self.clients.topology);
        if self.advance() && !step.fault.replaces_a_master() {
            // A server that restarts slowly is replaced.
            excuses = Fault::SentinelFailover.excuses(self.clients.topology);
            self.expect_quarantine();
        }
        self.note(began, &victim(step), step.fault.name(), excuses);
        Ok(())
    }

    fn note(&self, began: u64, victim: &str, what: &str, excuses: &[&str]) {
        let line = HistoryLine::new(victim, "", Op::Fault, began, now()).what(what);
        self.clients.recorder.note(&line.excuses(excuses));
    }

    fn settle(&mut self) {
        self.sentinels.wait_until_settled();
        self.settled_us = now();
    }

    /// Whether there was a failover since the last call.
    fn advance(&mut self) -> bool {
        let before = self.epoch;
        (self.master, self.epoch) = (self.sentinels.master(), self.sentinels.config_epoch());
        self.epoch != before
    }

    /// On a busy machine, the sentinels may begin a failover because a server or a sentinel is slow.
    fn note_unplanned(&mut self) {
        if self.sentinels.config_epoch() == self.epoch {
            return;
        }
        let began = self.settled_us;
        self.settle();
        self.advance();
        self.note(began, "sentinels", UNPLANNED, Fault::SentinelFailover.excuses(self.clients.topology));
        self.expect_quarantine();
    }

    /// Each key must be granted soon.
    pub(crate) fn recover(&mut self, step: &ScheduledFault) {
        for _ in 0..REPEATS {
            let healed = now();
            let bound = self.bound(healed);
            let recovery = self.clients.recovery();
            recovery.probe(bound);
            if self.sentinels.config_epoch() == self.epoch {
                recovery.demand(step.fault.name(), healed, bound);
                return;
            }
            self.note_unplanned();
        }
    }
}

fn victim(step: &ScheduledFault) -> String {
    match step.fault {
        Fault::FreezeSentinel => format!("sentinel {}", step.victim),
        fault if fault.is_for_clients() => format!("worker {}", step.victim),
        _ => "master".to_owned(),
    }
}
