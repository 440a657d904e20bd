//! Workloads on a real server: a flash sale, with readers or without, two concurrent payments from one account or transfers
//! between two, and a pool of connections.
//!
//! Every scheme runs the same workload in several processes. The lock protects a number that each holder reads and then
//! writes. Overlapping holders show as lost updates in the ledger, and a lock that is never released as stuck requests. The
//! users of a pool change nothing: more of them at once than there are permits show in the times of their holds.

mod chart;
mod job;
mod ledger;
mod legend;
mod library;
mod process;
mod program;
mod request;
mod round;
mod score;
mod successor;
mod work;
mod worker;

pub use chart::chart;
pub use job::{LiveJob, Tally};
pub use process::work;
pub use round::Round;
pub use score::{Score, json_scores, scores};
pub use successor::{Entrance, Successor};
pub use work::Host;

use crate::lang::Lang;
use crate::scheme::{Home, Scheme};
use crate::schemes::{catalog, find};
use crate::server_error::server_error;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// The kind of workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum WorkloadKind {
    /// A small stock, and thousands of concurrent requests.
    Stock,
    /// The same, and most requests only read: each reads the stock twice, which must not change in between.
    Readers,
    /// Accounts with a balance of 1000, with concurrent payments of 500 and 300 from each.
    Bank,
    /// Pairs of accounts with a balance of 1000: 500 is transferred to the second one while 300 is transferred to the first
    /// one. Each transfer needs the locks of both.
    Transfers,
    /// A pool of connections, each with a permit of a semaphore, and more users than connections.
    Pool,
}

impl WorkloadKind {
    /// The name in the results.
    const fn name(self) -> &'static str {
        match self {
            Self::Stock => "stock",
            Self::Readers => "stock-readers",
            Self::Bank => "bank",
            Self::Transfers => "bank-transfers",
            Self::Pool => "pool",
        }
    }

    /// Whether several requests may hold the lock at the same time.
    const fn has_many_holders(self) -> bool {
        matches!(self, Self::Readers | Self::Pool)
    }

    /// Whether all requests need the same lock.
    const fn has_one_lock(self) -> bool {
        matches!(self, Self::Stock | Self::Readers | Self::Pool)
    }
}

/// The parameters of a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Load {
    /// The kind of workload.
    pub workload: WorkloadKind,
    /// Worker processes; each handles eight concurrent requests.
    pub processes: u32,
    /// The total number of requests.
    pub requests: u32,
    /// The initial stock.
    pub stock: u32,
    /// The number of connections of a pool.
    pub permits: u8,
    /// The time between reading and writing.
    pub work: Duration,
    /// The TTL of the lock, if the scheme has one.
    pub ttl: Duration,
    /// The time that slow holders spend between reading and writing.
    pub sleep: Option<Duration>,
    /// A process is killed while one of its requests is between reading and writing. In a pool this happens once for each permit.
    pub crash: bool,
    /// Holders notify their [`Host`] before a write. The host may pause their process.
    pub pause: bool,
}

/// The number of concurrent requests of a process.
pub(crate) const CONCURRENCY: u32 = 8;

/// The scheme without a lock.
pub(crate) const NONE: &str = "none";
const FENCELOCK: &str = "fencelock";
const UNFENCED: &str = "fencelock-unfenced";
const ONE_BY_ONE: &str = "fencelock-one-by-one";

/// Why a workload failed.
#[derive(Debug)]
pub enum NotRun {
    /// The server returned an error.
    Server(redis::RedisError),
    /// The fencelock client returned an error.
    Client(Box<fencelock::Error>),
    /// The scheme does not exist, or does not run on one server.
    Scheme(String),
    /// A process received an invalid message.
    Job(String),
    /// A process could not start.
    Start(std::io::Error),
}

impl fmt::Display for NotRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server(error) => f.write_str(&server_error(error, Lang::En)),
            Self::Client(error) => write!(f, "the client failed: {error:#}"),
            Self::Scheme(id) => write!(f, "{id} does not run this workload on a single server"),
            Self::Job(text) => write!(f, "not a job: {text}"),
            Self::Start(error) => write!(f, "a process could not start: {error}"),
        }
    }
}

impl std::error::Error for NotRun {}

