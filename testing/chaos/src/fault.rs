//! The faults of servers, networks, clocks and clients.

use crate::topology::Topology;

/// A kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// A server is killed and restarted with the data on its disk.
    RestartFromDisk,
    /// A server is killed and restarted without data.
    RestartEmpty,
    /// A server is stopped for a while. It keeps its connections.
    FreezeServer,
    /// A server delays all writes for a while.
    PauseServer,
    /// A server becomes the replica of an unreachable master, and later a master again: it keeps its data and rejects
    /// writes.
    Demote,
    /// A server dies, and its replica, which lags, is promoted.
    Failover,
    /// A master and its replica swap roles. Clients keep their connections to the new replica, which rejects writes.
    Switchover,
    /// The sentinels promote a replica. The old master does not notice, and continues for seconds.
    SentinelFailover,
    /// A master is killed, a lagging replica is promoted, and the old master returns, with its data if it writes to disk.
    KillMaster,
    /// Like the previous fault, but the old master returns without data.
    WipeMaster,
    /// A master is stopped until a replica is promoted, and then continues.
    FreezeMaster,
    /// A sentinel is stopped while the others promote a replica.
    FreezeSentinel,
    /// The process of a client is stopped while it holds a lock and the sentinels promote a replica.
    FreezeClientInFailover,
    /// A slot with keys in use moves from master to master.
    MoveSlot,
    /// A slot stays between two masters for a while, with its keys at both.
    HalfMoveSlot,
    /// A cluster swaps the roles of a master and its replica.
    ClusterFailover,
    /// A master is disconnected from the other nodes of a cluster, but not from clients. Its replica is promoted, and
    /// it is reconnected.
    PartitionMaster,
    /// All sessions of a database are terminated, repeatedly.
    TerminateSessions,
    /// A database server dies, and a standby that commits have waited for is promoted.
    PromoteStandby,
    /// The network is slow in both directions.
    Slow,
    /// All connections are closed, and new ones are refused.
    Cut,
    /// All data is lost.
    BlackHole,
    /// All data is delayed, and then delivered at once.
    Stall,
    /// Requests are executed, and their replies are lost.
    LoseReplies,
    /// Requests arrive a second time, later and on another connection.
    Repeat,
    /// The scripts are flushed repeatedly.
    FlushScripts,
    /// The server is out of memory.
    OutOfMemory,
    /// The wall clock of the server jumps forward, and later back.
    ClockForward,
    /// The wall clock of the server jumps back, and later forward.
    ClockBack,
    /// The wall clock of the server runs too fast, within the assumed drift.
    ClockFast,
    /// The wall clock of the server runs too slow, within the assumed drift.
    ClockSlow,
    /// The process of a client is stopped while it holds a lock, for longer than its lease.
    FreezeClient,
    /// The process of a client is killed while it holds a lock.
    KillClient,
    /// Another program deletes a held key without checking its owner.
    ForeignDelete,
}

