//! What a standby that takes over grants, and what it may have lost.

mod common;

use common::{SOON, fault, granted};
use fencelock_core::{Acquire, Backend, Change, Claim, Fault, Intent, Level, Release, Renew, Renewal, Scheme};
use fencelock_postgres::{Postgres, PostgresScheme};
use fencelock_postgres_testing::{PgBouncer, PostgresServer, postgres_or_skip};
use fencelock_testkit::{Proxy, claim, say_skipped};
use std::time::Duration;
use tokio::time::Instant;

/// Of all leases here.
const LONGEST: Duration = Duration::from_secs(2);
/// The least that `fencelock_core::quarantine` allows.
const QUARANTINE: Duration = Duration::from_millis(4010);

fn with_options(url: &str, more: &str) -> String {
    format!("{url}?create=true&timeout=60000&max_ttl=2000{more}")
}

async fn open(server: &PostgresServer, more: &str) -> Postgres {
    common::open(&with_options(&server.url("postgres"), more)).await
}

/// How long the server grants nothing; `None` if it grants.
async fn quarantine_of(client: &Postgres, claim: &Claim) -> Option<Duration> {
    let refused = client.acquire(claim).await.answer.err()?;
    assert!(refused.is_quarantine() && refused.to_string().contains("init --trust-empty"), "{refused}");
    refused.nodes()[0].passes_in
}

/// Whether commits wait for the standbys.
fn set_synchronous(server: &PostgresServer, names: &str) {
    server.sql(&format!("ALTER SYSTEM SET synchronous_standby_names = '{names}'"));
    server.sql("SELECT pg_reload_conf()");
    let begun = Instant::now();
    while server.sql("SHOW synchronous_standby_names") != names {
        assert!(begun.elapsed() < SOON, "the setting does not change");
    }
}

/// Waits until a standby has this.
fn until(standby: &PostgresServer, is_true: &str) {
    let begun = Instant::now();
    while standby.try_sql("postgres", &format!("SELECT {is_true}")).as_deref() != Ok("t") {
        assert!(begun.elapsed() < SOON, "{is_true}");
    }
}

#[tokio::test]
#[ignore = "two servers: scripts/test-servers"]
async fn a_promoted_standby_grants_nothing_until_the_leases_that_it_may_have_lost_have_ended() {
    let Some(mut server) = postgres_or_skip() else { return };
    open(&server, "").await;
    let standby = server.standby();
    set_synchronous(&server, "");
    // Found when it connects: commits do not wait for the standby.
    let client = open(&server, "").await;
    let [kept, handing, waits] = ["kept", "handing", "handing"].map(|key| claim(key, Duration::from_secs(60)));
    granted(&client, &kept).await;
    granted(&client, &handing).await;
    let queued = client.acquire(&waits.with_intent(Intent::Enqueue)).await.answer;
    assert!(matches!(queued, Ok(Acquire::Queued { .. })), "{queued:?}");
    until(&standby, "waiting = 1 FROM fencelock.locks WHERE key = 'handing'");
    standby.sql("ALTER SYSTEM SET primary_conninfo = ''");
    standby.sql("SELECT pg_reload_conf()");
    until(&standby, "NOT EXISTS (SELECT FROM pg_stat_wal_receiver)");
    let lost = claim("lost", LONGEST);
    let token = granted(&client, &lost).await;
    server.kill();
    standby.promote();
    set_synchronous(&standby, "");
    let begun = Instant::now();
    let next = open(&standby, "").await;
    assert_eq!(standby.sql("SELECT count(*) FROM fencelock.locks WHERE key = 'lost'"), "0");
    let rest = quarantine_of(&next, &claim("lost", LONGEST)).await.expect("a quarantine");
    let tried = next.try_out(None).await.remove(0);
    assert!(tried.level == Level::Note && tried.text.contains("not tried"), "{tried:?}");
    assert!(rest <= QUARANTINE, "{rest:?}");
    // What it has is renewed and released, and handed to nobody.
    let renewal = Renewal::new(kept.key.clone(), kept.holder.id, kept.ttl);
    assert_eq!(next.renew(&[renewal]).await.remove(0), Ok(Renew::Renewed { waiters: 0 }));
    assert_eq!(next.release(&handing.key, &handing.holder.id).await, Ok(Release::Released));
    assert_eq!(next.inspect(&handing.key).await, Ok(None));
    assert_eq!(standby.sql("SELECT fencelock.lock_in('lost')"), "", "also not to a transaction");
    // Without it, a second holder gets in.
    granted(&open(&standby, "&quarantine=off").await, &claim("unguarded", LONGEST)).await;
    while let Some(rest) = quarantine_of(&next, &claim("ended", LONGEST)).await {
        assert!(begun.elapsed() < SOON, "{rest:?} are left");
        tokio::time::sleep(rest).await;
    }
    assert!(begun.elapsed() >= QUARANTINE, "{:?}", begun.elapsed());
    let after = claim("lost", LONGEST);
    assert!(granted(&next, &after).await > token);
    let identity = next.diagnose().await.servers[0].identity.clone().expect("a run id");
    assert!(identity.ends_with("/00000002"), "{identity}");
    assert_eq!(quarantine_of(&open(&standby, "").await, &claim("other", LONGEST)).await, None, "it is over for all");
}

