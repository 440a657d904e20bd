use fencelock::Drift;
use fencelock_core::quarantine;
use std::fmt;
use std::time::Duration;

/// What the locks of a run live on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// One Redis.
    Single,
    /// One Redis with a quarantine, and a replica, which takes its place now and then.
    Replica,
    /// The same without a quarantine.
    BareReplica,
    /// A quorum of so many.
    Quorum(usize),
}

impl Form {
    /// One server is a single Redis, more are a quorum.
    pub const fn of(nodes: usize) -> Self {
        if nodes > 1 { Self::Quorum(nodes) } else { Self::Single }
    }

    /// How many servers clients know of.
    pub const fn nodes(self) -> usize {
        match self {
            Self::Single | Self::Replica | Self::BareReplica => 1,
            Self::Quorum(nodes) => nodes,
        }
    }

    /// Whether the loss of one node goes unnoticed.
    pub const fn is_quorum(self) -> bool {
        matches!(self, Self::Quorum(_))
    }

    /// Whether a master can be replaced.
    pub const fn has_replica(self) -> bool {
        matches!(self, Self::Replica | Self::BareReplica)
    }

    /// Whether a server that may have forgotten grants nothing until every lease it may have granted is over. One Redis
    /// that stands alone is run without, and has excuses.
    pub const fn has_quarantine(self) -> bool {
        matches!(self, Self::Replica | Self::Quorum(_))
    }

    /// For how long that is, where no lease is longer than this.
    pub fn quarantine(self, max_ttl: Duration) -> Duration {
        if self.has_quarantine() { quarantine(max_ttl, Drift::default()) } else { Duration::ZERO }
    }

    /// The options of a URL under which it is, with leases up to this.
    pub(crate) fn options(self, max_ttl: Duration) -> String {
        // A claim that goes unanswered for longer is given up: shorter than a lease.
        let (max_ttl, timeout) = (max_ttl.as_millis(), (max_ttl * 2 / 5).as_millis());
        match self {
            Self::Single | Self::BareReplica => format!("timeout={timeout}"),
            Self::Replica => format!("timeout={timeout}&quarantine=on&max_ttl={max_ttl}"),
            Self::Quorum(_) => format!("max_ttl={max_ttl}"),
        }
    }

    /// The options of a URL that trusts whoever has forgotten everything.
    pub(crate) const fn trusting(self) -> &'static str {
        match self {
            Self::Single | Self::BareReplica => "timeout=400",
            Self::Replica => "timeout=400&quarantine=on&trust_empty=true",
            Self::Quorum(_) => "trust_empty=true",
        }
    }
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Single => f.write_str("one Redis"),
            Self::Replica => f.write_str("one Redis with a replica and a quarantine"),
            Self::BareReplica => f.write_str("one Redis with a replica"),
            Self::Quorum(nodes) => write!(f, "a quorum of {nodes}"),
        }
    }
}
