//! A lock scheme as data: what each client does, line by line.

use crate::fault::Fault;
use crate::property::Property;
use crate::words::Text;

/// What a client writes into the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// The number 1, as everybody else.
    One,
    /// Something unique to this client.
    Id,
    /// The time by the client's own clock.
    Now,
    /// The time by the client's own clock at which the lock is to end.
    Deadline,
}

/// One thing that a client does. Each is atomic; other clients, time and faults come in between any two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// `SETNX`: yes takes the lock.
    SetNx(Content),
    /// `SET NX EX`: yes takes the lock.
    SetNxEx(Content),
    /// `SET NX EX` and the next fencing token, in one script: yes takes the lock.
    Claim,
    /// `EXPIRE` with the full time.
    Expire,
    /// `EXPIRE 0`; yes if there was a key.
    ExpireNow,
    /// `TTL`: yes if the key is there without one.
    HasNoTtl,
    /// `GET`: yes if it is the client's own value.
    GetIsMine,
    /// `GET` of a deadline, which is remembered.
    GetDeadline,
    /// Compares the remembered deadline with the client's own clock: yes if it has passed, or if there was none.
    HasPassed,
    /// `GETSET` of a new deadline: yes takes the lock, if the old one is the remembered one.
    GetSetIsSame,
    /// `DEL`; yes if there was a key.
    Del,
    /// `MULTI`, `DEL`, `EXEC`.
    MultiDel,
    /// A script that deletes the key if it holds the client's value.
    CompareDel,
    /// `SET NX EX` on one of three servers; yes is a vote.
    SetNode(u8),
    /// The script that compares and deletes, on one of three servers.
    DelNode(u8),
    /// Counts: yes takes the lock, if there are two votes of three and there is time left since the first was asked for.
    HasMajority,
    /// Takes a lock that the system itself frees when its holder dies.
    Lock,
    /// Gives that lock back.
    Unlock,
    /// Begins the work that the lock protects: reads the stock. Yes unless the token is refused.
    Enter,
    /// Looks at the own lease: yes if it has not ended.
    IsHeld,
    /// Ends the work: writes the stock. Yes unless the token is refused.
    Write,
    /// Waits a little and begins again, a bounded number of times; then it is as `Busy`.
    Retry,
    /// Gives up, because another has the lock.
    Busy,
    /// Has finished.
    Done,
}

/// A line of a scheme: what is done, and the number of the line that follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line {
    /// What is done.
    pub op: Op,
    /// The next line after a yes.
    pub yes: u8,
    /// The next line after a no.
    pub no: u8,
}

/// Where the lock lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Home {
    /// One Redis.
    Redis,
    /// A Redis and its replica, which may take over.
    Replicated,
    /// Three independent Redis servers.
    Three,
    /// The process or the operating system, which sees its holder die.
    System,
}

/// One way to build a lock.
#[derive(Debug, Clone)]
pub struct Scheme {
    /// Its name on the command line.
    pub id: &'static str,
    /// What it is, in one line.
    pub title: Text,
    /// What to do instead, or what it rests on.
    pub advice: Text,
    /// Its lines; each client begins with the first.
    pub lines: Vec<Line>,
    /// Where the lock lives.
    pub home: Home,
    /// Whether a hold ends by itself.
    pub has_lease: bool,
    /// Whether a watchdog renews the lease while the client runs.
    pub is_renewed: bool,
    /// Whether what is protected refuses a fencing token smaller than the greatest it has seen.
    pub is_fenced: bool,
    /// How many clients the search has: two or three.
    pub clients: u8,
    /// The faults that it is searched with, beside the run without any.
    pub faults: Vec<Fault>,
    /// What its article, or ours, shows it for.
    pub exhibit: Option<(Property, Option<Fault>)>,
}

impl Op {
    /// Whether it gives the lock back: what a broken connection keeps from arriving.
    pub const fn is_release(self) -> bool {
        matches!(self, Self::Del | Self::MultiDel | Self::CompareDel | Self::ExpireNow | Self::DelNode(_))
    }
}