#[tokio::test]
#[ignore = "two servers: scripts/test-servers"]
async fn a_standby_that_commits_wait_for_has_all_locks_and_grants_at_once() {
    let Some(mut server) = postgres_or_skip() else { return };
    open(&server, "").await;
    let standby = server.standby();
    set_synchronous(&server, "*");
    let hosts = format!("postgres://postgres@127.0.0.1:{},127.0.0.1:{}/postgres", standby.port(), server.port());
    let (fault, text) = fault(&with_options(&standby.url("postgres"), "")).await;
    assert!(fault == Fault::ReadOnly && text.contains("name the primary"), "{text}");
    let client = Postgres::open(&with_options(&hosts, "")).await.expect("the second host takes writes");
    let held = claim("k", Duration::from_secs(60));
    granted(&client, &held).await;
    server.kill();
    standby.promote();
    set_synchronous(&standby, "");
    let begun = Instant::now();
    let next = open(&standby, "").await;
    assert!(matches!(next.acquire(&claim("k", LONGEST)).await.answer, Ok(Acquire::Busy(_))));
    granted(&next, &claim("other", LONGEST)).await;
    let renewal = Renewal::new(held.key.clone(), held.holder.id, held.ttl);
    while client.renew(std::slice::from_ref(&renewal)).await.remove(0) != Ok(Renew::Renewed { waiters: 0 }) {
        assert!(begun.elapsed() < SOON, "its client does not find the new primary");
    }
}

#[tokio::test]
#[ignore = "two servers: scripts/test-servers"]
async fn a_client_leaves_a_pooler_whose_server_has_become_a_standby() {
    let Some(server) = postgres_or_skip() else { return };
    open(&server, "").await;
    let standby = server.standby();
    let proxy = Proxy::to(server.port()).expect("a port");
    let Some(pooler) = PgBouncer::to_port_or_skip(proxy.port(), "transaction") else { return };
    let hosts = pooler.url(&format!(",127.0.0.1:{}/postgres", server.port())).replace("/,", ",");
    let client = Postgres::open(&with_options(&hosts, "")).await.expect("a pooler");
    granted(&client, &claim("k", LONGEST)).await;
    proxy.forward_to(standby.port());
    let others = "pid <> pg_backend_pid() AND backend_type = 'client backend'";
    server.sql(&format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}"));
    let begun = Instant::now();
    while let Err(cause) = client.acquire(&claim("other", LONGEST)).await.answer {
        assert!(begun.elapsed() < SOON, "it stays with the standby: {cause}");
    }
}

