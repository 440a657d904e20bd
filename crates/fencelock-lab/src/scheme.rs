//! A lock scheme as data: the operations of each client, line by line.

use crate::fault::Fault;
use crate::lang::Text;
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
    /// Acquires a lock that the system releases when its holder dies.
    Lock,
    /// Releases that lock.
    Unlock,
    /// Starts the protected work: reads the stock. Yes unless the token is rejected.
    Enter,
    /// Checks the client's lease; yes if it has not ended.
    IsHeld,
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
pub struct Scheme {
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
    }
}
