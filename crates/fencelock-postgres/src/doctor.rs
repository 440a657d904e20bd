//! What operators need: the locks that are held, their end by hand, what works on the server, and a trial of it.

use crate::answers::{Read, Unreadable, get};
use crate::calls::{Call, params};
use crate::link::Lane;
use crate::postgres::Postgres;
use crate::session::{Facts, Session, may_lose};
use fencelock_core::{
    Admin, Answer, Backend, BackendReport, BootClock, BoxFuture, Clock, ClockOffset, Eviction, Feature, Finding,
    HolderId, Holding, Key, Level, ServerReport, Topology, Trial, Tried, Unknown,
};
use std::time::Duration;
use tokio_postgres::Row;

/// Tokens and leases follow the clock of the server, and completions that of the caller.
const CLOCK_WARNS: Duration = Duration::from_millis(500);
/// A row that is updated as often as a lock needs its old versions removed; a transaction that may see them prevents that.
const LONG_TRANSACTION: f64 = 60.0;
/// A full queue makes NOTIFY fail.
const QUEUE_WARNS: f64 = 0.1;

/// What is not in [`Facts`]. The last are the functions that every holder of a lock needs, and this role may not call.
const FIGURES: &str = "SELECT (date_part('epoch', clock_timestamp()) * 1000000::float8)::bigint, \
    date_part('epoch', clock_timestamp() - pg_postmaster_start_time())::float8, \
    current_setting('server_version'), current_setting('fsync'), current_setting('synchronous_standby_names'), pg_notification_queue_usage()::float8, \
    coalesce((SELECT max(date_part('epoch', clock_timestamp() - xact_start)) FROM pg_stat_activity \
               WHERE coalesce(backend_xid, backend_xmin) IS NOT NULL AND pid <> pg_backend_pid()), 0)::float8, \
    current_setting('autovacuum'), current_user::text, \
    (SELECT string_agg(proname, ', ' ORDER BY proname) FROM pg_proc WHERE pronamespace = to_regnamespace($1) \
        AND proname IN ('acquire_1', 'release_1', 'renew_1', 'tell_1') AND NOT has_function_privilege(oid, 'EXECUTE')), \
    EXISTS (SELECT FROM pg_proc WHERE pronamespace = to_regnamespace($1) AND proname = 'acquire_1' \
        AND array_to_string(proconfig, '') <> 'search_path=pg_catalog, pg_temp'), \
    EXISTS (SELECT FROM pg_namespace, aclexplode(nspacl) WHERE pg_namespace.oid = to_regnamespace($1) \
        AND grantee = 0 AND privilege_type = 'CREATE')";

impl Admin for Postgres {
    fn list(&self) -> Answer<'_, Vec<Holding>> {
        Box::pin(self.list_of(None))
    }

    fn evict<'a>(&'a self, seen: &'a Holding) -> Answer<'a, Eviction> {
        Box::pin(self.end_holds(seen))
    }

    fn try_out<'a>(&'a self, key: Option<&'a Key>) -> BoxFuture<'a, Vec<Finding>> {
        Box::pin(try_out(self, key))
    }

    fn diagnose(&self) -> BoxFuture<'_, BackendReport> {
        let failed = |cause| BackendReport::unreachable(self.name(), format!("{cause}"), "correct what it names");
        Box::pin(async move { examine(self).await.unwrap_or_else(failed) })
    }
}

