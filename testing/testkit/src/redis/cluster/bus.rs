//! Partitions between the nodes of a cluster.

use super::{ClusterNodes, of_node};
use crate::{Proxy, RedisOptions, RedisServer, StartError, port};
use std::io;
use std::time::Duration;

/// Where a message of the bus names its sender: after the signature, the length, the version, the port, the type, the count (16 bytes)
/// and two epochs and an offset (24 bytes).
const SENDER_AT: usize = 40;

/// Partitions.
impl ClusterNodes {
    /// Nodes whose messages to each other go through proxies, so that [`ClusterNodes::cut_off`] works.
    ///
    /// # Errors
    /// If a node does not start.
    ///
    /// # Panics
    /// If the nodes do not become a cluster within a minute.
    pub fn start_with_proxies(
        options: &RedisOptions,
        masters: usize,
        replicas: usize,
        timeout: Duration,
    ) -> Result<Self, StartError> {
        let options = of_node(options, timeout);
        let (mut nodes, mut buses) = (Vec::new(), Vec::new());
        for _ in 0..masters * (1 + replicas) {
            let (node, bus) = start_behind_proxy(&options)?;
            nodes.push(node);
            buses.push(bus);
        }
        Ok(Self::formed_of(nodes, masters, buses))
    }

    /// Drops all messages between this node and all others, and ends the replication from it. Clients reach it as before.
    ///
    /// A node answers a message on the connection that it came on, so the messages from this node are lost at the proxies of the others,
    /// by its id, and the messages to it at its own.
    ///
    /// # Panics
    /// If there are no proxies, or a replica does not obey.
    pub fn cut_off(&self, node: usize) {
        assert!(!self.buses.is_empty(), "the nodes of this cluster have no proxies");
        for (index, bus) in self.buses.iter().enumerate() {
            if index == node {
                bus.black_hole();
            } else {
                bus.lose_those_with(SENDER_AT, self.ids[node].as_bytes());
            }
        }
        for replica in self.replicas_of(node) {
            self.stop_replication(replica);
        }
    }

    /// Ends [`ClusterNodes::cut_off`].
    ///
    /// # Panics
    /// If a node does not obey.
    pub fn reconnect(&self) {
        for bus in &self.buses {
            bus.keep_all();
            bus.forward();
        }
        for node in 0..self.nodes.len() {
            self.resume_replication(node);
        }
    }

    pub(super) fn bus_port(&self, node: usize) -> u16 {
        self.buses.get(node).map_or(port::bus_of(self.nodes[node].port()), Proxy::port)
    }
}

fn start_behind_proxy(options: &RedisOptions) -> Result<(RedisServer, Proxy), StartError> {
    let failed = |error: io::Error| StartError::Failed(error.to_string());
    // The port of the server is not known before it has started.
    let bus = Proxy::to(0).map_err(failed)?;
    let announced = bus.port().to_string();
    let node = options.clone().args(["--cluster-announce-bus-port", &announced]).start()?;
    bus.forward_to(port::bus_of(node.port()));
    Ok((node, bus))
}
