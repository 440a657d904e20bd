//! A real cluster, formed with the commands of Redis.

mod bus;
mod moves;
mod view;

use super::start_error::say_skipped;
use crate::until::until;
use crate::{Proxy, RedisOptions, RedisServer, Reply, StartError};
use std::io;
use std::time::Duration;
use tokio::time::Instant;
use view::{NodeLine, SLOTS};

/// The default of [`ClusterNodes::start`].
const NODE_TIMEOUT: Duration = Duration::from_secs(2);
/// A busy machine may take seconds for each step of a failover.
const TIMEOUT: Duration = Duration::from_secs(60);
/// A replica gives up a failover after 5 s.
const GIVEN_UP: Duration = Duration::from_secs(6);
/// No server has this password.
const WRONG: &str = "wrong";

/// The nodes of a cluster. Its masters share the 16,384 slots evenly when it starts.
#[derive(Debug)]
pub struct ClusterNodes {
    /// The nodes. The first ones are the first masters.
    pub nodes: Vec<RedisServer>,
    ids: Vec<String>,
    masters: usize,
    /// The way of all messages of other nodes to each node; empty if nothing is in between.
    buses: Vec<Proxy>,
}

/// Starts a cluster.
impl ClusterNodes {
    /// Masters with this number of replicas each; `None` without a Redis server, like
    /// [`redis_or_skip`](crate::redis_or_skip).
    ///
    /// # Panics
    /// If a node does not start, or the nodes do not become a cluster.
    pub fn start_or_skip(masters: usize, replicas: usize) -> Option<Self> {
        Self::start_with_or_skip(&RedisServer::options(), masters, replicas)
    }

    /// The same with these options.
    ///
    /// # Panics
    /// If a node does not start, or the nodes do not become a cluster.
    pub fn start_with_or_skip(options: &RedisOptions, masters: usize, replicas: usize) -> Option<Self> {
        match Self::start(options, masters, replicas) {
            Ok(cluster) => Some(cluster),
            Err(error) => {
                say_skipped(&error.reason_to_skip());
                None
            }
        }
    }

    /// Nodes with these options, and a node timeout of 2 s.
    ///
    /// # Errors
    /// If a node does not start.
    ///
    /// # Panics
    /// If the nodes do not become a cluster within a minute.
    pub fn start(options: &RedisOptions, masters: usize, replicas: usize) -> Result<Self, StartError> {
        Self::start_with_timeout(options, masters, replicas, NODE_TIMEOUT)
    }

    /// The same with another node timeout: the nodes replace a master that does not answer for longer.
    ///
    /// # Errors
    /// If a node does not start.
    ///
    /// # Panics
    /// If the nodes do not become a cluster within a minute.
    pub fn start_with_timeout(
        options: &RedisOptions,
        masters: usize,
        replicas: usize,
        timeout: Duration,
    ) -> Result<Self, StartError> {
        let options = of_node(options, timeout);
        let nodes = (0..masters * (1 + replicas)).map(|_| options.clone().start());
        Ok(Self::formed_of(nodes.collect::<Result<_, _>>()?, masters, Vec::new()))
    }

    fn formed_of(nodes: Vec<RedisServer>, masters: usize, buses: Vec<Proxy>) -> Self {
        let id = |node: &RedisServer| node.command(&["CLUSTER", "MYID"]).text().map(str::to_owned);
        let ids = nodes.iter().map(|node| id(node).expect("the id of a node")).collect();
        let cluster = Self { nodes, ids, masters, buses };
        cluster.form();
        cluster
    }

