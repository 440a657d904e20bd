//! What can be done to servers, networks, clocks and clients.

use crate::form::Form;

/// One kind of mischief.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// A server is killed and comes back with what is on its disk.
    RestartFromDisk,
    /// A server is killed and comes back without a memory.
    RestartEmpty,
    /// A server is stopped for a while. It keeps its connections.
    FreezeServer,
    /// A server keeps every writer waiting for a while.
    PauseServer,
    /// A server is made the replica of one that is not there, and later a master again: it knows everything and takes
    /// nothing.
    Demote,
    /// A server dies, and its replica, which was behind, is promoted in its place.
    Failover,
    /// A master and its replica change places. Clients keep their connections to the one that takes nothing any more.
    Switchover,
    /// The network is slow in both directions.
    Slow,
    /// Every connection is closed, and none is accepted.
    Cut,
    /// Everything that is sent vanishes.
    BlackHole,
    /// Everything that is sent arrives late, all at once.
    Stall,
    /// Requests are carried out, and their replies vanish.
    SwallowReplies,
    /// Requests arrive a second time, a little later and on another connection.
    Repeat,
    /// The scripts are forgotten, again and again.
    FlushScripts,
    /// There is no memory left.
    OutOfMemory,
    /// The server's wall clock jumps forward, and later back.
    ClockForward,
    /// The server's wall clock jumps back, and later forward.
    ClockBack,
    /// The server's wall clock runs too fast, within the bound for drift.
    ClockFast,
    /// The server's wall clock runs too slow, within the bound for drift.
    ClockSlow,
    /// A client's process is stopped while it holds a lock, for longer than its lease.
    FreezeClient,
    /// A client's process is killed while it holds a lock.
    KillClient,
    /// Another program deletes a held key without looking whose it is.
    ForeignDelete,
}

impl Fault {
    /// All kinds.
    pub const ALL: [Self; 22] = [
        Self::RestartFromDisk,
        Self::RestartEmpty,
        Self::FreezeServer,
        Self::PauseServer,
        Self::Demote,
        Self::Failover,
        Self::Switchover,
        Self::Slow,
        Self::Cut,
        Self::BlackHole,
        Self::Stall,
        Self::SwallowReplies,
        Self::Repeat,
        Self::FlushScripts,
        Self::OutOfMemory,
        Self::ClockForward,
        Self::ClockBack,
        Self::ClockFast,
        Self::ClockSlow,
        Self::FreezeClient,
        Self::KillClient,
        Self::ForeignDelete,
    ];

    /// Its name in a history.
    pub const fn name(self) -> &'static str {
        match self {
            Self::RestartFromDisk => "restart from disk",
            Self::RestartEmpty => "restart empty",
            Self::FreezeServer => "freeze server",
            Self::PauseServer => "pause server",
            Self::Demote => "demote",
            Self::Failover => "failover",
            Self::Switchover => "switchover",
            Self::Slow => "slow network",
            Self::Cut => "cut network",
            Self::BlackHole => "black hole",
            Self::Stall => "stalled network",
            Self::SwallowReplies => "swallow replies",
            Self::Repeat => "repeat requests",
            Self::FlushScripts => "flush scripts",
            Self::OutOfMemory => "out of memory",
            Self::ClockForward => "clock forward",
            Self::ClockBack => "clock back",
            Self::ClockFast => "clock fast",
            Self::ClockSlow => "clock slow",
            Self::FreezeClient => "freeze client",
            Self::KillClient => "kill client",
            Self::ForeignDelete => "foreign delete",
        }
    }

    /// The checks that it may break. Tokens stay unique and ordered through all of them.
    ///
    /// A Redis without a quarantine that forgets breaks exclusion; so does anywhere a clock that ends leases early, if it
    /// is that of one of exactly as many nodes as it takes, and a plain `DEL` by another program.
    pub fn excuses(self, form: Form) -> &'static [&'static str] {
        match self {
            Self::RestartEmpty | Self::Failover | Self::Switchover if !form.has_quarantine() => &["C3", "C4"],
            Self::ClockForward | Self::ClockBack | Self::ForeignDelete => &["C3", "C4"],
            _ => &[],
        }
    }

    /// Whether it takes a replica to do it.
    pub const fn needs_a_replica(self) -> bool {
        matches!(self, Self::Failover | Self::Switchover)
    }

    /// Whether the victim is a worker's process.
    pub const fn is_for_clients(self) -> bool {
        matches!(self, Self::FreezeClient | Self::KillClient)
    }

    /// Whether a node has forgotten afterwards, or may be thought to have.
    pub const fn is_forgetful(self) -> bool {
        matches!(self, Self::RestartEmpty | Self::RestartFromDisk | Self::Failover | Self::Switchover)
    }

    /// What must be seen if it was done in earnest.
    pub const fn proof(self) -> Option<&'static str> {
        Some(match self {
            Self::RestartFromDisk => "a memory that was kept",
            Self::RestartEmpty => "a memory that was lost",
            Self::FreezeServer | Self::PauseServer | Self::Cut | Self::BlackHole => "unreachable",
            Self::Demote => "READONLY",
            Self::Switchover => "a client that stayed with a replica",
            Self::Failover => "a promotion that lost a lock",
            Self::Repeat => "a request that was repeated",
            Self::SwallowReplies => "a reply that was swallowed",
            Self::FlushScripts => "NOSCRIPT",
            Self::OutOfMemory => "OOM",
            Self::FreezeClient => "lost by expiry",
            Self::KillClient => "a holder that was killed",
            Self::ForeignDelete => "a held key that was deleted",
            Self::Slow | Self::Stall | Self::ClockBack | Self::ClockForward | Self::ClockFast | Self::ClockSlow => {
                return None;
            }
        })
    }
}

impl Form {
    /// What can be done to it.
    pub fn faults(self) -> Vec<Fault> {
        Fault::ALL.into_iter().filter(|fault| self.has_replica() || !fault.needs_a_replica()).collect()
    }
}
