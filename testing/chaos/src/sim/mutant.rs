use std::fmt;
use std::str::FromStr;

/// A protection that is left out, at the edge of the core: in what a client makes of its decisions, or in a node.
///
/// The simulation is worth something only if it finds what each of them breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mutant {
    /// The greatest fence of a majority is the token, without a raise.
    NoRound2,
    /// Fences count by one and follow no clock.
    CounterOnly,
    /// Nodes do not clamp a proposal to their own clock.
    ClientClockOnly,
    /// A node that may have forgotten grants at once.
    NoQuarantine,
    /// A node that came back from a crash grants at once; one that was flushed does not.
    ImmediateRestart,
    /// A client is the same holder in all its attempts.
    TokenReuse,
    /// A release deletes whatever lock there is.
    PlainDel,
    /// A lease counts from the answer that decided.
    ValidityFromReply,
    /// A lease does not end early by the drift.
    NoDrift,
    /// One grant less than a majority wins.
    MajorityOff,
    /// A lost round, and one that went away, gives nothing back.
    NoRollback,
    /// A renewal that is answered after the lapse revives the hold.
    LateExtendRevives,
    /// A node acks a raise for any holder.
    UncondRaise,
    /// A node acks a raise below its fence.
    RaiseNoLe,
    /// A node does not count the permits in use.
    UncountedPermits,
    /// A release of permits that are already free frees some again.
    FreesTwice,
    /// The key of several holders ends with the lease of the first.
    EndsWithItsFirst,
    /// A node lets readers in beside a writer.
    ReadsBesideWriters,
    /// A writer that downgrades counts as one until the reply.
    DowngradesWithReply,
    /// The resource has one number for readers and writers.
    OneNumberGate,
}

impl Mutant {
    /// All of them.
    pub const ALL: [Self; 20] = [
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