async fn examine(postgres: &Postgres) -> Result<BackendReport, Unknown> {
    let link = &postgres.link;
    let (session, _) = link.session(Lane::Any).await?;
    let before = BootClock.wall_micros();
    let rows = session.query(FIGURES, &params![TEXT link.target.quoted_schema()]).await?;
    let after = BootClock.wall_micros();
    let figures = rows.first().ok_or_else(|| Unreadable("an empty reply".to_owned()));
    let figures = link.read(figures.and_then(|row| Figures::read(row, before, after)))?;
    let facts = &session.facts;
    let mut server = ServerReport::new(postgres.name());
    (server.product, server.version) = (Some("PostgreSQL".to_owned()), Some(figures.version.clone()));
    server.topology = if facts.is_pooled { Topology::Proxy } else { Topology::Single };
    let features = ["exclusive_locks", "shared_locks", "semaphores", "once", "break", "quarantine"];
    server.features = features.map(|name| Feature::new(name, Ok(()))).into();
    server.health.identity = Some(facts.run.clone()).filter(|run| !run.is_empty());
    server.health.clock = Some(figures.clock);
    server.health.up_for = Some(figures.up_for);
    let mut report = BackendReport::of_server(server);
    report.wire = Some(1);
    report.options = vec![
        ("schema", link.target.schema.clone()),
        ("timeout", link.target.limit.as_millis().to_string()),
        ("connections", link.target.connections.to_string()),
        ("quarantine", if facts.span.is_zero() { "off" } else { "on" }.to_owned()),
    ];
    report.findings = findings(&session, facts, &figures);
    Ok(report)
}

struct Figures {
    clock: ClockOffset,
    up_for: Duration,
    version: String,
    fsync: String,
    standby_names: String,
    queue: f64,
    longest_transaction: f64,
    autovacuum: String,
    role: String,
    forbidden: Option<String>,
    is_earlier: bool,
    is_open: bool,
}

impl Figures {
    fn read(row: &Row, before: u64, after: u64) -> Read<Self> {
        Ok(Self {
            clock: ClockOffset::measured(before, get::<i64>(row, 0)?.unsigned_abs(), after),
            up_for: Duration::try_from_secs_f64(get(row, 1)?).unwrap_or_default(),
            version: get(row, 2)?,
            fsync: get(row, 3)?,
            standby_names: get(row, 4)?,
            queue: get(row, 5)?,
            longest_transaction: get(row, 6)?,
            autovacuum: get(row, 7)?,
            role: get(row, 8)?,
            forbidden: get(row, 9)?,
            is_earlier: get(row, 10)?,
            is_open: get(row, 11)?,
        })
    }
}

fn findings(session: &Session, facts: &Facts, figures: &Figures) -> Vec<Finding> {
    let greeting = format!("{} is PostgreSQL {}", session.node, figures.version);
    vec![
        Finding::fine("connection", greeting),
        rights(facts, figures),
        schema(figures),
        pooler(facts),
        durability(facts, figures),
        replication(facts, figures),
        clock(figures.clock),
        bloat(figures),
        notifications(figures.queue),
    ]
}

fn warning(subject: &'static str, text: impl Into<String>, remedy: &'static str) -> Finding {
    Finding::new(Level::Warning, subject, text, remedy)
}

fn rights(facts: &Facts, figures: &Figures) -> Finding {
    let role = &figures.role;
    if let Some(forbidden) = &figures.forbidden {
        let text = format!("{role} takes no locks, because it may not call {forbidden}");
        let remedy = "GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA, unless it only looks";
        return Finding::new(Level::Note, "rights", text, remedy);
    }
    if facts.is_direct {
        return Finding::fine("rights", format!("{role} may update the table of locks, which is the fastest way"));
    }
    Finding::fine("rights", format!("{role} may call the functions, and cannot change the tables by itself"))
}

fn schema(figures: &Figures) -> Finding {
    if figures.is_earlier {
        let text = "its functions are those of an earlier version: after a switch by logical replication, waiters count as holders";
        return warning("schema", text, "run `fencelock init`");
    }
    if figures.is_open {
        let text = "every role may create objects in it, also functions that a transaction may call instead of ours";
        return warning("schema", text, "REVOKE CREATE ON SCHEMA ... FROM PUBLIC");
    }
    Finding::fine("schema", "its functions are those of this version")
}

fn pooler(facts: &Facts) -> Finding {
    if !facts.is_pooled {
        return Finding::fine("pooler", "none: waiters are notified");
    }
    let text = "there is one, so no notification arrives: waiters ask for their hand-off";
    Finding::new(Level::Note, "pooler", text, "connect to the server itself for faster hand-offs")
}

