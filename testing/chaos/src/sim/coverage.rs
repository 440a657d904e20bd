use std::fmt;

/// An event that a batch of seeds must reach; otherwise the batch proves nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Coverage {
    /// A majority granted the same fence, in one round trip.
    EqualGrants,
    /// A majority granted different fences, so the claim raised them.
    Raise,
    /// A node refused a raise.
    RefusedRaise,
    /// A round was lost after its raise.
    Overtaken,
    /// A round was lost because other holders have the key.
    Busy,
    /// A round was lost because too few nodes answered.
    Unreachable,
    /// A majority granted, but the lease had already expired.
    TooLate,
    /// A node in quarantine refused a claim.
    Quarantine,
    /// A claim was executed twice, and the second execution found its own lock.
    AskedTwice,
    /// A grant arrived after the attempt had ended, and was released.
    LateGrant,
    /// A release in the background was given up, because its lease is over.
    GivenUp,
    /// A renewal was confirmed by a majority.
    Renewed,
    /// The result of a renewal was unknown.
    RenewalFailed,
    /// A majority reported that the lock is gone.
    TakenAway,
    /// A lease expired before it could be renewed.
    Lapsed,
    /// A renewal was confirmed after the lease had expired, and did not revive it.
    LateRenewal,
    /// The resource rejected a write.
    GateRefusal,
    /// A node lost all its data.
    Forgot,
    /// A node restored older data.
    FellBack,
    /// A node restarted with all its data.
    Kept,
    /// A client crashed.
    ClientDied,
    /// The wall clock of a node was stepped.
    Jump,
    /// A node was disconnected.
    Cut,
    /// A client was granted a key that another client also holds.
    Together,
    /// A claim of permits was refused because too few were free.
    TooFewPermits,
    /// A writer was downgraded to a reader.
    Downgraded,
    /// A downgrade was sent again because no reply arrived.
    DowngradedAgain,
    /// A writer lost its hold while its downgrade was in progress.
    DowngradeLost,
    /// A waiter began with the message of its grant.
    HandedOver,
    /// A lease was passed to another task of its client.
    Shared,
    /// The server reported a waiter to a client that kept an idle lease.
    AnnouncedWaiter,
    /// The server reported to a holder that its lock was evicted.
    AnnouncedLoss,
}

impl Coverage {
    /// The events that need a reader, a downgrade or permits.
    pub const OF_MODES: [Self; 5] =
        [Self::Together, Self::TooFewPermits, Self::Downgraded, Self::DowngradedAgain, Self::DowngradeLost];

    /// The events that need a queue, or tasks that share a lease.
    pub const OF_QUEUES: [Self; 4] = [Self::HandedOver, Self::Shared, Self::AnnouncedWaiter, Self::AnnouncedLoss];

    /// All other events.
    pub const ALL: [Self; 23] = [
        Self::EqualGrants,
        Self::Raise,
        Self::RefusedRaise,
        Self::Overtaken,
        Self::Busy,
        Self::Unreachable,
        Self::TooLate,
        Self::Quarantine,
        Self::AskedTwice,
        Self::LateGrant,
        Self::GivenUp,
        Self::Renewed,
        Self::RenewalFailed,
        Self::TakenAway,
        Self::Lapsed,
        Self::LateRenewal,
        Self::GateRefusal,
        Self::Forgot,
        Self::FellBack,
        Self::Kept,
        Self::ClientDied,
        Self::Jump,
        Self::Cut,
    ];
}

/// How often each event occurred.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CoverageCounts([u64; Coverage::ALL.len() + Coverage::OF_MODES.len() + Coverage::OF_QUEUES.len()]);

impl CoverageCounts {
    pub(super) const fn saw(&mut self, coverage: Coverage) {
        self.0[coverage as usize] += 1;
    }

    pub(super) fn add(&mut self, other: &Self) {
        for (mine, more) in self.0.iter_mut().zip(other.0) {
            *mine += more;
        }
    }

    /// How often an event occurred.
    pub const fn of(&self, coverage: Coverage) -> u64 {
        self.0[coverage as usize]
    }

    /// The events that never occurred.
    pub fn missing(&self) -> Vec<Coverage> {
        Coverage::ALL.into_iter().filter(|coverage| self.of(*coverage) == 0).collect()
    }
}

impl fmt::Display for CoverageCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<String> =
            Coverage::ALL.iter().map(|coverage| format!("{coverage:?} {}", self.of(*coverage))).collect();
        f.write_str(&all.join(", "))?;
        let others = Coverage::OF_MODES.iter().chain(&Coverage::OF_QUEUES).filter(|coverage| self.of(**coverage) > 0);
        others.into_iter().try_for_each(|coverage| write!(f, ", {coverage:?} {}", self.of(*coverage)))
    }
}
