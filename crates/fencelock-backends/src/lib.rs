//! The places of fencelock locks. Each is a [`Backend`](fencelock_core::Backend), and they are independent of each other.
//!
//! The scheme of a URL selects a backend: [`connect`]. Other crates add schemes with [`register`].
//!
//! | backend | for | what releases the lock of a crashed holder | queue |
//! |---|---|---|---|
//! | [`Memory`] | tasks and threads of one process | dropping the guard; with leases, their TTL | first come, first served |
//! | [`File`] | processes of one machine | the kernel | the first claim after a release |
//! | [`Redis`] | machines that share one Redis | the lease's TTL | first come, first served |
//! | [`Quorum`] | machines that share several independent Redis servers | the lease's TTL | the first claim after a release |
//!
//! Files need the feature `file`, servers the feature `redis`; both are on by default, and need Unix.
#![forbid(unsafe_code)]

#[cfg(all(feature = "file", not(unix)))]
compile_error!(
    "the feature `file` of fencelock needs Unix: it locks with flock(2). Build with default-features = false."
);
#[cfg(all(feature = "redis", not(unix)))]
compile_error!("the feature `redis` of fencelock needs Unix so far. Build with default-features = false.");

mod clock;
mod connect;
#[cfg(feature = "file")]
mod file;
mod init;
mod listeners;
mod memory;
mod memory_scheme;
#[cfg(feature = "redis")]
mod quorum;
#[cfg(feature = "redis")]
mod redis;
mod scheme;
mod schemes;

pub use clock::{BootClock, ManualClock, TokioClock};
pub use connect::{ConnectError, connect, lazy, on_demand};
#[cfg(feature = "file")]
pub use file::File;
pub use init::{Change, RegisteredNode, init};
pub use memory::Memory;
#[cfg(feature = "redis")]
pub use quorum::Quorum;
#[cfg(feature = "redis")]
pub use redis::Redis;
#[cfg(feature = "redis")]
pub use redis::servers::{Server, servers};
pub use scheme::{BenchSite, Connecting, Scheme, UrlForm};
pub use schemes::{register, scheme_of, schemes};
