//! The kinds of servers. What is particular to one, how it is started and which faults it has, is a file of its own.

mod cluster;
mod objects;
mod postgres;
mod sentinels;
mod servers;

pub use postgres::Pooler;

use crate::Failure;
use crate::fault::Fault;
use crate::phases::Frame;
use fencelock::Drift;
use fencelock_core::quarantine;
use std::fmt;
use std::time::Duration;

/// How long a replaced master may continue to grant if a quarantine is on: the new master adds this to the longest TTL.
const MASTER_WINDOW: Duration = Duration::from_secs(5);

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

/// The arguments of a program that say which servers there are.
#[derive(Debug, clap::Args)]
pub struct ServerArguments {
    /// The number of servers: 1 is a single Redis server, 3 or 5 are a quorum
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=9))]
    nodes: u8,
    /// One Redis server with a replica, which is promoted from time to time
    #[arg(long, conflicts_with = "nodes")]
    replica: bool,
    /// A Redis master with two replicas and three sentinels
    #[arg(long, conflicts_with_all = ["nodes", "replica"])]
    sentinel: bool,
    /// PostgreSQL with a standby, without a pooler or behind one
    #[arg(long, value_name = "POOLER", num_args = 0..=1, default_missing_value = "direct", value_enum)]
    #[arg(conflicts_with_all = ["nodes", "replica", "sentinel", "cluster", "bare"])]
    postgres: Option<Pooler>,
    /// A store of objects at this URL, which has an endpoint=http://127.0.0.1:PORT and credentials in the environment
    #[arg(long, value_name = "URL")]
    #[arg(conflicts_with_all = ["nodes", "replica", "sentinel", "postgres", "cluster", "bare"])]
    pub objects: Option<String>,
    #[command(flatten)]
    of_cluster: OfCluster,
    /// With --replica or --sentinel: no quarantine, so a promotion may admit a second holder
    #[arg(long)]
    bare: bool,
}

/// Arguments of runs on a cluster.
#[derive(Debug, clap::Args)]
struct OfCluster {
    /// A Redis Cluster of three masters with a replica each
    #[arg(long, conflicts_with_all = ["nodes", "replica", "sentinel", "bare"])]
    cluster: bool,
    /// With --cluster: slots move, and no master is replaced, so no lock may be lost
    #[arg(long, requires = "cluster")]
    moves_only: bool,
}

impl ServerArguments {
    /// The topology that they name.
    ///
    /// # Errors
    /// They name none.
    pub fn topology(&self) -> Result<Topology, Failure> {
        let of_one = self.postgres.map(Topology::Postgres).or(self.objects.as_ref().map(|_| Topology::Objects));
        Ok(match (self.replica, self.sentinel, self.bare) {
            _ if self.of_cluster.moves_only => Topology::ClusterMoves,
            _ if self.of_cluster.cluster => Topology::Cluster,
            (true, _, false) => Topology::Replica,
            (true, _, true) => Topology::BareReplica,
            (_, true, false) => Topology::Sentinels,
            (_, true, true) => Topology::BareSentinels,
            (false, false, true) => return Err("--bare needs --replica or --sentinel".into()),
            (false, false, false) => of_one.unwrap_or(Topology::of(self.nodes.into())),
        })
    }
}

/// Starts the servers and the clients of a run, injects the faults, and ends them.
pub(crate) fn perform(run: &Frame<'_>) -> Result<(), Failure> {
    match run.settings.topology {
        Topology::Postgres(pooler) => postgres::perform(run, pooler),
        Topology::Objects => objects::perform(run),
        Topology::Sentinels | Topology::BareSentinels => sentinels::perform(run),
        Topology::Cluster | Topology::ClusterMoves => cluster::perform(run),
        _ => servers::perform(run),
    }
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
        matches!(self, Self::Single | Self::Replica | Self::BareReplica | Self::Quorum(_))
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

    /// The faults of this topology.
    pub fn faults(self) -> Vec<Fault> {
        let is_of_cluster =
            |fault: &Fault| fault.moves_a_slot() || matches!(fault, Fault::ClusterFailover | Fault::PartitionMaster);
        let plays = |fault: &Fault| match self {
            Self::ClusterMoves => fault.moves_a_slot(),
            Self::Postgres(_) => postgres::FAULTS.contains(fault),
            Self::Objects => objects::FAULTS.contains(fault),
            Self::Cluster => {
                is_of_cluster(fault)
                    || matches!(
                        fault,
                        Fault::KillMaster
                            | Fault::FreezeMaster
                            | Fault::FreezeServer
                            | Fault::FreezeClient
                            | Fault::KillClient
                    )
            }
            // Sentinel runs have no proxies, and the foreign program does not support sentinels.
            Self::Sentinels | Self::BareSentinels => {
                (fault.replaces_a_master() && !is_of_cluster(fault))
                    || fault.is_for_clients()
                    || matches!(fault, Fault::RestartEmpty | Fault::RestartFromDisk)
            }
            _ => {
                !fault.replaces_a_master()
                    && !is_of_cluster(fault)
                    && !matches!(fault, Fault::TerminateSessions | Fault::PromoteStandby)
                    && (self.has_replica() || !fault.needs_a_replica())
            }
        };
        Fault::ALL.into_iter().filter(plays).collect()
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
