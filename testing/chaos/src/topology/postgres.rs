//! PostgreSQL: a server behind a proxy, its standby, and a pooler in front of the proxy if the run has one.

use crate::Failure;
use crate::control::LEASE;
use crate::fault::Fault;
use crate::nemesis::{SLICE, disturb, lose_replies, mislead, slices};
use crate::phases::{self, Clients, Frame};
use crate::plan::ScheduledFault;
use crate::recorder::now;
use clap::ValueEnum;
use fencelock_postgres_testing::{PgBouncer, PostgresServer};
use fencelock_testkit::{Proxy, Shift, Then, WallClock};
use std::cell::RefCell;
use tokio::runtime::Runtime;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, NoTls};

pub(super) const FAULTS: &[Fault] = &[
    Fault::RestartFromDisk,
    Fault::FreezeServer,
    Fault::TerminateSessions,
    Fault::PromoteStandby,
    Fault::Slow,
    Fault::Cut,
    Fault::BlackHole,
    Fault::Stall,
    Fault::LoseReplies,
    Fault::ClockForward,
    Fault::ClockBack,
    Fault::ClockFast,
    Fault::ClockSlow,
    Fault::FreezeClient,
    Fault::KillClient,
];

/// No lock may depend on these defaults.
const DEFAULTS: [&str; 2] = ["default_transaction_isolation=serializable", "synchronous_commit=on"];
const HELD: &str = "SELECT encode(holder, 'hex') || ' ' || owner, \
    (ends / 1000 - date_part('epoch', clock_timestamp()) * 1000)::bigint FROM fencelock.holds \
    WHERE key = $1 AND ends > date_part('epoch', clock_timestamp()) * 1000000";
/// All sessions of clients, also those of a pooler.
const TERMINATE: &str = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
    WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";

/// What is between clients and a PostgreSQL server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Pooler {
    /// Nothing.
    Direct,
    /// `PgBouncer` that gives each client a connection.
    Session,
    /// `PgBouncer` that gives each transaction a connection.
    Transaction,
}

impl Pooler {
    /// Its `pool_mode`.
    pub(super) const fn mode(self) -> Option<&'static str> {
        match self {
            Self::Direct => None,
            Self::Session => Some("session"),
            Self::Transaction => Some("transaction"),
        }
    }
}

pub(super) fn perform(run: &Frame<'_>, pooler: Pooler) -> Result<(), Failure> {
    let settings = run.settings;
    let mut database = Database::start(pooler)?;
    let url = database.url(settings.topology.trusting());
    let holds = run.holds(&url);
    let end = |key: &str| {
        let end = format!("UPDATE fencelock.locks SET ends = 0 WHERE key = '{key}'");
        database.server.try_sql("postgres", &end)?;
        Ok(())
    };
    holds.ended("control-forgotten", end)?;
    holds.ended("control-jumped", |_| Ok(database.clock.set(Shift::Forward(2 * LEASE))?))?;
    database.clock.set(Shift::None)?;
    // Its lease began in the future.
    end("control-jumped")?;
    holds.common()?;

    let url = database.url(&settings.topology.options(settings.ttl));
    let mut clients = Clients::start(run, &url)?;
    phases::play(settings, |step| {
        let began = now();
        let injected = database.suffer(step, &mut clients);
        clients.note(began, &clients.victim(step, "the server"), step.fault);
        injected?;
        clients.recover(step, 0);
        Ok(())
    })?;
    clients.await_expected(settings)?;
    clients.finish(run, &|key| database.held(key))
}

#[derive(Debug)]
struct Database {
    server: PostgresServer,
    /// Every commit waits for it.
    standby: PostgresServer,
    proxy: Proxy,
    pooler: Option<PgBouncer>,
    runtime: Runtime,
    /// Of the server and of its standby.
    clock: WallClock,
    /// To the server itself.
    viewer: RefCell<Option<Client>>,
}

