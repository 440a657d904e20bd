use std::fmt;
use std::str::FromStr;

/// A protection that is removed, either where a client applies a decision of the core, or in a node.
///
/// The simulation must find the violation that each mutant causes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mutant {
    /// The greatest fence of a majority is the token; there is no raise.
    NoRound2,
    /// Fences are counters and do not follow a clock.
    CounterOnly,
    /// Nodes do not clamp a proposal to their own clock.
    ClientClockOnly,
    /// A node that may have lost data grants at once.
    NoQuarantine,
    /// A node that restarts after a crash grants at once; one that was flushed does not.
    ImmediateRestart,
    /// A client uses the same holder id in all attempts.
    TokenReuse,
    /// A release deletes the lock of any holder.
    PlainDel,
    /// A lease starts when the deciding reply arrives.
    ValidityFromReply,
    /// The client does not subtract the clock drift from a lease.
    NoDrift,
    /// One grant less than a majority wins.
    MajorityOff,
    /// A claim that was lost or dropped releases nothing.
    NoRollback,
    /// A renewal that is answered after the lease has expired revives the hold.
    LateExtendRevives,
    /// A node acks a raise for any holder.
    UncondRaise,
    /// A node acks a raise below its fence.
    RaiseNoLe,
    /// A node does not count the permits in use.
    UncountedPermits,
    /// A release of permits that are already free frees others.
    FreesTwice,
    /// The key of several holders expires with the lease of the first.
    EndsWithItsFirst,
    /// A node grants readers while a writer holds the lock.
    ReadsBesideWriters,
    /// A writer that downgrades counts as a writer until the reply arrives.
    DowngradesWithReply,
    /// The resource compares one number for readers and writers.
    OneNumberGate,
    /// A lease that was handed to a waiter counts as a full one, so it is taken after its end.
    HandOffIsLease,
    /// A client ignores the message that its lock has another holder, or none.
    IgnoresLoss,
    /// A client ignores the message that another one waits.
    IgnoresWaiters,
}

impl Mutant {
    /// All mutants.
    pub const ALL: [Self; 23] = [
        Self::NoRound2,
        Self::CounterOnly,
        Self::ClientClockOnly,
        Self::NoQuarantine,
        Self::ImmediateRestart,
        Self::TokenReuse,
        Self::PlainDel,
        Self::ValidityFromReply,
        Self::NoDrift,
        Self::MajorityOff,
        Self::NoRollback,
        Self::LateExtendRevives,
        Self::UncondRaise,
        Self::RaiseNoLe,
        Self::UncountedPermits,
        Self::FreesTwice,
        Self::EndsWithItsFirst,
        Self::ReadsBesideWriters,
        Self::DowngradesWithReply,
        Self::OneNumberGate,
        Self::HandOffIsLease,
        Self::IgnoresLoss,
        Self::IgnoresWaiters,
    ];
}

impl fmt::Display for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl FromStr for Mutant {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let names = || Self::ALL.map(|mutant| mutant.to_string()).join(", ");
        let found = Self::ALL.into_iter().find(|mutant| mutant.to_string() == name);
        found.ok_or_else(|| format!("there are {}; {name:?} is none of them", names()))
    }
}
