use super::{Refusal, Unread, Value};

/// Why a script ended in an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refused {
    /// The fence of this key is at 2^53.
    NoMoreFences,
    /// The memory is full.
    Full,
    /// The script has to know the time, and may not ask for it.
    Time,
}

/// Who has the lock, as an answer tells it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Occupied {
    /// The greatest fence given; 0 if none is known.
    pub last_fence: u64,
    /// How long it will stay, if nothing is done; `None`: for ever.
    pub ttl_ms: Option<u64>,
    /// What stands there.
    pub by: Value,
    /// The first in line that could not be read, if the line was offered the lock.
    pub unread: Option<Unread>,
}

/// The answer of `acquire`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Acquire {
    /// The lock is the claim's.
    Granted {
        /// Its fencing token; the last of a block.
        fence: u64,
        /// How many tokens end with it.
        count: u64,
        /// The first in line that could not be read.
        unread: Option<Unread>,
    },
    /// It was so before; the time left is not known to suffice. A poll confirms.
    Yours,
    /// In line.
    Queued {
        /// So many are served before.
        ahead: u64,
        /// The server's time, if scripts may ask for it.
        now_us: Option<u64>,
        /// Who has the lock.
        occupied: Occupied,
    },
    /// Somebody else has it.
    Busy(Occupied),
    /// A poll by one who has neither the lock nor a position in the queue.
    Gone,
    /// The lock is free, and there are more dead waiters than one call passes over.
    More(Option<Unread>),
    /// The lock is free, and as many waiters as one call looks at stand first in line and cannot be read.
    Unreadable(Option<Unread>),
    /// The server may not grant.
    Refused(Refusal),
}

/// The answer of `inspect` where a quarantine is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Look {
    /// Somebody has it.
    Held(Inspect),
    /// Nobody has it.
    Free,
    /// Nobody has it as far as the server remembers, and it may have forgotten.
    Refused(Refusal),
}

/// The answer of `raise`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Raise {
    /// The fence is this one now.
    Acked,
    /// The lock is not the holder's, or its fence is beyond.
    Refused,
}

/// The answer of `renew`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Renew {
    /// It has at least this time.
    Renewed {
        /// How many wait.
        waiters: u64,
    },
    /// There is no lock.
    Absent,
    /// It is somebody else's.
    Taken(Value),
}

/// The answer of `release`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Release {
    /// It was the holder's, and is not any more.
    Released(Left),
    /// There was none.
    Absent(Left),
    /// It is somebody else's.
    Taken(Value),
}

/// The answer of `inspect` for a lock that is not free.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Inspect {
    /// What stands there.
    pub by: Value,
    /// How long, if nothing is done; `None`: for ever.
    pub ttl_ms: Option<u64>,
    /// The greatest fence given.
    pub fence: Option<u64>,
    /// How many wait.
    pub waiters: u64,
}

/// The answer of `evict`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Evict {
    /// The hold that was seen is over.
    Evicted(Left),
    /// It is another by now.
    AnotherByNow,
}

/// What a script that gave a lock up found in line.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Left {
    /// Whether there are more dead waiters than one call passes over.
    pub more: bool,
    /// The first that could not be read.
    pub unread: Option<Unread>,
}

impl Left {
    /// The line was not looked at.
    pub(super) const NOBODY: Self = Self { more: false, unread: None };
}
