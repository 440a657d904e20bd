//! Runs the conformance suite on a server. With `FENCELOCK_ALL_WAYS` in the environment, it runs over each way to it.

use fencelock_conformance::{Fixture, FixtureFactory};
use fencelock_core::{Backend, BoxFuture};
use fencelock_postgres::Postgres;
use fencelock_postgres_testing::{PgBouncer, PostgresServer};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

/// In milliseconds. Long enough for a machine that stops for half a minute: no request of the suite fails.
const TIMEOUT: u32 = 60_000;

/// A way to a server. The cases of a factory share it; each backend has its own connections.
struct Way {
    url: String,
    _pooler: Option<PgBouncer>,
    _server: PostgresServer,
}

struct OnPostgres(Arc<Way>);

impl Fixture for OnPostgres {
    fn backend(&self) -> BoxFuture<'_, Arc<dyn Backend>> {
        Box::pin(async { Arc::new(Postgres::open(&self.0.url).await.expect("a server to connect to")) as _ })
    }
}

fn factory(name: &'static str, open: fn() -> Result<Way, String>) -> FixtureFactory {
    let shared: Mutex<Option<Arc<Way>>> = Mutex::default();
    FixtureFactory::new(name, move || {
        let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
        let way = match &*shared {
            Some(way) => Arc::clone(way),
            None => Arc::clone(shared.insert(Arc::new(open()?))),
        };
        Ok(Box::new(OnPostgres(way)))
    })
}

/// The owner of the schema, which may change the tables.
fn direct() -> Result<Way, String> {
    let server = PostgresServer::start(&[])?;
    Ok(Way { url: with_options(&server.url("postgres")), _pooler: None, _server: server })
}

/// A role that may only call the functions, with defaults that no lock may depend on.
fn functions_only() -> Result<Way, String> {
    needs_all_ways()?;
    let server = PostgresServer::start(&["standard_conforming_strings=off", "TimeZone=Asia/Kathmandu"])?;
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| error.to_string())?;
    runtime.block_on(Postgres::open(&with_options(&server.url("postgres")))).map_err(|error| error.to_string())?;
    server.sql(
        "CREATE ROLE app LOGIN; GRANT USAGE ON SCHEMA fencelock TO app; GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA fencelock TO app; \
         ALTER ROLE app SET default_transaction_isolation = 'serializable'; ALTER ROLE app SET synchronous_commit = off; \
         ALTER ROLE app SET search_path = nowhere",
    );
    let url = server.url("postgres").replace("postgres@", "app@");
    Ok(Way { url: format!("{url}?timeout={TIMEOUT}"), _pooler: None, _server: server })
}

fn behind(mode: &str) -> Result<Way, String> {
    needs_all_ways()?;
    let server = PostgresServer::start(&["default_transaction_isolation=repeatable read"])?;
    let pooler = PgBouncer::start_or_skip(&server, mode).ok_or("there is no pgbouncer")?;
    Ok(Way { url: with_options(&pooler.url("postgres")), _pooler: Some(pooler), _server: server })
}

fn with_options(url: &str) -> String {
    format!("{url}?create=true&timeout={TIMEOUT}")
}

fn needs_all_ways() -> Result<(), String> {
    let is_set = std::env::var_os("FENCELOCK_ALL_WAYS").is_some();
    if is_set { Ok(()) } else { Err("takes long: FENCELOCK_ALL_WAYS is not set".to_owned()) }
}

fn main() -> ExitCode {
    fencelock_conformance::run(vec![
        factory("postgres", direct),
        factory("postgres_functions", functions_only),
        factory("postgres_transaction_pool", || behind("transaction")),
        factory("postgres_session_pool", || behind("session")),
    ])
}
