//! What is made in a schema where other roles may make something too, and what a role gains there.

mod common;

use common::{LONG, SOON, fault, granted, open, session, url};
use fencelock_core::{
    Acquire, Backend, Claim, Completion, Fault, Intent, Key, Level, Mode, Owner, Release, Renew, Renewal, Scheme,
};
use fencelock_postgres::{Postgres, PostgresScheme};
use fencelock_postgres_testing::{PgBouncer, PostgresServer, postgres_or_skip};
use fencelock_testkit::{claim, say_skipped};
use std::time::Duration;
use tokio::time::Instant;

async fn init(url: &str) -> Result<(), String> {
    PostgresScheme.init(url, false).await.map(drop).map_err(|error| error.to_string())
}

/// A URL for the schema `public`.
fn public(server: &PostgresServer, role: &str) -> String {
    format!("{}?schema=public&timeout=60000", server.url("postgres").replace("postgres@", &format!("{role}@")))
}

/// As in PostgreSQL 14, and a cluster that was upgraded from it: all roles may create objects in `public`.
fn with_open_public() -> Option<PostgresServer> {
    let server = postgres_or_skip()?;
    server.sql(
        "ALTER SCHEMA public OWNER TO postgres; GRANT CREATE ON SCHEMA public TO PUBLIC; \
         CREATE ROLE mallory LOGIN; CREATE ROLE app LOGIN",
    );
    Some(server)
}

/// All objects of a schema.
fn objects(server: &PostgresServer) -> String {
    server.sql(
        "SELECT string_agg(pg_describe_object(classid, objid, objsubid), ', ' ORDER BY classid, objid) FROM pg_depend \
         WHERE refobjid = 'public'::regnamespace",
    )
}

/// Executed by a superuser, it makes its author one.
const EVIL: &str = "LANGUAGE plpgsql AS $$ BEGIN EXECUTE 'ALTER ROLE mallory SUPERUSER'; RETURN NULL; END $$";

#[tokio::test]
async fn what_another_role_has_planted_is_refused_and_nothing_is_made() {
    let Some(server) = with_open_public() else { return };
    let planted = [
        ("TABLE gates", "CREATE TABLE public.gates (name text PRIMARY KEY, fence bigint NOT NULL)"),
        ("TABLE meta", "CREATE TABLE public.meta (layout int)"),
        (
            "VIEW meta",
            "CREATE FUNCTION public.f() RETURNS int EVIL; CREATE VIEW public.meta AS SELECT public.f() AS layout",
        ),
        ("SEQUENCE waiters", "CREATE SEQUENCE public.waiters"),
        ("DOMAIN locks", "CREATE DOMAIN public.locks AS int"),
        ("FUNCTION micros()", "CREATE FUNCTION public.micros() RETURNS bigint EVIL"),
        ("FUNCTION hello_1(int, boolean)", "CREATE FUNCTION public.hello_1(int, boolean) RETURNS int EVIL"),
        ("FUNCTION hello_1(bigint, boolean)", "CREATE FUNCTION public.hello_1(bigint, boolean) RETURNS int EVIL"),
    ];
    for (object, how) in planted {
        server.sql(&format!("SET ROLE mallory; {}", how.replace("EVIL", EVIL)));
        let before = objects(&server);
        for role in ["postgres", "app"] {
            let refused = init(&public(&server, role)).await.expect_err(object);
            assert!(refused.contains("mallory"), "{object}: {refused}");
            let (denied, text) = fault(&format!("{}&create=true", public(&server, role))).await;
            assert!(denied == Fault::Denied && text.contains("mallory"), "{object}: {text}");
        }
        assert_eq!(objects(&server), before, "{object}");
        server.sql(&format!("DROP {object} CASCADE"));
    }
    assert_eq!(server.sql("SELECT rolsuper FROM pg_roles WHERE rolname = 'mallory'"), "f");
    init(&public(&server, "postgres")).await.unwrap();
    // Later, another function of the same name, and a trigger.
    server.sql("SET ROLE mallory; CREATE FUNCTION public.tell_1(int) RETURNS int LANGUAGE sql AS 'SELECT 1'");
    let refused = init(&public(&server, "postgres")).await.unwrap_err();
    assert!(refused.contains("tell_1(integer)") && refused.contains("mallory"), "{refused}");
    server.sql("DROP FUNCTION public.tell_1(int); GRANT TRIGGER ON public.gates TO mallory");
    server.sql(&format!(
        "SET ROLE mallory; CREATE FUNCTION public.t() RETURNS trigger {EVIL}; \
         CREATE TRIGGER t BEFORE INSERT ON public.gates FOR EACH ROW EXECUTE FUNCTION public.t()"
    ));
    let refused = init(&public(&server, "postgres")).await.unwrap_err();
    assert!(refused.contains("trigger t") && refused.contains("mallory"), "{refused}");
}

