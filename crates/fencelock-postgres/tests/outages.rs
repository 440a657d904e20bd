//! How a client reaches a server, what it says of one that it cannot reach, and what locks survive.

mod common;

use common::{LONG, SOON, fault, open, session, token, url, with_schema};
use fencelock_core::{Acquire, Backend, Claim, Fault, Intent, Mode, Release, Renew, Renewal, Unknown};
use fencelock_postgres::Postgres;
use fencelock_postgres_testing::{PgBouncer, PostgresServer, postgres_or_skip};
use fencelock_testkit::{claim, say_skipped};
use futures_util::future::{join, join_all};
use std::time::Duration;
use tokio::time::{Instant, timeout};

async fn try_claim(client: &Postgres, claim: &Claim) -> Result<Acquire, Unknown> {
    client.acquire(claim).await.answer
}

/// Asks until there is an answer.
async fn answered<T>(request: impl AsyncFn() -> Result<T, Unknown>) -> T {
    let begun = Instant::now();
    loop {
        match request().await {
            Ok(answer) => return answer,
            Err(cause) => assert!(begun.elapsed() < SOON, "{cause}"),
        }
    }
}

async fn granted(client: &Postgres, claim: &Claim) -> u64 {
    token(&answered(async || try_claim(client, claim).await).await)
}

async fn released(client: &Postgres, held: &Claim) {
    let answer = answered(async || client.release(&held.key, &held.holder.id).await).await;
    assert_eq!(answer, Release::Released);
}

/// The lock must still be there when the server answers again.
async fn renewed(client: &Postgres, held: &Claim) {
    let renewal = [Renewal::new(held.key.clone(), held.holder.id, held.ttl)];
    let answer = answered(async || client.renew(&renewal).await.remove(0)).await;
    assert!(matches!(answer, Renew::Renewed { .. }), "{answer:?}");
}

/// With a server that needs TLS for TCP.
fn with_tls() -> Option<PostgresServer> {
    match PostgresServer::start(&["ssl=on", "listen_addresses=127.0.0.1,127.0.0.2"]) {
        Ok(server) => {
            server.allow_first("hostnossl all all all reject");
            Some(server)
        }
        Err(missing) => {
            say_skipped(&missing);
            None
        }
    }
}

#[tokio::test]
async fn a_server_that_needs_tls_is_reached_and_checked_as_the_url_says() {
    let Some(server) = with_tls() else { return };
    let with = |options: &str| url(&server) + options;
    let trusted = format!("&sslmode=verify-full&sslrootcert={}", server.tls_files().ca.display());
    for options in ["", "&sslmode=require", &trusted] {
        let client = Postgres::open(&with(options)).await.unwrap_or_else(|error| panic!("{options}: {error}"));
        let held = claim("k", LONG);
        granted(&client, &held).await;
        released(&client, &held).await;
    }
    let named = with(&trusted).replace("127.0.0.1", "localhost");
    Postgres::open(&named).await.expect("a certificate with this name");
    let (refused, text) = fault(&with("&sslmode=disable")).await;
    assert!(refused == Fault::Denied && text.contains("no encryption"), "{text}");
    // The authority is not one of the system, and the certificate of the server is not an authority.
    let other = format!("&sslmode=verify-full&sslrootcert={}", server.tls_files().client_certificate.display());
    for options in ["&sslmode=verify-full", &other] {
        let (refused, text) = fault(&with(options)).await;
        assert!(refused == Fault::Unsupported && text.contains("certificate"), "{text}");
    }
    let (refused, text) = fault(&with("&sslmode=verify-full&sslrootcert=/nowhere.pem")).await;
    assert!(refused == Fault::Unsupported && text.contains("/nowhere.pem"), "{text}");
    // Another name than those in the certificate.
    let by_another_name = |options: &str| with(options).replace("127.0.0.1", "127.0.0.2");
    let (refused, text) = fault(&by_another_name(&trusted)).await;
    assert!(refused == Fault::Unsupported && text.contains("certificate"), "{text}");
    for (mode, is_trusted) in [("verify-ca", true), ("require", true), ("verify-ca", false), ("require", false)] {
        let authority = if is_trusted { &server.tls_files().ca } else { &server.tls_files().client_certificate };
        let options = format!("&sslmode={mode}&sslrootcert={}", authority.display());
        let opened = Postgres::open(&by_another_name(&options)).await;
        assert_eq!(opened.is_ok(), is_trusted, "{options}: {opened:?}");
    }
}

