//! Locks of [fencelock](https://crates.io/crates/fencelock) on Redis: on one server, on a cluster, and on a quorum of independent servers.
//!
//! | backend | URL | what frees a crashed holder | order of waiters |
//! |---|---|---|---|
//! | [`Redis`] | `redis://`, `rediss://` | the lease's TTL | first come, first served |
//! | [`Redis`] | `redis+sentinel://`, `rediss+sentinel://` | the lease's TTL | first come, first served |
//! | [`Cluster`] | `redis+cluster://`, `rediss+cluster://` | the lease's TTL | first come, first served |
//! | [`Quorum`] | `redlock://`, `redlock+tls://` | the lease's TTL | the first claim after a release |
//!
//! [`RedisScheme`], [`ClusterScheme`] and [`QuorumScheme`] implement these URLs. `fencelock` includes them with its feature
//! `redis`. The nodes of a [`Quorum`] may be of any kind: see [`fencelock_core::QuorumNode`].
#![forbid(unsafe_code)]

mod cluster;
mod identity;
mod password;
mod quorum;
mod redis;
mod servers;

pub use cluster::{Cluster, ClusterScheme};
pub use quorum::{Quorum, QuorumScheme};
#[doc(hidden)]
pub use redis::{LockScripts, lock_scripts};
pub use redis::{Redis, RedisScheme, Server};
pub use servers::servers;
