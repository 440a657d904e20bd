//! The slot map of a cluster, as the client knows it.

use crate::connection::fault::words;
use crate::hash_slot::HASH_SLOTS;
use crate::url::hosts::Address;
use fencelock_core::{Fault, Unknown};
use redis::{ErrorKind, RedisError, ServerErrorKind};
use std::collections::{BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::RangeInclusive;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

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

    /// The map of now.
    pub(crate) fn map(&self) -> SlotMap {
        self.read().map.clone()
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

/// Which node of a Redis Cluster serves each hash slot, as far as a client knows.
///
/// A map may be old. A node that does not serve a slot reports this, and the map is corrected: [`SlotMap::moved`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SlotMap {
    owners: Vec<Option<Arc<Address>>>,
}

impl Default for SlotMap {
    fn default() -> Self {
        Self { owners: vec![None; usize::from(HASH_SLOTS)] }
    }
}

impl SlotMap {
    /// The map of a node's answer. Slots that do not exist are ignored.
    pub(crate) fn new(ranges: impl IntoIterator<Item = (RangeInclusive<u16>, Address)>) -> Self {
        let mut map = Self::default();
        for (slots, node) in ranges {
            let node = Arc::new(node);
            for owner in map.owners.iter_mut().take(usize::from(*slots.end()) + 1).skip(usize::from(*slots.start())) {
                *owner = Some(Arc::clone(&node));
            }
        }
        map
    }

    /// The node that serves a slot.
    pub(crate) fn owner(&self, slot: u16) -> Option<&Address> {
        self.owners.get(usize::from(slot))?.as_deref()
    }

    /// A node has answered that another one serves a slot.
    pub(crate) fn moved(&mut self, slot: u16, to: Address) {
        if let Some(owner) = self.owners.get_mut(usize::from(slot)) {
            *owner = Some(Arc::new(to));
        }
    }

    /// The nodes that serve at least one slot.
    pub(crate) fn masters(&self) -> BTreeSet<Address> {
        let mut nodes: Vec<_> = self.owners.iter().flatten().collect();
        nodes.dedup_by(|one, next| Arc::ptr_eq(one, next));
        nodes.into_iter().map(|node| Address::clone(node)).collect()
    }

    /// The number of slots that no node serves.
    pub(crate) fn unassigned(&self) -> usize {
        self.owners.iter().filter(|owner| owner.is_none()).count()
    }
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

#[cfg(test)]
mod slot_map_tests {
    use super::*;

    fn at(host: &str) -> Address {
        (host.to_owned(), 1)
    }

    fn map(ranges: &[(RangeInclusive<u16>, &str)]) -> SlotMap {
        SlotMap::new(ranges.iter().map(|(slots, host)| (slots.clone(), at(host))))
    }

    fn thirds() -> SlotMap {
        map(&[(0..=5460, "a"), (5461..=10922, "b"), (10923..=16383, "c")])
    }

    fn owners<const N: usize>(map: &SlotMap, slots: [u16; N]) -> [&str; N] {
        slots.map(|slot| map.owner(slot).unwrap().0.as_str())
    }

    fn masters(map: &SlotMap) -> Vec<String> {
        map.masters().into_iter().map(|(host, _)| host).collect()
    }

    #[test]
    fn a_slot_has_the_node_of_its_range() {
        let map = thirds();
        assert_eq!(owners(&map, [0, 5460, 5461, 10922, 10923, 16383]), ["a", "a", "b", "b", "c", "c"]);
        assert_eq!((map.owner(16384), map.unassigned()), (None, 0));
        assert_eq!(masters(&map), ["a", "b", "c"]);
    }

    #[test]
    fn a_moved_slot_has_its_new_node_and_no_other_slot_changes() {
        let mut map = thirds();
        map.moved(100, at("b"));
        map.moved(101, at("d"));
        assert_eq!(owners(&map, [99, 100, 101, 102]), ["a", "b", "d", "a"]);
        map.moved(u16::MAX, at("e"));
        assert_eq!(masters(&map), ["a", "b", "c", "d"], "a node without slots is no master");
    }

    #[test]
    fn slots_of_an_incomplete_cluster_have_no_node() {
        let some = map(&[(0..=99, "a"), (16000..=u16::MAX, "b")]);
        assert_eq!((some.owner(100), some.owner(16383), some.unassigned()), (None, Some(&at("b")), 15900));
        assert_eq!(SlotMap::default().unassigned(), 16384);
        assert!(map(&[(16384..=u16::MAX, "a")]).masters().is_empty(), "a node without slots");
    }
}
