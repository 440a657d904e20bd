//! The protected numbers on the server, and the record of changes.

use super::{Load, NotRun};
use crate::server::ServerConnection;
use crate::wire::GUARDED;
use redis::FromRedisValue;

/// One script, so that a killed process leaves no partial sale.
const SALE: &str = include_str!("../lua/sale.lua");
const GUARDED_READ: &str = include_str!("../lua/guarded_read.lua");

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

/// One account that a holder reads and then changes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Change {
    pub(super) account: u32,
    /// The amount by which it decreases.
    pub(super) amount: i64,
    /// The amount that is left, as it was read.
    pub(super) left: i64,
    /// The fencing token of its lock.
    pub(super) token: u64,
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

    /// Counts an entry and reads what is left of each account, in one step. Returns the number of the entry, from 1; `None` if a
    /// token is stale.
    pub(super) fn enter(&mut self, account: u32, changes: &mut [Change], reads: bool) -> Result<Option<i64>, NotRun> {
        let count = words(&["INCR", &self.key("entered", account)]);
        self.read_and(changes, reads, &[count])
    }

    /// Reads what is left of each account again, in one step; `false` if a token is stale.
    pub(super) fn read(&mut self, changes: &mut [Change], is_reader: bool) -> Result<bool, NotRun> {
        Ok(self.read_and(changes, is_reader, &[])?.is_some())
    }

    /// Returns the last answer of the transaction; `None` if a token is stale.
    fn read_and(
        &mut self,
        changes: &mut [Change],
        is_reader: bool,
        more: &[Vec<String>],
    ) -> Result<Option<i64>, NotRun> {
        let script = if is_reader { GUARDED_READ } else { GUARDED };
        let mut commands = Vec::new();
        for change in &*changes {
            let key = self.protected(change.account);
            if self.fenced {
                commands.push(words(&["EVAL", script, "1", &key, &change.token.to_string(), ""]));
                commands.push(words(&["HGET", &key, "stock"]));
            } else {
                commands.push(words(&["GET", &key]));
            }
        }
        commands.extend_from_slice(more);
        let answers: Vec<i64> = self.transaction(&commands)?;
        let each = if self.fenced { 2 } else { 1 };
        for (change, answers) in changes.iter_mut().zip(answers.chunks_exact(each)) {
            if self.fenced && answers[0] == 0 {
                return Ok(None);
            }
            change.left = answers[each - 1];
        }
        Ok(answers.last().copied())
    }

    /// Writes what remains of each account and records the sale, in one step; `false` if a token is stale.
    pub(super) fn write(&mut self, changes: &[Change]) -> Result<bool, NotRun> {
        let (mut keys, mut values, mut commands) = (Vec::new(), Vec::new(), Vec::new());
        for Change { account, amount, left, token } in changes {
            let (key, paid) = (self.protected(*account), self.key("paid", *account));
            let (left, amount) = ((left - amount).to_string(), amount.to_string());
            commands.push(words(&["SET", &key, &left, "EX", &FOREVER.to_string()]));
            commands.push(words(&["INCRBY", &paid, &amount]));
            keys.extend([key, paid]);
            values.extend([token.to_string(), left, amount]);
        }
        if !self.fenced {
            self.transaction::<()>(&commands)?;
            return Ok(true);
        }
        let sale = [words(&["EVAL", SALE, &keys.len().to_string()]), keys, values].concat();
        let (written,): (i64,) = self.transaction(&[sale])?;
        Ok(written == 1)
    }

    fn transaction<T: FromRedisValue>(&mut self, commands: &[Vec<String>]) -> Result<T, NotRun> {
        let commands: Vec<Vec<&str>> =
            commands.iter().map(|words| words.iter().map(String::as_str).collect()).collect();
        let commands: Vec<_> = commands.iter().map(Vec::as_slice).collect();
        Ok(self.server.transaction(&commands)?)
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
        let query = if self.fenced { vec!["HGET", &key, "stock"] } else { vec!["GET", &key] };
        let (left, paid): (i64, Option<i64>) = self.server.transaction(&[&query, &["GET", &paid]])?;
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

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::super::WorkloadKind;
    use super::*;
    use fencelock_testkit::{RedisServer, redis_or_skip};

    fn ledger(server: &RedisServer) -> Ledger {
        let (work, sleep) = (std::time::Duration::ZERO, None);
        let load = Load {
            workload: WorkloadKind::Transfers,
            processes: 1,
            requests: 2,
            stock: 0,
            permits: 0,
            work,
            ttl: work,
            sleep,
            crash: false,
            pause: false,
        };
        let mut ledger = Ledger::open(ServerConnection::connect(&server.url()).unwrap(), "ledger:", true);
        ledger.begin(&load).unwrap();
        ledger
    }

    const fn change(account: u32, amount: i64, token: u64) -> Change {
        Change { account, amount, left: 1000, token }
    }

    #[test]
    fn a_late_writer_is_refused_after_a_reader_and_a_late_reader_after_a_writer() {
        let Some(server) = redis_or_skip() else { return };
        let mut ledger = ledger(&server);
        let mut reads = |token, is_reader| ledger.read(&mut [change(0, 0, token)], is_reader).unwrap();
        assert!(reads(8, true) && reads(7, true), "readers need no order among each other");
        assert!(!reads(6, false), "a writer before the last reader");
        assert!(reads(9, false));
        assert!(!reads(8, true), "a reader before the last writer");
        assert!(!ledger.write(&[change(0, 500, 8)]).unwrap());
        assert!(ledger.write(&[change(0, 500, 9)]).unwrap());
    }

    #[test]
    fn a_transfer_with_one_stale_token_changes_no_account() {
        let Some(server) = redis_or_skip() else { return };
        let mut ledger = ledger(&server);
        assert!(ledger.read(&mut [change(1, 0, 5)], true).unwrap());
        assert!(!ledger.write(&[change(0, 500, 9), change(1, -500, 4)]).unwrap());
        assert_eq!((ledger.balance(0).unwrap(), ledger.balance(1).unwrap()), ((1000, 0), (1000, 0)));
        assert!(ledger.write(&[change(0, 500, 9), change(1, -500, 6)]).unwrap());
        assert_eq!((ledger.balance(0).unwrap(), ledger.balance(1).unwrap()), ((500, 500), (1500, -500)));
    }
}
