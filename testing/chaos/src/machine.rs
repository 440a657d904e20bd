//! One server with a wall clock of its own.

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
        // Each write is in the file before its reply is sent, so a process that is killed forgets nothing.
        let options = RedisServer::options().args(["--appendonly", "yes", "--maxmemory-policy", "noeviction"]);
        let options = options.args(["--repl-diskless-sync-delay", "0"]);
        Ok(Self { server: options.wall_clock(&clock).start()?, clock })
    }

    /// How often it has answered with this error since its statistics were reset.
    pub(crate) fn errors(&self, name: &str) -> u64 {
        let info = self.server.command(&["INFO", "errorstats"]);
        let prefix = format!("errorstat_{name}:count=");
        let count = info.text().and_then(|text| text.lines().find_map(|line| line.strip_prefix(&prefix)?.parse().ok()));
        count.unwrap_or(0)
    }
}
