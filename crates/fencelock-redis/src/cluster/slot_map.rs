use crate::hash_slot::HASH_SLOTS;
use crate::url::hosts::Address;
use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// Which node of a Redis Cluster serves each hash slot, as far as a client knows.
///
/// A map may be old. A node that does not serve a slot reports this, and the map is corrected: [`SlotMap::moved`].
#[derive(Debug, Clone)]
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
