use crate::server::Redis;
use crate::url::hosts::Address;
use fencelock_core::{Event, Listeners};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The nodes of a cluster that this client uses. Each connects with its first request.
#[derive(Debug, Default)]
pub(crate) struct Nodes {
    used: Mutex<HashMap<Address, Arc<Redis>>>,
    /// The listeners of the client. Each node sends its events to them.
    pub(crate) listeners: Arc<Listeners>,
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

    pub(super) fn known(&self, address: &Address) -> Option<Arc<Redis>> {
        self.used().get(address).cloned()
    }

    pub(super) fn used(&self) -> MutexGuard<'_, HashMap<Address, Arc<Redis>>> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
