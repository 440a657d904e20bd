use std::fmt;

/// A set of nodes of a quorum, by their number from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct NodeSet(u64);

impl NodeSet {
    /// Node numbers are below this.
    pub const CAPACITY: usize = 64;

    /// The empty set.
    pub const fn new() -> Self {
        Self(0)
    }

    /// Adds a node. Numbers from [`NodeSet::CAPACITY`] on are ignored.
    pub fn insert(&mut self, node: usize) {
        self.0 |= Self::bit(node);
    }

    /// Removes a node.
    pub fn remove(&mut self, node: usize) {
        self.0 &= !Self::bit(node);
    }

    /// Whether the set contains the node.
    pub fn contains(self, node: usize) -> bool {
        self.0 & Self::bit(node) != 0
    }

    /// The number of nodes in the set.
    pub const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Whether the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The nodes of this set that are not in `other`.
    #[must_use]
    pub const fn without(self, those: Self) -> Self {
        Self(self.0 & !those.0)
    }

    /// The nodes in ascending order.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        (0..Self::CAPACITY).filter(move |&node| self.contains(node))
    }

    fn bit(node: usize) -> u64 {
        u32::try_from(node).ok().and_then(|node| 1u64.checked_shl(node)).unwrap_or(0)
    }
}

impl FromIterator<usize> for NodeSet {
    fn from_iter<I: IntoIterator<Item = usize>>(nodes: I) -> Self {
        let mut set = Self::new();
        nodes.into_iter().for_each(|node| set.insert(node));
        set
    }
}

impl fmt::Debug for NodeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_is_added_twice_is_there_once() {
        let set: NodeSet = [3, 0, 3, 63].into_iter().collect();
        assert_eq!((set.len(), format!("{set:?}").as_str()), (3, "{0, 3, 63}"));
    }

    #[test]
    fn a_number_beyond_the_capacity_is_no_node() {
        let set: NodeSet = [64, usize::MAX].into_iter().collect();
        assert!(set.is_empty() && !set.contains(64));
    }
}
