//! The tables and functions in the database.

use crate::url::Target;
use fencelock_core::Change;
use std::time::Duration;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error};

const TABLES: &str = include_str!("sql/tables.sql");
const FUNCTIONS: &str = include_str!("sql/functions.sql");
/// Two clients that make the same schema wait for each other: without that, one fails. The number means nothing.
const TURN: i64 = 7_812_446_101_926_571_893;

/// Making the schema takes longer than a request, and there is nobody in a hurry.
pub(crate) const INIT: Duration = Duration::from_secs(60);

/// The layout of the tables that this version makes and knows.
pub(crate) const LAYOUT: i32 = 1;

/// What was done, and the rest of its quarantine; or the layout of tables of another version, which were not changed.
pub(crate) type Made = Result<(Change, Duration), i32>;

/// Makes what is missing, in one transaction. Who may use it stays as it is; at first, that is the role of this client. With `trust`,
/// a quarantine ends.
pub(crate) async fn create(client: &Client, target: &Target, trust: bool) -> Result<Made, Error> {
    let schema = target.quoted_schema();
    let begin = format!(
        "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SET LOCAL client_min_messages = warning; \
         SELECT pg_advisory_xact_lock({TURN}); SET LOCAL search_path = {schema}, pg_temp"
    );
    let made = async {
        client.batch_execute(&begin).await?;
        // A role that owns the schema need not be allowed to make others, which also IF NOT EXISTS asks for.
        let missing = client.query_typed("SELECT to_regnamespace($1) IS NULL", &[(&schema, Type::TEXT)]).await?;
        if missing.first().is_some_and(|row| row.try_get(0).unwrap_or_default()) {
            client.batch_execute(&format!("CREATE SCHEMA {schema}")).await?;
        }
        let found = client.query_typed("SELECT to_regclass('meta') IS NOT NULL", &[]).await?;
        let is_there = found.first().is_some_and(|row| row.try_get(0).unwrap_or_default());
        let layout = if is_there { client.query_typed("SELECT layout FROM meta", &[]).await? } else { Vec::new() };
        let layout = layout.first().map(|row| row.try_get(0)).transpose()?;
        if let Some(other) = layout.filter(|layout| *layout != LAYOUT) {
            client.batch_execute("ROLLBACK").await?;
            return Ok(Err(other));
        }
        let revoke = format!("REVOKE ALL ON ALL FUNCTIONS IN SCHEMA {schema} FROM PUBLIC");
        client.batch_execute(&format!("{TABLES} {FUNCTIONS} {revoke}")).await?;
        let guard =
            format!("SELECT guard_1({}, {}, {trust})", target.span().as_micros(), target.longest_ttl().is_some());
        let rest = client.query_typed(&guard, &[]).await?.first().map(|row| row.try_get::<_, i64>(0)).transpose()?;
        client.batch_execute("COMMIT").await?;
        let rest = Duration::from_micros(rest.unwrap_or_default().unsigned_abs());
        Ok(Ok((if is_there { Change::None } else { Change::New }, rest)))
    };
    let made = made.await;
    if made.is_err() {
        let _ = client.batch_execute("ROLLBACK").await;
    }
    made
}
