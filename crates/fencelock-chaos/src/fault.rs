//! What can be done to servers, networks, clocks and clients.

/// One kind of mischief.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// A server is killed and comes back with what is on its disk.
    RestartFromDisk,
    /// A server is killed and comes back without a memory.
    RestartEmpty,
    /// A server is stopped for a while. It keeps its connections.
    FreezeServer,
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
    /// The scripts are forgotten, again and again.
    FlushScripts,
    /// There is no memory left.
    OutOfMemory,
    /// The server's wall clock jumps forward, and later back.
    ClockForward,
    /// The server's wall clock jumps back, and later forward.
    ClockBack,
    /// A client's process is stopped while it holds a lock, for longer than its lease.
    FreezeClient,
    /// A client's process is killed while it holds a lock.
    KillClient,
    /// Another program deletes a held key without looking whose it is.
    ForeignDelete,
}

impl Fault {
    /// All kinds.
    pub const ALL: [Self; 15] = [
        Self::RestartFromDisk,
        Self::RestartEmpty,
        Self::FreezeServer,
        Self::Slow,
        Self::Cut,
        Self::BlackHole,
        Self::Stall,
        Self::SwallowReplies,
        Self::FlushScripts,
        Self::OutOfMemory,
        Self::ClockForward,
        Self::ClockBack,
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
            Self::Slow => "slow network",
            Self::Cut => "cut network",
            Self::BlackHole => "black hole",
            Self::Stall => "stalled network",
            Self::SwallowReplies => "swallow replies",
            Self::FlushScripts => "flush scripts",
            Self::OutOfMemory => "out of memory",
            Self::ClockForward => "clock forward",
            Self::ClockBack => "clock back",
            Self::FreezeClient => "freeze client",
            Self::KillClient => "kill client",
            Self::ForeignDelete => "foreign delete",
        }
    }

    /// The checks that it may break. Tokens stay unique and ordered through all of them.
    ///
    /// One Redis that forgets, or whose clock ends leases early, breaks exclusion; so does a plain `DEL` by another
    /// program. A quorum outlives a node that forgets, because that node is kept out until every lease has ended; it does
    /// not outlive a clock that jumps at one of exactly as many nodes as it needs.
    pub fn excuses(self, nodes: usize) -> &'static [&'static str] {
        match self {
            Self::RestartEmpty if nodes == 1 => &["C3", "C4"],
            Self::ClockForward | Self::ClockBack | Self::ForeignDelete => &["C3", "C4"],
            _ => &[],
        }
    }

    /// Whether the victim is a worker's process.
    pub const fn is_for_clients(self) -> bool {
        matches!(self, Self::FreezeClient | Self::KillClient)
    }

    /// Whether a node has forgotten afterwards, or may be thought to have.
    pub const fn is_forgetful(self) -> bool {
        matches!(self, Self::RestartEmpty | Self::RestartFromDisk)
    }

    /// What must be seen if it was done in earnest.
    pub const fn proof(self) -> Option<&'static str> {
        Some(match self {
            Self::RestartFromDisk => "a memory that was kept",
            Self::RestartEmpty => "a memory that was lost",
            Self::FreezeServer | Self::Cut | Self::BlackHole => "unreachable",
            Self::Slow | Self::Stall | Self::ClockBack | Self::ClockForward => return None,
            Self::SwallowReplies => "a reply that was swallowed",
            Self::FlushScripts => "NOSCRIPT",
            Self::OutOfMemory => "OOM",
            Self::FreezeClient => "lost by expiry",
            Self::KillClient => "a holder that was killed",
            Self::ForeignDelete => "a held key that was deleted",
        })
    }
}
