//! A lock scheme as data: the operations of each client, line by line.

use crate::fault::Fault;
use crate::lang::{Lang, Text};
use crate::property::Property;

/// The value that a client writes into the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// The number 1, the same for all clients.
    One,
    /// A value unique to this client.
    Id,
    /// The time of the client's clock.
    Now,
    /// The time of the client's clock at which the lock expires.
    Deadline,
}

/// An operation of a client. Each is atomic; other clients, time and faults run between any two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// `SETNX`; yes acquires the lock.
    SetNx(Content),
    /// `SET NX EX`; yes acquires the lock.
    SetNxEx(Content),
    /// `SET NX EX` and the next fencing token in one script; yes acquires the lock.
    Claim,
    /// `EXPIRE` with the full TTL.
    Expire,
    /// `EXPIRE 0`; yes if the key existed.
    ExpireNow,
    /// `TTL`; yes if the key exists and has no TTL.
    HasNoTtl,
    /// `GET`; yes if the value is the client's own.
    GetIsMine,
    /// `GET` of a deadline, which the client stores.
    GetDeadline,
    /// Compares the stored deadline with the client's clock; yes if it has passed, or if there was none.
    HasPassed,
    /// `GETSET` of a new deadline; yes acquires the lock, if the old deadline equals the stored one.
    GetSetIsSame,
    /// `DEL`; yes if the key existed.
    Del,
    /// `MULTI`, `DEL`, `EXEC`.
    MultiDel,
    /// A script that deletes the key if it holds the client's value.
    CompareDel,
    /// `SET NX EX` on one of three servers; yes is a vote.
    SetNode(u8),
    /// The script that compares and deletes, on one of three servers.
    DelNode(u8),
    /// Counts the votes; yes acquires the lock, if there are two votes of three and time is left since the first
    /// request.
    HasMajority,
    /// A script that takes a permit from a counter, if one is left; yes acquires it.
    TakeCount,
    /// `INCR`: returns the permit.
    GiveCount,
    /// The same script on one of three servers: 0 is the one with the number of the client, 1 and 2 are those after it. Yes is a
    /// vote, and acquires the permit if the work comes next.
    TakeCountAt(u8),
    /// `INCR` on one of three servers, counted in the same way.
    GiveCountAt(u8),
    /// A script that removes the permits that have ended by the clock of the client, and takes one, if one is left.
    TakeByClock,
    /// The same by the clock of the server.
    TakeByServer,
    /// `ZREM`: returns the permit.
    GivePermit,
    /// A script that acquires the lock to write, also again.
    WriteLock,
    /// A script that acquires the lock to read, for twice the TTL, together with other readers, or for the writer itself. The key lasts
    /// for the longest of its holds.
    ReadLock,
    /// A script that ends one of the holds of a writer that continues to read. The key gets the TTL of a writer, if it still writes.
    EndWrite,
    /// The same, but the key never gets a shorter TTL.
    EndWriteKeepTtl,
    /// The script of `EndWrite`, as a release.
    WriteUnlock,
    /// A script that ends the hold of a reader.
    ReadUnlock,
    /// Acquires a lock that the system releases when its holder dies.
    Lock,
    /// Releases that lock.
    Unlock,
    /// Starts the protected work: reads the stock. Yes unless the token is rejected.
    Enter,
    /// Checks the client's lease; yes if it has not ended.
    IsHeld,
    /// Ends the work of a reader.
    Read,
    /// Ends the work: writes the stock. Yes unless the token is rejected.
    Write,
    /// Waits and starts again, a bounded number of times; then the same as `Busy`.
    Retry,
    /// Gives up, because another client holds the lock.
    Busy,
    /// Finished.
    Done,
}

/// A line of a scheme: an operation, and the numbers of the lines that may follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line {
    /// The operation.
    pub op: Op,
    /// The next line after a yes.
    pub yes: u8,
    /// The next line after a no.
    pub no: u8,
}

/// Where the lock is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Home {
    /// One Redis.
    Redis,
    /// A Redis server and its replica, which may be promoted.
    Replicated,
    /// Three independent Redis servers.
    Three,
    /// In the process or the operating system, which detects the death of the holder.
    System,
}

/// A way to build a lock.
#[derive(Debug, Clone)]
pub struct LockScheme {
    /// The name on the command line.
    pub id: &'static str,
    /// A description in one line.
    pub title: Text,
    /// What to do instead, or what the scheme relies on.
    pub advice: Text,
    /// The lines; each client starts with the first.
    pub lines: Vec<Line>,
    /// Where the lock is stored.
    pub home: Home,
    /// Whether a hold expires.
    pub has_lease: bool,
    /// Whether a watchdog renews the lease while the client runs.
    pub is_renewed: bool,
    /// Whether the protected resource rejects a fencing token smaller than the greatest it has seen.
    pub is_fenced: bool,
    /// How many clients may work at the same time: 1 for a lock.
    pub permits: u8,
    /// The first line of the second and third client.
    pub others_start: u8,
    /// The number of clients of a search: two or three.
    pub clients: u8,
    /// The faults that a search includes, in addition to the search without faults.
    pub faults: Vec<Fault>,
    /// The violation that its article, or this project, shows.
    pub exhibit: Option<(Property, Option<Fault>)>,
}

impl Op {
    /// Whether the operation releases the lock, so that a broken connection prevents it.
    pub const fn is_release(self) -> bool {
        matches!(self, Self::Del | Self::MultiDel | Self::CompareDel | Self::ExpireNow | Self::DelNode(_))
            || matches!(self, Self::GiveCount | Self::GiveCountAt(_) | Self::GivePermit)
            || matches!(self, Self::WriteUnlock | Self::ReadUnlock)
    }

    /// Whether the operation is about permits, or about readers and writers.
    pub const fn is_of_modes(self) -> bool {
        matches!(self, Self::TakeCount | Self::TakeCountAt(_) | Self::TakeByClock | Self::TakeByServer)
            || matches!(self, Self::GiveCount | Self::GiveCountAt(_) | Self::GivePermit)
            || matches!(self, Self::WriteLock | Self::ReadLock | Self::EndWrite | Self::EndWriteKeepTtl)
            || matches!(self, Self::WriteUnlock | Self::ReadUnlock | Self::Read)
    }
}

impl LockScheme {
    /// Whether all clients do the same, so that it does not matter which of them is which.
    pub fn has_equal_clients(&self) -> bool {
        self.others_start == 0 && self.lines.iter().all(|line| !matches!(line.op, Op::TakeCountAt(_)))
    }

    /// Whether it is a lock, rather than a semaphore or a lock for readers and writers.
    pub fn is_lock(&self) -> bool {
        self.lines.iter().all(|line| !line.op.is_of_modes())
    }

    /// What happens when the property is violated.
    pub fn breach(&self, property: Property, lang: Lang) -> &'static str {
        match property {
            Property::Exclusion if self.permits > 1 => lang.pick(
                "more clients work at the same time than there are permits",
                "同时在执行业务的客户端比许可数还多",
            ),
            _ => property.breach(lang),
        }
    }
}
