//! Slots that move from one master to another.

use super::{ClusterNodes, TIMEOUT, good};
use crate::{Reply, RespClient};
use std::io;
use std::thread::sleep;
use std::time::Duration;
use tokio::time::Instant;

/// The number of slots in one step. A node writes its configuration to the disk once for all of them.
const SLOTS: usize = 512;
/// The number of keys of a slot in one step.
const KEYS: usize = 10;
/// The time limit of the server for the keys of one step, in milliseconds.
const STEP: &str = "5000";
const TICK: Duration = Duration::from_millis(2);

/// A slot on its way.
struct SlotMove {
    slot: String,
    from: usize,
    to: usize,
}

/// A command for a master.
type Order = (usize, Vec<String>);

impl SlotMove {
    fn set(&self, cluster: &ClusterNodes, at: usize, state: &str, node: usize) -> Order {
        let words = ["CLUSTER", "SETSLOT", &self.slot, state, &cluster.ids[node]];
        (at, words.map(str::to_owned).into())
    }

    fn keys(&self, count: usize) -> Order {
        (self.from, ["CLUSTER", "GETKEYSINSLOT", &self.slot, &count.to_string()].map(str::to_owned).into())
    }

    /// A repeated step replaces what an interrupted one has copied: until the end, the source has the valid value.
    fn migrate(&self, cluster: &ClusterNodes, keys: &[Reply]) -> Order {
        let target = &cluster.nodes[self.to];
        let port = target.port().to_string();
        let words = ["MIGRATE", "127.0.0.1", &port, "", "0", STEP, "REPLACE"].into_iter();
        let words = words.chain(target.password().into_iter().flat_map(|password| ["AUTH", password]));
        let words = words.chain(["KEYS"]).chain(keys.iter().filter_map(Reply::text));
        (self.from, words.map(str::to_owned).collect())
    }
}

fn words(order: &[String]) -> Vec<&str> {
    order.iter().map(String::as_str).collect()
}

/// A connection to each master.
struct Masters<'a> {
    cluster: &'a ClusterNodes,
    connections: Vec<(usize, RespClient)>,
}

impl<'a> Masters<'a> {
    fn connect(cluster: &'a ClusterNodes) -> io::Result<Self> {
        let connect = |index: usize| {
            let node = &cluster.nodes[index];
            let mut client = node.connect()?;
            if let Some(password) = node.password() {
                good(client.command(&["AUTH", password]), &["AUTH"])?;
            }
            Ok((index, client))
        };
        Ok(Self { cluster, connections: cluster.masters().into_iter().map(connect).collect::<io::Result<_>>()? })
    }

    fn connection(&mut self, master: usize) -> io::Result<&mut RespClient> {
        let found = self.connections.iter_mut().find(|(index, _)| *index == master);
        found.map(|(_, client)| client).ok_or_else(|| io::Error::other(format!("node {master} is not a master")))
    }

    /// Sends all commands, and then reads all replies.
    fn carry_out(&mut self, orders: impl Iterator<Item = Order>) -> io::Result<Vec<Reply>> {
        let orders: Vec<Order> = orders.collect();
        for (at, order) in &orders {
            self.connection(*at)?.send(&words(order))?;
        }
        orders.iter().map(|(at, order)| good(self.connection(*at)?.receive(), &words(order))).collect()
    }

    /// From now on, keys that are not at the source are at the target.
    fn begin(&mut self, moves: &[SlotMove]) -> io::Result<()> {
        let cluster = self.cluster;
        self.carry_out(moves.iter().map(|it| it.set(cluster, it.to, "IMPORTING", it.from)))?;
        self.carry_out(moves.iter().map(|it| it.set(cluster, it.from, "MIGRATING", it.to))).map(drop)
    }

    /// Moves up to this number of keys of each slot; returns whether there were any.
    fn migrate(&mut self, moves: &[SlotMove], count: usize) -> io::Result<bool> {
        let cluster = self.cluster;
        let keys = self.carry_out(moves.iter().map(|it| it.keys(count)))?;
        let found = moves.iter().zip(&keys).filter_map(|(it, keys)| match keys {
            Reply::Array(keys) if !keys.is_empty() => Some(it.migrate(cluster, keys)),
            _ => None,
        });
        Ok(!self.carry_out(found)?.is_empty())
    }

