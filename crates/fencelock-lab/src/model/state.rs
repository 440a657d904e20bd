//! One moment of the model.

/// How long a lock lasts, in ticks. Two are the fewest that have a moment in between.
pub(crate) const TTL: u8 = 2;
/// No search goes beyond this many ticks: the lease of one, of its successor, and one more to notice.
pub(crate) const LAST_TICK: u8 = 3 * TTL;
/// How often a client asks that asks again.
pub(crate) const TRIES: u8 = 2;
/// The most clients of a search.
pub(crate) const CLIENTS: usize = 3;
/// A hold that does not end by itself.
pub(crate) const FOR_EVER: u8 = u8::MAX;

/// What a key holds, or a client remembers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) enum Value {
    #[default]
    Nil,
    One,
    /// The number of a client.
    Id(u8),
    /// A time in ticks.
    Time(u8),
}

/// A key on a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Entry {
    pub(crate) value: Value,
    /// Ticks until it is gone; `None` for never.
    pub(crate) ttl: Option<u8>,
    /// Whose lock it is, whatever its value says.
    pub(crate) owner: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) enum Life {
    /// Has not begun.
    #[default]
    Idle,
    Running,
    /// Has finished, or given up.
    Gone,
    Crashed,
}

#[allow(clippy::struct_excessive_bools, reason = "they are independent of each other, and a search tries all")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct Client {
    pub(crate) life: Life,
    /// The line that it does next.
    pub(crate) line: u8,
    /// It believes that it has the lock, and has not given it back.
    pub(crate) holds: bool,
    /// It is between reading and writing what the lock protects.
    pub(crate) inside: bool,
    /// Ticks until its lease ends, counted from when it asked.
    pub(crate) lease: u8,
    /// Which grant of this lock its own was, counted from 1: the fencing token.
    pub(crate) grant: u8,
    pub(crate) remembered: Value,
    pub(crate) votes: u8,
    pub(crate) tries: u8,
    /// Its connection is broken.
    pub(crate) cut: bool,
    /// Its watchdog was told that the lock is gone.
    pub(crate) told: bool,
}

/// The whole system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct State {
    pub(crate) now: u8,
    /// The lock: on the master; with a replica the second is that one's, else they are three servers'.
    pub(crate) keys: [Option<Entry>; 3],
    pub(crate) clients: [Client; CLIENTS],
    /// Grants so far.
    pub(crate) grants: u8,
    /// The greatest grant that has begun its work.
    pub(crate) newest: u8,
    /// Ticks since the last client was gone, up to the TTL.
    pub(crate) quiet: u8,
    pub(crate) failed_over: bool,
    pub(crate) restarted: bool,
}

/// What happens next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Action {
    Step(u8),
    /// The step is tried over a broken connection.
    Lose(u8),
    /// The watchdog of a client renews.
    Renew(u8),
    Crash(u8),
    Tick,
    Replicate,
    Failover,
    Restart(u8),
}

/// What a server answers, or a client finds out by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Reply {
    /// Nothing was asked.
    #[default]
    None,
    Int(i8),
    Ok,
    Value(Value),
    /// Ticks left, -1 for no end, -2 for no key.
    Ttl(i8),
    /// A fencing token.
    Token(u8),
    /// No answer.
    Failed,
}

/// The outcome of an action.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Step {
    pub(crate) after: State,
    pub(crate) reply: Reply,
    /// Whether a line ended in a yes.
    pub(crate) yes: bool,
    /// The properties that it breaks, as bits.
    pub(crate) broken: u8,
}

impl State {
    pub(crate) fn running(&self, client: usize) -> bool {
        self.clients[client].life == Life::Running
    }
}
