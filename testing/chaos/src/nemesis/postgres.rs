//! Faults of a PostgreSQL server.

use super::clients::ClientNemesis;
use super::servers::{disturb, lose_replies};
use super::{SLICE, slices};
use crate::Failure;
use crate::database::Database;
use crate::fault::Fault;
use crate::history::{HistoryLine, Op};
use crate::plan::ScheduledFault;
use crate::recorder::{Recorder, now};
use crate::recovery::{self, Recovery};
use crate::topology::Topology;
use crate::workers::Workers;
use fencelock::blocking::Client;
use fencelock_testkit::Then;
use std::sync::Arc;
use std::time::Duration;

/// All sessions of clients, also those of a pooler.
const TERMINATE: &str = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
    WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";

/// The server, its network, and the clients of a run.
pub(crate) struct PostgresNemesis {
    pub(crate) ttl: Duration,
    pub(crate) database: Database,
    pub(crate) workers: Workers,
    pub(crate) keys: Vec<String>,
    pub(crate) client: Client,
    pub(crate) recorder: Arc<Recorder>,
}

impl PostgresNemesis {
    /// Injects a fault. It has ended when this returns.
    pub(crate) fn inject(&mut self, step: &ScheduledFault, topology: Topology) -> Result<(), Failure> {
        let began = now();
        let injected = self.perform(step, topology);
        let excuses = step.fault.excuses(topology);
        let mut line = HistoryLine::new(&self.victim(step), "", Op::Fault, began, now()).what(step.fault.name());
        line.excuses = excuses.iter().map(|check| (*check).to_owned()).collect();
        self.recorder.note(&line);
        injected
    }

    fn victim(&self, step: &ScheduledFault) -> String {
        match step.fault {
            Fault::FreezeClient => format!("process {}", self.workers.pid(step.victim)),
            Fault::KillClient => format!("worker {}", step.victim),
            _ => "the server".to_owned(),
        }
    }

    fn perform(&mut self, step: &ScheduledFault, topology: Topology) -> Result<(), Failure> {
        let Self { ttl, database, workers, keys, recorder, .. } = self;
        let ttl = *ttl;
        match step.fault {
            Fault::FreezeClient | Fault::KillClient => {
                let inspect = |key: &str| database.held(key);
                return ClientNemesis { workers, recorder, keys, ttl, inspect: &inspect, quorum: 1 }.inject(step);
            }
            Fault::RestartFromDisk => {
                database.server.sql("CREATE TABLE IF NOT EXISTS memory ()");
                database.server.restart();
                if database.server.sql("SELECT to_regclass('memory') IS NOT NULL") == "t" {
                    recorder.seen("data that was kept");
                }
                database.server.until_replicated();
            }
            Fault::FreezeServer => {
                database.server.freeze();
                std::thread::sleep(step.lasts);
                database.server.thaw();
            }
            Fault::TerminateSessions => {
                for _ in 0..slices(step.lasts) {
                    if database.server.sql(TERMINATE) != "0" {
                        recorder.seen("a session that was terminated");
                    }
                    std::thread::sleep(SLICE);
                }
            }
            Fault::PromoteStandby => {
                database.promote()?;
                recorder.seen("a promotion that kept all tokens");
            }
            Fault::LoseReplies => {
                // A pooler does not notice a server that stays silent.
                let then = if topology.has_pooler() { Then::Close } else { Then::StaySilent };
                lose_replies(&database.proxy, recorder, step.lasts, then);
            }
            _ => disturb(&database.proxy, step)?,
        }
        Ok(())
    }

    /// After the end of a fault, each key must be granted soon.
    pub(crate) fn recover(&self, step: &ScheduledFault, topology: Topology) {
        let Self { client, recorder, keys, ttl, .. } = self;
        let (healed, recovery) = (now(), Recovery { client, recorder, keys, ttl: *ttl, topology });
        let bound = recovery::bound(*ttl, healed, 0);
        recovery.demand(step.fault.name(), healed, bound);
        recovery.probe(bound);
    }
}