/// A server with another timeline behind the same port.
fn fail_over(server: &mut PostgresServer) {
    let signal = format!("{}/standby.signal", server.sql("SHOW data_directory"));
    server.sql(&format!("COPY (SELECT WHERE false) TO '{signal}'"));
    server.restart();
    server.promote();
}

#[tokio::test]
async fn a_client_behind_a_pooler_notices_that_another_server_answers() {
    let Some(mut server) = postgres_or_skip() else { return };
    open(&server, "&quarantine=on").await;
    let Some(pooler) = PgBouncer::start_or_skip(&server, "transaction") else { return };
    let client = Postgres::open(&with_options(&pooler.url("postgres"), "&quarantine=on")).await.expect("a pooler");
    granted(&client, &claim("k", LONGEST)).await;
    fail_over(&mut server);
    let begun = Instant::now();
    loop {
        match client.acquire(&claim("other", LONGEST)).await.answer {
            Err(cause) if cause.is_quarantine() => break,
            // The pooler has connections to the server that is gone.
            Err(cause) => assert!(begun.elapsed() < SOON, "{cause}"),
            Ok(answer) => panic!("should not be answered: {answer:?}"),
        }
    }
}

#[tokio::test]
async fn a_quarantine_is_ended_by_trust_and_changed_by_init() {
    let Some(mut server) = postgres_or_skip() else { return };
    let url = with_options(&server.url("postgres"), "&quarantine=on");
    let client = Postgres::open(&url).await.expect("a server");
    assert_eq!(client.capabilities().longest_ttl, Some(LONGEST));
    let too_long = client.acquire(&claim("k", LONGEST * 2)).await.answer.unwrap_err();
    assert!(too_long.to_string().contains("max_ttl="), "{too_long}");
    let longer = url.replace("max_ttl=2000", "max_ttl=9000");
    let (fault, text) = fault(&longer).await;
    assert!(fault == Fault::Misconfigured && text.contains("max_ttl=") && text.contains("fencelock init"), "{text}");
    let commands = PostgresScheme;
    fail_over(&mut server);
    let [node] = &commands.init(&longer, false).await.expect("a server")[..] else { panic!("one server") };
    // The quarantine under way is that of the new URL.
    assert!(node.change == Change::None && node.ready_in > QUARANTINE, "{:?}", node.ready_in);
    let client = Postgres::open(&longer).await.expect("a server");
    assert!(quarantine_of(&client, &claim("k", LONGEST)).await.is_some());
    let [node] = &commands.init(&longer, true).await.expect("a server")[..] else { panic!("one server") };
    assert_eq!(node.ready_in, Duration::ZERO);
    granted(&Postgres::open(&longer).await.expect("a server"), &claim("k", LONGEST)).await;
}

#[tokio::test]
async fn who_only_reads_the_log_is_no_standby() {
    let Ok(server) = PostgresServer::start(&["wal_level=logical"]).inspect_err(|missing| say_skipped(missing)) else {
        return;
    };
    open(&server, "").await;
    // A subscriber, but not of the locks.
    server.sql("CREATE TABLE t (); CREATE PUBLICATION p FOR TABLE t");
    let plugin = ["--plugin=pgoutput", "--option=proto_version=1", "--option=publication_names=p"];
    let mut readers = vec![
        server.reader("pg_recvlogical", &[&["--slot=s", "--create-slot", "--start", "--file=-"][..], &plugin].concat()),
        server.reader("pg_receivewal", &["--directory=."]),
    ];
    let begun = Instant::now();
    while server.sql("SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'") != "2" {
        assert!(begun.elapsed() < SOON, "{}", server.sql("SELECT application_name, state FROM pg_stat_replication"));
    }
    let hello = || server.sql("SELECT o_async, o_span FROM fencelock.hello_1(60000000, false)");
    assert_eq!(hello(), "f|0");
    for reader in &mut readers {
        let _ = reader.kill();
        let _ = reader.wait();
    }
    let _standby = server.standby();
    assert_eq!(hello(), "t|60000000");
}