    fn form(&self) {
        let share = usize::from(SLOTS).div_ceil(self.masters);
        for (index, node) in self.nodes.iter().enumerate() {
            let epoch = (index + 1).to_string();
            must(node, &["CLUSTER", "SET-CONFIG-EPOCH", &epoch]).expect("a node without an epoch");
            // There are none for a replica.
            let slots: Vec<String> = (0..SLOTS).map(|slot| slot.to_string()).skip(index * share).take(share).collect();
            if !slots.is_empty() {
                let words: Vec<&str> =
                    ["CLUSTER", "ADDSLOTS"].into_iter().chain(slots.iter().map(String::as_str)).collect();
                must(node, &words).expect("slots that no node serves");
            }
        }
        for index in 1..self.nodes.len() {
            let (port, bus) = (self.nodes[index].port().to_string(), self.bus_port(index).to_string());
            must(&self.nodes[0], &["CLUSTER", "MEET", "127.0.0.1", &port, &bus]).expect("a handshake that begins");
        }
        let count = self.nodes.len();
        until(TIMEOUT, "every node knows all others", || {
            (0..count).all(|index| self.view(index).is_some_and(|v| v.len() == count))
        });
        for (index, replica) in self.nodes.iter().enumerate().skip(self.masters) {
            let master = &self.ids[index % self.masters];
            must(replica, &["CLUSTER", "REPLICATE", master]).expect("an empty node");
        }
        self.wait_until_settled();
    }
}

/// What the nodes say.
impl ClusterNodes {
    /// The URL of the cluster, which lists all nodes. `options` has the form `name=value&...` and may be empty.
    pub fn url(&self, options: &str) -> String {
        let hosts: Vec<_> = self.nodes.iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
        let separator = if options.is_empty() { "" } else { "?" };
        format!("redis+cluster://{}{}{separator}{options}", self.nodes[0].login(), hosts.join(","))
    }

    /// The slot of a key.
    ///
    /// # Panics
    /// If no node answers.
    pub fn slot_of(&self, key: &str) -> u16 {
        let mut running = self.nodes.iter().filter(|node| node.is_running());
        let slot = running.find_map(|node| match node.command(&["CLUSTER", "KEYSLOT", key]) {
            Reply::Int(slot) => u16::try_from(slot).ok(),
            _ => None,
        });
        slot.expect("a node that answers")
    }

    /// The index of the running node that owns this slot.
    ///
    /// # Panics
    /// If there is none for a minute.
    pub fn owner_of(&self, slot: u16) -> usize {
        let mut owner = None;
        until(TIMEOUT, "an owner of the slot", || {
            owner = self.owners()[usize::from(slot)];
            owner.is_some()
        });
        owner.unwrap_or_default()
    }

    /// The running nodes that own slots, in ascending order.
    pub fn masters(&self) -> Vec<usize> {
        let mut masters: Vec<usize> = self.owners().into_iter().flatten().collect();
        masters.sort_unstable();
        masters.dedup();
        masters
    }

    /// A running node that replicates this one.
    pub fn replica_of(&self, master: usize) -> Option<usize> {
        self.replicas_of(master).next()
    }

    fn replicas_of(&self, master: usize) -> impl Iterator<Item = usize> {
        let of_it = move |line: NodeLine| line.master.as_ref() == Some(&self.ids[master]);
        (0..self.nodes.len()).filter(move |index| self.own_line(*index).is_some_and(of_it))
    }

    /// The value of a key at a node, which may be a replica.
    pub fn get_at(&self, node: usize, key: &str) -> Option<String> {
        let mut client = self.nodes[node].connect().ok()?;
        if let Some(password) = self.nodes[node].password() {
            client.command(&["AUTH", password]);
        }
        client.command(&["READONLY"]);
        client.command(&["GET", key]).text().map(str::to_owned)
    }

    /// The owner of each slot, as the owners say themselves.
    fn owners(&self) -> Vec<Option<usize>> {
        let lines: Vec<NodeLine> = (0..self.nodes.len()).filter_map(|index| self.own_line(index)).collect();
        view::owners(&lines, &self.ids)
    }

    fn own_line(&self, index: usize) -> Option<NodeLine> {
        self.view(index)?.into_iter().find(|line| line.is_myself)
    }

    /// What a node says about all nodes; `None` if it does not run or does not know a node yet.
    fn view(&self, index: usize) -> Option<Vec<NodeLine>> {
        let node = &self.nodes[index];
        // A stopped node would not reply, and the others are queried only after that.
        node.is_running().then(|| node.command(&["CLUSTER", "NODES"])).and_then(|reply| view::read(reply.text()?))
    }
}

