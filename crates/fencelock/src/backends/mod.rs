//! The places where a lock can live. Each is a [`Backend`](fencelock_core::Backend); none knows another.
//!
//! A URL names a place by its scheme: [`connect`]. Other crates add schemes of their own with [`register`].
//!
//! | backend | for | what frees a crashed holder | line of waiters |
//! |---|---|---|---|
//! | [`Memory`] | tasks and threads of one process | dropping the guard; with leases, their TTL | first come, first served |
//! | `File` | processes of one machine | the kernel | the first claim after a release |
//! | `Redis` | machines that share one Redis | the lease's TTL | first come, first served |
//! | `Quorum` | machines that share several independent Redis servers | the lease's TTL | the first claim after a release |
//!
//! `File` needs the feature `file`, servers the feature `redis`; both are on by default, and need Unix.

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
#[cfg(feature = "redis")]
mod servers;
mod tokio_clock;

pub use connect::{connect, lazy, on_demand};
pub use fencelock_core::{
    BenchSite, BootClock, Change, ConnectError, Connecting, ManualClock, RegisteredNode, Scheme, UrlForm,
};
#[cfg(feature = "redis")]
pub use fencelock_redis::{Quorum, Redis, Server};
#[cfg(all(feature = "file", unix))]
pub use file::File;
pub use init::init;
pub use memory::Memory;
pub use schemes::{register, scheme_of, schemes};
#[cfg(feature = "redis")]
pub use servers::servers;
pub use tokio_clock::TokioClock;
