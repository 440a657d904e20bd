//! What a server, a role, a pooler or a transaction of a user does to locks.

mod common;

use common::{LONG, SOON, fault, granted, open, session, token, url, with_schema};
use fencelock_conformance::EventRecorder;
use fencelock_core::{
    Acquire, Backend, Claim, Event, Fault, Intent, Key, Level, Mode, Release, Renew, Renewal, Scheme, Unknown,
};
use fencelock_postgres::{Postgres, PostgresScheme};
use fencelock_postgres_testing::{PgBouncer, PostgresServer, postgres_or_skip};
use fencelock_testkit::{Proxy, Shift, Then, WallClock, claim, say_skipped};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

fn queued(claim: &Claim) -> Claim {
    claim.with_intent(Intent::Enqueue)
}

fn with_clock(clock: &WallClock) -> Option<PostgresServer> {
    PostgresServer::start_with_clock(&[], clock).inspect_err(|missing| say_skipped(missing)).ok()
}

/// Renews one lease.
async fn renewed(client: &Postgres, claim: &Claim) -> Result<Renew, Unknown> {
    let renewal = Renewal::new(claim.key.clone(), claim.holder.id, claim.ttl);
    client.renew(&[renewal]).await.remove(0)
}

#[tokio::test]
async fn what_is_missing_is_named_with_its_remedy_and_nothing_is_left_behind() {
    let Some(server) = postgres_or_skip() else { return };
    let (none, text) = fault(&server.url("nowhere")).await;
    assert!(none == Fault::Unsupported && text.contains("createdb"), "{text}");
    let (none, text) = fault(&server.url("postgres")).await;
    assert!(none == Fault::Unsupported && text.contains("fencelock init"), "{text}");
    let nobody = server.url("postgres").replace("postgres@", "nobody@");
    assert_eq!(fault(&nobody).await.0, Fault::Denied);
    server.sql("CREATE ROLE powerless LOGIN");
    let powerless = url(&server).replace("postgres@", "powerless@");
    let (denied, text) = fault(&powerless).await;
    assert!(denied == Fault::Denied, "{text}");
    assert_eq!(server.sql("SELECT count(*) FROM pg_namespace WHERE nspname = 'fencelock'"), "0");
    open(&url(&server)).await;
    let (denied, text) = fault(&powerless).await;
    assert!(denied == Fault::Denied && text.contains("USAGE"), "{text}");
    let denied = PostgresScheme.init(&powerless, false).await.unwrap_err().to_string();
    assert!(denied.contains("USAGE") && denied.contains("owner of the schema"), "{denied}");
    server.sql("REVOKE CONNECT ON DATABASE postgres FROM PUBLIC");
    let (denied, text) = fault(&powerless).await;
    assert!(denied == Fault::Denied && text.contains("GRANT CONNECT") && !text.contains("USAGE"), "{text}");
    // The case of a schema counts.
    let (none, text) = fault(&format!("{}?schema=FenceLock", server.url("postgres"))).await;
    assert!(none == Fault::Unsupported && text.contains("\"FenceLock\""), "{text}");
    let (no_tls, text) = fault(&format!("{}?sslmode=require", server.url("postgres"))).await;
    assert!(no_tls == Fault::Unsupported && text.contains("sslmode"), "{text}");
}

#[tokio::test]
async fn tables_of_another_layout_are_neither_used_nor_changed() {
    let Some(server) = postgres_or_skip() else { return };
    open(&url(&server)).await;
    server.sql("DROP FUNCTION fencelock.tell_1");
    for (layout, remedy) in [("2", ""), ("0", "drop the schema")] {
        server.sql(&format!("UPDATE fencelock.meta SET layout = {layout}"));
        let layout = format!("layout {layout}");
        let (refused, text) = fault(&url(&server)).await;
        assert!(refused == Fault::Unsupported && text.contains(&layout) && text.contains(remedy), "{text}");
        let refused = PostgresScheme.init(&url(&server), false).await.unwrap_err().to_string();
        assert!(refused.contains(&layout), "{refused}");
        assert_eq!(server.sql("SELECT count(*) FROM pg_proc WHERE proname = 'tell_1'"), "0");
    }
}

#[tokio::test]
async fn many_clients_may_make_the_schema_at_the_same_time() {
    let Some(server) = postgres_or_skip() else { return };
    let url = url(&server);
    let all = futures_util::future::join_all((0..8).map(|_| Postgres::open(&url))).await;
    assert!(all.iter().all(Result::is_ok), "{all:?}");
    let nodes = PostgresScheme.init(&url, false).await.unwrap();
    assert_eq!(nodes[0].change, fencelock_core::Change::None);
}