#[tokio::test]
async fn a_schema_in_use_keeps_its_objects_and_their_rights() {
    let Some(server) = postgres_or_skip() else { return };
    server.sql(
        "CREATE ROLE owner LOGIN; CREATE ROLE web LOGIN; CREATE SCHEMA app AUTHORIZATION owner; \
         GRANT USAGE ON SCHEMA app TO web; SET ROLE owner; \
         CREATE FUNCTION app.price(int) RETURNS int LANGUAGE sql AS 'SELECT $1 * 2'",
    );
    let url = server.url("postgres").replace("postgres@", "owner@") + "?schema=app&timeout=60000";
    let price = || server.try_sql("postgres", "SET ROLE web; SELECT app.price(1)");
    // Its owner has made both before.
    for (taken, how) in [
        ("function app.run()", "FUNCTION app.run() RETURNS int LANGUAGE sql AS 'SELECT 7'"),
        ("table app.locks", "TABLE app.locks (key text)"),
    ] {
        server.sql(&format!("SET ROLE owner; CREATE {how}"));
        let refused = init(&url).await.unwrap_err();
        assert!(refused.contains(taken) && refused.contains("another schema"), "{refused}");
        assert_eq!(server.sql("SELECT count(*) FROM pg_class WHERE relname IN ('meta', 'waiters')"), "0");
        server.sql(&format!("DROP {taken}"));
    }
    init(&url).await.unwrap();
    assert_eq!(price().as_deref(), Ok("2"));
    let refused = server.try_sql("postgres", "SET ROLE web; SELECT app.lock_in('k')").unwrap_err();
    assert!(refused.contains("permission denied for function lock_in"), "{refused}");
    // Who may call a function stays as it is.
    server.sql("GRANT EXECUTE ON FUNCTION app.lock_in TO PUBLIC; DROP FUNCTION app.pass");
    init(&url).await.unwrap();
    assert_eq!(price().as_deref(), Ok("2"));
    server.sql("SET ROLE web; SELECT app.lock_in('k')");
    let refused = server.try_sql("postgres", "SET ROLE web; SELECT app.pass('k', 1)").unwrap_err();
    assert!(refused.contains("permission denied for function pass"), "{refused}");
    granted(&open(&url).await, &claim("k", LONG)).await;
}

#[tokio::test]
async fn the_owner_of_a_database_and_a_superuser_make_their_objects_in_its_public_schema() {
    let Some(server) = postgres_or_skip() else { return };
    server.sql("CREATE ROLE owner LOGIN CREATEDB");
    server.sql("CREATE DATABASE shop OWNER owner");
    // As of PostgreSQL 15.
    server.try_sql("shop", "ALTER SCHEMA public OWNER TO pg_database_owner").unwrap();
    server.sql("ALTER SCHEMA public OWNER TO pg_database_owner");
    let shop = server.url("shop") + "?schema=public&timeout=60000";
    let refused = init(&shop).await.unwrap_err();
    assert!(refused.contains("belongs to owner"), "{refused}");
    for url in [shop.replace("postgres@", "owner@"), public(&server, "postgres")] {
        init(&url).await.unwrap();
        init(&url).await.unwrap();
        granted(&open(&format!("{url}&create=true")).await, &claim("k", LONG)).await;
    }
}