impl Fault {
    /// All kinds.
    pub const ALL: [Self; 34] = [
        Self::RestartFromDisk,
        Self::RestartEmpty,
        Self::FreezeServer,
        Self::PauseServer,
        Self::Demote,
        Self::Failover,
        Self::Switchover,
        Self::SentinelFailover,
        Self::KillMaster,
        Self::WipeMaster,
        Self::FreezeMaster,
        Self::FreezeSentinel,
        Self::FreezeClientInFailover,
        Self::MoveSlot,
        Self::HalfMoveSlot,
        Self::ClusterFailover,
        Self::PartitionMaster,
        Self::TerminateSessions,
        Self::PromoteStandby,
        Self::Slow,
        Self::Cut,
        Self::BlackHole,
        Self::Stall,
        Self::LoseReplies,
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

    /// The name in a history.
    pub const fn name(self) -> &'static str {
        match self {
            Self::RestartFromDisk => "restart from disk",
            Self::RestartEmpty => "restart empty",
            Self::FreezeServer => "freeze server",
            Self::PauseServer => "pause server",
            Self::Demote => "demote",
            Self::Failover => "failover",
            Self::Switchover => "switchover",
            Self::SentinelFailover => "sentinel failover",
            Self::KillMaster => "kill master",
            Self::WipeMaster => "wipe master",
            Self::FreezeMaster => "freeze master",
            Self::FreezeSentinel => "freeze sentinel",
            Self::FreezeClientInFailover => "freeze client in failover",
            Self::MoveSlot => "move slot",
            Self::HalfMoveSlot => "half-moved slot",
            Self::ClusterFailover => "cluster failover",
            Self::PartitionMaster => "partition master",
            Self::TerminateSessions => "terminate sessions",
            Self::PromoteStandby => "promote standby",
            Self::Slow => "slow network",
            Self::Cut => "cut network",
            Self::BlackHole => "black hole",
            Self::Stall => "stalled network",
            Self::LoseReplies => "lose replies",
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

    /// The checks that the fault may violate. Tokens always stay unique and ordered.
    ///
    /// A Redis server without a quarantine violates exclusion if it loses its data; a clock, if it ends leases early on
    /// one of the nodes of a bare majority; and another program, by a plain `DEL`. After a failover by sentinels,
    /// there are two masters for seconds: without a quarantine, the old one also renews locks that the new one has
    /// granted to others. The same is true for a cluster that replaces a master, but for a disconnected master only
    /// until it stops. The record that work is done in a window is lost with the data, also where a quarantine protects
    /// leases. A slot that moves loses nothing, and neither does `CLUSTER FAILOVER`, because the master waits
    /// for it.
    pub fn excuses(self, topology: Topology) -> &'static [&'static str] {
        match self {
            Self::ClockForward | Self::ClockBack | Self::ForeignDelete => &["C3", "C4"],
            _ if !self.loses_data() => &[],
            _ if topology.has_quarantine() => &["C12"],
            _ if self.replaces_a_master() => &["C3", "C4", "C6", "C12"],
            _ => &["C3", "C4", "C12"],
        }
    }

    /// Whether a server that continues to grant may lack the last writes, or all.
    const fn loses_data(self) -> bool {
        self.replaces_a_master() || matches!(self, Self::RestartEmpty | Self::Failover | Self::Switchover)
    }

    /// Whether the fault needs a replica.
    pub const fn needs_a_replica(self) -> bool {
        matches!(self, Self::Failover | Self::Switchover)
    }

    /// Whether a replica becomes the master while the old master may still consider itself the master.
    pub const fn replaces_a_master(self) -> bool {
        matches!(
            self,
            Self::SentinelFailover
                | Self::KillMaster
                | Self::WipeMaster
                | Self::FreezeMaster
                | Self::FreezeSentinel
                | Self::FreezeClientInFailover
                | Self::PartitionMaster
        )
    }

    /// Whether a slot of a cluster moves.
    pub const fn moves_a_slot(self) -> bool {
        matches!(self, Self::MoveSlot | Self::HalfMoveSlot)
    }

    /// Whether the victim is a worker process.
    pub const fn is_for_clients(self) -> bool {
        matches!(self, Self::FreezeClient | Self::KillClient | Self::FreezeClientInFailover)
    }

    /// Whether a node has lost its data, or may have.
    pub const fn is_forgetful(self) -> bool {
        matches!(self, Self::RestartEmpty | Self::RestartFromDisk | Self::Failover | Self::Switchover)
    }

    /// The event that proves the effect of the fault.
    pub const fn proof(self) -> Option<&'static str> {
        Some(match self {
            Self::RestartFromDisk => "data that was kept",
            Self::RestartEmpty => "data that was lost",
            Self::FreezeServer | Self::PauseServer | Self::Cut | Self::BlackHole | Self::FreezeMaster => "unreachable",
            Self::Demote => "READONLY",
            Self::Switchover => "a client that stayed with a replica",
            Self::Failover | Self::KillMaster | Self::WipeMaster => "a promotion that lost a lock",
            Self::SentinelFailover => "a replaced master that does not know it",
            Self::PartitionMaster => "a lock of a master that is cut off",
            Self::TerminateSessions => "a session that was terminated",
            Self::PromoteStandby => "a promotion that kept all tokens",
            Self::MoveSlot => "a request for a slot that was moved",
            Self::HalfMoveSlot => "a request for a half-moved slot",
            Self::Repeat => "a request that was repeated",
            Self::LoseReplies => "a reply that was lost",
            Self::FlushScripts => "NOSCRIPT",
            Self::OutOfMemory => "OOM",
            Self::FreezeClient => "lost by expiry",
            Self::KillClient => "a holder that was killed",
            Self::ForeignDelete => "a held key that was deleted",
            Self::Slow
            | Self::Stall
            | Self::ClockBack
            | Self::ClockForward
            | Self::ClockFast
            | Self::ClockSlow
            | Self::FreezeSentinel
            | Self::FreezeClientInFailover
            | Self::ClusterFailover => return None,
        })
    }
}
