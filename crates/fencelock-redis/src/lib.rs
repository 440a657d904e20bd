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
//! `redis`, or `redis-plain` without TLS, which is the feature `tls` here. The nodes of a [`Quorum`] may be of any kind: see [`fencelock_core::Capabilities`].
//!
//! Each directory is a room: `scripts` knows what is sent and stored, `connection` sends it to one server, and `server` is the backend
//! of one. `sentinel`, `cluster` and `quorum` are made of servers, `url` is what names them, `tls` is what needs TLS, and `doctor` compares what works there.
#![forbid(unsafe_code)]

mod cluster;
mod connection;
mod doctor;
mod hash_slot;
mod quorum;
mod scripts;
mod sentinel;
mod server;
mod servers;
#[cfg_attr(not(feature = "tls"), path = "no_tls.rs")]
mod tls;
mod url;

pub use cluster::{Cluster, ClusterScheme};
pub use quorum::{Quorum, QuorumScheme};
#[doc(hidden)]
pub use scripts::script::lock_scripts;
#[doc(hidden)]
pub use scripts::side_key::side_key;
pub use server::{Redis, RedisScheme};
pub use servers::{Server, servers};
