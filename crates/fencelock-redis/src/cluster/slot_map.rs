use crate::hash_slot::HASH_SLOTS;
use std::ops::RangeInclusive;

/// Which node of a Redis Cluster serves each hash slot, as far as a client knows. A node has the address `A`.
///
/// A map may be old. A node that does not serve a slot reports this, and the map is corrected: [`SlotMap::moved`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SlotMap<A> {
    nodes: Vec<A>,
    /// The number of the node that serves each slot.
    owners: Vec<Option<u16>>,
}

impl<A> Default for SlotMap<A> {
    fn default() -> Self {
        Self { nodes: Vec::new(), owners: vec![None; usize::from(HASH_SLOTS)] }
    }
}

impl<A: Clone + Eq> SlotMap<A> {
    /// The map of a node's answer. Slots that do not exist are ignored.
    pub(crate) fn new(ranges: impl IntoIterator<Item = (RangeInclusive<u16>, A)>) -> Self {
        let mut map = Self::default();
        for (slots, node) in ranges {
            let number = map.number(node);
            let last = (*slots.end()).min(HASH_SLOTS - 1);
            for slot in *slots.start()..=last {
                map.owners[usize::from(slot)] = number;
            }
        }
        map
    }

    /// The node that serves a slot.
    pub(crate) fn owner(&self, slot: u16) -> Option<&A> {
        self.nodes.get(usize::from(self.owner_number(slot)?))
    }

    /// The number of this node in the map. It stays the same until a new map is made.
    pub(crate) fn owner_number(&self, slot: u16) -> Option<u16> {
        self.owners.get(usize::from(slot)).copied().flatten()
    }

    /// A node has answered that another one serves a slot.
    pub(crate) fn moved(&mut self, slot: u16, to: A) {
        let number = self.number(to);
        if let Some(owner) = self.owners.get_mut(usize::from(slot)) {
            *owner = number;
        }
    }

    /// The nodes that serve at least one slot.
    pub(crate) fn masters(&self) -> Vec<&A> {
        let mut serves = vec![false; self.nodes.len()];
        for number in self.owners.iter().flatten() {
            serves[usize::from(*number)] = true;
        }
        self.nodes.iter().zip(serves).filter_map(|(node, serves)| serves.then_some(node)).collect()
    }

    /// The number of slots that no node serves.
    pub(crate) fn unassigned(&self) -> usize {
        self.owners.iter().filter(|owner| owner.is_none()).count()
    }

    /// `None` if there are more nodes than slots, which no cluster has.
    fn number(&mut self, node: A) -> Option<u16> {
        let known = self.nodes.iter().position(|known| *known == node);
        let number = known.unwrap_or(self.nodes.len());
        if known.is_none() {
            if number >= usize::from(HASH_SLOTS) {
                return None;
            }
            self.nodes.push(node);
        }
        u16::try_from(number).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thirds() -> SlotMap<&'static str> {
        SlotMap::new([(0..=5460, "a"), (5461..=10922, "b"), (10923..=16383, "c")])
    }

    #[test]
    fn a_slot_has_the_node_of_its_range() {
        let map = thirds();
        let owners = [0, 5460, 5461, 10922, 10923, 16383].map(|slot| map.owner(slot).copied().unwrap());
        assert_eq!(owners, ["a", "a", "b", "b", "c", "c"]);
        assert_eq!((map.owner(16384), map.unassigned(), map.masters()), (None, 0, vec![&"a", &"b", &"c"]));
    }

    #[test]
    fn a_moved_slot_has_its_new_node_and_no_other_slot_changes() {
        let mut map = thirds();
        map.moved(100, "b");
        map.moved(101, "d");
        let owners = [99, 100, 101, 102].map(|slot| map.owner(slot).copied().unwrap());
        assert_eq!(owners, ["a", "b", "d", "a"]);
        assert_eq!((map.owner_number(100), map.owner_number(6000)), (Some(1), Some(1)));
        map.moved(u16::MAX, "e");
        assert_eq!(map.masters(), [&"a", &"b", &"c", &"d"], "a node without slots is no master");
    }

    #[test]
    fn slots_of_an_incomplete_cluster_have_no_node() {
        let map = SlotMap::new([(0..=99, "a"), (16000..=u16::MAX, "b")]);
        assert_eq!((map.owner(100), map.owner(16383), map.unassigned()), (None, Some(&"b"), 15900));
        assert_eq!(SlotMap::<u8>::default().unassigned(), 16384);
        assert!(SlotMap::new([(16384..=u16::MAX, "a")]).masters().is_empty(), "a node without slots");
    }
}
