//! A server with its own wall clock.

use crate::Failure;
use fencelock_testkit::{RedisServer, WallClock};
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
        // The kernel has each write before its reply is sent, so a killed process loses no data. With `everysec`, a write would
        // wait for an fsync that is in progress.
        let options = RedisServer::options().args([
            "--appendonly",
            "yes",
            "--appendfsync",
            "no",
            "--maxmemory-policy",
            "noeviction",
        ]);
        let options = options.args(["--repl-diskless-sync-delay", "0"]);
        Ok(Self { server: options.wall_clock(&clock).start()?, clock })
    }

    /// How often the server has returned this error since its statistics were reset.
    pub(crate) fn errors(&self, name: &str) -> u64 {
        errors(&self.server, name)
    }
}

/// How often a server has returned this error since its statistics were reset.
pub(crate) fn errors(server: &RedisServer, name: &str) -> u64 {
    let info = server.command(&["INFO", "errorstats"]);
    let prefix = format!("errorstat_{name}:count=");
    let count = info.text().and_then(|text| text.lines().find_map(|line| line.strip_prefix(&prefix)?.parse().ok()));
    count.unwrap_or(0)
}
