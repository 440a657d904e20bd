use super::Cluster;
use crate::server::Redis;
use crate::url::hosts::Address;
use fencelock_core::{Backend, Event, Fault, Listener, Listeners, Unknown};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The nodes of a cluster that this client uses. Each connects with its first request.
#[derive(Debug, Default)]
pub(crate) struct Nodes {
    used: Mutex<HashMap<Address, Arc<Redis>>>,
    /// The listeners of the client. Each node sends its events to them.
    pub(crate) listeners: Arc<Listeners>,
}

impl Cluster {
    /// Returns the node at this address, and marks it as in use.
    pub(crate) fn node(&self, address: &Address) -> Result<Arc<Redis>, Unknown> {
        let node = self.unused_node(address)?;
        Ok(Arc::clone(self.nodes.used().entry(address.clone()).or_insert(node)))
    }

    /// A node for one request. This does not mark it as in use.
    pub(crate) fn unused_node(&self, address: &Address) -> Result<Arc<Redis>, Unknown> {
        if let Some(node) = self.nodes.known(address) {
            return Ok(node);
        }
        let node = self.url.node(&self.view, address).and_then(Redis::at);
        let node = node.map_err(|error| Unknown::new(&self.url.name, Fault::Other, error.to_string()).unsent())?;
        let listener: Arc<dyn Listener> = Arc::<Listeners>::clone(&self.nodes.listeners);
        node.listen(listener);
        Ok(Arc::new(node))
    }
}

impl Nodes {
    /// Uses the nodes of a new map: disconnects nodes that are not in it, and keeps a queried node that serves slots.
    pub(crate) fn keep(&self, masters: &[Address], named: &[Address], queried: Vec<(Address, Arc<Redis>)>) {
        let is_dropped = {
            let mut used = self.used();
            let before = used.len();
            used.retain(|address, _| named.contains(address));
            let is_dropped = used.len() < before;
            for (address, node) in queried.into_iter().filter(|(address, _)| masters.contains(address)) {
                used.entry(address).or_insert(node);
            }
            is_dropped
        };
        if is_dropped {
            // Messages of the removed nodes are no longer received.
            self.listeners.send(&Event::Reset);
        }
    }

    pub(crate) fn all(&self) -> Vec<Arc<Redis>> {
        self.used().values().cloned().collect()
    }

    fn known(&self, address: &Address) -> Option<Arc<Redis>> {
        self.used().get(address).cloned()
    }

    fn used(&self) -> MutexGuard<'_, HashMap<Address, Arc<Redis>>> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
