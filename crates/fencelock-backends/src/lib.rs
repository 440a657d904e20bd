//! The places where a fencelock lock can live. Each is a [`Backend`](fencelock_core::Backend); none knows another.
//!
//! A URL names a place by its scheme: [`connect`]. Other crates add schemes of their own with [`register`].
//!
//! | backend | for | what frees a crashed holder | line of waiters |
//! |---|---|---|---|
//! | [`Memory`] | tasks and threads of one process | dropping the guard; with leases, their TTL | first come, first served |
//! | [`File`] | processes of one machine | the kernel | whoever asks first after a release |
//! | [`Redis`] | machines that share one Redis | the lease's TTL | first come, first served |
//! | [`Quorum`] | machines that share several independent Redis servers | the lease's TTL | whoever asks first after a release |
#![forbid(unsafe_code)]

mod clock;
mod connect;
mod file;
mod init;
mod memory;
mod memory_scheme;
mod quorum;
mod redis;
mod scheme;
mod schemes;
mod sinks;

pub use clock::{BootClock, ManualClock, TokioClock};
pub use connect::{ConnectError, connect, lazy, on_demand};
pub use file::File;
pub use init::{Change, Enlisted, init};
pub use memory::Memory;
pub use quorum::Quorum;
pub use redis::Redis;
pub use redis::servers::{Server, servers};
pub use scheme::{BenchSite, Connecting, Scheme, UrlForm};
pub use schemes::{register, scheme_of, schemes};