impl Database {
    fn start(pooler: Pooler) -> Result<Self, Failure> {
        let clock = WallClock::for_all_users()?;
        let server = PostgresServer::start_with_clock(&DEFAULTS, &clock)?;
        let proxy = Proxy::to(server.port())?;
        let start = |mode| PgBouncer::to_port_or_skip(proxy.port(), mode).ok_or("there is no pgbouncer");
        let pooler = pooler.mode().map(start).transpose()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let standby = server.synchronous_standby();
        Ok(Self { server, standby, proxy, pooler, runtime, clock, viewer: RefCell::default() })
    }

    fn url(&self, options: &str) -> String {
        let direct = || format!("postgres://postgres@127.0.0.1:{}/postgres", self.proxy.port());
        let url = self.pooler.as_ref().map_or_else(direct, |pooler| pooler.url("postgres"));
        format!("{url}?{options}")
    }

    /// Injects a fault. It has ended when this returns.
    fn suffer(&mut self, step: &ScheduledFault, clients: &mut Clients) -> Result<(), Failure> {
        match step.fault {
            Fault::FreezeClient | Fault::KillClient => {
                return clients.nemesis(&|key| self.held(key), 1).inject(step);
            }
            Fault::RestartFromDisk => {
                self.server.sql("CREATE TABLE IF NOT EXISTS memory ()");
                self.server.restart();
                if self.server.sql("SELECT to_regclass('memory') IS NOT NULL") == "t" {
                    clients.recorder.seen("data that was kept");
                }
                self.server.until_replicated();
            }
            Fault::FreezeServer => {
                self.server.freeze();
                std::thread::sleep(step.lasts);
                self.server.thaw();
            }
            Fault::TerminateSessions => {
                for _ in 0..slices(step.lasts) {
                    if self.server.sql(TERMINATE) != "0" {
                        clients.recorder.seen("a session that was terminated");
                    }
                    std::thread::sleep(SLICE);
                }
            }
            Fault::PromoteStandby => {
                self.promote()?;
                clients.recorder.seen("a promotion that kept all tokens");
            }
            Fault::LoseReplies => {
                // A pooler does not notice a server that stays silent.
                let then = if self.pooler.is_some() { Then::Close } else { Then::StaySilent };
                lose_replies(&self.proxy, &clients.recorder, step.lasts, then);
            }
            Fault::ClockForward | Fault::ClockBack | Fault::ClockFast | Fault::ClockSlow => {
                mislead(&self.clock, step, clients.ttl)?;
            }
            _ => disturb(&self.proxy, step)?,
        }
        Ok(())
    }

    /// Kills the server, and promotes its standby, which gets a new one. What others could see must be there.
    fn promote(&mut self) -> Result<(), Failure> {
        self.server.until_replicated();
        let tokens = self.server.sql("SELECT sum(fence) FROM fencelock.locks");
        self.server.crash();
        self.standby.promote();
        let kept = self.standby.sql(&format!("SELECT sum(fence) >= {tokens} FROM fencelock.locks"));
        std::mem::swap(&mut self.server, &mut self.standby);
        self.proxy.forward_to(self.server.port());
        self.standby = self.server.synchronous_standby();
        if kept == "t" { Ok(()) } else { Err("the standby has lost a lock".into()) }
    }

    /// The holder of a key with its owner, and the rest of its lease in milliseconds.
    fn held(&self, key: &str) -> Vec<(String, i64)> {
        let known = self.viewer.take().filter(|client| !client.is_closed());
        let read = async {
            let client = if let Some(client) = known {
                client
            } else {
                let (client, connection) = tokio_postgres::connect(&self.server.url("postgres"), NoTls).await?;
                tokio::spawn(connection);
                client
            };
            let rows = client.query_typed(HELD, &[(&key, Type::TEXT)]).await?;
            Ok::<_, tokio_postgres::Error>((client, rows))
        };
        let Ok((client, rows)) = self.runtime.block_on(read) else { return Vec::new() };
        self.viewer.replace(Some(client));
        rows.iter().map(|row| (row.get(0), row.get(1))).collect()
    }
}
