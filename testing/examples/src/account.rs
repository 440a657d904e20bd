//! A bank account whose balance is a number in SQLite.

use crate::Failure;
use crate::shop::as_sql;
use fencelock::FencingToken;
use rusqlite::{Connection, params};
use std::path::Path;
use std::time::Duration;

/// Whose it is, which is also the name of the lock.
pub const ACCOUNT: &str = "account:0001";

/// One connection to the bank's database.
#[derive(Debug)]
pub struct Account {
    db: Connection,
}

impl Account {
    /// Opens an account.
    ///
    /// # Errors
    /// Those of the database.
    pub fn create(file: &Path, balance: i64) -> Result<Self, Failure> {
        let account = Self::open(file)?;
        account.db.execute_batch(
            "CREATE TABLE account (name TEXT PRIMARY KEY, balance INTEGER NOT NULL, fence INTEGER NOT NULL);
             CREATE TABLE readings (clerk INTEGER PRIMARY KEY);",
        )?;
        account.db.execute("INSERT INTO account VALUES (?1, ?2, 0)", params![ACCOUNT, balance])?;
        Ok(account)
    }

    /// Another connection.
    ///
    /// # Errors
    /// Those of the database.
    pub fn open(file: &Path) -> Result<Self, Failure> {
        let db = Connection::open(file)?;
        db.busy_timeout(Duration::from_secs(30))?;
        db.execute_batch("PRAGMA synchronous = OFF")?;
        Ok(Self { db })
    }

    /// The balance.
    ///
    /// # Errors
    /// Those of the database.
    pub fn balance(&self) -> Result<i64, Failure> {
        Ok(self.db.query_row("SELECT balance FROM account WHERE name = ?1", [ACCOUNT], |row| row.get(0))?)
    }

    /// Notes that a clerk has read the balance.
    ///
    /// # Errors
    /// Those of the database.
    pub fn note_reading(&self, clerk: usize) -> Result<(), Failure> {
        self.db.execute("INSERT INTO readings VALUES (?1)", [i64::try_from(clerk)?])?;
        Ok(())
    }

    /// How many clerks have read the balance.
    ///
    /// # Errors
    /// Those of the database.
    pub fn readings(&self) -> Result<usize, Failure> {
        let count: i64 = self.db.query_row("SELECT count(*) FROM readings", [], |row| row.get(0))?;
        Ok(usize::try_from(count)?)
    }

    /// Writes a new balance. With a token, only if none greater has written before.
    ///
    /// # Errors
    /// Those of the database, and a write that was refused.
    pub fn write(&self, balance: i64, token: Option<FencingToken>) -> Result<(), Failure> {
        let written = match token {
            Some(token) => self.db.execute(
                "UPDATE account SET balance = ?1, fence = ?2 WHERE name = ?3 AND fence <= ?2",
                params![balance, as_sql(token), ACCOUNT],
            )?,
            None => self.db.execute("UPDATE account SET balance = ?1 WHERE name = ?2", params![balance, ACCOUNT])?,
        };
        if written == 1 { Ok(()) } else { Err("the bank has seen a greater fencing token".into()) }
    }
}
