//! What a search tries, and the steps of a world.

use fencelock_core::once::Runs;

/// How the clients and nodes of a search behave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    /// As production does.
    Production,
    /// The work runs without the second read.
    NoReadUnderLock,
    /// A write without a reply counts.
    UnknownWriteCounts,
    /// A node stores the completion of a client that does not hold the key, and the client counts it.
    LateWriteCounts,
    /// A node replaces a completion by any other one.
    WriteReplaces,
    /// The lock is released before the completion is written.
    ReleaseFirst,
    /// Work that one node reports as done is not confirmed.
    NoConfirmation,
    /// A later run keeps only its own end.
    NoMerge,
    /// One node is enough for a write.
    OneNodeIsEnough,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Setting {
    pub(crate) rule: Rule,
    pub(crate) runs: Runs,
    pub(crate) nodes: usize,
    pub(crate) clients: usize,
    /// How often the clients begin, all together.
    pub(crate) attempts: u8,
    /// By how many seconds the clock steps.
    pub(crate) step: u64,
    /// The length of the windows of each client, in steps.
    pub(crate) windows: [u64; 2],
    /// How often the clock may step forward and back.
    pub(crate) ticks: u8,
    pub(crate) steps_back: u8,
    /// Whether clients may read before they claim the lock.
    pub(crate) peeks: bool,
    /// How many leases end by themselves, and how many messages get lost.
    pub(crate) losses: u8,
    pub(crate) drops: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    /// A client begins, and reads before it claims the lock or not.
    Begin(usize, bool),
    /// The client reads a node, which may not reply.
    Read(usize, usize, bool),
    /// A node grants the key to the client.
    Grant(usize, usize),
    /// The client sees its lease end. From then on the nodes may free the key.
    Lapse(usize),
    Expire(usize),
    /// The client sends its write, or its confirmation, to all nodes.
    Send(usize),
    /// The message at this position arrives. It may arrive again later.
    Arrive(usize, bool),
    Drop(usize),
    /// The client stops waiting for replies.
    TimeOut(usize),
    Succeed(usize),
    Fail(usize),
    /// The client ends, and gives its lock back.
    End(usize),
    /// A node forgets a completion whose time has passed.
    Forget(usize),
    Tick,
    StepBack,
}
