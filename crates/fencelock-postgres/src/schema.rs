//! The tables and functions in the database.

use crate::url::Target;
use fencelock_core::Change;
use std::time::Duration;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error};

const TABLES: &str = include_str!("sql/tables.sql");
const FUNCTIONS: &str = include_str!("sql/functions.sql");
const OWNERS: &str = include_str!("sql/owners.sql");
/// Two clients that make the same schema wait for each other: without that, one fails. The number means nothing.
const TURN: i64 = 7_812_446_101_926_571_893;

/// Making the schema takes longer than a request, and there is nobody in a hurry.
pub(crate) const INIT: Duration = Duration::from_secs(60);

/// The layout of the tables that this version makes and knows.
pub(crate) const LAYOUT: i32 = 1;

/// What was done, and the rest of its quarantine; or the layout of tables of another version, which were not changed.
pub(crate) type Made = Result<(Change, Duration), i32>;

/// A statement that fails if our tables and functions, or what has their names, belong to a role that this one does not trust.
pub(crate) fn check_owners(target: &Target) -> String {
    let functions = [TABLES, FUNCTIONS].into_iter().flat_map(|text| text.split("FUNCTION fencelock.").skip(1));
    let functions: Vec<_> = functions.filter_map(|rest| rest.split('(').next()).collect();
    for_schema(&OWNERS.replace("FUNCTIONS", &functions.join(",")), target)
}

/// Our SQL names the schema `fencelock`. No schema has the tag in its name with which bodies end then.
fn for_schema(text: &str, target: &Target) -> String {
    let (schema, text) = (target.quoted_schema(), text.replace("$$", "$fencelock$"));
    let parts = text.split("fencelock.").map(|part| part.replace("'fencelock'", &literal(&schema)));
    parts.collect::<Vec<_>>().join(&format!("{schema}."))
}

/// A string for SQL, whatever `standard_conforming_strings` is.
pub(crate) fn literal(text: &str) -> String {
    format!("E'{}'", text.replace('\\', r"\\").replace('\'', "''"))
}

/// Makes what is missing, in one transaction. Who may use it stays as it is; at first, that is the role of this client. With `trust`,
/// a quarantine ends.
pub(crate) async fn create(client: &Client, target: &Target, trust: bool) -> Result<Made, Error> {
    let (schema, owners) = (target.quoted_schema(), check_owners(target));
    let begin = format!(
        "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SET LOCAL client_min_messages = warning; \
         SET LOCAL search_path = pg_catalog, pg_temp; SELECT pg_advisory_xact_lock({TURN})"
    );
    let made = async {
        client.batch_execute(&begin).await?;
        // A role that owns the schema need not be allowed to make others, which also IF NOT EXISTS asks for.
        let found = "SELECT to_regnamespace($1) IS NULL, EXISTS \
                     (SELECT FROM pg_attribute WHERE attrelid = to_regclass($1 || '.meta') AND attname = 'layout')";
        let found = client.query_typed(found, &[(&schema, Type::TEXT)]).await?;
        let is = |column| found.first().is_some_and(|row| row.try_get(column).unwrap_or_default());
        let (is_missing, is_there) = (is(0), is(1));
        if is_missing {
            client.batch_execute(&format!("CREATE SCHEMA {schema}")).await?;
        }
        // Also a look at a view of another role may call its functions.
        client.batch_execute(&owners).await?;
        let layout = format!("SELECT layout FROM {schema}.meta");
        let layout = if is_there { client.query_typed(&layout, &[]).await? } else { Vec::new() };
        let layout = layout.first().map(|row| row.try_get(0)).transpose()?;
        if let Some(other) = layout.filter(|layout| *layout != LAYOUT) {
            client.batch_execute("ROLLBACK").await?;
            return Ok(Err(other));
        }
        let mut all = [TABLES, FUNCTIONS].concat();
        if !is_there {
            all = all.replace("TABLE IF NOT EXISTS", "TABLE").replace("CREATE OR REPLACE", "CREATE");
        }
        client.batch_execute(&(for_schema(&all, target) + &owners)).await?;
        let (span, always) = (target.span().as_micros(), target.longest_ttl().is_some());
        let guard = format!("SELECT {schema}.guard_1({span}::bigint, {always}, {trust})");
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