#[tokio::test]
async fn a_schema_may_have_any_name() {
    let Some(server) = postgres_or_skip() else { return };
    for (name, encoded) in [
        ("a$$b", "a$$b"),
        ("it's \"\\", "it's%20%22%5C"),
        ("fencelock.two", "fencelock.two"),
        ("'fencelock'", "'fencelock'"),
    ] {
        let client = open(&format!("{}&schema={encoded}", url(&server))).await;
        let held = claim("k", LONG);
        granted(&client, &held).await;
        assert_eq!(client.release(&held.key, &held.holder.id).await, Ok(Release::Released), "{name}");
    }
}

/// For each function and operator that ours use: one with the types of their values where the system has one for more general types, and one
/// with other types for each function of ours. Each tells the log who executes it.
const SHADOWS: &str = r#"
SET ROLE mallory;
CREATE FUNCTION public.loot(what text) RETURNS void LANGUAGE plpgsql AS $f$
BEGIN RAISE LOG 'LOOT: % executes %', current_user, what; END $f$;
DO $do$
DECLARE
    v_types text[] := '{bigint,int,text,bytea,float8,float4,numeric,boolean,name,oid,xid,"text[]","bytea[]",public.locks,public.waiters}';
    r record;
    v_body text;
BEGIN
    FOR r IN SELECT * FROM unnest('{+,-,*,/,<,<=,>,>=,=,<>,||,@>}'::text[]) op, unnest(v_types) l, unnest(v_types) r LOOP
        CONTINUE WHEN EXISTS (SELECT FROM pg_operator WHERE oprname = r.op AND oprleft = r.l::regtype AND oprright = r.r::regtype);
        v_body := format('BEGIN PERFORM public.loot(%L); RETURN NULL; END', r::text);
        EXECUTE format('CREATE FUNCTION public.op(%s, %s) RETURNS %s LANGUAGE plpgsql AS %L', r.l, r.r,
                       CASE WHEN r.op IN ('+', '-', '*', '/') THEN 'bigint' WHEN r.op = '||' THEN 'text' ELSE 'boolean' END, v_body);
        EXECUTE format('CREATE OPERATOR public.%s (FUNCTION = public.op, LEFTARG = %s, RIGHTARG = %s)', r.op, r.l, r.r);
        EXECUTE format('ALTER FUNCTION public.op(%s, %s) RENAME TO op_%s', r.l, r.r, md5(r.op));
    END LOOP;
    FOR r IN VALUES ('format(text, text, bigint, int, bigint, text)', 'text'), ('unnest(text[])', 'setof text'), ('unnest(bytea[])', 'setof bytea'),
            ('unnest(bigint[])', 'setof bigint'), ('date_part(varchar, timestamptz)', 'float8'),
            ('encode(bytea, varchar)', 'text'), ('array_to_string(text[], varchar)', 'text'), ('set_config(varchar, varchar, boolean)', 'text') LOOP
        EXECUTE format('CREATE FUNCTION public.%s RETURNS %s LANGUAGE plpgsql AS %L', r.column1, r.column2,
                       format('BEGIN PERFORM public.loot(%L); RETURN %s; END', r.column1, CASE WHEN r.column2 LIKE 'setof%' THEN '' ELSE 'NULL' END));
    END LOOP;
    FOR r IN VALUES ('bytea'), ('text'), ('name') LOOP
        EXECUTE format($x$CREATE FUNCTION public.gather(%1$s[], %1$s) RETURNS %1$s[] LANGUAGE plpgsql AS
            'BEGIN PERFORM public.loot(''array_agg''); RETURN NULL; END'$x$, r.column1);
        EXECUTE format('CREATE AGGREGATE public.array_agg(%1$s) (SFUNC = public.gather, STYPE = %1$s[])', r.column1);
    END LOOP;
    FOR r IN SELECT proname, pronargs, n FROM pg_proc, generate_series(0, 1) n WHERE pronamespace = 'public'::regnamespace AND pronargs > 0
             AND proowner = 'postgres'::regrole AND proname NOT IN ('op', 'loot') LOOP
        BEGIN
            EXECUTE format('CREATE FUNCTION public.%I(%s) RETURNS int LANGUAGE plpgsql AS %L', r.proname,
                CASE r.n WHEN 0 THEN 'int' || repeat(', boolean', r.pronargs - 1) ELSE 'text' || repeat(', text', r.pronargs - 1) END,
                format('BEGIN PERFORM public.loot(%L); RETURN NULL; END', r.proname));
        EXCEPTION WHEN duplicate_function THEN NULL;
        END;
    END LOOP;
