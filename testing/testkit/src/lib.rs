//! What the tests of fencelock run against.
//!
//! | for tests of | there is |
//! |---|---|
//! | what a Redis server does to us | [`RedisServer`], [`redis_or_skip`], [`WallClock`] |
//! | what a network does to us | [`Proxy`] |
//! | what a stopped process misses | [`freeze`], [`thaw`] |
//! | what a hostile server sends us | [`ScriptedServer`] |
//! | what other languages do | [`programs`] |
//!
//! Every server and process ends with the value that stands for it, also when a test panics.
#![forbid(unsafe_code)]

mod freezing;
mod port;
pub mod programs;
mod proxy;
mod redis;
mod scripted;

pub use freezing::{freeze, thaw};
pub use proxy::{Proxy, Then};
pub use redis::{
    Product, RedisForeign, RedisOptions, RedisServer, Reply, RespClient, ServerVersion, Shift, StartError, TlsFiles,
    WallClock, redis_or_skip, say_skipped, start_or_skip,
};
pub use scripted::ScriptedServer;