#[tokio::test]
async fn a_schema_that_takes_longer_than_a_request_may_is_made_nevertheless() {
    let Some(server) = postgres_or_skip() else { return };
    let other = session(&server).await;
    // No statement that makes something is executed before this ends.
    other.batch_execute("BEGIN; LOCK TABLE pg_catalog.pg_namespace IN EXCLUSIVE MODE").await.unwrap();
    let (late, text) = fault(&format!("{}?create=true&timeout=1000", server.url("postgres"))).await;
    assert!(late == Fault::Timeout, "{text}");
    other.batch_execute("COMMIT").await.unwrap();
    let made = "SELECT count(*) FROM pg_tables WHERE schemaname = 'fencelock' AND tablename = 'meta'";
    let begun = Instant::now();
    while server.sql(made) == "0" {
        assert!(begun.elapsed() < SOON, "nobody makes the schema");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    granted(&open(&server.url("postgres")).await, &claim("k", LONG)).await;
}

#[tokio::test]
async fn a_default_of_read_only_transactions_does_not_apply() {
    let Some(server) = postgres_or_skip() else { return };
    open(&url(&server)).await;
    server.sql("ALTER SYSTEM SET default_transaction_read_only = on");
    server.sql("SELECT pg_reload_conf()");
    let client = open(&url(&server)).await;
    granted(&client, &claim("k", LONG)).await;
}

#[tokio::test]
async fn the_defaults_of_a_role_do_not_apply_to_its_locks() {
    let Some(server) = postgres_or_skip() else { return };
    open(&url(&server)).await;
    server.sql(
        "CREATE ROLE \"App\" LOGIN; GRANT USAGE ON SCHEMA fencelock TO \"App\"; \
         GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA fencelock TO \"App\"; ALTER ROLE \"App\" SET statement_timeout = '1s'; \
         ALTER ROLE \"App\" SET idle_in_transaction_session_timeout = '1s'; ALTER ROLE \"App\" SET lock_timeout = '1s'; \
         ALTER ROLE \"App\" SET standard_conforming_strings = off; ALTER ROLE \"App\" SET TimeZone = 'Asia/Kathmandu'; \
         ALTER ROLE \"App\" SET DateStyle = 'German'; ALTER ROLE \"App\" SET search_path = nowhere",
    );
    let client = Postgres::open(&url(&server).replace("postgres@", "App@")).await.unwrap();
    let odd = claim(r"it's\047 \ 锁", LONG);
    granted(&client, &odd).await;
    let seen = client.inspect(&odd.key).await.unwrap().expect("it is held");
    assert!(seen.key == odd.key && seen.has(odd.holder.id), "{seen:?}");
    let left = seen.first().expiry.span().expect("a lease");
    assert!(left <= LONG && left > LONG / 2, "{left:?}");
    assert_eq!(client.release(&odd.key, &odd.holder.id).await, Ok(Release::Released));
    // A claim waits for a row for longer than the statements of its role may take.
    let holder = session(&server).await;
    holder.batch_execute("BEGIN; SELECT fencelock.lock_in('k')").await.unwrap();
    let ends = async {
        holder.batch_execute("SELECT pg_sleep(2)").await.unwrap();
        holder.batch_execute("COMMIT").await.unwrap();
    };
    let waits = claim("k", LONG);
    tokio::join!(ends, granted(&client, &waits));
}

#[tokio::test]
async fn a_transaction_that_is_ended_for_its_idleness_leaves_its_key_free() {
    let Some(server) = postgres_or_skip() else { return };
    let client = open(&url(&server)).await;
    let holder = session(&server).await;
    holder.batch_execute("SET idle_in_transaction_session_timeout = '100ms'; BEGIN").await.unwrap();
    holder.query_one("SELECT fencelock.lock_in('k')", &[]).await.unwrap();
    granted(&client, &claim("k", LONG)).await;
    assert!(holder.batch_execute("COMMIT").await.is_err(), "its session has ended");
}

#[tokio::test]
async fn a_lock_outlasts_a_crash_of_the_server_and_its_client_goes_on() {
    let Some(mut server) = postgres_or_skip() else { return };
    let client = open(&url(&server)).await;
    let held = claim("k", LONG);
    let token = granted(&client, &held).await;
    server.restart();
    let begun = Instant::now();
    while renewed(&client, &held).await != Ok(Renew::Renewed { waiters: 0 }) {
        assert!(begun.elapsed() < SOON, "it is not renewed after the restart");
    }
    assert!(matches!(client.acquire(&claim("k", LONG)).await.answer, Ok(Acquire::Busy(_))));
    assert_eq!(client.release(&held.key, &held.holder.id).await, Ok(Release::Released));
    assert!(granted(&client, &claim("k", LONG)).await > token);
}

#[tokio::test]
async fn a_session_that_is_terminated_costs_neither_the_lock_nor_the_position_of_a_waiter() {
    let Some(server) = postgres_or_skip() else { return };
    let (one, other) = (open(&url(&server)).await, open(&url(&server)).await);
    let heard = EventRecorder::listening_to(&other);
    let (held, waits) = (claim("k", LONG), claim("k", LONG));
    let token = granted(&one, &held).await;
    assert!(matches!(other.acquire(&queued(&waits)).await.answer, Ok(Acquire::Queued { ahead: 0, .. })));
    server.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'fencelock'");
    let reset = heard.wait_for(SOON, |event| (*event == Event::Reset).then_some(())).await;
    assert!(reset.is_some(), "a waiter is not told that its notifications have ended");
    let begun = Instant::now();
    let poll = waits.with_intent(Intent::Poll);
    while !matches!(other.acquire(&poll).await.answer, Ok(Acquire::Queued { ahead: 0, .. })) {
        assert!(begun.elapsed() < SOON, "the position in the queue is lost");
    }
    while one.release(&held.key, &held.holder.id).await != Ok(Release::Released) {
        assert!(begun.elapsed() < SOON, "it is not released");
    }
    assert!(granted(&other, &poll).await > token);
}

#[tokio::test]
async fn who_is_handed_a_key_again_hears_it_although_the_reply_to_the_release_is_lost() {
    let Some(server) = postgres_or_skip() else { return };
    let other = open(&url(&server)).await;
    let proxy = Proxy::to(server.port()).unwrap();
    let one = open(&with_schema(&format!("postgres://postgres@127.0.0.1:{}/postgres", proxy.port()))).await;
    let recorder = EventRecorder::listening_to(&other);
    for is_lost in [false, true] {
        let (held, waits) = (claim("k", LONG), claim("k", LONG));
        granted(&one, &held).await;
        assert!(matches!(other.acquire(&queued(&waits)).await.answer, Ok(Acquire::Queued { .. })));
        let release = one.release(&held.key, &held.holder.id);
        let notified = recorder.wait_for(SOON, |event| match event {
            Event::Handed { holder, .. } if *holder == waits.holder.id => Some(()),
            _ => None,
        });
        if is_lost {
            proxy.drop_next_reply(Then::StaySilent);
            let hears = async { assert!(notified.await.is_some(), "the notification waits for the reply") };
            tokio::select! {
                () = hears => {}
                released = release => panic!("its reply is lost: {released:?}"),
            }
        } else {
            assert_eq!(release.await, Ok(Release::Released));
            assert!(notified.await.is_some());
        }
        other.release(&waits.key, &waits.holder.id).await.unwrap();
    }
}

#[tokio::test]
async fn behind_a_pooler_a_waiter_hears_of_its_hand_off() {
    let Some(server) = postgres_or_skip() else { return };
    open(&url(&server)).await;
    let Some(pooler) = PgBouncer::start_or_skip(&server, "transaction") else { return };
    let behind = format!("{}?timeout=60000&poll=20", pooler.url("postgres"));
    let (one, other) = (Postgres::open(&behind).await.unwrap(), Postgres::open(&behind).await.unwrap());
    let heard = EventRecorder::listening_to(&other);
    let (held, waits) = (claim("k", LONG), claim("k", LONG));
    granted(&one, &held).await;
    assert!(matches!(other.acquire(&queued(&waits)).await.answer, Ok(Acquire::Queued { .. })));
    one.release(&held.key, &held.holder.id).await.unwrap();
    let token = heard.wait_for(SOON, |event| match event {
        Event::Handed { tokens, .. } => Some(tokens.last().get()),
        _ => None,
    });
    let token = token.await.expect("a hand-off");
    assert_eq!(granted(&other, &waits.with_intent(Intent::Poll)).await, token);
    let report = other.diagnose().await;
    assert_eq!(report.servers[0].topology, fencelock_core::Topology::Proxy);
}

#[tokio::test]
async fn a_pooler_without_transactions_is_refused() {
    let Some(server) = postgres_or_skip() else { return };
    open(&url(&server)).await;
    let Some(pooler) = PgBouncer::start_or_skip(&server, "statement") else { return };
    let url = format!("{}?timeout=60000", pooler.url("postgres"));
    let (refused, text) = fault(&url).await;
    assert!(refused == Fault::Unsupported && text.contains("pool_mode"), "{text}");
    assert_eq!(server.sql("SELECT count(*) FROM fencelock.locks"), "0");
}

#[tokio::test]
async fn a_row_that_somebody_locks_loses_no_lease_of_another_key() {
    let Some(server) = postgres_or_skip() else { return };
    let client = Postgres::open(&url(&server).replace("60000", "2000")).await.unwrap();
    let held = ["a", "b", "c"].map(|key| claim(key, LONG));
    for claim in &held {
        granted(&client, claim).await;
    }
    let curious = session(&server).await;
    curious.batch_execute("BEGIN; SELECT * FROM fencelock.locks WHERE key = 'b' FOR UPDATE").await.unwrap();
    let renewals = held.each_ref().map(|claim| Renewal::new(claim.key.clone(), claim.holder.id, claim.ttl));
    let answers = client.renew(&renewals).await;
    assert!(matches!(answers[..], [Ok(Renew::Renewed { .. }), Err(_), Ok(Renew::Renewed { .. })]), "{answers:?}");
    curious.batch_execute("ROLLBACK").await.unwrap();
    let answers = client.renew(&renewals).await;
    assert!(answers.iter().all(|answer| matches!(answer, Ok(Renew::Renewed { .. }))), "{answers:?}");
}

#[tokio::test]
async fn a_key_whose_row_is_removed_meanwhile_is_granted() {
    let Some(server) = postgres_or_skip() else { return };
    let client = open(&url(&server)).await;
    let first = claim("k", LONG);
    let token = granted(&client, &first).await;
    client.release(&first.key, &first.holder.id).await.unwrap();
    let purge = session(&server).await;
    purge.batch_execute("BEGIN; SELECT fencelock.forget_1('k')").await.unwrap();
    let removes = async {
        let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
        let begun = Instant::now();
        while server.sql(waits) == "0" && begun.elapsed() < SOON {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        purge.batch_execute("COMMIT").await.unwrap();
    };
    let next = queued(&claim("k", LONG));
    let (granted, ()) = tokio::join!(granted(&client, &next), removes);
    assert!(granted > token, "{granted} after {token}");
}

#[tokio::test]
async fn a_lease_that_a_wrong_clock_has_ended_does_not_come_back_after_the_next_holder() {
    let clock = WallClock::for_all_users().unwrap();
    let Some(server) = with_clock(&clock) else { return };
    let client = open(&url(&server)).await;
    let shared = |key| claim(key, LONG).with_mode(Mode::Shared);
    let [early, late, locked_early] = [shared("k"), shared("k"), shared("locked")];
    let (writer, alone) = (claim("k", LONG), claim("alone", LONG));
    for early in [&early, &locked_early, &alone] {
        granted(&client, early).await;
    }
    clock.set(Shift::Forward(2 * LONG)).unwrap();
    granted(&client, &writer).await;
    assert_eq!(client.release(&writer.key, &writer.holder.id).await, Ok(Release::Released));
    granted(&client, &late).await;
    for key in ["locked", "alone"] {
        assert_ne!(server.sql(&format!("SELECT fencelock.lock_in('{key}')")), "", "a transaction has it next");
    }
    clock.set(Shift::None).unwrap();
    assert!(matches!(renewed(&client, &early).await, Ok(Renew::TakenBy(_))));
    assert_eq!(renewed(&client, &late).await, Ok(Renew::Renewed { waiters: 0 }));
    granted(&client, &shared("locked")).await;
    assert!(matches!(renewed(&client, &locked_early).await, Ok(Renew::TakenBy(_))));
    assert_eq!(renewed(&client, &alone).await, Ok(Renew::Absent));
}

#[tokio::test]
async fn doctor_warns_of_an_idle_transaction_that_has_written() {
    let clock = WallClock::for_all_users().unwrap();
    let Some(server) = with_clock(&clock) else { return };
    let client = open(&url(&server)).await;
    let idle = session(&server).await;
    idle.batch_execute("BEGIN; CREATE TABLE t ()").await.unwrap();
    let bloat = async || {
        let report = client.diagnose().await;
        report.findings.into_iter().find(|finding| finding.subject == "bloat").expect("a finding")
    };
    assert_eq!(bloat().await.level, Level::Fine);
    clock.set(Shift::Forward(Duration::from_secs(120))).unwrap();
    let finding = bloat().await;
    assert!(finding.level == Level::Warning && finding.text.contains("is open for 12"), "{finding:?}");
    drop(idle);
}

#[tokio::test]
async fn a_service_without_wal_functions_grants_locks() {
    let Some(server) = postgres_or_skip() else { return };
    for code in ["0A000", "55000"] {
        server.sql(&format!(
            "CREATE OR REPLACE FUNCTION pg_catalog.pg_current_wal_lsn() RETURNS pg_lsn LANGUAGE plpgsql AS \
             $$ BEGIN RAISE EXCEPTION 'it is not supported here' USING ERRCODE = '{code}'; END $$"
        ));
        let client = open(&url(&server)).await;
        granted(&client, &claim(code, LONG)).await;
    }
}

#[tokio::test]
async fn a_host_that_does_not_answer_leaves_time_for_the_next_one() {
    let Some(server) = postgres_or_skip() else { return };
    let proxy = Proxy::to(server.port()).unwrap();
    proxy.black_hole();
    let hosts = server.url("postgres").replace('@', &format!("@127.0.0.1:{},", proxy.port()));
    granted(&open(&with_schema(&hosts)).await, &claim("k", LONG)).await;
}

#[tokio::test]
async fn a_connection_that_takes_longer_than_a_request_may_is_opened_nevertheless() {
    let Some(server) = postgres_or_skip() else { return };
    open(&url(&server)).await;
    let proxy = Proxy::to(server.port()).unwrap();
    let slow = format!("postgres://postgres@127.0.0.1:{}/postgres?timeout=1000", proxy.port());
    // A login takes four round trips, and a claim two.
    proxy.delay(Duration::ZERO, Duration::from_millis(300));
    let (late, text) = fault(&slow).await;
    assert!(late == Fault::Timeout, "{text}");
    proxy.delay(Duration::ZERO, Duration::ZERO);
    let client = open(&slow).await;
    proxy.cut();
    proxy.forward();
    proxy.delay(Duration::ZERO, Duration::from_millis(300));
    let (begun, wants) = (Instant::now(), claim("k", LONG));
    while !matches!(client.acquire(&wants).await.answer, Ok(Acquire::Granted { .. })) {
        assert!(begun.elapsed() < SOON, "its requests end before it has a connection");
    }
}

/// Waits for the key, and releases it, so many times.
async fn cycles(client: &Postgres, key: &str, times: u32) {
    for _ in 0..times {
        let own = claim(key, LONG);
        let mut answer = client.acquire(&queued(&own)).await.answer;
        while matches!(answer, Ok(Acquire::Queued { .. })) {
            answer = client.acquire(&own.with_intent(Intent::Poll)).await.answer;
        }
        token(&answer.expect("an answer"));
        client.release(&own.key, &own.holder.id).await.expect("an answer");
    }
}

#[tokio::test]
async fn those_that_wait_for_each_other_leave_nothing_in_the_log_of_the_server() {
    let Some(server) = postgres_or_skip() else { return };
    let url = url(&server);
    // It is not there, and then it is made.
    open(&url).await;
    let before = server.logged();
    let clients = [open(&url).await, open(&url).await, open(&url).await];
    futures_util::future::join_all(clients.iter().map(|client| cycles(client, "k", 20))).await;
    let after = server.logged();
    assert!(!after[before.len()..].contains("ERROR"), "{after}");
    server.try_sql("postgres", "SELECT 1 / 0").unwrap_err();
    assert!(server.logged()[before.len()..].contains("ERROR"), "otherwise this proves nothing");
}

#[tokio::test]
async fn an_index_is_made_concurrently_while_clients_wait() {
    let Some(server) = postgres_or_skip() else { return };
    let (one, other) = (open(&url(&server)).await, open(&url(&server)).await);
    granted(&one, &claim("k", LONG)).await;
    let waits = claim("k", LONG);
    assert!(matches!(other.acquire(&queued(&waits)).await.answer, Ok(Acquire::Queued { .. })));
    server.sql("CREATE TABLE t (n int)");
    // It waits for all older snapshots.
    let indexes = session(&server).await;
    indexes.batch_execute("SET statement_timeout = '20s'").await.unwrap();
    indexes.batch_execute("CREATE INDEX CONCURRENTLY ON t (n)").await.unwrap();
}

#[tokio::test]
async fn a_superuser_makes_nothing_in_the_schema_of_another_role() {
    let Some(server) = postgres_or_skip() else { return };
    server.sql("CREATE ROLE mallory LOGIN; CREATE SCHEMA fencelock AUTHORIZATION mallory");
    let (denied, text) = fault(&url(&server)).await;
    assert!(denied == Fault::Denied && text.contains("belongs to mallory"), "{text}");
    assert_eq!(server.sql("SELECT count(*) FROM pg_class WHERE relnamespace = 'fencelock'::regnamespace"), "0");
    let own = url(&server).replace("postgres@", "mallory@");
    Postgres::open(&own).await.expect("a role makes its tables in its schema");
}

#[tokio::test]
async fn a_transaction_holds_a_key_until_it_ends_and_is_reported() {
    let Some(server) = postgres_or_skip() else { return };
    let client = Postgres::open(&url(&server).replace("60000", "1000")).await.unwrap();
    let before = claim("k", LONG);
    let token = granted(&client, &before).await;
    assert_eq!(server.sql("SELECT fencelock.lock_in('k')"), "", "a client holds it");
    client.release(&before.key, &before.holder.id).await.unwrap();
    let other = claim("other", LONG);
    granted(&client, &other).await;
    // Another session than that of the client.
    let holder = session(&server).await;
    holder.batch_execute("BEGIN").await.unwrap();
    let locked: i64 = holder.query_one("SELECT fencelock.lock_in('k')", &[]).await.unwrap().get(0);
    assert!(u64::try_from(locked).unwrap() > token);
    match client.acquire(&claim("k", LONG)).await.answer {
        Ok(Acquire::Busy(by)) => assert!(by.holders.to_string().contains("transaction"), "{}", by.holders),
        other => panic!("{other:?}"),
    }
    let busy = server.try_sql("postgres", "SET lock_timeout = '50ms'; SELECT fencelock.lock_in('k')").unwrap_err();
    assert!(busy.contains("lock timeout"), "{busy}");
    // Renewals of other keys do not wait for it.
    assert_eq!(renewed(&client, &other).await, Ok(Renew::Renewed { waiters: 0 }));
    holder.batch_execute("COMMIT").await.unwrap();
    assert!(granted(&client, &claim("k", LONG)).await > u64::try_from(locked).unwrap());
}

#[tokio::test]
async fn an_old_transaction_locks_a_key_by_the_clock_of_now() {
    let Some(server) = postgres_or_skip() else { return };
    let client = open(&url(&server)).await;
    let old = session(&server).await;
    old.batch_execute("BEGIN; SELECT now()").await.unwrap();
    let held = claim("k", LONG);
    granted(&client, &held).await;
    let lock_in = async || old.query_one("SELECT fencelock.lock_in('k')", &[]).await.unwrap().get::<_, Option<i64>>(0);
    assert_eq!(lock_in().await, None, "a lease that was granted after its begin");
    // Its end lies after the begin of the transaction, and has passed.
    server.sql("UPDATE fencelock.locks SET ends = fencelock.micros()");
    let now: i64 = server.sql("SELECT fencelock.micros()").parse().unwrap();
    assert!(lock_in().await.is_some_and(|token| token >= now));
}

#[tokio::test]
async fn a_gate_in_the_transaction_of_a_user_refuses_a_late_writer() {
    let Some(server) = postgres_or_skip() else { return };
    let client = open(&url(&server)).await;
    let early = claim("k", LONG);
    let first = granted(&client, &early).await;
    client.release(&early.key, &early.holder.id).await.unwrap();
    let second = granted(&client, &claim("k", LONG)).await;
    server.sql("CREATE TABLE stock (id int PRIMARY KEY, n int, fence bigint); INSERT INTO stock VALUES (1, 5, 0)");
    let write = |token: u64, n: u32| {
        server.try_sql(
            "postgres",
            &format!("BEGIN; SELECT fencelock.pass('stock', {token}); UPDATE stock SET n = {n}; COMMIT"),
        )
    };
    write(first, 4).unwrap();
    write(second, 3).unwrap();
    write(second, 2).unwrap();
    let stale = write(first, 9).unwrap_err();
    assert!(stale.contains("stale fencing token"), "{stale}");
    let fenced =
        |token| format!("UPDATE stock SET n = 8, fence = {token} WHERE id = 1 AND fence <= {token} RETURNING fence");
    assert_eq!(server.sql(&fenced(second)), second.to_string());
    assert_eq!(server.sql(&fenced(first)), "");
    assert_eq!(server.sql("SELECT n FROM stock"), "8");
    for no_token in [i64::MAX, 1 << 53, 0, -1] {
        let refused = server.try_sql("postgres", &format!("SELECT fencelock.pass('stock', {no_token})")).unwrap_err();
        assert!(refused.contains("no fencing token"), "{refused}");
    }
    write(second, 1).expect("the gate is not closed");
}

#[tokio::test]
async fn a_role_that_may_change_the_table_cannot_make_a_token_smaller() {
    let Some(server) = postgres_or_skip() else { return };
    let client = open(&url(&server)).await;
    granted(&client, &claim("k", LONG)).await;
    server.sql(
        "CREATE ROLE app LOGIN; GRANT USAGE ON SCHEMA fencelock TO app; GRANT SELECT, UPDATE ON fencelock.locks TO app",
    );
    let refused = server.try_sql("postgres", "SET ROLE app; UPDATE fencelock.locks SET fence = 1").unwrap_err();
    assert!(refused.contains("must not decrease"), "{refused}");
    let refused = server.try_sql("postgres", "SET ROLE app; DELETE FROM fencelock.locks").unwrap_err();
    assert!(refused.contains("permission denied"), "{refused}");
}

#[tokio::test]
async fn a_role_that_only_looks_needs_four_functions_and_takes_no_locks() {
    let Some(server) = postgres_or_skip() else { return };
    let (held, url) = (claim("k", LONG), url(&server) + "&schema=It's%22");
    granted(&open(&url).await, &held).await;
    server.sql(
        "CREATE ROLE viewer LOGIN; GRANT USAGE ON SCHEMA \"It's\"\"\" TO viewer; SET search_path = \"It's\"\"\"; \
         GRANT EXECUTE ON FUNCTION hello_1, check_1, list_1, read_completion_1 TO viewer",
    );
    let looks = open(&url.replace("postgres@", "viewer@")).await;
    assert!(looks.inspect(&held.key).await.unwrap().is_some_and(|seen| seen.has(held.holder.id)));
    assert_eq!(looks.list().await.unwrap().len(), 1);
    looks.read_completion(&held.key).await.unwrap();
    let refused = looks.acquire(&claim("k", LONG)).await.answer.unwrap_err();
    assert_eq!(refused.nodes()[0].fault, Fault::Denied, "{refused}");
    let findings = looks.diagnose().await.findings;
    let rights = findings.iter().find(|finding| finding.subject == "rights").unwrap();
    assert!(rights.text.contains("may not call acquire_1, release_1"), "{rights:?}");
}

#[tokio::test]
async fn tokens_of_a_key_whose_row_was_removed_go_on() {
    let Some(server) = postgres_or_skip() else { return };
    let client = open(&url(&server)).await;
    let held = claim("k", LONG);
    granted(&client, &held).await;
    client.release(&held.key, &held.holder.id).await.unwrap();
    // As after a day in which the clock was far ahead.
    server.sql("UPDATE fencelock.locks SET fence = 9000000000000000, since = 1");
    assert_eq!(server.sql("SELECT fencelock.purge(100, 2)"), "1");
    assert_eq!(granted(&client, &claim("k", LONG)).await, 9_000_000_000_000_001);
}

#[tokio::test]
async fn dead_waiters_are_passed_over_in_bounded_steps() {
    let Some(server) = postgres_or_skip() else { return };
    let client = open(&url(&server)).await;
    let held = claim("k", LONG);
    granted(&client, &held).await;
    let (alive, key) = (claim("k", LONG), Key::new("k").unwrap());
    for _ in 0..100 {
        client.acquire(&queued(&claim("k", LONG))).await.answer.unwrap();
    }
    server.sql("UPDATE fencelock.waiters SET alive_till = 0");
    client.acquire(&queued(&alive)).await.answer.unwrap();
    client.release(&key, &held.holder.id).await.unwrap();
    granted(&client, &alive.with_intent(Intent::Poll)).await;
    assert_eq!(server.sql("SELECT waiting, (SELECT count(*) FROM fencelock.waiters) FROM fencelock.locks"), "0|0");
}

#[tokio::test]
async fn a_cycle_writes_at_most_400_bytes_to_the_log() {
    let Some(server) = postgres_or_skip() else { return };
    let client = open(&url(&server)).await;
    let cycles = async |times: u32| {
        for _ in 0..times {
            let held = claim("k", LONG);
            granted(&client, &held).await;
            client.release(&held.key, &held.holder.id).await.unwrap();
        }
        server.sql("SELECT pg_current_wal_insert_lsn()")
    };
    // The first change of a page writes all of it.
    let before = cycles(100).await;
    let after = cycles(300).await;
    let bytes: u32 = server.sql(&format!("SELECT '{after}'::pg_lsn - '{before}'::pg_lsn")).parse().unwrap();
    assert!((300 * 100..=300 * 400).contains(&bytes), "{} bytes for a cycle", bytes / 300);
}

#[tokio::test]
async fn many_readers_are_let_in_in_bounded_steps_and_their_rows_do_not_stay() {
    const READERS: u32 = 100;
    let Some(server) = postgres_or_skip() else { return };
    let client = open(&url(&server)).await;
    let writer = claim("k", LONG);
    granted(&client, &writer).await;
    let readers: Vec<_> = (0..READERS).map(|_| claim("k", LONG).with_mode(Mode::Shared)).collect();
    for reader in &readers {
        client.acquire(&queued(reader)).await.answer.unwrap();
    }
    // On a machine that is busy, none counts as dead.
    server.sql("UPDATE fencelock.waiters SET alive_till = alive_till + 600000000");
    assert_eq!(client.release(&writer.key, &writer.holder.id).await, Ok(Release::Released));
    assert_eq!(server.sql("SELECT count(*) FROM fencelock.holds"), READERS.to_string());
    server.sql("UPDATE fencelock.waiters SET alive_till = 1; UPDATE fencelock.locks SET ends = 1, since = 1");
    // Over: a writer takes the key, and the rows go with the next readers, or that of the key.
    granted(&client, &writer).await;
    assert_eq!(client.release(&writer.key, &writer.holder.id).await, Ok(Release::Released));
    server.sql("UPDATE fencelock.locks SET since = 1");
    server.sql("SELECT fencelock.purge(100, 2)");
    assert_eq!(
        server.sql("SELECT (SELECT count(*) FROM fencelock.locks), (SELECT count(*) FROM fencelock.waiters)"),
        "0|0"
    );
}

#[tokio::test]
async fn a_transaction_is_kept_out_by_readers_and_permits() {
    let Some(server) = postgres_or_skip() else { return };
    let client = open(&url(&server)).await;
    for mode in [Mode::Shared, Mode::permits(1, 3).unwrap()] {
        let (one, other) = (claim("k", LONG).with_mode(mode), claim("k", LONG).with_mode(mode));
        granted(&client, &one).await;
        granted(&client, &other).await;
        client.release(&other.key, &other.holder.id).await.unwrap();
        assert_eq!(server.sql("SELECT fencelock.lock_in('k')"), "", "a client holds it");
        client.release(&one.key, &one.holder.id).await.unwrap();
        assert_ne!(server.sql("SELECT fencelock.lock_in('k')"), "");
    }
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_a_timeout_and_a_late_claim_is_released() {
    let Some(server) = postgres_or_skip() else { return };
    open(&url(&server)).await;
    let begun = Instant::now();
    let client = loop {
        match Postgres::open(&url(&server).replace("60000", "300")).await {
            Ok(client) => break client,
            Err(error) => assert!(begun.elapsed() < SOON, "{error}"),
        }
    };
    let late = claim("k", LONG);
    // The row exists, and a transaction keeps the claim waiting for longer than the client does.
    server.sql("INSERT INTO fencelock.locks (key) VALUES ('k')");
    let holder = session(&server).await;
    holder.batch_execute("BEGIN; LOCK TABLE fencelock.locks IN ACCESS EXCLUSIVE MODE").await.unwrap();
    let refused = client.acquire(&queued(&late)).await.answer.unwrap_err();
    assert!(matches!(refused.nodes()[0].fault, Fault::Busy | Fault::Timeout), "{refused}");
    holder.batch_execute("COMMIT").await.unwrap();
    let begun = Instant::now();
    while client.release(&late.key, &late.holder.id).await.is_err() {
        assert!(begun.elapsed() < SOON, "no answer to the release");
    }
    while !matches!(client.acquire(&claim("k", LONG)).await.answer, Ok(Acquire::Granted { .. })) {
        assert!(begun.elapsed() < SOON, "the late claim holds the key");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_whose_wait_for_a_standby_is_cancelled_is_unknown() {
    let Some(server) = postgres_or_skip() else { return };
    let client = open(&url(&server)).await;
    // No standby has this name, so no commit ends.
    server.sql("ALTER SYSTEM SET synchronous_standby_names = 'nobody'");
    server.sql("SELECT pg_reload_conf()");
    let cancel = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    let (client, begun, mut claims) = (Arc::new(client), Instant::now(), 0);
    // The server reads its settings some time later. Until then, a grant waits for nobody.
    let unknown = loop {
        claims += 1;
        let (client, waits) = (Arc::clone(&client), claim(&format!("k{claims}"), LONG));
        let claimed = tokio::spawn(async move { client.acquire(&waits).await.answer });
        while !claimed.is_finished() {
            assert!(begun.elapsed() < SOON, "it does not wait for a standby, or for ever");
            server.sql(cancel);
        }
        if let Err(unknown) = claimed.await.unwrap() {
            break unknown;
        }
    };
    assert!(matches!(unknown.nodes()[0].fault, Fault::NotReplicated { .. }), "{unknown}");
    let held = server.sql("SELECT count(*) FROM fencelock.locks WHERE ends > 0");
    assert_eq!(held, claims.to_string(), "it may have been executed");
}