END $do$"#;

#[tokio::test]
async fn a_role_that_may_create_in_the_schema_gets_the_rights_of_nobody() {
    let Some(server) = with_open_public() else { return };
    let url = public(&server, "postgres");
    init(&url).await.unwrap();
    server.sql(SHADOWS);
    server.sql("GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO app");
    // Those of a program that knows no better.
    server.sql("SET search_path = public; SELECT 1::bigint || 'x'::text");
    let log = server.logged();
    assert!(log.contains("LOOT: postgres executes"), "otherwise this proves nothing: {log}");
    let pooler = PgBouncer::start_or_skip(&server, "transaction");
    let mut urls = vec![url.clone(), format!("{url}&quarantine=on"), public(&server, "app")];
    urls.extend(
        pooler.iter().map(|pooler| format!("{}?schema=public&timeout=60000&quarantine=on", pooler.url("postgres"))),
    );
    for url in &urls {
        use_all(&open(url).await).await;
    }
    server.sql(
        "SELECT public.lock_in('in'::text), public.pass('gate'::text, 7::bigint), public.purge(100::float4, 2::bigint)",
    );
    let looted: Vec<_> =
        server.logged()[log.len()..].lines().filter(|line| line.contains("LOOT")).map(str::to_owned).collect();
    assert!(looted.is_empty(), "{looted:#?}");
}

