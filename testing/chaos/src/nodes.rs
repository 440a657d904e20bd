//! The servers of the locks, each behind its own proxy and with its own clock.

use crate::Failure;
use crate::machine::Machine;
use crate::recorder::{micros, now};
use crate::standby::Standby;
use crate::topology::Topology;
use fencelock_testkit::{Proxy, RedisServer, Reply, RespClient};
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

/// A port without a listener.
const UNUSED_PORT: &str = "1";
/// The key of the marker of a quarantine.
const MARKER: &str = "fencelock:node";

/// The address of a node for a program that knows neither the proxy nor quarantines. It must not reach a server that
/// has lost its data before the quarantine is over.
#[derive(Debug, Clone)]
pub(crate) struct DirectAccess(Arc<RwLock<Way>>);

#[derive(Debug)]
struct Way {
    port: u16,
    shut_until_us: u64,
}

impl DirectAccess {
    fn to(server: &RedisServer) -> Self {
        Self(Arc::new(RwLock::new(Way { port: server.port(), shut_until_us: 0 })))
    }

    /// When this returns, no request uses the old address.
    fn change(&self, change: impl FnOnce(&mut Way)) {
        change(&mut self.0.write().unwrap_or_else(PoisonError::into_inner));
    }

    /// Runs one command on a new connection.
    pub(crate) fn command(&self, words: &[&str]) -> Reply {
        let way = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if now() < way.shut_until_us {
            return Reply::NoAnswer("the node is closed for this program".to_owned());
        }
        match RespClient::connect(way.port) {
            Ok(mut client) => client.command(words),
            Err(error) => Reply::NoAnswer(error.to_string()),
        }
    }
}

/// A server that clients use.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) machine: Machine,
    pub(crate) proxy: Proxy,
    pub(crate) direct_access: DirectAccess,
    pub(crate) standby: Option<Standby>,
}

impl Node {
    fn start(dir: &Path, number: usize) -> Result<Self, Failure> {
        let machine = Machine::start(dir, &number.to_string())?;
        let (proxy, direct_access) = (Proxy::to(machine.server.port())?, DirectAccess::to(&machine.server));
        Ok(Self { machine, proxy, direct_access, standby: None })
    }

    pub(crate) const fn server(&self) -> &RedisServer {
        &self.machine.server
    }

    /// Kills the master with all data that was not replicated, promotes its replica, and starts a new replica.
    pub(crate) fn fail_over(&mut self) -> Result<(), Failure> {
        self.machine.server.kill();
        let standby = self.swap_roles()?;
        standby.restart_empty()?;
        self.follow()
    }

    /// The master swaps roles with its replica, and keeps its connections.
    pub(crate) fn switch_over(&mut self) -> Result<(), Failure> {
        self.standby.as_ref().ok_or("there is no replica")?.until_linked()?;
        // This comes first, so that there are never two writable masters.
        self.make_read_only();
        self.swap_roles()?;
        self.follow()
    }

    /// The server keeps its data, and receives no updates, because its master is unreachable.
    pub(crate) fn make_read_only(&self) {
        self.server().command(&["REPLICAOF", "127.0.0.1", UNUSED_PORT]);
    }

    fn swap_roles(&mut self) -> Result<&mut Standby, Failure> {
        let standby = self.standby.as_mut().ok_or("there is no replica to promote")?;
        standby.promote(&mut self.machine);
        let port = self.machine.server.port();
        self.proxy.forward_to(port);
        self.direct_access.change(|way| way.port = port);
        Ok(standby)
    }

    fn follow(&self) -> Result<(), Failure> {
        self.standby.as_ref().map_or(Ok(()), |standby| standby.follow(&self.machine.server))
    }

    /// Runs an action that may lose data. Clients detect the loss themselves; a program without quarantines is blocked
    /// for the length of a quarantine.
    pub(crate) fn forget(
        &mut self,
        quarantine: Duration,
        by: impl FnOnce(&mut Self) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        if quarantine.is_zero() {
            return by(self);
        }
        self.direct_access.change(|way| way.shut_until_us = u64::MAX);
        let done = by(self);
        self.direct_access.change(|way| way.shut_until_us = now().saturating_add(micros(quarantine)));
        done
    }

    /// Whether a client has connected to this run of the server and started a quarantine.
    pub(crate) fn is_in_quarantine(&self) -> bool {
        let info = self.server().command(&["INFO", "server"]);
        let run = info.text().and_then(|text| text.lines().find_map(|line| line.strip_prefix("run_id:")));
        let marked = self.server().command(&["HGET", MARKER, "epoch"]);
        let until = self.server().command(&["HGET", MARKER, "until"]);
        run.is_some() && marked.text() == run.map(str::trim) && until.text().is_some_and(|until| until != "0")
    }
}

#[derive(Debug)]
pub(crate) struct Nodes {
    pub(crate) all: Vec<Node>,
}

impl Nodes {
    pub(crate) fn start(dir: &Path, topology: Topology) -> Result<Self, Failure> {
        let all = (0..topology.nodes()).map(|number| Node::start(dir, number));
        let mut nodes = Self { all: all.collect::<Result<_, _>>()? };
        if topology.has_replica() {
            for node in &mut nodes.all {
                let machine = Machine::start(dir, "standby")?;
                node.standby = Some(Standby::of(&node.machine.server, machine)?);
            }
        }
        Ok(nodes)
    }

    /// The URL through the proxies. One server is a single Redis server, several are a quorum.
    pub(crate) fn url(&self, options: &str) -> String {
        let ports = self.all.iter().map(|node| format!("127.0.0.1:{}", node.proxy.port()));
        let hosts = ports.collect::<Vec<_>>().join(",");
        let scheme = if self.all.len() == 1 { "redis" } else { "redlock" };
        let options = if options.is_empty() { String::new() } else { format!("?{options}") };
        format!("{scheme}://{hosts}{options}")
    }

    /// The nodes that any two majorities share, at the minimum.
    pub(crate) fn in_common(&mut self) -> &mut [Node] {
        let count = 2 * self.quorum() - self.all.len();
        &mut self.all[..count]
    }

    /// The nodes outside of the first majority.
    pub(crate) fn outside(&self) -> impl Iterator<Item = &Node> {
        self.all.iter().skip(self.quorum())
    }

    /// The size of a majority.
    pub(crate) fn quorum(&self) -> usize {
        self.all.len() / 2 + 1
    }

    /// The value of a key at each node, and its remaining TTL in milliseconds.
    pub(crate) fn inspect(&self, key: &str) -> Vec<(String, i64)> {
        self.all.iter().filter_map(|node| held_at(node.server(), key)).collect()
    }
}

/// The value of a key at a server, and its remaining TTL in milliseconds.
pub(crate) fn held_at(server: &RedisServer, key: &str) -> Option<(String, i64)> {
    let value = server.command(&["GET", key]).text()?.to_owned();
    let Reply::Int(left) = server.command(&["PTTL", key]) else { return None };
    Some((value, left))
}