impl From<redis::RedisError> for NotRun {
    fn from(error: redis::RedisError) -> Self {
        Self::Server(error)
    }
}

impl From<fencelock::Error> for NotRun {
    fn from(error: fencelock::Error) -> Self {
        Self::Client(Box::new(error))
    }
}

/// The lock that protects the number.
#[derive(Debug, Clone)]
pub(crate) enum LockMethodKind {
    /// Without a lock.
    Open,
    /// The steps of a scheme.
    Program(Scheme),
    /// The fencelock client.
    Library {
        /// Whether reads and writes check the fencing token.
        fenced: bool,
        /// Whether a transfer acquires its own account first and then the other one, with two locks in place of `lock_all`.
        one_by_one: bool,
    },
}

impl LockMethodKind {
    pub(crate) fn of(id: &str, workload: WorkloadKind) -> Result<Self, NotRun> {
        let is_pool = workload == WorkloadKind::Pool;
        match id {
            _ if !workload_scheme_ids(workload).contains(&id) => Err(NotRun::Scheme(id.to_owned())),
            NONE => Ok(Self::Open),
            // Tokens of permits have no order among holders.
            FENCELOCK => Ok(Self::Library { fenced: !is_pool, one_by_one: false }),
            UNFENCED => Ok(Self::Library { fenced: false, one_by_one: false }),
            ONE_BY_ONE => Ok(Self::Library { fenced: true, one_by_one: true }),
            _ => find(id).map(Self::Program).ok_or_else(|| NotRun::Scheme(id.to_owned())),
        }
    }

    pub(crate) const fn is_fenced(&self) -> bool {
        matches!(self, Self::Library { fenced: true, .. })
    }

    /// Whether another client can acquire the lock while the process of the holder is paused.
    pub(crate) const fn admits_successor(&self) -> bool {
        !matches!(self, Self::Program(Scheme { has_lease: false, .. }))
    }
}

/// Excludes locks of one process, and schemes that only differ during a failover.
const fn is_for_one_server(scheme: &Scheme) -> bool {
    matches!(scheme.home, Home::Redis | Home::Three)
}

/// The schemes that can run this workload, from no lock to fencelock.
pub fn workload_scheme_ids(workload: WorkloadKind) -> Vec<&'static str> {
    let on_servers = catalog().into_iter().filter(is_for_one_server);
    let ids: Vec<_> = match workload {
        // A scheme is about one lock.
        WorkloadKind::Transfers => vec![ONE_BY_ONE],
        WorkloadKind::Pool => on_servers.filter(Scheme::is_semaphore).map(|scheme| scheme.id).collect(),
        WorkloadKind::Stock | WorkloadKind::Readers | WorkloadKind::Bank => {
            on_servers.filter(Scheme::is_lock).map(|scheme| scheme.id).chain([UNFENCED]).collect()
        }
    };
    std::iter::once(NONE).chain(ids).chain([FENCELOCK]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [WorkloadKind; 5] =
        [WorkloadKind::Stock, WorkloadKind::Readers, WorkloadKind::Bank, WorkloadKind::Transfers, WorkloadKind::Pool];

    #[test]
    fn every_workload_scheme_has_a_lock_and_fencelock_is_the_last() {
        for workload in ALL {
            let ids = workload_scheme_ids(workload);
            assert!(ids.iter().all(|id| LockMethodKind::of(id, workload).is_ok()), "{ids:?}");
            assert_eq!((ids.first(), ids.last()), (Some(&"none"), Some(&"fencelock")));
        }
    }

    #[test]
    fn a_scheme_runs_only_the_workloads_that_it_is_made_for() {
        let runs = |id: &str| ALL.map(|workload| workload_scheme_ids(workload).contains(&id));
        assert_eq!(runs("s4-redlock"), [true, true, true, false, false]);
        assert_eq!(runs("s5-counter"), [false, false, false, false, true]);
        assert_eq!(runs("fencelock-one-by-one"), [false, false, false, true, false]);
        for id in ["s2-process", "s3-replica-lag", "s6-read-write", "s2-thread"] {
            assert_eq!(runs(id), [false; 5], "{id}");
            assert!(matches!(LockMethodKind::of(id, WorkloadKind::Stock), Err(NotRun::Scheme(_))));
        }
    }
}
