//! The backends where locks are stored. Each implements [`Backend`](fencelock_core::Backend).
//!
//! The scheme of a URL selects the backend: [`connect`]. Other crates add schemes with [`register`].
//!
//! | backend | for | what frees the locks of a crashed holder | order of waiters |
//! |---|---|---|---|
//! | [`Memory`] | tasks and threads of one process | dropping the guard; with leases, their TTL | first come, first served |
//! | `File` | processes of one machine | the kernel | the first claim after a release |
//! | `Redis` | machines that share one Redis server, or a master with sentinels | the TTL of the lease | first come, first served |
//! | a cluster | machines that share a Redis Cluster | the TTL of the lease | first come, first served |
//! | `Quorum` | machines that share several independent Redis servers | the TTL of the lease | the first claim after a release |
//! | `Postgres` | machines that share a PostgreSQL database | the TTL of the lease | first come, first served |
//! | objects | machines that share a bucket of S3, Azure or Google | the TTL of the lease, and some seconds | the first claim after a release |
//! | Leases | machines that share a Kubernetes cluster | the TTL of the lease, and some seconds | the first claim after a release |
//!
//! `File` needs the feature `file`, servers the feature `redis` (`redis-plain` without TLS); both are on by default. `Postgres` needs the feature `postgres`, objects the feature `object-store`, and Leases the feature `kube`. `File` needs Unix.

#[cfg(all(feature = "file", not(unix)))]
compile_error!(
    "the feature `file` of fencelock needs Unix: it locks with flock(2). Build with default-features = false."
);

mod connect;
#[cfg(all(feature = "file", unix))]
mod file;
mod init;
mod memory;
mod schemes;
#[cfg(feature = "redis-plain")]
mod servers;
mod tokio_clock;

pub use connect::{connect, lazy, on_demand};
pub use fencelock_core::{
    BootClock, Change, ConnectError, Connecting, ManualClock, RegisteredNode, Registering, Scheme, SchemeCommands,
    UrlForm,
};
#[cfg(feature = "postgres")]
pub use fencelock_postgres::Postgres;
#[cfg(feature = "redis-plain")]
pub use fencelock_redis::{Quorum, Redis, Server};
#[cfg(all(feature = "file", unix))]
pub use file::{File, scheme::directory as file_directory, scheme::url_of as file_url};
pub use init::init;
pub use memory::Memory;
pub use schemes::{register, scheme_of, schemes};
#[cfg(feature = "redis-plain")]
pub use servers::servers;
pub use tokio_clock::TokioClock;
