//! The servers where the locks live, each behind a network of its own and with a clock of its own.

use crate::Failure;
use crate::form::Form;
use crate::machine::Machine;
use crate::recorder::{micros, now};
use crate::standby::Standby;
use fencelock_testkit::{Proxy, RedisServer, Reply, RespClient};
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

/// A port at which nobody listens.
const NOBODY: &str = "1";
/// Where the marker of a server's quarantine is.
const MARKER: &str = "fencelock:node";

/// Where a program that knows of no proxy finds the server of a node, and of no quarantine: it must be kept from a server
/// that forgot for as long.
#[derive(Debug, Clone)]
pub(crate) struct Door(Arc<RwLock<Way>>);

#[derive(Debug)]
struct Way {
    port: u16,
    shut_until_us: u64,
}

impl Door {
    fn to(server: &RedisServer) -> Self {
        Self(Arc::new(RwLock::new(Way { port: server.port(), shut_until_us: 0 })))
    }

    /// When it returns, nobody is on the old way any more.
    fn change(&self, change: impl FnOnce(&mut Way)) {
        change(&mut self.0.write().unwrap_or_else(PoisonError::into_inner));
    }

    /// One command on a connection of its own.
    pub(crate) fn command(&self, words: &[&str]) -> Reply {
        let way = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if now() < way.shut_until_us {
            return Reply::NoAnswer("the door is shut".to_owned());
        }
        match RespClient::connect(way.port) {
            Ok(mut client) => client.command(words),
            Err(error) => Reply::NoAnswer(error.to_string()),
        }
    }
}

/// One place that clients know of.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) machine: Machine,
    pub(crate) proxy: Proxy,
    pub(crate) door: Door,
    pub(crate) standby: Option<Standby>,
}

impl Node {
    fn start(dir: &Path, number: usize) -> Result<Self, Failure> {
        let machine = Machine::start(dir, &number.to_string())?;
        let (proxy, door) = (Proxy::to(machine.server.port())?, Door::to(&machine.server));
        Ok(Self { machine, proxy, door, standby: None })
    }

    pub(crate) const fn server(&self) -> &RedisServer {
        &self.machine.server
    }

    /// Kills it, with all that it had not passed on, and lets its replica stand in its place, with a new replica behind it.
    pub(crate) fn fail_over(&mut self) -> Result<(), Failure> {
        self.machine.server.kill();
        let standby = self.change_places()?;
        standby.restart_empty()?;
        self.follow()
    }

    /// It changes places with its replica, and keeps its connections.
    pub(crate) fn switch_over(&mut self) -> Result<(), Failure> {
        self.standby.as_ref().ok_or("there is no replica")?.until_linked()?;
        // First, so that there are never two who take writes.
        self.make_read_only();
        self.change_places()?;
        self.follow()
    }

    /// It keeps what it knows, and hears of nothing new: nobody is there to tell it.
    pub(crate) fn make_read_only(&self) {
        self.server().command(&["REPLICAOF", "127.0.0.1", NOBODY]);
    }

    fn change_places(&mut self) -> Result<&mut Standby, Failure> {
        let standby = self.standby.as_mut().ok_or("there is no replica to promote")?;
        standby.promote(&mut self.machine);
        let port = self.machine.server.port();
        self.proxy.forward_to(port);
        self.door.change(|way| way.port = port);
        Ok(standby)
    }

    fn follow(&self) -> Result<(), Failure> {
        self.standby.as_ref().map_or(Ok(()), |standby| standby.follow(&self.machine.server))
    }

    /// Does something by which it may forget. Clients find out by themselves; those who know of no quarantine stay away for
    /// as long as this.
    pub(crate) fn forget(
        &mut self,
        quarantine: Duration,
        by: impl FnOnce(&mut Self) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        if quarantine.is_zero() {
            return by(self);
        }
        self.door.change(|way| way.shut_until_us = u64::MAX);
        let done = by(self);
        self.door.change(|way| way.shut_until_us = now().saturating_add(micros(quarantine)));
        done
    }

    /// Whether a client has met this very run of the server and begun a quarantine.
    pub(crate) fn is_in_quarantine(&self) -> bool {
        let told = self.server().command(&["INFO", "server"]);
        let run = told.text().and_then(|text| text.lines().find_map(|line| line.strip_prefix("run_id:")));
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
    pub(crate) fn start(dir: &Path, form: Form) -> Result<Self, Failure> {
        let all = (0..form.nodes()).map(|number| Node::start(dir, number));
        let mut nodes = Self { all: all.collect::<Result<_, _>>()? };
        if form.has_replica() {
            for node in &mut nodes.all {
                let machine = Machine::start(dir, "standby")?;
                node.standby = Some(Standby::of(&node.machine.server, machine)?);
            }
        }
        Ok(nodes)
    }

    /// Through the proxies. One server is one Redis, several are a quorum.
    pub(crate) fn url(&self, options: &str) -> String {
        let ports = self.all.iter().map(|node| format!("127.0.0.1:{}", node.proxy.port()));
        let hosts = ports.collect::<Vec<_>>().join(",");
        let scheme = if self.all.len() == 1 { "redis" } else { "redlock" };
        let options = if options.is_empty() { String::new() } else { format!("?{options}") };
        format!("{scheme}://{hosts}{options}")
    }

    /// Those that any two majorities have in common, if they have no more than they must.
    pub(crate) fn in_common(&mut self) -> &mut [Node] {
        let count = 2 * self.quorum() - self.all.len();
        &mut self.all[..count]
    }

    /// Those beyond the first majority.
    pub(crate) fn outside(&self) -> impl Iterator<Item = &Node> {
        self.all.iter().skip(self.quorum())
    }

    /// How many must agree.
    pub(crate) fn quorum(&self) -> usize {
        self.all.len() / 2 + 1
    }

    /// What each node has under a key: its value, and its time to live in milliseconds.
    pub(crate) fn look(&self, key: &str) -> Vec<(String, i64)> {
        let look = |node: &Node| {
            let value = node.server().command(&["GET", key]).text()?.to_owned();
            let Reply::Int(left) = node.server().command(&["PTTL", key]) else { return None };
            Some((value, left))
        };
        self.all.iter().filter_map(look).collect()
    }
}
