//! Two workloads on a real server: a flash sale, and two concurrent payments from one account.
//!
//! Every scheme runs the same workload in several processes. The lock protects a number that each holder reads and then
//! writes. Overlapping holders show as lost updates in the ledger, and a lock that is never released as stuck requests.

mod chart;
mod job;
mod ledger;
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
    /// Accounts with a balance of 1000, with concurrent payments of 500 and 300 from each.
    Bank,
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
    /// The time between reading and writing.
    pub work: Duration,
    /// The TTL of the lock, if the scheme has one.
    pub ttl: Duration,
    /// The time that slow holders spend between reading and writing.
    pub sleep: Option<Duration>,
    /// One process is killed while one of its requests is between reading and writing.
    pub crash: bool,
    /// Holders notify their [`Host`] before a write. The host may pause their process.
    pub pause: bool,
}

/// The number of concurrent requests of a process.
pub(crate) const CONCURRENCY: u32 = 8;

/// The scheme without a lock.
pub(crate) const NONE: &str = "none";

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
            Self::Scheme(id) => write!(f, "{id} is not a scheme for a single server"),
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
    },
}

impl LockMethodKind {
    pub(crate) fn of(id: &str) -> Result<Self, NotRun> {
        let unknown = || NotRun::Scheme(id.to_owned());
        match id {
            NONE => Ok(Self::Open),
            "fencelock" => Ok(Self::Library { fenced: true }),
            "fencelock-unfenced" => Ok(Self::Library { fenced: false }),
            _ => find(id).filter(is_for_one_server).map(Self::Program).ok_or_else(unknown),
        }
    }

    pub(crate) const fn is_fenced(&self) -> bool {
        matches!(self, Self::Library { fenced: true })
    }

    /// Whether another client can acquire the lock while the process of the holder is paused.
    pub(crate) const fn admits_successor(&self) -> bool {
        !matches!(self, Self::Program(Scheme { has_lease: false, .. }))
    }
}

/// Excludes locks of one process, schemes that only differ during a failover, and what is no lock.
fn is_for_one_server(scheme: &Scheme) -> bool {
    matches!(scheme.home, Home::Redis | Home::Three) && scheme.is_lock()
}

/// The schemes that a workload can run, from no lock to fencelock.
pub fn workload_scheme_ids() -> Vec<&'static str> {
    let on_servers = catalog().into_iter().filter(is_for_one_server).map(|scheme| scheme.id);
    std::iter::once(NONE).chain(on_servers).chain(["fencelock-unfenced", "fencelock"]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_workload_scheme_has_a_lock_and_fencelock_is_the_last() {
        let all = workload_scheme_ids();
        assert!(all.iter().all(|id| LockMethodKind::of(id).is_ok()), "{all:?}");
        assert_eq!((all.first(), all.last()), (Some(&"none"), Some(&"fencelock")));
        assert!(all.contains(&"s4-redlock") && !all.contains(&"s2-process") && !all.contains(&"s3-replica-lag"));
        assert!(matches!(LockMethodKind::of("s2-thread"), Err(NotRun::Scheme(_))));
    }
}
