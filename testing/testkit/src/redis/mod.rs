//! Real Redis servers for tests.

mod cluster;
mod foreign;
mod options;
mod quorum;
mod resp;
mod sentinels;
mod server;
pub mod spawner;
mod start_error;
mod tls;
mod version;
mod wall_clock;

pub use cluster::ClusterNodes;
pub use foreign::RedisForeign;
pub use options::RedisOptions;
pub use quorum::{redlock_url, servers_or_skip};
pub use resp::{Reply, RespClient};
pub use sentinels::Sentinels;
pub use server::RedisServer;
pub use start_error::{StartError, redis_or_skip, say_skipped, start_or_skip, stopped_or_skip};
pub use tls::TlsFiles;
pub use version::{Product, ServerVersion};
pub use wall_clock::{Shift, WallClock};
