//! The protected numbers on the server, and the record of changes.

use super::{Load, NotRun};
use crate::server::ServerConnection;
use crate::wire::GUARDED;

/// One script, so that a killed process leaves no partial sale.
const SALE: &str = include_str!("../lua/sale.lua");

/// The counters of each number: entries, payments, and arrived partners.
const COUNTS: [&str; 3] = ["entered", "paid", "there"];

/// The TTL of all keys in seconds, in case no process cleans up: longer than any workload.
pub(super) const FOREVER: u32 = 86_400;

/// A connection to the ledger.
#[derive(Debug)]
pub(super) struct Ledger {
    server: ServerConnection,
    prefix: String,
    fenced: bool,
}

/// The values that a holder reads.
#[derive(Debug, Clone, Copy)]
pub(super) struct StockRead {
    /// The remaining amount.
    pub(super) left: i64,
    /// The number of this entry, from 1.
    pub(super) number: i64,
}

impl Ledger {
    pub(super) fn open(server: ServerConnection, prefix: &str, fenced: bool) -> Self {
        Self { server, prefix: prefix.to_owned(), fenced }
    }

    /// Initializes the numbers.
    pub(super) fn begin(&mut self, load: &Load) -> Result<(), NotRun> {
        let (start, forever) = (load.start().to_string(), FOREVER.to_string());
        for account in 0..load.accounts() {
            let key = self.protected(account);
            let words = if self.fenced { vec!["HSET", &key, "stock", &start] } else { vec!["SET", &key, &start] };
            let counts = COUNTS.map(|name| self.key(name, account));
            let mut commands = vec![words, vec!["EXPIRE", &key, &forever]];
            commands.extend(counts.iter().map(|count| vec!["SET", count, "0", "EX", &forever]));
            let commands: Vec<_> = commands.iter().map(Vec::as_slice).collect();
            self.server.transaction::<()>(&commands)?;
        }
        Ok(())
    }

    /// Counts an entry and reads; `None` if the token is stale.
    pub(super) fn read(&mut self, account: u32, token: Option<u64>) -> Result<Option<StockRead>, NotRun> {
        let (key, entered) = (self.protected(account), self.key("entered", account));
        let count = ["INCR", &entered];
        if !self.fenced {
            let (left, number) = self.server.transaction(&[&["GET", &key], &count])?;
            return Ok(Some(StockRead { left, number }));
        }
        let token = token.unwrap_or_default().to_string();
        let (admitted, left, number): (i64, i64, i64) =
            self.server.transaction(&[&["EVAL", GUARDED, "1", &key, &token, ""], &["HGET", &key, "stock"], &count])?;
        Ok((admitted == 1).then_some(StockRead { left, number }))
    }

    /// Writes the remaining amount and records the sale; `false` if the token is stale.
    pub(super) fn write(&mut self, account: u32, left: i64, amount: i64, token: Option<u64>) -> Result<bool, NotRun> {
        let (key, paid) = (self.protected(account), self.key("paid", account));
        let (left, amount) = (left.to_string(), amount.to_string());
        if !self.fenced {
            self.server
                .transaction::<()>(&[&["SET", &key, &left, "EX", &FOREVER.to_string()], &["INCRBY", &paid, &amount]])?;
            return Ok(true);
        }
        let token = token.unwrap_or_default().to_string();
        let (written,): (i64,) =
            self.server.transaction(&[&["EVAL", SALE, "2", &key, &paid, &token, &left, &amount]])?;
        Ok(written == 1)
    }

    /// The number of entries.
    pub(super) fn entered(&mut self, account: u32) -> Result<i64, NotRun> {
        let entered = self.key("entered", account);
        let (count,): (Option<i64>,) = self.server.transaction(&[&["GET", &entered]])?;
        Ok(count.unwrap_or_default())
    }

    /// Records the arrival of a partner; returns the number of arrived partners.
    pub(super) fn arrive(&mut self, account: u32, one_more: bool) -> Result<i64, NotRun> {
        let (key, by) = (self.key("there", account), if one_more { "1" } else { "0" });
        let (there,): (i64,) = self.server.transaction(&[&["INCRBY", &key, by]])?;
        Ok(there)
    }

    /// The remaining amount, and the recorded amount.
    pub(super) fn balance(&mut self, account: u32) -> Result<(i64, i64), NotRun> {
        let (key, paid) = (self.protected(account), self.key("paid", account));
        let look = if self.fenced { vec!["HGET", &key, "stock"] } else { vec!["GET", &key] };
        let (left, paid): (i64, Option<i64>) = self.server.transaction(&[&look, &["GET", &paid]])?;
        Ok((left, paid.unwrap_or_default()))
    }

    /// Removes everything of this prefix, the locks too.
    pub(super) fn clean_up(&mut self) -> Result<(), NotRun> {
        Ok(self.server.remove_matching(&self.prefix)?)
    }

    fn protected(&self, account: u32) -> String {
        self.key(if self.fenced { "guarded" } else { "stock" }, account)
    }

    fn key(&self, name: &str, account: u32) -> String {
        format!("{}{name}:{account}", self.prefix)
    }
}
