//! A state of the model.

use crate::property::Property;

/// The TTL of a lock in ticks. Two is the smallest number with a moment in between.
pub(crate) const TTL: u8 = 2;
/// The last tick of a search: one lease, the lease of a successor, and time to detect the expiry.
pub(crate) const LAST_TICK: u8 = 3 * TTL;
/// The number of attempts of a client that retries.
pub(crate) const TRIES: u8 = 2;
/// The maximum number of clients.
pub(crate) const CLIENTS: usize = 3;
/// The lease of a lock that does not expire.
pub(crate) const FOR_EVER: u8 = u8::MAX;

/// The value of a key, or a value stored by a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) enum Value {
    #[default]
    Nil,
    One,
    /// The number of a client.
    Id(u8),
    /// A time in ticks.
    Time(u8),
    /// A number of free permits.
    Count(u8),
    /// When the permit of each client ends, in ticks; 0 for none.
    Ends([u8; CLIENTS]),
    /// The holders of a lock for readers and writers.
    ReadWrite(ReadWrite),
}

/// The holders of a lock for readers and writers. A writer may have acquired it several times, and read too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct ReadWrite {
    pub(crate) writer: Option<u8>,
    pub(crate) writes: u8,
    pub(crate) readers: [bool; CLIENTS],
}

/// A key on a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Entry {
    pub(crate) value: Value,
    /// The remaining ticks; `None` without a TTL.
    pub(crate) ttl: Option<u8>,
    /// The client that owns the lock, whatever its value.
    pub(crate) owner: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) enum Life {
    /// Not started.
    #[default]
    Idle,
    Running,
    /// Finished, or gave up.
    Gone,
    Crashed,
}

#[allow(clippy::struct_excessive_bools, reason = "the flags are independent, and a search tries all combinations")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct Client {
    pub(crate) life: Life,
    /// The next line.
    pub(crate) line: u8,
    /// The client assumes that it holds the lock, and has not released it.
    pub(crate) holds: bool,
    /// The client is between reading and writing the protected data.
    pub(crate) inside: bool,
    /// The remaining ticks of its lease, counted from the request.
    pub(crate) lease: u8,
    /// The number of its grant, from 1: the fencing token.
    pub(crate) grant: u8,
    pub(crate) remembered: Value,
    pub(crate) votes: u8,
    pub(crate) tries: u8,
    /// Its connection is broken.
    pub(crate) cut: bool,
    /// Its watchdog has detected the loss of the lock.
    pub(crate) detected_loss: bool,
}

impl ReadWrite {
    pub(crate) fn is_empty(self) -> bool {
        self.writer.is_none() && !self.readers.contains(&true)
    }
}

/// The state of the whole system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct State {
    pub(crate) now: u8,
    /// The lock: on the master and its replica, or on three servers.
    pub(crate) keys: [Option<Entry>; 3],
    pub(crate) clients: [Client; CLIENTS],
    /// The number of grants.
    pub(crate) grants: u8,
    /// The greatest grant that has started its work.
    pub(crate) newest: u8,
    /// Ticks since the last client finished, at most the longest lifetime of a hold.
    pub(crate) quiet: u8,
    pub(crate) failed_over: bool,
    pub(crate) restarted: bool,
}

/// The next action.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Action {
    Step(u8),
    /// The step over a broken connection.
    Lose(u8),
    /// The watchdog of a client renews.
    Renew(u8),
    Crash(u8),
    Tick,
    Replicate,
    Failover,
    Restart(u8),
}

/// The reply of a server, or the result of a local operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Reply {
    /// No request.
    #[default]
    None,
    Int(i8),
    Ok,
    Value(Value),
    /// The remaining ticks, -1 for no TTL, -2 for no key.
    Ttl(i8),
    /// A fencing token.
    Token(u8),
    /// No answer.
    Failed,
}

/// The result of an action.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Transition {
    pub(crate) after: State,
    pub(crate) reply: Reply,
    /// Whether the line answered yes.
    pub(crate) yes: bool,
    /// The violated properties, as bits.
    pub(crate) broken: u8,
}

impl Transition {
    /// Records a change of the lock of `owner`. It is a violation if the owner is alive and its lease is valid.
    pub(super) fn touch(&mut self, at: usize, owner: u8) {
        let owner = usize::from(owner);
        let Client { holds, lease, .. } = self.after.clients[owner];
        if owner != at && self.after.running(owner) && holds && lease > 0 {
            self.broken |= Property::OwnLockOnly.bit();
        }
    }
}

impl State {
    pub(crate) fn running(&self, client: usize) -> bool {
        self.clients[client].life == Life::Running
    }
}
