//! What operators need: the locks that are held, their end by hand, what works on the server, and a trial of it.

use crate::calls::{Call, Read, Unreadable, get, params};
use crate::link::{Lane, Link};
use crate::session::{Facts, Session, may_lose};
use fencelock_core::{
    Backend, BackendReport, BootClock, BoxFuture, Clock, ClockOffset, Feature, Finding, Key, Level, ServerReport,
    Topology, Trial, Tried, Unknown,
};
use std::sync::Arc;
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

pub(crate) async fn diagnose(link: &Arc<Link>, name: String) -> BackendReport {
    let failed = |cause| BackendReport::unreachable(&name, format!("{cause}"), "correct what it names");
    examine(link, &name).await.unwrap_or_else(failed)
}

async fn examine(link: &Arc<Link>, name: &str) -> Result<BackendReport, Unknown> {
    let (session, _) = link.session(Lane::Any).await?;
    let before = BootClock.wall_micros();
    let rows = session.query(FIGURES, &params![TEXT link.target.quoted_schema()]).await?;
    let after = BootClock.wall_micros();
    let row = rows.first().ok_or_else(|| Unreadable("an empty reply".to_owned()));
    let mut report = BackendReport::of_server(ServerReport::new(name));
    report.findings =
        link.read(row.and_then(|row| findings(&session, row, (before, after), &mut report.servers[0])))?;
    report.wire = Some(1);
    report.options = vec![
        ("schema", link.target.schema.clone()),
        ("timeout", link.target.limit.as_millis().to_string()),
        ("connections", link.target.connections.to_string()),
        ("quarantine", if session.facts.span.is_zero() { "off" } else { "on" }.to_owned()),
    ];
    Ok(report)
}

/// One for each check. `asked`: the wall clock of this process before and after.
fn findings(session: &Session, row: &Row, asked: (u64, u64), server: &mut ServerReport) -> Read<Vec<Finding>> {
    let facts = &session.facts;
    let clock = ClockOffset::measured(asked.0, get::<i64>(row, 0)?.unsigned_abs(), asked.1);
    let (version, role): (String, String) = (get(row, 2)?, get(row, 8)?);
    let greeting = format!("{} is PostgreSQL {version}", session.node);
    let features = ["exclusive_locks", "shared_locks", "semaphores", "once", "break", "quarantine"];
    server.features = features.map(|name| Feature::new(name, Ok(()))).into();
    (server.product, server.version) = (Some("PostgreSQL".to_owned()), Some(version));
    server.topology = if facts.is_pooled { Topology::Proxy } else { Topology::Single };
    server.identity = Some(facts.run.clone()).filter(|run| !run.is_empty());
    (server.clock, server.up_for) = (Some(clock), Duration::try_from_secs_f64(get(row, 1)?).ok());
    let (forbidden, standbys): (Option<String>, String) = (get(row, 9)?, get(row, 4)?);
    let (longest, usage): (f64, f64) = (get(row, 6)?, get(row, 5)?);
    let (is_unsafe, has_no_vacuum) = (get::<String>(row, 3)? == "off", get::<String>(row, 7)? == "off");
    let by_clock =
        format!("leases follow the wall clock of the server, which is {:+} ms from this machine", clock.ahead / 1000);
    let open = format!("a transaction is open for {longest:.0} s: until it ends, locks keep old versions of rows");
    let queue = format!("the queue of notifications is {:.0} % full", usage * 100.0);
    Ok(vec![
        Finding::fine("connection", greeting),
        rights(&role, forbidden, facts),
        warned(
            "schema",
            [(get(row, 10)?, EARLIER, "run `fencelock init`"), (get(row, 11)?, OPEN, REVOKE)],
            "its functions are those of this version",
        ),
        if facts.is_pooled {
            Finding::note("pooler", POOLED, "connect to the server itself for faster hand-offs")
        } else {
            Finding::fine("pooler", "none: waiters are notified")
        },
        warned("durability", [(is_unsafe, UNSAFE, "set fsync = on")], &durability(facts)),
        replication(&standbys, facts),
        warned("clock", [(clock.off_at_least() > CLOCK_WARNS, &by_clock, STEP)], &by_clock),
        warned(
            "bloat",
            [
                (longest > LONG_TRANSACTION, &open, END),
                (has_no_vacuum, "autovacuum is off: old rows may keep their space", "set autovacuum = on"),
            ],
            "no old transaction is visible to this role that keeps old versions of rows",
        ),
        warned("notifications", [(usage > QUEUE_WARNS, &queue, READ)], &queue),
    ])
}