/// Every request, more than twice: then its statement is prepared.
async fn use_all(client: &Postgres) {
    for round in 0..4 {
        let key = format!("k{round}");
        let [first, second] = [claim(&key, LONG), claim(&key, LONG)];
        granted(client, &first).await;
        let renewal = Renewal::new(first.key.clone(), first.holder.id, first.ttl);
        assert!(matches!(client.renew(std::slice::from_ref(&renewal)).await.remove(0), Ok(Renew::Renewed { .. })));
        client.acquire(&second.with_intent(Intent::Enqueue)).await.answer.expect("an answer");
        client.acquire(&second.with_intent(Intent::Poll)).await.answer.expect("an answer");
        client.list().await.expect("an answer");
        let completion =
            Completion::new(1, fencelock_core::FencingToken::new(1).expect("a token"), 0, Owner::from_text("o"));
        client.write_completion(&first.key, &first.holder.id, &completion).await.expect("an answer");
        let read = client.read_completion(&first.key).await.expect("an answer");
        client.clear_completion(&first.key, &read.completion.expect("it was written")).await.expect("an answer");
        client.downgrade(&renewal).await.expect("an answer");
        client.release(&first.key, &first.holder.id).await.expect("an answer");
        client.release(&second.key, &second.holder.id).await.expect("an answer");
        let permits = |weight| claim(&key, LONG).with_mode(Mode::permits(weight, 3).expect("valid"));
        let (one, two) = (permits(2), permits(1));
        granted(client, &one).await;
        granted(client, &two).await;
        client.resize(&one.key, 5).await.expect("an answer");
        let holding = client.inspect(&one.key).await.expect("an answer").expect("it is held");
        client.evict(&holding).await.expect("an answer");
        assert!(client.diagnose().await.findings.iter().all(|finding| finding.level != Level::Failure));
        client.try_out(None).await;
    }
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

#[tokio::test]
async fn doctor_names_functions_of_an_earlier_version_and_a_schema_in_which_all_may_create() {
    let Some(server) = postgres_or_skip() else { return };
    let client = open(&url(&server)).await;
    let found = async || {
        let findings = client.diagnose().await.findings;
        findings.into_iter().find(|finding| finding.subject == "schema").expect("a finding")
    };
    assert_eq!(found().await.level, Level::Fine);
    server.sql("GRANT CREATE ON SCHEMA fencelock TO PUBLIC");
    let open = found().await;
    assert!(open.level == Level::Warning && open.advice.contains("REVOKE CREATE"), "{open:?}");
    server.sql(
        "REVOKE CREATE ON SCHEMA fencelock FROM PUBLIC; ALTER FUNCTION fencelock.acquire_1 SET search_path = fencelock",
    );
    let earlier = found().await;
    assert!(earlier.level == Level::Warning && earlier.advice.contains("fencelock init"), "{earlier:?}");
    init(&url(&server)).await.unwrap();
    assert_eq!(found().await.level, Level::Fine);
}

#[tokio::test]
async fn a_key_that_no_client_can_name_is_refused_in_sql_too() {
    let Some(server) = postgres_or_skip() else { return };
    open(&url(&server)).await;
    for (key, named) in [("a\0b".to_owned(), "control"), ("x".repeat(1 << 20), "512")] {
        let refused = Key::new(key).unwrap_err().to_string();
        assert!(refused.contains(named), "{refused}");
    }
    for key in ["repeat('x', 1048576)", "''"] {
        let refused = server.try_sql("postgres", &format!("SELECT fencelock.lock_in({key})")).unwrap_err();
        assert!(refused.contains("a_key_has_1_to_512_bytes"), "{refused}");
    }
    assert_eq!(server.sql("SELECT count(*) FROM fencelock.locks"), "0");
}

#[tokio::test]
async fn a_transaction_that_does_not_get_a_key_does_not_lock_its_row() {
    let Some(server) = postgres_or_skip() else { return };
    open(&url(&server)).await;
    assert_ne!(server.sql("SELECT fencelock.lock_in('k')"), "");
    let (client, other) = (session(&server).await, session(&server).await);
    client.batch_execute("BEGIN; UPDATE fencelock.locks SET ends = fencelock.micros() + 60000000").await.unwrap();
    other.batch_execute("BEGIN").await.unwrap();
    let granted = async {
        while server.sql("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'") != "1" {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        client.batch_execute("COMMIT").await.unwrap();
    };
    let (answer, ()) = tokio::join!(other.query_one("SELECT fencelock.lock_in('k')", &[]), granted);
    assert_eq!(answer.unwrap().get::<_, Option<i64>>(0), None);
    server.sql("SELECT 1 FROM fencelock.locks WHERE key = 'k' FOR UPDATE NOWAIT");
    other.batch_execute("COMMIT").await.unwrap();
}

#[tokio::test]
async fn a_new_key_looks_at_few_old_rows_before_the_table_was_ever_analyzed() {
    let Some(server) = postgres_or_skip() else { return };
    open(&url(&server)).await;
    let read = server.sql(
        "INSERT INTO fencelock.locks (key, since) SELECT 'old' || i, fencelock.micros() FROM generate_series(1, 20000) i; \
         DO $$ BEGIN PERFORM fencelock.acquire_1('new' || i, '\\x00', 'o', 60000000, 0, 1, 'c', -1, 0) FROM generate_series(1, 1280) i; END $$; \
         SELECT seq_tup_read FROM pg_stat_xact_user_tables WHERE relid = 'fencelock.locks'::regclass",
    );
    // Twenty purges. As many rows as a page may have, for each new key.
    assert!((1..=1280 * 100).contains(&read.parse::<u32>().unwrap()), "{read} rows");
}
