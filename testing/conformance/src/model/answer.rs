use super::{Refusal, Unread, Value};

/// Why a script ended with an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ScriptError {
    /// The fence of this key has reached 2^53.
    NoMoreFences,
    /// The memory is full.
    Full,
    /// The script needs the time, but may not call `TIME`.
    Time,
}

/// The holder of the lock, as a reply describes it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Occupied {
    /// The greatest fence so far; 0 if unknown.
    pub last_fence: u64,
    /// The remaining TTL; `None` without a TTL.
    pub ttl_ms: Option<u64>,
    /// The value of the key.
    pub by: Value,
    /// The first unreadable waiter, if the lock was offered to the queue.
    pub unread: Option<Unread>,
}

/// The reply of `acquire`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Acquire {
    /// The claim holds the lock.
    Granted {
        /// The fencing token; the last of a block.
        fence: u64,
        /// The number of tokens in the block.
        count: u64,
        /// The first unreadable waiter.
        unread: Option<Unread>,
    },
    /// The claim already held the lock; the remaining time may be too short. A poll confirms it.
    Yours,
    /// The claim is in the queue.
    Queued {
        /// The number of waiters in front.
        ahead: u64,
        /// The time of the server, if scripts may call `TIME`.
        now_us: Option<u64>,
        /// The holder.
        occupied: Occupied,
    },
    /// Another client holds the lock.
    Busy(Occupied),
    /// A poll by a client that neither holds the lock nor waits.
    Gone,
    /// The lock is free, and there are more dead waiters than one call skips.
    More(Option<Unread>),
    /// The lock is free, and the first waiters, as many as one call examines, are unreadable.
    Unreadable(Option<Unread>),
    /// The server must not grant.
    Refused(Refusal),
}

/// The reply of `inspect` with a quarantine check.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Availability {
    /// The lock is held.
    Held(Inspect),
    /// The lock is free.
    Free,
    /// The server knows of no holder, but may have lost data.
    Refused(Refusal),
}

/// The reply of `raise`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Raise {
    /// The fence was raised to this value.
    Acked,
    /// The holder does not hold the lock, or the fence is greater.
    Refused,
}

/// The reply of `renew`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Renew {
    /// The hold has at least this TTL.
    Renewed {
        /// The number of waiters.
        waiters: u64,
    },
    /// The lock is free.
    Absent,
    /// Another client holds the lock.
    Taken(Value),
}

/// The reply of `release`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Release {
    /// The holder released the lock.
    Released(QueueScan),
    /// The lock was free.
    Absent(QueueScan),
    /// Another client holds the lock.
    Taken(Value),
}

/// The reply of `inspect` for a held lock.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Inspect {
    /// The value of the key.
    pub by: Value,
    /// The remaining TTL; `None` without a TTL.
    pub ttl_ms: Option<u64>,
    /// The greatest fence so far.
    pub fence: Option<u64>,
    /// The number of waiters.
    pub waiters: u64,
}

/// The reply of `evict`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Evict {
    /// The hold was evicted.
    Evicted(QueueScan),
    /// Another hold has replaced it.
    AnotherByNow,
}

/// What a script found in the queue after it released a lock.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct QueueScan {
    /// Whether there are more dead waiters than one call passes over.
    pub more: bool,
    /// The first unreadable waiter.
    pub unread: Option<Unread>,
}

impl QueueScan {
    /// The queue was not examined.
    pub(super) const SKIPPED: Self = Self { more: false, unread: None };
}