/// Failovers.
impl ClusterNodes {
    /// Waits until all nodes run, agree about the owner of every slot and the master of every replica, and every replica is connected
    /// to its master.
    ///
    /// # Panics
    /// If this takes longer than a minute.
    pub fn wait_until_settled(&self) {
        until(TIMEOUT, "the nodes agree, and the replicas are connected", || {
            let own: Vec<NodeLine> = (0..self.nodes.len()).filter_map(|index| self.own_line(index)).collect();
            let owners = view::owners(&own, &self.ids);
            owners.iter().all(Option::is_some)
                && (0..self.nodes.len()).all(|index| self.is_settled(index, &own, &owners))
        });
    }

    fn is_settled(&self, index: usize, own: &[NodeLine], owners: &[Option<usize>]) -> bool {
        let node = &self.nodes[index];
        let has = |command: &[&str], line: &str| node.command(command).text().is_some_and(|text| text.contains(line));
        let Some(view) = self.view(index) else { return false };
        let linked = match view.iter().find(|line| line.is_myself) {
            Some(NodeLine { master: None, .. }) => owners.contains(&Some(index)),
            Some(NodeLine { master: Some(id), .. }) => {
                let master = self.ids.iter().position(|of| of == id);
                let online = format!("port={},state=online", node.port());
                let lists_own_master = |master: usize| {
                    let info = self.nodes[master].command(&["INFO", "replication"]);
                    owners.contains(&Some(master)) && info.text().is_some_and(|info| info.contains(&online))
                };
                master.is_some_and(lists_own_master) && has(&["INFO", "replication"], "master_link_status:up")
            }
            None => false,
        };
        // A master ignores the request of a replica that it does not know as one.
        let is_listed = |line: &NodeLine| view.iter().any(|of| of.id == line.id && of.master == line.master);
        linked
            && own.iter().all(is_listed)
            && view::owners(&view, &self.ids) == owners
            && has(&["CLUSTER", "INFO"], "cluster_state:ok")
    }

    /// Promotes a replica by `CLUSTER FAILOVER`, for which its master waits, and returns when it owns the slots.
    ///
    /// # Panics
    /// If this takes longer than a minute.
    pub fn fail_over(&self, replica: usize) {
        let mut began = None::<Instant>;
        until(TIMEOUT, "the replica is promoted", || {
            // A failover is given up if a node is too slow.
            if began.is_none_or(|at| at.elapsed() > GIVEN_UP) {
                began = must(&self.nodes[replica], &["CLUSTER", "FAILOVER"]).is_ok().then(Instant::now);
            }
            self.masters().contains(&replica)
        });
    }

    /// Waits until another node owns the slots of this one, which must not answer: it is killed or stopped.
    ///
    /// # Panics
    /// If this takes longer than a minute.
    pub fn wait_for_another_than(&self, master: usize) {
        until(TIMEOUT, "another master", || {
            let owners = self.owners();
            owners.iter().all(|owner| owner.is_some_and(|owner| owner != master))
        });
    }

    /// Stops the replication to a replica, until it is resumed. The node stays in the cluster, and can be promoted.
    ///
    /// # Panics
    /// If the replica does not obey.
    pub fn stop_replication(&self, replica: usize) {
        let replica = &self.nodes[replica];
        must(replica, &["CONFIG", "SET", "masterauth", WRONG]).expect("a setting");
        must(replica, &["CLIENT", "KILL", "TYPE", "master"]).expect("a connection to close");
    }

    /// Ends [`ClusterNodes::stop_replication`].
    ///
    /// # Panics
    /// If the node does not obey.
    pub fn resume_replication(&self, node: usize) {
        let node = &self.nodes[node];
        must(node, &["CONFIG", "SET", "masterauth", node.password().unwrap_or_default()]).expect("a setting");
    }
}

fn of_node(options: &RedisOptions, timeout: Duration) -> RedisOptions {
    let options = options.clone().cluster_node(timeout);
    match options.password.clone() {
        Some(password) => options.args(["--masterauth", &password]),
        None => options,
    }
}

/// The reply to a command that the node must carry out.
fn must(node: &RedisServer, words: &[&str]) -> io::Result<Reply> {
    good(node.command(words), words)
}

fn good(reply: Reply, words: &[&str]) -> io::Result<Reply> {
    match reply {
        Reply::Error(why) | Reply::NoAnswer(why) => {
            let command = words.iter().take(3).copied().collect::<Vec<_>>().join(" ");
            Err(io::Error::other(format!("{command}: {why}")))
        }
        reply => Ok(reply),
    }
}
