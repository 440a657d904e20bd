//! What the tests of a server share.
#![allow(dead_code, reason = "no test target uses everything")]

use fencelock_core::{Acquire, Backend, Claim, ConnectError, Fault};
use fencelock_postgres::Postgres;
use fencelock_postgres_testing::PostgresServer;
use std::time::Duration;

pub(crate) const LONG: Duration = Duration::from_secs(60);
/// A generous limit for what happens at once.
pub(crate) const SOON: Duration = Duration::from_secs(60);

/// A URL that makes the schema.
pub(crate) fn with_schema(url: &str) -> String {
    format!("{url}?create=true&timeout=60000")
}

pub(crate) fn url(server: &PostgresServer) -> String {
    with_schema(&server.url("postgres"))
}

pub(crate) async fn open(url: &str) -> Postgres {
    Postgres::open(url).await.expect("a server to connect to")
}

pub(crate) async fn fault(url: &str) -> (Fault, String) {
    match Postgres::open(url).await {
        Err(ConnectError::Unknown(cause)) => (cause.nodes()[0].fault, cause.to_string()),
        other => panic!("{url}: {other:?}"),
    }
}

/// The last token of the grant.
pub(crate) fn token(answer: &Acquire) -> u64 {
    match answer {
        Acquire::Granted { tokens } => tokens.last().get(),
        other => panic!("should be granted: {other:?}"),
    }
}

pub(crate) async fn granted(client: &Postgres, claim: &Claim) -> u64 {
    token(&client.acquire(claim).await.answer.expect("an answer"))
}

/// A session other than those of the clients.
pub(crate) async fn session(server: &PostgresServer) -> tokio_postgres::Client {
    let (session, connection) =
        tokio_postgres::connect(&server.url("postgres"), tokio_postgres::NoTls).await.expect("a session");
    tokio::spawn(connection);
    session
}