const EARLIER: &str =
    "its functions are of an earlier version: after a switch by logical replication, waiters count as holders";
const OPEN: &str = "every role may create objects in it, also functions that a transaction may call instead of ours";
const REVOKE: &str = "REVOKE CREATE ON SCHEMA ... FROM PUBLIC";
const POOLED: &str = "there is one, so no notification arrives: waiters ask for their hand-off";
const UNSAFE: &str = "fsync is off: a crash of the machine may lose locks, and let a second holder in";
const STEP: &str = "run NTP on both: a step of the clock of the server ends leases early";
const END: &str = "end it: pg_stat_activity shows it; set idle_in_transaction_session_timeout";
const READ: &str = "end the transaction of a listener that does not read";

/// A warning if one of these is so, with its text and advice.
fn warned<const N: usize>(subject: &'static str, bad: [(bool, &str, &str); N], fine: &str) -> Finding {
    let bad = bad.into_iter().find(|(is_so, ..)| *is_so);
    bad.map_or_else(|| Finding::fine(subject, fine), |(_, text, advice)| Finding::warning(subject, text, advice))
}

fn rights(role: &str, forbidden: Option<String>, facts: &Facts) -> Finding {
    if let Some(forbidden) = forbidden {
        let text = format!("{role} takes no locks, because it may not call {forbidden}");
        return Finding::note("rights", text, "GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA, unless it only looks");
    }
    let way = if facts.is_direct { "update the table, which is the fastest way" } else { "only call the functions" };
    Finding::fine("rights", format!("{role} may {way}"))
}

fn durability(facts: &Facts) -> String {
    let own = if facts.commit == "off" { "; synchronous_commit is off, and on for locks" } else { "" };
    let isolation = match &*facts.isolation {
        "read committed" => String::new(),
        isolation => format!("; transactions are {isolation} by default, and those of locks READ COMMITTED"),
    };
    format!("what was granted survives a crash{own}{isolation}")
}

fn replication(standby_names: &str, facts: &Facts) -> Finding {
    if facts.is_async {
        let level = if facts.span.is_zero() { Level::Warning } else { Level::Note };
        let advice = "set synchronous_standby_names, or check fencing tokens in the transaction that writes";
        return Finding::new(level, "replication", may_lose(facts.span), advice);
    }
    let waits = format!("commits wait for {standby_names}");
    let text = if standby_names.is_empty() { "no standby, so no failover loses a lock" } else { &waits };
    Finding::fine("replication", text)
}

/// Each operation once, on a key that no program uses; its row is removed.
pub(crate) async fn try_out(backend: &dyn Backend, link: &Arc<Link>, named: Option<&Key>) -> Vec<Finding> {
    let Some(trial) = Trial::new(backend, getrandom::fill, named, "") else { return vec![Trial::impossible()] };
    // Another finding says why there is no session.
    if link.session(Lane::Key(trial.key())).await.is_err() {
        return Vec::new();
    }
    let clear = || -> BoxFuture<'_, bool> { Box::pin(clean(link, &trial)) };
    vec![trial.run(&clear).await.finding(Tried::advice)]
}

/// Ends what the trial may have left, and removes the row.
async fn clean(link: &Arc<Link>, trial: &Trial<'_>) -> bool {
    let forget = params![TEXT trial.key().as_str()];
    trial.end_holds().await && link.call(Lane::Key(trial.key()), Call::Forget, &forget).await.is_ok()
}
