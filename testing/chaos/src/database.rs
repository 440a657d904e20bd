//! A PostgreSQL server behind a proxy, its standby, and a pooler in front of the proxy if the run has one.

use crate::Failure;
use crate::topology::Pooler;
use fencelock_testkit::{PgBouncer, PostgresServer, Proxy};
use std::cell::RefCell;
use tokio::runtime::Runtime;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, NoTls};

/// No lock may depend on these defaults.
const DEFAULTS: [&str; 2] = ["default_transaction_isolation=serializable", "synchronous_commit=on"];
const HELD: &str = "SELECT encode(holder, 'hex') || ' ' || owner, \
    (ends / 1000 - date_part('epoch', clock_timestamp()) * 1000)::bigint FROM fencelock.holds \
    WHERE key = $1 AND ends > date_part('epoch', clock_timestamp()) * 1000000";

#[derive(Debug)]
pub(crate) struct Database {
    pub(crate) server: PostgresServer,
    /// Every commit waits for it.
    standby: PostgresServer,
    pub(crate) proxy: Proxy,
    pooler: Option<PgBouncer>,
    runtime: Runtime,
    /// To the server itself.
    viewer: RefCell<Option<Client>>,
}

impl Database {
    pub(crate) fn start(pooler: Pooler) -> Result<Self, Failure> {
        let server = PostgresServer::start(&DEFAULTS)?;
        let proxy = Proxy::to(server.port())?;
        let start = |mode| PgBouncer::to_port_or_skip(proxy.port(), mode).ok_or("there is no pgbouncer");
        let pooler = pooler.mode().map(start).transpose()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let standby = server.synchronous_standby();
        Ok(Self { server, standby, proxy, pooler, runtime, viewer: RefCell::default() })
    }

    pub(crate) fn url(&self, options: &str) -> String {
        let direct = || format!("postgres://postgres@127.0.0.1:{}/postgres", self.proxy.port());
        let url = self.pooler.as_ref().map_or_else(direct, |pooler| pooler.url("postgres"));
        format!("{url}?{options}")
    }

    /// Kills the server, and promotes its standby, which gets a new one. What others could see must be there.
    pub(crate) fn promote(&mut self) -> Result<(), Failure> {
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
    pub(crate) fn held(&self, key: &str) -> Vec<(String, i64)> {
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