#[tokio::test]
async fn a_client_logs_in_with_a_certificate() {
    let Some(server) = with_tls() else { return };
    let files = server.tls_files();
    server.sql(&format!("ALTER SYSTEM SET ssl_ca_file = '{}'", files.ca.display()));
    server.sql("CREATE ROLE \"a client\" LOGIN; GRANT CREATE ON DATABASE postgres TO \"a client\"");
    server.allow_first("hostssl all \"a client\" all cert");
    let as_client = url(&server).replace("postgres@", "a%20client@") + "&sslmode=require";
    let (refused, text) = fault(&as_client).await;
    assert!(refused == Fault::Denied && text.contains("certificate"), "{text}");
    let own = format!("&sslcert={}&sslkey={}", files.client_certificate.display(), files.client_key.display());
    let client = Postgres::open(&format!("{as_client}{own}&application_name=orders")).await.expect("a certificate");
    granted(&client, &claim("k", LONG)).await;
    assert_eq!(server.sql("SELECT usename FROM pg_stat_activity WHERE application_name = 'orders'"), "a client");
    let (refused, text) =
        fault(&format!("{as_client}&sslcert=/nowhere.pem&sslkey={}", files.client_key.display())).await;
    assert!(refused == Fault::Unsupported && text.contains("sslcert=/nowhere.pem"), "{text}");
}

#[tokio::test]
async fn a_login_is_bound_to_its_connection() {
    let Some(server) = with_tls() else { return };
    server.sql("CREATE ROLE app LOGIN PASSWORD 's3cret'; GRANT CREATE ON DATABASE postgres TO app");
    server.allow_first("hostssl all app all scram-sha-256");
    let as_app = url(&server).replace("postgres@", "app:s3cret@") + "&channel_binding=";
    for binding in ["require", "prefer", "disable"] {
        let client = Postgres::open(&format!("{as_app}{binding}")).await;
        client.unwrap_or_else(|error| panic!("{binding}: {error}"));
    }
    // Without a password, there is nothing to bind.
    let (refused, text) = fault(&(url(&server) + "&channel_binding=require")).await;
    assert!(refused == Fault::Denied && text.contains("channel binding"), "{text}");
}

#[tokio::test]
async fn a_wrong_missing_or_changed_password_is_named_with_its_remedy() {
    let Some(server) = postgres_or_skip() else { return };
    server.sql("CREATE ROLE app LOGIN PASSWORD 'right'; GRANT CREATE ON DATABASE postgres TO app");
    server.allow_first("host all app all scram-sha-256");
    let as_role = |login: &str| url(&server).replace("postgres@", &format!("{login}@"));
    let (refused, text) = fault(&as_role("app:wrong")).await;
    assert!(refused == Fault::Denied && text.contains("app") && text.contains("password"), "{text}");
    let (refused, text) = fault(&as_role("app")).await;
    assert!(refused == Fault::Denied && text.contains("password_file="), "{text}");
    let (refused, text) = fault(&as_role("stranger")).await;
    assert!(refused == Fault::Denied && text.contains("createuser"), "{text}");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("password");
    std::fs::write(&file, "right\n").unwrap();
    let client = Postgres::open(&format!("{}&password_file={}", as_role("app"), file.display())).await.unwrap();
    let held = claim("k", LONG);
    granted(&client, &held).await;
    // The file is read for each connection.
    server.sql("ALTER ROLE app PASSWORD 'new'");
    std::fs::write(&file, "new\n").unwrap();
    server.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'app'");
    renewed(&client, &held).await;
}

/// A client of a role whose password is in a file.
struct Login {
    server: PostgresServer,
    dir: tempfile::TempDir,
    client: Postgres,
}

impl Login {
    async fn open() -> Option<Self> {
        let server = postgres_or_skip()?;
        server.sql("CREATE ROLE app LOGIN PASSWORD 'old'; GRANT CREATE ON DATABASE postgres TO app");
        server.allow_first("host all app all scram-sha-256");
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::write(dir.path().join("password"), "old\n").expect("a file");
        let url = url(&server).replace("postgres@", "app@");
        let options = format!("&sslmode=disable&password_file={}", dir.path().join("password").display());
        let client = open(&(url + &options)).await;
        Some(Self { server, dir, client })
    }

    fn write(&self, text: &str) {
        std::fs::write(self.dir.path().join("password"), text).expect("a file");
    }

    fn disconnect(&self) {
        self.server.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'app'");
    }

    async fn refused(&self) -> Unknown {
        self.disconnect();
        let begun = Instant::now();
        loop {
            match try_claim(&self.client, &claim("other", LONG)).await {
                Err(cause) if cause.nodes()[0].fault != Fault::Unreachable => return cause,
                other => assert!(begun.elapsed() < SOON, "{other:?}"),
            }
        }
    }

    fn number_of_refusals(&self) -> usize {
        self.server.logged().matches("password authentication failed").count()
    }
}

