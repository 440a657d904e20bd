//! The slot map of a cluster, as the client knows it.

use crate::cluster::slot_map::SlotMap;
use crate::connection::fault::words;
use crate::hash_slot::HASH_SLOTS;
use crate::url::hosts::Address;
use fencelock_core::{Fault, Unknown};
use redis::{ErrorKind, RedisError, ServerErrorKind};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Which node serves each hash slot. The redirections of all nodes update it.
#[derive(Debug, Default)]
pub(crate) struct ClusterView(RwLock<View>);

#[derive(Debug, Default)]
struct View {
    map: SlotMap,
    /// The node to which a slot is being moved: the node of the last `ASK`.
    importing: HashMap<u16, Address>,
}

impl ClusterView {
    pub(crate) fn owner(&self, slot: u16) -> Option<Address> {
        self.read().map.owner(slot).cloned()
    }

    /// A number of the node that serves a slot: the same for all its slots.
    pub(crate) fn owner_number(&self, slot: u16) -> u32 {
        let mut hasher = DefaultHasher::new();
        self.read().map.owner(slot).hash(&mut hasher);
        u32::try_from(hasher.finish() >> 32).unwrap_or_default()
    }

    /// A slot that this node serves.
    pub(crate) fn slot_of(&self, node: &Address) -> Option<u16> {
        let view = self.read();
        (0..HASH_SLOTS).find(|slot| view.map.owner(*slot) == Some(node))
    }

    /// The node to which a slot is being moved, if a node has sent `ASK` since the last new map.
    pub(crate) fn importing(&self, slot: u16) -> Option<Address> {
        self.read().importing.get(&slot).cloned()
    }

    pub(crate) fn masters(&self) -> Vec<Address> {
        self.read().map.masters().into_iter().collect()
    }

    pub(crate) fn unassigned(&self) -> usize {
        self.read().map.unassigned()
    }

    /// A copy of the current view, for another client.
    pub(crate) fn copy(&self) -> Self {
        Self(RwLock::new(View { map: self.read().map.clone(), importing: HashMap::new() }))
    }

    /// Whether both have the same owners.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let (one, other) = (self.read(), other.read());
        (0..HASH_SLOTS).all(|slot| one.map.owner(slot) == other.map.owner(slot))
    }

    pub(crate) fn replace(&self, map: SlotMap) {
        *self.write() = View { map, importing: HashMap::new() };
    }

    /// Reads a redirection from the node at `host`; `None` for any other error.
    pub(crate) fn redirected(&self, node: &str, host: &str, error: &RedisError) -> Option<Unknown> {
        let ErrorKind::Server(kind) = error.kind() else { return None };
        match kind {
            ServerErrorKind::Moved => {
                let (slot, to) = redirection(error, host)?;
                let mut view = self.write();
                view.importing.remove(&slot);
                view.map.moved(slot, to);
            }
            ServerErrorKind::Ask => {
                let (slot, to) = redirection(error, host)?;
                self.write().importing.insert(slot, to);
            }
            // Some keys of the request are on this node, and some are already on the node that imports the slot.
            ServerErrorKind::TryAgain => {}
            _ => return None,
        }
        Some(Unknown::new(node, Fault::Moved, words(error)))
    }

    fn read(&self) -> RwLockReadGuard<'_, View> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, View> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The slot and the address in an error. If the host is missing, it is that of the node that sent the error.
fn redirection(error: &RedisError, host: &str) -> Option<(u16, Address)> {
    let (to, slot) = error.redirect_node()?;
    let (named, port) = to.rsplit_once(':')?;
    let named = match named {
        "" | "?" => host,
        named => named,
    };
    Some((slot, (named.to_owned(), port.parse().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use redis::Value;

    fn error(line: &str) -> RedisError {
        let text = format!("-{line}\r\n");
        redis::parse_redis_value(text.as_bytes()).and_then(Value::extract_error).unwrap_err()
    }

    fn at(host: &str, port: u16) -> Address {
        (host.to_owned(), port)
    }

    #[test]
    fn a_node_corrects_the_slot_that_it_names() {
        let view = ClusterView::default();
        view.replace(SlotMap::new([(0..=16383, at("a", 1))]));
        for (line, slot, owner) in [
            ("MOVED 866 10.0.0.7:7001", 866, at("10.0.0.7", 7001)),
            ("MOVED 867 :7002", 867, at("here", 7002)),
            ("MOVED 868 ?:7003", 868, at("here", 7003)),
            ("MOVED 869 fe80::2:7004", 869, at("fe80::2", 7004)),
        ] {
            let unknown = view.redirected("n", "here", &error(line)).unwrap();
            assert!(unknown.changed_nothing() && !unknown.is_permanent(), "{line}");
            assert_eq!(view.owner(slot), Some(owner), "{line}");
        }
        assert_eq!(view.owner(870), Some(at("a", 1)));
    }

    #[test]
    fn a_slot_that_is_being_moved_keeps_its_node() {
        let view = ClusterView::default();
        view.replace(SlotMap::new([(0..=16383, at("a", 1))]));
        assert!(view.redirected("n", "h", &error("ASK 5 b:2")).is_some());
        assert!(view.redirected("n", "h", &error("TRYAGAIN Multiple keys request during rehashing of slot")).is_some());
        assert_eq!((view.owner(5), view.importing(5)), (Some(at("a", 1)), Some(at("b", 2))));
        assert!(view.redirected("n", "h", &error("MOVED 5 b:2")).is_some());
        assert_eq!((view.owner(5), view.importing(5)), (Some(at("b", 2)), None));
    }

    #[test]
    fn other_errors_are_no_redirections() {
        let view = ClusterView::default();
        for line in
            ["CLUSTERDOWN Hash slot not served", "ERR something", "MOVED 1", "MOVED x a:1", "MOVED 1 a:x", "BUSY x"]
        {
            assert_eq!(view.redirected("n", "h", &error(line)), None, "{line}");
        }
    }
}