fn durability(facts: &Facts, figures: &Figures) -> Finding {
    if figures.fsync == "off" {
        let text = "fsync is off: a crash of the machine may lose locks, and let a second holder in";
        return warning("durability", text, "set fsync = on");
    }
    let own = if facts.commit == "off" { "; synchronous_commit is off, and on for locks" } else { "" };
    let isolation = if facts.isolation == "read committed" {
        String::new()
    } else {
        format!("; transactions are {} by default, and those of locks READ COMMITTED", facts.isolation)
    };
    Finding::fine("durability", format!("what was granted survives a crash{own}{isolation}"))
}

fn replication(facts: &Facts, figures: &Figures) -> Finding {
    if facts.is_async {
        let level = if facts.span.is_zero() { Level::Warning } else { Level::Note };
        let remedy = "set synchronous_standby_names, or check fencing tokens in the transaction that writes";
        return Finding::new(level, "replication", may_lose(facts.span), remedy);
    }
    if figures.standby_names.is_empty() {
        return Finding::fine("replication", "no standby, so no failover loses a lock");
    }
    Finding::fine("replication", format!("commits wait for {}", figures.standby_names))
}

fn clock(clock: ClockOffset) -> Finding {
    let here = ClockOffset { ahead: 0, within: Duration::ZERO };
    let apart = clock.apart_at_least(here);
    let text =
        format!("leases follow the wall clock of the server, which is {:+} ms from this machine", clock.ahead / 1000);
    if apart > CLOCK_WARNS {
        return warning("clock", text, "run NTP on both: a step of the clock of the server ends leases early");
    }
    Finding::fine("clock", text)
}

fn bloat(figures: &Figures) -> Finding {
    let longest = figures.longest_transaction;
    if longest > LONG_TRANSACTION {
        let text =
            format!("a transaction is open for {longest:.0} s: until it ends, every lock adds a version of its row");
        return warning("bloat", text, "end it: pg_stat_activity shows it; set idle_in_transaction_session_timeout");
    }
    if figures.autovacuum == "off" {
        let text = "autovacuum is off, so space of old rows is not reused in all cases";
        return warning("bloat", text, "set autovacuum = on");
    }
    Finding::fine("bloat", "no old transaction is visible to this role that keeps old versions of rows")
}

fn notifications(usage: f64) -> Finding {
    let text = format!("the queue of notifications is {:.0} % full", usage * 100.0);
    if usage > QUEUE_WARNS {
        return warning("notifications", text, "end the transaction of a listener that does not read");
    }
    Finding::fine("notifications", text)
}

/// Each operation once, on a key that no program uses; its row is removed.
async fn try_out(postgres: &Postgres, named: Option<&Key>) -> Vec<Finding> {
    let Some((key, ids)) = Trial::names(getrandom::fill, named, "") else {
        return vec![Finding::not_tried("the operating system returned no random numbers", "")];
    };
    // Another finding says why there is no session.
    let link = &postgres.link;
    if link.session(Lane::Key(&key)).await.is_err() {
        return Vec::new();
    }
    let clear = || -> BoxFuture<'_, bool> { Box::pin(clean(postgres, &key, ids)) };
    let tried = Trial::new(postgres, &key, ids).run(&clear).await;
    if !tried.is_occupied {
        clear().await;
    }
    vec![tried.finding(Tried::advice)]
}

/// Ends what the trial may have left, and removes the row.
async fn clean(postgres: &Postgres, key: &Key, ids: [HolderId; 2]) -> bool {
    let mut released = Ok(());
    for id in ids {
        released = released.and(postgres.release(key, &id).await.map(drop));
    }
    let forget = params![TEXT key.as_str()];
    released.is_ok() && postgres.link.call(Lane::Key(key), Call::Forget, &forget).await.is_ok()
}