#[tokio::test]
async fn a_password_that_is_changed_at_the_server_before_its_file_is_waited_for() {
    let Some(app) = Login::open().await else { return };
    let held = claim("k", LONG);
    granted(&app.client, &held).await;
    app.server.sql("ALTER ROLE app PASSWORD 'new'");
    // While the file is rewritten, it may be empty.
    for text in ["old\n", ""] {
        app.write(text);
        let cause = app.refused().await;
        assert!(cause.is_revoked() && !cause.is_permanent() && cause.to_string().contains("password"), "{cause}");
    }
    app.write("new\n");
    // At once: the refusal of the old password is no answer to it.
    assert_eq!(app.client.release(&held.key, &held.holder.id).await, Ok(Release::Released));
}

#[tokio::test]
async fn requests_share_one_login_a_second_while_a_password_is_changed() {
    let Some(app) = Login::open().await else { return };
    app.server.sql("ALTER ROLE app PASSWORD 'new'");
    app.refused().await;
    let (begun, before) = (Instant::now(), app.number_of_refusals());
    let claims: Vec<_> = (0..20).map(|number| claim(&format!("k-{number}"), LONG)).collect();
    for attempt in 1..=2 {
        let asked = join_all(claims.iter().map(|claim| try_claim(&app.client, claim))).await;
        assert!(asked.iter().all(|answer| answer.as_ref().is_err_and(Unknown::is_revoked)), "{asked:?}");
        assert_eq!(app.number_of_refusals() - before, attempt);
    }
    assert!(begun.elapsed() >= Duration::from_secs(1), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_request_after_the_change_of_a_password_does_not_share_a_login_that_began_before() {
    let Some(app) = Login::open().await else { return };
    app.server.sql("ALTER ROLE app PASSWORD 'new'");
    let (early, late) = (claim("early", LONG), claim("late", LONG));
    for until_the_file_is_read in [1, 2, 4, 8, 16].map(Duration::from_secs) {
        app.write("old\n");
        app.refused().await;
        app.server.freeze();
        let change = async {
            tokio::time::sleep(until_the_file_is_read).await;
            app.write("new\n");
            join(try_claim(&app.client, &late), async { app.server.thaw() }).await.0
        };
        let (early, late) = join(try_claim(&app.client, &early), change).await;
        assert!(matches!(late, Ok(Acquire::Granted { .. })), "{late:?}");
        if early.is_err_and(|cause| cause.is_revoked()) {
            return;
        }
    }
    panic!("no login took the old password");
}

#[tokio::test]
async fn a_server_that_does_not_run_is_named_with_its_address() {
    let Some(mut server) = postgres_or_skip() else { return };
    let socket =
        format!("postgres:///postgres?user=postgres&host={}&port={}", server.socket_dir().display(), server.port());
    Postgres::open(&format!("{socket}&create=true&timeout=60000")).await.expect("a socket");
    server.crash();
    let (refused, text) = fault(&server.url("postgres")).await;
    assert!(refused == Fault::Unreachable && text.contains(&server.port().to_string()), "{text}");
    let (refused, text) = fault(&socket).await;
    assert!(refused == Fault::Unreachable && text.contains("is the server running?"), "{text}");
}

#[tokio::test]
async fn a_pooler_that_restarts_costs_neither_a_lock_nor_its_client() {
    let Some(server) = postgres_or_skip() else { return };
    open(&url(&server)).await;
    let Some(mut pooler) = PgBouncer::start_or_skip(&server, "transaction") else { return };
    let client = Postgres::open(&format!("{}?timeout=60000&poll=20", pooler.url("postgres"))).await.unwrap();
    let (held, waits) = (claim("k", LONG), claim("k", LONG));
    let token = granted(&client, &held).await;
    let queued = try_claim(&client, &waits.with_intent(Intent::Enqueue)).await;
    assert!(matches!(queued, Ok(Acquire::Queued { ahead: 0, .. })), "{queued:?}");
    pooler.restart();
    renewed(&client, &held).await;
    released(&client, &held).await;
    assert!(granted(&client, &waits.with_intent(Intent::Poll)).await > token);
}

#[tokio::test]
async fn a_failover_to_a_standby_that_commits_wait_for_loses_no_lock() {
    let Some(mut server) = postgres_or_skip() else { return };
    let standby = server.synchronous_standby();
    // The first server of the URL that takes writes is used.
    let hosts = format!("127.0.0.1:{},127.0.0.1:{}", server.port(), standby.port());
    let client = Postgres::open(&with_schema(&format!("postgres://postgres@{hosts}/postgres"))).await.unwrap();
    let (held, waits) = (claim("k", LONG), claim("k", LONG));
    let token = granted(&client, &held).await;
    let (refused, text) = fault(&standby.url("postgres")).await;
    assert!(refused == Fault::ReadOnly && text.contains("standby"), "{text}");
    server.crash();
    // Its own commits wait for nobody now.
    standby.sql("ALTER SYSTEM RESET synchronous_standby_names");
    standby.promote();
    standby.sql("SELECT pg_reload_conf()");
    renewed(&client, &held).await;
    let busy = answered(async || try_claim(&client, &waits).await).await;
    assert!(matches!(busy, Acquire::Busy(_)), "{busy:?}");
    released(&client, &held).await;
    assert!(granted(&client, &waits).await > token);
}

#[tokio::test]
async fn a_server_that_is_stopped_is_a_timeout_and_its_locks_stay() {
    let Some(server) = postgres_or_skip() else { return };
    let client = Postgres::open(&url(&server).replace("60000", "2000")).await.unwrap();
    let held = claim("k", LONG);
    let token = granted(&client, &held).await;
    server.freeze();
    // Nor is there a reply to the request for notifications, which goes with the first claim that waits.
    let waits = claim("other", LONG).with_mode(Mode::Shared).with_intent(Intent::Enqueue);
    let unknown = timeout(SOON, try_claim(&client, &waits)).await.expect("it has a limit").unwrap_err();
    assert_eq!(unknown.nodes()[0].fault, Fault::Timeout, "{unknown}");
    server.thaw();
    renewed(&client, &held).await;
    // The connection that was too slow executes the other claim, and must not release this one first.
    released(&client, &held).await;
    assert!(granted(&client, &claim("k", LONG)).await > token);
}

#[tokio::test]
async fn a_full_disk_grants_nothing_and_loses_nothing() {
    let mut server = match PostgresServer::start_on_small_disk(100, &[]) {
        Ok(server) => server,
        Err(missing) => return say_skipped(&missing),
    };
    let client = open(&url(&server)).await;
    let held = claim("k", LONG);
    let token = granted(&client, &held).await;
    let ballast = server.fill_disk();
    // What is already reserved may still be written.
    let (begun, mut number) = (Instant::now(), 0);
    let refused = loop {
        assert!(begun.elapsed() < 3 * SOON, "the disk is full, and locks are granted");
        number += 1;
        match try_claim(&client, &claim(&format!("{}-{number}", "long".repeat(100)), LONG)).await {
            Ok(Acquire::Granted { .. }) => {}
            Ok(other) => panic!("{other:?}"),
            Err(cause) => break cause,
        }
    };
    assert!(matches!(refused.nodes()[0].fault, Fault::Full | Fault::Unreachable), "{refused}");
    std::fs::remove_file(ballast).unwrap();
    // It ends if it cannot write its log.
    if server.try_sql("postgres", "SELECT 1").is_err() {
        server.restart();
    }
    renewed(&client, &held).await;
    let kept = server.sql("SELECT count(*) FROM fencelock.locks WHERE ends > 0").parse::<u32>().unwrap();
    assert!(kept >= number, "{kept} of {number} that were granted");
    released(&client, &held).await;
    assert!(granted(&client, &claim("k", LONG)).await > token);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_keeps_a_row_locked_is_named() {
    let Some(server) = postgres_or_skip() else { return };
    let client = Postgres::open(&url(&server).replace("60000", "2000")).await.unwrap();
    // The second use of a statement also prepares it, and both wait.
    for _ in 0..3 {
        let held = claim("k", LONG);
        granted(&client, &held).await;
        client.acquire(&claim("k", LONG)).await.answer.unwrap();
        client.release(&held.key, &held.holder.id).await.unwrap();
    }
    let told = async |waits: &Claim| match client.acquire(waits).await.answer {
        Ok(Acquire::Busy(by)) => by.holders.to_string(),
        Err(cause) => cause.to_string(),
        other => panic!("{other:?}"),
    };
    let other = session(&server).await;
    other.batch_execute("BEGIN; LOCK TABLE fencelock.locks IN EXCLUSIVE MODE").await.unwrap();
    for waits in [claim("k", LONG), claim("k", LONG).with_intent(Intent::Enqueue)] {
        let told = told(&waits).await;
        assert!(told.contains("a transaction that has locked the table"), "{told}");
    }
    other.batch_execute("COMMIT").await.unwrap();
    // No standby has this name, so a commit waits, with its row.
    server.sql("ALTER SYSTEM SET synchronous_standby_names = 'nobody'");
    server.sql("SELECT pg_reload_conf()");
    let begun = Instant::now();
    while server.sql("SHOW synchronous_standby_names") != "nobody" {
        assert!(begun.elapsed() < SOON, "the settings are not read");
    }
    let commits = session(&server).await;
    let commits = tokio::spawn(async move { commits.batch_execute("SELECT fencelock.lock_in('k')").await });
    while server.sql("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'") == "0" {
        assert!(begun.elapsed() < SOON, "no commit waits");
    }
    let told = told(&claim("k", LONG)).await;
    assert!(told.contains("a commit that waits for a synchronous standby"), "{told}");
    commits.abort();
}
