//! fencelock-transaction-sqlx PORT
//!
//! Transactions that check a fencing token, and one that is a lock. `tests/transactions.rs` tries them.
#![forbid(unsafe_code)]

use sqlx::{Connection, Error, PgConnection};

/// The five characters of `SQLSTATE`.
fn is(error: &Error, code: &str) -> bool {
    error.as_database_error().and_then(|error| error.code()).is_some_and(|found| found == code)
}

/// Returns whether the token was not older than that of another writer, which is `FL001`.
async fn write_behind_gate(connection: &mut PgConnection, token: i64, pieces: i32) -> Result<bool, Error> {
    let mut transaction = connection.begin().await?;
    match sqlx::query("SELECT fencelock.pass('stock', $1)").bind(token).execute(&mut *transaction).await {
        // The transaction is dropped, which rolls it back.
        Err(error) if is(&error, "FL001") => return Ok(false),
        passed => passed?,
    };
    sqlx::query("UPDATE stock SET pieces = $1 WHERE id = 1").bind(pieces).execute(&mut *transaction).await?;
    transaction.commit().await?;
    Ok(true)
}

/// The same without a gate: the row has the token of its last writer.
async fn write_if_newest(connection: &mut PgConnection, token: i64, pieces: i32) -> Result<bool, Error> {
    let update = sqlx::query("UPDATE stock SET pieces = $1, fence = $2 WHERE id = 1 AND fence <= $2");
    Ok(update.bind(pieces).bind(token).execute(connection).await?.rows_affected() == 1)
}

/// The transaction holds the key until it ends. Returns its token, or `None` while a client holds the key.
///
/// While another transaction holds it, this waits, and fails with `55P03` after the limit.
async fn lock_in(transaction: &mut PgConnection, key: &str, limit: &str) -> Result<Option<i64>, Error> {
    sqlx::query("SELECT set_config('lock_timeout', $1, true)").bind(limit).execute(&mut *transaction).await?;
    sqlx::query_scalar("SELECT fencelock.lock_in($1)").bind(key).fetch_one(transaction).await
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let port = std::env::args().nth(1).ok_or("a port")?;
    let mut connection = PgConnection::connect(&format!("postgres://postgres@127.0.0.1:{port}/postgres")).await?;
    println!("ready sqlx");
    let mut lines = std::io::stdin().lines();
    while let Some(line) = lines.next().transpose()? {
        match *line.split(' ').collect::<Vec<_>>() {
            ["gate", token, pieces] => {
                say(write_behind_gate(&mut connection, token.parse()?, pieces.parse()?).await?);
            }
            ["newest", token, pieces] => {
                say(write_if_newest(&mut connection, token.parse()?, pieces.parse()?).await?);
            }
            ["lock", key, limit] => {
                let mut transaction = connection.begin().await?;
                match lock_in(&mut transaction, key, limit).await {
                    Ok(Some(token)) => println!("locked {token}"),
                    Ok(None) => {
                        println!("held");
                        continue;
                    }
                    Err(error) if is(&error, "55P03") => {
                        println!("busy");
                        continue;
                    }
                    Err(error) => return Err(error.into()),
                }
                // The next line is `commit`.
                lines.next().transpose()?;
                transaction.commit().await?;
                println!("committed");
            }
            _ => println!("error no such words: {line}"),
        }
    }
    Ok(())
}

fn say(is_written: bool) {
    println!("{}", if is_written { "written" } else { "stale" });
}
