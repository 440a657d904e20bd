//! The servers where the locks live, each behind a network of its own and with a clock of its own.

use crate::Failure;
use crate::wall_clock::{self, WallClock};
use fencelock_conformance::{Proxy, RedisServer, Reply};
use std::path::Path;

#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) server: RedisServer,
    pub(crate) proxy: Proxy,
    pub(crate) clock: WallClock,
}

impl Node {
    fn start(dir: &Path, number: usize, shim: &Path) -> Result<Self, Failure> {
        let clock = WallClock::new(dir.join(format!("clock-{number}")))?;
        // Each write is in the file before its reply is sent, so a process that is killed forgets nothing.
        let options = RedisServer::options().args(["--appendonly", "yes", "--maxmemory-policy", "noeviction"]);
        let options = options.env("LD_PRELOAD", shim).env("FENCELOCK_WALL_CLOCK", clock.path());
        let server = options.start()?;
        let proxy = Proxy::to(server.port())?;
        Ok(Self { server, proxy, clock })
    }

    /// How often it has answered with this error since its statistics were reset.
    pub(crate) fn errors(&self, name: &str) -> u64 {
        let info = self.server.command(&["INFO", "errorstats"]);
        let prefix = format!("errorstat_{name}:count=");
        let count = info.text().and_then(|text| text.lines().find_map(|line| line.strip_prefix(&prefix)?.parse().ok()));
        count.unwrap_or(0)
    }
}

#[derive(Debug)]
pub(crate) struct Nodes {
    pub(crate) all: Vec<Node>,
}

impl Nodes {
    pub(crate) fn start(dir: &Path, count: usize) -> Result<Self, Failure> {
        let shim = wall_clock::compile(dir)?;
        let all = (0..count).map(|number| Node::start(dir, number, &shim)).collect::<Result<_, _>>()?;
        Ok(Self { all })
    }

    /// Through the proxies. One server is one Redis, several are a quorum.
    pub(crate) fn url(&self, options: &str) -> String {
        let ports = self.all.iter().map(|node| format!("127.0.0.1:{}", node.proxy.port()));
        let hosts = ports.collect::<Vec<_>>().join(",");
        let scheme = if self.all.len() == 1 { "redis" } else { "redlock" };
        let options = if options.is_empty() { String::new() } else { format!("?{options}") };
        format!("{scheme}://{hosts}{options}")
    }

    /// How many must agree.
    pub(crate) fn quorum(&self) -> usize {
        self.all.len() / 2 + 1
    }

    /// What each node has under a key: its value, and its time to live in milliseconds.
    pub(crate) fn look(&self, key: &str) -> Vec<(String, i64)> {
        let look = |node: &Node| {
            let value = node.server.command(&["GET", key]).text()?.to_owned();
            let Reply::Int(left) = node.server.command(&["PTTL", key]) else { return None };
            Some((value, left))
        };
        self.all.iter().filter_map(look).collect()
    }
}
