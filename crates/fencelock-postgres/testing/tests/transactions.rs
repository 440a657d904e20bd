//! Transactions of users, in four libraries, on the tables of a real server. `transactions/` has the programs.
#![allow(missing_docs)]

use fencelock::Client;
use fencelock_interop::Process;
use fencelock_postgres_testing::{PostgresServer, postgres_or_skip};
use fencelock_testkit::programs::{check, installed, python};
use fencelock_testkit::say_skipped;
use std::path::Path;
use std::time::Duration;
use tokio::process::Command;

/// Longer than any test.
const LONG: Duration = Duration::from_secs(60);
const DIR: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/transactions");

/// A server with a table, a client, and the program that starts as often as a test needs it.
struct Fixture {
    server: PostgresServer,
    client: Client,
    command: Box<dyn Fn() -> Command>,
}

impl Fixture {
    /// `None` if the library is not installed, after a message.
    async fn of(program: Result<Vec<String>, String>, needs_only_packages: bool) -> Option<Self> {
        let words = match program {
            Ok(words) => words,
            Err(missing) => {
                let required = ["CI", "FENCELOCK_REQUIRE_PEERS"].iter().any(|name| std::env::var_os(name).is_some());
                assert!(!(required && needs_only_packages), "{missing}");
                say_skipped(&missing);
                return None;
            }
        };
        let server = postgres_or_skip()?;
        server.sql("CREATE TABLE stock (id int PRIMARY KEY, pieces int, fence bigint NOT NULL DEFAULT 0)");
        server.sql("INSERT INTO stock VALUES (1, 9)");
        let url = format!("{}?create=true&timeout=60000", server.url("postgres"));
        let client = Client::connect(&url).await.expect("a client");
        let command = Box::new(move || {
            let mut command = Command::new(&words[0]);
            command.args(&words[1..]);
            command
        });
        Some(Self { server, client, command })
    }

    async fn program(&self) -> Process {
        Process::start((self.command)(), &[self.server.port()]).await.expect("a program that connects")
    }

    /// The token of a lock that is acquired and released.
    async fn token(&self) -> u64 {
        let guard = self.client.lock("stock").ttl(LONG).acquire().await.expect("a lock");
        let token = guard.fencing_token().get();
        guard.release().await.expect("a release");
        token
    }
}

async fn asked(program: &mut Process, line: &str) -> String {
    program.request(line).await.unwrap_or_else(|error| panic!("{line}: {error}"))
}

/// The gate, and the fence in the row.
async fn refuses_late_writers(fixture: &Fixture) {
    let (first, second) = (fixture.token().await, fixture.token().await);
    let mut program = fixture.program().await;
    for (way, pieces) in [("gate", 0), ("newest", 10)] {
        for (token, own, reply) in
            [(first, 1, "written"), (second, 2, "written"), (second, 3, "written"), (first, 4, "stale")]
        {
            assert_eq!(asked(&mut program, &format!("{way} {token} {}", pieces + own)).await, reply, "{way} {own}");
        }
        assert_eq!(fixture.server.sql("SELECT pieces FROM stock"), (pieces + 3).to_string(), "{way}");
    }
}

/// Against clients, and against another transaction.
async fn locks_as_long_as_its_transaction(fixture: &Fixture) {
    let lock = || fixture.client.lock("stock").ttl(LONG);
    let (mut one, mut other) = (fixture.program().await, fixture.program().await);
    let guard = lock().acquire().await.expect("a lock");
    assert_eq!(asked(&mut one, "lock stock 20s").await, "held");
    let before = guard.fencing_token().get();
    guard.release().await.expect("a release");
    let locked = asked(&mut one, "lock stock 20s").await;
    let token: u64 = locked.strip_prefix("locked ").and_then(|token| token.parse().ok()).expect(&locked);
    assert!(token > before);
    assert_eq!(asked(&mut other, "lock stock 50ms").await, "busy");
    assert_eq!(asked(&mut one, "commit").await, "committed");
    assert!(lock().acquire().await.expect("a lock").fencing_token().get() > token);
}

fn tokio_postgres() -> Vec<String> {
    vec![env!("CARGO_BIN_EXE_transaction-tokio-postgres").to_owned()]
}

/// `scripts/test-interop` builds it.
fn sqlx() -> Result<Vec<String>, String> {
    Ok(vec![installed("sqlx/debug/fencelock-transaction-sqlx")?.display().to_string()])
}

fn psycopg() -> Result<Vec<String>, String> {
    Ok(vec![python("psycopg")?.display().to_string(), format!("{DIR}/with_psycopg.py")])
}

fn pdo() -> Result<Vec<String>, String> {
    let loaded = ["-r", "exit(extension_loaded('pdo_pgsql') ? 0 : 1);"];
    check(Path::new("php"), &loaded, "php with its extension pdo_pgsql")?;
    Ok(vec!["php".to_owned(), format!("{DIR}/pdo.php")])
}

async fn keeps_both(program: Result<Vec<String>, String>, needs_only_packages: bool) {
    let Some(fixture) = Fixture::of(program, needs_only_packages).await else { return };
    refuses_late_writers(&fixture).await;
    locks_as_long_as_its_transaction(&fixture).await;
}

#[tokio::test]
async fn with_tokio_postgres_late_writers_are_refused_and_a_transaction_is_a_lock() {
    keeps_both(Ok(tokio_postgres()), true).await;
}

#[tokio::test]
async fn with_sqlx_late_writers_are_refused_and_a_transaction_is_a_lock() {
    keeps_both(sqlx(), false).await;
}

#[tokio::test]
async fn with_psycopg_late_writers_are_refused_and_a_transaction_is_a_lock() {
    keeps_both(psycopg(), true).await;
}

#[tokio::test]
async fn with_pdo_late_writers_are_refused_and_a_transaction_is_a_lock() {
    keeps_both(pdo(), true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn thousands_of_tasks_of_which_many_are_cancelled_leave_no_lock_and_no_waiter() {
    const TASKS: u64 = 6000;
    let Some(server) = postgres_or_skip() else { return };
    let url = format!("{}?create=true&timeout=60000&connections=4", server.url("postgres"));
    let client = Client::connect(&url).await.expect("a client");
    let tasks: Vec<_> = (0..TASKS)
        .map(|number| {
            let lock = client.lock(format!("k{}", number % 200)).ttl(LONG);
            let works = async move { lock.acquire().await.expect("a lock").release().await.expect("a release") };
            let limit = if number % 3 == 0 { Duration::from_millis(number % 50) } else { LONG };
            tokio::spawn(tokio::time::timeout(limit, works))
        })
        .collect();
    let (mut done, mut cancelled) = (0, 0);
    for task in tasks {
        *(if task.await.expect("no panic").is_ok() { &mut done } else { &mut cancelled }) += 1;
    }
    assert!(done >= TASKS * 2 / 3 && cancelled > 0, "{done} done, {cancelled} cancelled");
    client.close(LONG).await.expect("all is released");
    let left = "SELECT (SELECT count(*) FROM fencelock.holds WHERE ends > fencelock.micros()), (SELECT count(*) FROM fencelock.waiters)";
    assert_eq!(server.sql(left), "0|0");
}
