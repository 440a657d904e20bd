//! The environment of the tests of fencelock.
//!
//! | tests of | use |
//! |---|---|
//! | faults of a Redis server | [`RedisServer`], [`redis_or_skip`], [`WallClock`] |
//! | a quorum of servers | [`servers_or_skip`], [`redlock_url`] |
//! | a master with sentinels | [`Sentinels`] |
//! | a cluster, and slots that move | [`ClusterNodes`] |
//! | a bucket, and stores that lie | [`ObjectServer`], [`carry_google_uploads`] |
//! | Leases, and candidates of client-go | [`KubeCluster`] |
//! | a store with a conditional write, whose clock a test moves | [`MemoryRegister`] |
//! | faults of a network | [`Proxy`] |
//! | a name whose addresses change | [`Resolver`] |
//! | servers of your own | [`Port`], [`spawner`], [`until`] |
//! | a process limit | [`ThreadLimit`] |
//! | other processes | [`TestProcess`], [`freeze`], [`thaw`] |
//! | hostile servers | [`ScriptedServer`], [`serve_http`] |
//! | other languages | [`programs`] |
//! | the answers of a backend | [`Histories`] |
//! | schedules that repeat | [`SplitMix`] |
//!
//! Dropping a value ends its server or process, also when a test panics.
#![forbid(unsafe_code)]

mod claim;
mod freezing;
mod google_uploads;
#[allow(clippy::unwrap_used, reason = "it is a test")]
mod histories;
mod http;
mod kube;
mod memory_register;
mod objects;
mod port;
pub mod programs;
mod proxy;
mod redis;
mod resolver;
mod scripted;
mod shim;
mod split_mix;
mod test_process;
mod thread_limit;
mod until;

pub use claim::{claim, release_surely};
pub use freezing::{freeze, thaw};
pub use google_uploads::carry_google_uploads;
pub use histories::{Histories, SetClock};
pub use http::{HttpRequest, serve_http};
pub use kube::KubeCluster;
pub use memory_register::MemoryRegister;
pub use objects::{ObjectFaults, ObjectServer};
pub use port::Port;
pub use proxy::{Intercept, Proxy, Then};
pub use redis::{
    ClusterNodes, Product, RedisForeign, RedisOptions, RedisServer, Reply, RespClient, Sentinels, ServerVersion, Shift,
    StartError, TlsFiles, WallClock, redis_or_skip, redlock_url, say_skipped, servers_or_skip, spawner, start_or_skip,
    stopped_or_skip,
};
pub use resolver::Resolver;
pub use scripted::ScriptedServer;
pub use split_mix::SplitMix;
pub use test_process::TestProcess;
pub use thread_limit::ThreadLimit;
pub use until::until;
