//! The environment of the tests of fencelock.
//!
//! | tests of | use |
//! |---|---|
//! | faults of a Redis server | [`RedisServer`], [`redis_or_skip`], [`WallClock`] |
//! | faults of a network | [`Proxy`] |
//! | stopped processes | [`freeze`], [`thaw`] |
//! | hostile servers | [`ScriptedServer`] |
//! | other languages | [`programs`] |
//!
//! Dropping a value ends its server or process, also when a test panics.
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
