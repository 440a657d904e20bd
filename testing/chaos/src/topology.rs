use clap::ValueEnum;
use fencelock::Drift;
use fencelock_core::quarantine;
use std::fmt;
use std::time::Duration;

/// How long a replaced master may continue to grant if a quarantine is on: the new master adds this to the longest TTL.
const MASTER_WINDOW: Duration = Duration::from_secs(5);

/// What is between clients and a PostgreSQL server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Pooler {
    /// Nothing.
    Direct,
    /// `PgBouncer` that gives each client a connection.
    Session,
    /// `PgBouncer` that gives each transaction a connection.
    Transaction,
}

impl Pooler {
    /// Its `pool_mode`.
    pub(crate) const fn mode(self) -> Option<&'static str> {
        match self {
            Self::Direct => None,
            Self::Session => Some("session"),
            Self::Transaction => Some("transaction"),
        }
    }
}

/// The servers of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Topology {
    /// One Redis server.
    Single,
    /// One Redis server with a quarantine and a replica, which is promoted from time to time.
    Replica,
    /// The same without a quarantine.
    BareReplica,
    /// A master with two replicas, three sentinels and a quarantine.
    Sentinels,
    /// The same without a quarantine.
    BareSentinels,
    /// A cluster of three masters with a replica each. Slots move, and masters are replaced.
    Cluster,
    /// The same, but no master is replaced.
    ClusterMoves,
    /// A quorum of this size.
    Quorum(usize),
    /// A PostgreSQL server with a standby that commits wait for.
    Postgres(Pooler),
    /// A store of objects.
    Objects,
}

impl Topology {
    /// One server is a single Redis server, more are a quorum.
    pub const fn of(nodes: usize) -> Self {
        if nodes > 1 { Self::Quorum(nodes) } else { Self::Single }
    }

    /// The number of servers that clients use.
    pub const fn nodes(self) -> usize {
        match self {
            Self::Single
            | Self::Replica
            | Self::BareReplica
            | Self::Sentinels
            | Self::BareSentinels
            | Self::Postgres(_)
            | Self::Objects => 1,
            Self::Cluster | Self::ClusterMoves => 3,
            Self::Quorum(nodes) => nodes,
        }
    }

    /// Whether the loss of one node is tolerated.
    pub const fn is_quorum(self) -> bool {
        matches!(self, Self::Quorum(_))
    }

    /// Whether its locks have permits.
    pub const fn has_permits(self) -> bool {
        !self.is_quorum() && self.has_readers()
    }

    /// Whether its locks are also shared.
    pub const fn has_readers(self) -> bool {
        !self.is_objects()
    }

    /// Whether the locks are objects.
    pub const fn is_objects(self) -> bool {
        matches!(self, Self::Objects)
    }

    /// Whether the locks are in a PostgreSQL database.
    pub const fn is_postgres(self) -> bool {
        matches!(self, Self::Postgres(_))
    }

    /// Whether clients of PostgreSQL connect to a pooler.
    pub const fn has_pooler(self) -> bool {
        matches!(self, Self::Postgres(Pooler::Session | Pooler::Transaction))
    }

    /// Whether waiters are served in the order of arrival. Otherwise readers that overlap may keep a writer waiting.
    pub const fn has_queues(self) -> bool {
        !self.is_quorum()
    }

    /// Whether a master can be replaced.
    pub const fn has_replica(self) -> bool {
        matches!(self, Self::Replica | Self::BareReplica)
    }

    /// Whether sentinels replace the master.
    pub const fn has_sentinels(self) -> bool {
        matches!(self, Self::Sentinels | Self::BareSentinels)
    }

    /// Whether locks are spread over the masters of a cluster.
    pub const fn is_cluster(self) -> bool {
        matches!(self, Self::Cluster | Self::ClusterMoves)
    }

    /// Whether each Redis server has a proxy and a clock of its own. Sentinels and clusters report the real ports of the
    /// servers to clients.
    pub const fn has_proxies(self) -> bool {
        !self.has_sentinels() && !self.is_cluster() && !self.is_postgres() && !self.is_objects()
    }

    /// Whether a server that may have lost data does not grant until all its leases have expired. A single Redis server
    /// runs without a quarantine, so its violations are excused.
    pub const fn has_quarantine(self) -> bool {
        matches!(self, Self::Replica | Self::Sentinels | Self::Quorum(_))
    }

    /// The length of the quarantine if no lease is longer than `max_ttl`.
    pub fn quarantine(self, max_ttl: Duration) -> Duration {
        let window = if self.has_sentinels() { MASTER_WINDOW } else { Duration::ZERO };
        if self.has_quarantine() { quarantine(max_ttl + window, Drift::default()) } else { Duration::ZERO }
    }

    /// The options of its URL, for leases up to `max_ttl`.
    pub(crate) fn options(self, max_ttl: Duration) -> String {
        // The timeout of a claim is shorter than a lease.
        let (max_ttl, timeout) = (max_ttl.as_millis(), (max_ttl * 2 / 5).as_millis());
        match self {
            Self::Single | Self::BareReplica | Self::BareSentinels | Self::Cluster | Self::ClusterMoves => {
                format!("timeout={timeout}")
            }
            Self::Replica | Self::Sentinels => format!("timeout={timeout}&quarantine=on&max_ttl={max_ttl}"),
            Self::Quorum(_) => format!("max_ttl={max_ttl}"),
            Self::Postgres(_) => format!("timeout={timeout}&poll=20"),
            // One machine has one clock. On a busy one, an answer of a store takes longer than that of other servers.
            Self::Objects => format!("timeout={max_ttl}ms&poll=200ms&skew=0s"),
        }
    }

    /// The options of the URL of the controls: it trusts servers without data.
    pub(crate) const fn trusting(self) -> &'static str {
        match self {
            Self::Replica => "timeout=400&quarantine=on&trust_empty=true",
            Self::Quorum(_) => "trust_empty=true",
            Self::Postgres(_) => "timeout=2000&create=true",
            Self::Objects => "poll=200ms&skew=0s",
            _ => "timeout=400",
        }
    }
}

impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Single => f.write_str("one Redis"),
            Self::Replica => f.write_str("one Redis with a replica and a quarantine"),
            Self::BareReplica => f.write_str("one Redis with a replica"),
            Self::Sentinels => f.write_str("a master with sentinels and a quarantine"),
            Self::BareSentinels => f.write_str("a master with sentinels"),
            Self::Cluster => f.write_str("a cluster"),
            Self::ClusterMoves => f.write_str("a cluster without failovers"),
            Self::Quorum(nodes) => write!(f, "a quorum of {nodes}"),
            Self::Postgres(pooler) => write!(f, "PostgreSQL, {}", pooler.mode().unwrap_or("direct")),
            Self::Objects => f.write_str("a store of objects"),
        }
    }
}
