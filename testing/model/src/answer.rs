use super::holds::HeldEntry;
use super::queue::{Unread, WaiterEntry};
use super::value::Value;
use fencelock_core::Mode;
use std::fmt::Write as _;
use std::sync::Arc;

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
    /// The holders, if several clients hold the lock together.
    pub listed: Option<Listed>,
    /// The first unreadable waiter, if the lock was offered to the queue.
    pub unread: Option<Unread>,
}

/// The holders of a lock that several clients hold together, as a reply describes them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Listed {
    /// The value of the key.
    pub value: Value,
    /// The number of holds.
    pub count: u64,
    /// Those that end first.
    pub holds: Vec<ListedHold>,
}

/// One of several holds.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ListedHold {
    /// The holder.
    pub holder: u128,
    /// The rest of its lease.
    pub rest_ms: u64,
    /// The other data, unless another program removed it.
    pub entry: Option<HeldEntry>,
}

impl Listed {
    /// The description in place of the value.
    pub fn text(&self) -> String {
        let mut text = format!("{} {}", self.value, self.count);
        for ListedHold { holder, rest_ms, entry } in &self.holds {
            let entry = entry.as_ref().map(HeldEntry::text).unwrap_or_default();
            // Writing to a string cannot fail.
            let _ = write!(text, "\n{holder:032x} {rest_ms} {entry}");
        }
        text
    }

    /// The rest of the first hold that ends.
    pub fn first_rest_ms(&self) -> Option<u64> {
        self.holds.first().map(|hold| hold.rest_ms)
    }
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
    Gone(Option<Unread>),
    /// The lock is held or requested in this mode, which conflicts with that of the claim. The claim is not in the queue.
    Conflict(Mode, Option<Unread>),
    /// The claim is not exclusive, and scripts may not call `TIME`.
    NoClock,
    /// There are more dead waiters or ended holds than one call skips.
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
    Free {
        /// The number of waiters.
        waiters: u64,
    },
    /// The server knows of no holder, but may have lost data.
    Refused(Refusal),
}

/// The reply of `raise`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Raise {
    /// The hold has this fence, and that of the key is not below it.
    Acked,
    /// The holder does not hold the lock, or was granted it with a greater fence.
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
    /// Several other clients hold the lock together.
    Shared(Listed),
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
    /// Several other clients hold the lock together.
    Shared(Listed, QueueScan),
}

/// The reply of `downgrade`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Downgrade {
    /// The holder holds the lock shared.
    Downgraded {
        /// The token of the shared hold.
        fence: u64,
        /// What the script found in the queue.
        scan: QueueScan,
    },
    /// The lock is free.
    Absent,
    /// Another client holds the lock.
    Taken(Value),
    /// Several other clients hold the lock together.
    Shared(Listed),
    /// Scripts may not call `TIME`.
    NoClock,
    /// The server must not grant.
    Refused(Refusal),
}

/// The reply of `resize`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Resize {
    /// The semaphore has the new limit.
    Resized {
        /// The limit before the first call.
        before: u32,
        /// The permits in use.
        used: u64,
        /// The number of holders.
        held: u64,
        /// The ticket of the last waiter that was examined.
        ticket: u64,
        /// Whether a repeated call has work left.
        scan: QueueScan,
    },
    /// No permit is in use. If the script offered the free lock to the queue: the first unreadable waiter.
    Absent(Option<Unread>),
    /// Another client holds the lock.
    Taken(Value),
    /// Several clients hold the lock together, but not as the semaphore that was to be resized.
    Shared(Listed),
    /// Scripts may not call `TIME`.
    NoClock,
    /// The server must not grant.
    Refused(Refusal),
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
    /// The live ones among the first waiters, and how long ago their tickets were, in ms; `None` if the ticket is no time.
    pub named: Vec<(Option<i64>, WaiterEntry)>,
    /// The holders, if several clients hold the lock together.
    pub listed: Option<Listed>,
}

/// The reply of `evict`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Evict {
    /// The hold was evicted.
    Evicted(QueueScan),
    /// Another hold has replaced it.
    AnotherByNow,
}

/// What a script found in the queue when it offered room to it.
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

/// Why a server must not grant, as the reply to a claim.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// The marker has an unknown version.
    Version(Arc<str>),
    /// The marker belongs to another run, or there is none.
    Handshake,
    /// The server belongs to another set.
    Nodeset {
        /// The longest TTL and the set of nodes of the marker.
        quorum: Arc<str>,
        /// That set as text.
        nodes: Arc<str>,
    },
    /// The server may have lost its grants.
    Quarantined {
        /// The remaining quarantine.
        rest_ms: u64,
    },
}

/// The result of a foreign command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Done {
    /// The command had an effect.
    Yes,
    /// The command had no effect.
    No,
}
