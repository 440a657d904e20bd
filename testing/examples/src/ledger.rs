//! A number in SQLite that a lock protects: the stock of a shop, the balance of an account. And notes of what was done with it.

use crate::Failure;
use fencelock::FencingToken;
use rusqlite::{Connection, TransactionBehavior, params};
use std::path::Path;
use std::time::Duration;

/// A note of a write, and of one that came too late.
pub const WRITTEN: &str = "written";
/// See [`WRITTEN`].
pub const REFUSED: &str = "refused";

/// One connection to the database.
#[derive(Debug)]
pub struct Ledger {
    db: Connection,
}

impl Ledger {
    /// Begins with this number.
    ///
    /// # Errors
    /// Those of the database.
    pub fn create(file: &Path, number: i64) -> Result<Self, Failure> {
        let ledger = Self::open(file)?;
        ledger.db.execute_batch(
            "CREATE TABLE ledger (number INTEGER NOT NULL, fence INTEGER NOT NULL);
             CREATE TABLE notes (what TEXT NOT NULL, who TEXT NOT NULL);",
        )?;
        ledger.db.execute("INSERT INTO ledger VALUES (?1, 0)", [number])?;
        Ok(ledger)
    }

    /// Another connection.
    ///
    /// # Errors
    /// Those of the database.
    pub fn open(file: &Path) -> Result<Self, Failure> {
        let db = Connection::open(file)?;
        db.busy_timeout(Duration::from_secs(30))?;
        // The examples end with their database; what survives a power failure is not their subject.
        db.execute_batch("PRAGMA synchronous = OFF")?;
        Ok(Self { db })
    }

    /// The number.
    ///
    /// # Errors
    /// Those of the database.
    pub fn number(&self) -> Result<i64, Failure> {
        Ok(self.db.query_row("SELECT number FROM ledger", [], |row| row.get(0))?)
    }

    /// Writes the number and a note of that. With a token, only if none greater has written before; `false` if one has.
    ///
    /// # Errors
    /// Those of the database.
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

    /// Notes something.
    ///
    /// # Errors
    /// Those of the database.
    pub fn note(&self, what: &str, who: &str) -> Result<(), Failure> {
        self.db.execute("INSERT INTO notes VALUES (?1, ?2)", params![what, who])?;
        Ok(())
    }

    /// How often that was noted.
    ///
    /// # Errors
    /// Those of the database.
    pub fn count(&self, what: &str) -> Result<i64, Failure> {
        Ok(self.db.query_row("SELECT count(*) FROM notes WHERE what = ?1", [what], |row| row.get(0))?)
    }
}
