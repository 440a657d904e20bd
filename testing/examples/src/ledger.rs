//! A number in SQLite that a lock protects: a stock or a balance. It also records the writes.

use crate::Failure;
use fencelock::FencingToken;
use rusqlite::{Connection, TransactionBehavior, params};
use std::path::Path;
use std::time::Duration;

/// The record of a write.
pub const WRITTEN: &str = "written";
/// The record of a rejected write.
pub const REFUSED: &str = "refused";

/// A connection to the database.
#[derive(Debug)]
pub struct Ledger {
    db: Connection,
}

impl Ledger {
    /// Creates the ledger with this number.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn create(file: &Path, number: i64) -> Result<Self, Failure> {
        let ledger = Self::open(file)?;
        ledger.db.execute_batch(
            "CREATE TABLE ledger (number INTEGER NOT NULL, fence INTEGER NOT NULL);
             CREATE TABLE notes (what TEXT NOT NULL, who TEXT NOT NULL);",
        )?;
        ledger.db.execute("INSERT INTO ledger VALUES (?1, 0)", [number])?;
        Ok(ledger)
    }

    /// Opens another connection.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn open(file: &Path) -> Result<Self, Failure> {
        let db = Connection::open(file)?;
        db.busy_timeout(Duration::from_secs(30))?;
        // The examples delete their database, so it need not survive a power failure.
        db.execute_batch("PRAGMA synchronous = OFF")?;
        Ok(Self { db })
    }

    /// The number.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn number(&self) -> Result<i64, Failure> {
        Ok(self.db.query_row("SELECT number FROM ledger", [], |row| row.get(0))?)
    }

    /// Writes the number and records it; with a token, only if no greater one has been used. Returns `false` if one has.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn write(&mut self, who: &str, number: i64, token: Option<FencingToken>) -> Result<bool, Failure> {
        let step = self.db.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let rows = match token {
            // SQLite's integers have a sign; a token has 53 bits and fits.
            Some(token) => step.execute(
                "UPDATE ledger SET number = ?1, fence = ?2 WHERE fence <= ?2",
                params![number, token.get().cast_signed()],
            )?,
            None => step.execute("UPDATE ledger SET number = ?1", [number])?,
        };
        let is_written = rows == 1;
        let what = if is_written { WRITTEN } else { REFUSED };
        step.execute("INSERT INTO notes VALUES (?1, ?2)", params![what, who])?;
        step.commit()?;
        Ok(is_written)
    }

    /// Records an event.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn note(&self, what: &str, who: &str) -> Result<(), Failure> {
        self.db.execute("INSERT INTO notes VALUES (?1, ?2)", params![what, who])?;
        Ok(())
    }

    /// The number of records of this event.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn count(&self, what: &str) -> Result<i64, Failure> {
        Ok(self.db.query_row("SELECT count(*) FROM notes WHERE what = ?1", [what], |row| row.get(0))?)
    }
}
