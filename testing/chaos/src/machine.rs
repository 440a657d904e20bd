//! A server with its own wall clock.

use crate::Failure;
use fencelock_testkit::{RedisOptions, RedisServer, WallClock};
use std::path::Path;

/// A server and its clock.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) server: RedisServer,
    pub(crate) clock: WallClock,
}

impl Machine {
    pub(crate) fn start(dir: &Path, name: &str) -> Result<Self, Failure> {
        let clock = WallClock::new(dir, &format!("clock-{name}"))?;
        Ok(Self { server: durable_options().wall_clock(&clock).start()?, clock })
    }

    /// How often the server has returned this error since its statistics were reset.
    pub(crate) fn errors(&self, name: &str) -> u64 {
        errors(&self.server, name)
    }
}

/// The options of a server whose data survives its process. The kernel has each write before its reply is sent. With
/// `everysec`, a write would wait for an fsync that is in progress.
pub(crate) fn durable_options() -> RedisOptions {
    let options = RedisServer::options().args(["--appendonly", "yes", "--appendfsync", "no"]);
    options.args(["--maxmemory-policy", "noeviction", "--repl-diskless-sync-delay", "0"])
}

/// How often a server has returned this error since its statistics were reset.
pub(crate) fn errors(server: &RedisServer, name: &str) -> u64 {
    let info = server.command(&["INFO", "errorstats"]);
    let prefix = format!("errorstat_{name}:count=");
    let count = info.text().and_then(|text| text.lines().find_map(|line| line.strip_prefix(&prefix)?.parse().ok()));
    count.unwrap_or(0)
}
