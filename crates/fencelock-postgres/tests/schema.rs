//! What is made in a schema where other roles may make something too, and what a role gains there.

mod common;

use common::{LONG, SOON, granted, open, url};
use fencelock_core::{Acquire, Backend, Claim, Intent, Mode, ModeChanges, Release, Renewal, Scheme};
use fencelock_postgres::{Postgres, PostgresScheme};
use fencelock_testkit::{PostgresServer, claim, say_skipped};
use tokio::time::Instant;

async fn init(url: &str) -> Result<(), String> {
    PostgresScheme.commands().unwrap().init(url, false).await.map(drop).map_err(|error| error.to_string())
}

/// Two databases, of which the second one gets all rows of the first.
fn with_replica() -> Option<PostgresServer> {
    PostgresServer::start(&["wal_level=logical"]).inspect_err(|missing| say_skipped(missing)).ok()
}

async fn until_granted(client: &Postgres, claim: &Claim) {
    let (begun, poll) = (Instant::now(), claim.with_intent(Intent::Poll));
    while !matches!(client.acquire(&poll).await.answer, Ok(Acquire::Granted { .. })) {
        assert!(begun.elapsed() < SOON, "it waits for ever");
    }
}

#[tokio::test]
async fn queues_go_on_after_a_switch_by_logical_replication() {
    let Some(server) = with_replica() else { return };
    server.sql("CREATE DATABASE green");
    let blue = open(&url(&server)).await;
    let shared = || claim("k", LONG).with_mode(Mode::Shared);
    // Hand-offs move the head.
    for _ in 0..10 {
        let [held, waits] = [claim("k", LONG), claim("k", LONG)];
        granted(&blue, &held).await;
        blue.acquire(&waits.with_intent(Intent::Enqueue)).await.answer.unwrap();
        blue.release(&held.key, &held.holder.id).await.unwrap();
        until_granted(&blue, &waits).await;
        blue.release(&waits.key, &waits.holder.id).await.unwrap();
    }
    let early = shared();
    granted(&blue, &early).await;
    let there = url(&server).replace("/postgres?", "/green?");
    init(&there).await.unwrap();
    let green = |text: &str| server.try_sql("green", text).unwrap();
    green("TRUNCATE fencelock.meta");
    server.sql("CREATE PUBLICATION p FOR ALL TABLES");
    server.sql("SELECT pg_create_logical_replication_slot('s', 'pgoutput')");
    let from = format!("host=127.0.0.1 port={} user=postgres dbname=postgres", server.port());
    green(&format!("CREATE SUBSCRIPTION s CONNECTION '{from}' PUBLICATION p WITH (create_slot = false)"));
    let (begun, later) = (Instant::now(), shared());
    while green("SELECT count(*) FROM pg_subscription_rel WHERE srsubstate <> 'r'") != "0" {
        assert!(begun.elapsed() < SOON, "the tables are not copied");
    }
    granted(&blue, &later).await;
    while green("SELECT count(*) FROM fencelock.holds") != "2" {
        assert!(begun.elapsed() < SOON, "no change arrives");
    }
    green("DROP SUBSCRIPTION s");
    let client = open(&there).await;
    let [writer, reader] = [claim("k", LONG), shared()];
    for waits in [&writer, &reader] {
        let answer = client.acquire(&waits.with_intent(Intent::Enqueue)).await.answer;
        assert!(matches!(answer, Ok(Acquire::Queued { .. })), "{answer:?}");
    }
    assert_eq!(green("SELECT count(*) FROM fencelock.holds"), "2", "who waits holds nothing");
    for held in [&early, &later] {
        assert_eq!(client.release(&held.key, &held.holder.id).await, Ok(Release::Released));
    }
    until_granted(&client, &writer).await;
    let renewal = Renewal::new(writer.key.clone(), writer.holder.id, writer.ttl);
    client.downgrade(&renewal).await.unwrap();
    until_granted(&client, &reader).await;
    assert_eq!(green("SELECT count(*) FROM fencelock.holds"), "2");
}