    /// The target takes an epoch that is later than all that it knows. If it did not know that of the source, then a message that
    /// the source has sent before would take the slot away from it, and the slot would have no owner.
    fn agree_on_epoch(&mut self) -> io::Result<()> {
        let begun = Instant::now();
        loop {
            let infos = self.connections.iter_mut().map(|(_, client)| client.command(&["CLUSTER", "INFO"]));
            let epoch =
                |info: &Reply| info.text()?.split_once("cluster_current_epoch:")?.1.lines().next().map(str::to_owned);
            let epochs: Vec<Option<String>> = infos.map(|info| epoch(&info)).collect();
            if epochs.iter().all(|epoch| epoch.is_some() && *epoch == epochs[0]) {
                return Ok(());
            }
            if begun.elapsed() > TIMEOUT {
                return Err(io::Error::other(format!("the masters do not agree on an epoch: {epochs:?}")));
            }
            sleep(TICK);
        }
    }

    /// Moves all keys, and then the slots themselves: first at the target, so that they always have an owner.
    fn end(&mut self, moves: &[SlotMove]) -> io::Result<()> {
        while self.migrate(moves, KEYS)? {}
        self.agree_on_epoch()?;
        let cluster = self.cluster;
        self.carry_out(moves.iter().map(|it| it.set(cluster, it.to, "NODE", it.to)))?;
        self.carry_out(moves.iter().map(|it| it.set(cluster, it.from, "NODE", it.to)))?;
        let masters: Vec<usize> = self.connections.iter().map(|(index, _)| *index).collect();
        let rest = moves.iter().flat_map(|it| {
            let others = masters.iter().filter(|at| ![it.from, it.to].contains(at));
            others.map(|at| it.set(cluster, *at, "NODE", it.to))
        });
        self.carry_out(rest).map(drop)
    }
}

/// Moves of slots, step by step as `redis-cli --cluster reshard` does it.
impl ClusterNodes {
    /// Moves these slots with their keys to a master, 512 at a time. All masters know it when this returns.
    ///
    /// # Errors
    /// If a node refuses a step, for example because of a failover.
    pub fn move_slots(&self, slots: impl IntoIterator<Item = u16>, to: usize) -> io::Result<()> {
        let owners = self.owners();
        let of_slot = |slot: u16| {
            let owner = owners[usize::from(slot)].ok_or_else(|| io::Error::other("a slot without an owner"))?;
            Ok(SlotMove { slot: slot.to_string(), from: owner, to })
        };
        let mut moves: Vec<SlotMove> = slots.into_iter().map(of_slot).collect::<io::Result<_>>()?;
        moves.retain(|it| it.from != to);
        let mut masters = Masters::connect(self)?;
        moves.chunks(SLOTS).try_for_each(|moves| {
            masters.begin(moves)?;
            masters.end(moves)
        })
    }

    /// Begins to move a slot, and moves up to `keys` of its keys. Until [`ClusterNodes::end_move`], its keys are at two masters.
    ///
    /// # Errors
    /// If a node refuses a step, for example because of a failover.
    pub fn begin_move(&self, slot: u16, to: usize, keys: usize) -> io::Result<()> {
        let moves = [SlotMove { slot: slot.to_string(), from: self.owner_of(slot), to }];
        let mut masters = Masters::connect(self)?;
        masters.begin(&moves)?;
        if keys > 0 {
            masters.migrate(&moves, keys)?;
        }
        Ok(())
    }

    /// Completes a move that has begun.
    ///
    /// # Errors
    /// If a node refuses a step, for example because of a failover.
    pub fn end_move(&self, slot: u16, to: usize) -> io::Result<()> {
        let moves = [SlotMove { slot: slot.to_string(), from: self.owner_of(slot), to }];
        Masters::connect(self)?.end(&moves)
    }
}
