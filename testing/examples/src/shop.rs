//! A shop whose stock is a number in SQLite.

use crate::Failure;
use fencelock::FencingToken;
use rusqlite::{Connection, TransactionBehavior, params};
use std::path::Path;
use std::time::Duration;

/// The one thing it sells.
pub const ITEM: &str = "sku:0001";

/// One connection to the shop's database.
#[derive(Debug)]
pub struct Shop {
    db: Connection,
}

/// How a purchase ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sale {
    /// The stock is written and the order is in the books.
    Sold,
    /// The database has seen a greater token, so nothing was written.
    Refused,
}

/// What is in the books when all is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Books {
    /// Pieces that the stock says are left.
    pub left: i64,
    /// Orders taken.
    pub sold: i64,
    /// Writes that came too late.
    pub refused: i64,
}

impl Shop {
    /// Opens the doors with `pieces` in stock.
    ///
    /// # Errors
    /// Those of the database.
    pub fn create(file: &Path, pieces: u32) -> Result<Self, Failure> {
        let shop = Self::open(file)?;
        shop.db.execute_batch(
            "CREATE TABLE stock (item TEXT PRIMARY KEY, pieces INTEGER NOT NULL, fence INTEGER NOT NULL);
             CREATE TABLE orders (item TEXT NOT NULL, buyer TEXT NOT NULL);
             CREATE TABLE refused (item TEXT NOT NULL, buyer TEXT NOT NULL, fence INTEGER NOT NULL);",
        )?;
        shop.db.execute("INSERT INTO stock VALUES (?1, ?2, 0)", params![ITEM, pieces])?;
        Ok(shop)
    }

    /// Another connection.
    ///
    /// # Errors
    /// Those of the database.
    pub fn open(file: &Path) -> Result<Self, Failure> {
        let db = Connection::open(file)?;
        db.busy_timeout(Duration::from_secs(30))?;
        // The stories end with their database; what survives a power failure is not their subject.
        db.execute_batch("PRAGMA synchronous = OFF")?;
        Ok(Self { db })
    }

    /// How many pieces are left.
    ///
    /// # Errors
    /// Those of the database.
    pub fn pieces(&self) -> Result<i64, Failure> {
        Ok(self.db.query_row("SELECT pieces FROM stock WHERE item = ?1", [ITEM], |row| row.get(0))?)
    }

    /// Takes an order and writes how many pieces remain. With a token, only if none greater has written before.
    ///
    /// # Errors
    /// Those of the database.
    pub fn sell(&mut self, buyer: &str, remaining: i64, token: Option<FencingToken>) -> Result<Sale, Failure> {
        let books = self.db.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let written = match token {
            Some(token) => books.execute(
                "UPDATE stock SET pieces = ?1, fence = ?2 WHERE item = ?3 AND fence <= ?2",
                params![remaining, as_sql(token), ITEM],
            )?,
            None => books.execute("UPDATE stock SET pieces = ?1 WHERE item = ?2", params![remaining, ITEM])?,
        };
        let sale = if written == 1 { Sale::Sold } else { Sale::Refused };
        match sale {
            Sale::Sold => books.execute("INSERT INTO orders VALUES (?1, ?2)", params![ITEM, buyer])?,
            Sale::Refused => {
                let row = params![ITEM, buyer, token.map(as_sql)];
                books.execute("INSERT INTO refused VALUES (?1, ?2, ?3)", row)?
            }
        };
        books.commit()?;
        Ok(sale)
    }

    /// The books.
    ///
    /// # Errors
    /// Those of the database.
    pub fn books(&self) -> Result<Books, Failure> {
        let count = |sql: &str| self.db.query_row(sql, [], |row| row.get::<_, i64>(0));
        Ok(Books {
            left: self.pieces()?,
            sold: count("SELECT count(*) FROM orders")?,
            refused: count("SELECT count(*) FROM refused")?,
        })
    }
}

/// SQLite's integers have a sign; a token has 53 bits and fits.
pub(crate) fn as_sql(token: FencingToken) -> i64 {
    token.get().cast_signed()
}
