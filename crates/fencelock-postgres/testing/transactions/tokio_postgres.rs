//! transaction-tokio-postgres PORT
//!
//! Transactions that check a fencing token, and one that is a lock. `tests/transactions.rs` tries them.
#![forbid(unsafe_code)]

use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Error, NoTls, Transaction};

/// Returns whether the token was not older than that of another writer, which is `FL001`.
async fn write_behind_gate(client: &mut Client, token: i64, pieces: i32) -> Result<bool, Error> {
    let transaction = client.transaction().await?;
    match transaction.execute("SELECT fencelock.pass('stock', $1)", &[&token]).await {
        // The transaction is dropped, which rolls it back.
        Err(error) if error.code().is_some_and(|code| code.code() == "FL001") => return Ok(false),
        passed => passed?,
    };
    transaction.execute("UPDATE stock SET pieces = $1 WHERE id = 1", &[&pieces]).await?;
    transaction.commit().await?;
    Ok(true)
}

/// The same without a gate: the row has the token of its last writer.
async fn write_if_newest(client: &Client, token: i64, pieces: i32) -> Result<bool, Error> {
    let update = "UPDATE stock SET pieces = $1, fence = $2 WHERE id = 1 AND fence <= $2";
    Ok(client.execute(update, &[&pieces, &token]).await? == 1)
}

/// The transaction holds the key until it ends. Returns its token, or `None` while a client holds the key.
///
/// While another transaction holds it, this waits, and fails with `LOCK_NOT_AVAILABLE` after the limit.
async fn lock_in(transaction: &Transaction<'_>, key: &str, limit: &str) -> Result<Option<i64>, Error> {
    transaction.execute("SELECT set_config('lock_timeout', $1, true)", &[&limit]).await?;
    transaction.query_one("SELECT fencelock.lock_in($1)", &[&key]).await?.try_get(0)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let port = std::env::args().nth(1).ok_or("a port")?;
    let (mut client, connection) =
        tokio_postgres::connect(&format!("host=127.0.0.1 port={port} user=postgres dbname=postgres"), NoTls).await?;
    tokio::spawn(connection);
    println!("ready tokio-postgres");
    let mut lines = std::io::stdin().lines();
    while let Some(line) = lines.next().transpose()? {
        match *line.split(' ').collect::<Vec<_>>() {
            ["gate", token, pieces] => {
                say(write_behind_gate(&mut client, token.parse()?, pieces.parse()?).await?);
            }
            ["newest", token, pieces] => say(write_if_newest(&client, token.parse()?, pieces.parse()?).await?),
            ["lock", key, limit] => {
                let transaction = client.transaction().await?;
                match lock_in(&transaction, key, limit).await {
                    Ok(Some(token)) => println!("locked {token}"),
                    Ok(None) => {
                        println!("held");
                        continue;
                    }
                    Err(error) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) => {
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
