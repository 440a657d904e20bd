use super::NodeSet;
use crate::{Drift, Invalid};
use std::time::Duration;

/// The number of nodes, which determines the size of a majority.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Quorum {
    nodes: usize,
}

impl Quorum {
    /// # Errors
    /// [`Invalid`] for no nodes, and for more than [`NodeSet::CAPACITY`].
    pub fn new(nodes: usize) -> Result<Self, Invalid> {
        if nodes == 0 || nodes > NodeSet::CAPACITY {
            let most = NodeSet::CAPACITY;
            return Err(Invalid::new(format!("a quorum has 1 to {most} nodes, preferably 3 or 5, not {nodes}")));
        }
        Ok(Self { nodes })
    }

    /// All nodes.
    pub const fn nodes(self) -> usize {
        self.nodes
    }

    /// More than half. Any two majorities share a node, and all guarantees are based on this.
    pub const fn majority(self) -> usize {
        self.nodes / 2 + 1
    }

    /// How many nodes may be unreachable. An even number of nodes tolerates no more failures than one node less.
    pub const fn spare(self) -> usize {
        self.nodes - self.majority()
    }

    /// The greatest value that a majority reaches; `None` for fewer than a majority of values.
    ///
    /// Applied to remaining TTLs, this is how long a majority still holds.
    pub fn reached<T: Ord>(self, values: impl IntoIterator<Item = T>) -> Option<T> {
        let mut values: Vec<T> = values.into_iter().collect();
        values.sort_unstable_by(|a, b| b.cmp(a));
        values.into_iter().nth(self.majority() - 1)
    }
}

/// The maximum error of a node's wall clock, plus the maximum distance of a proposal from it: a second each.
const FENCE_ERROR: Duration = Duration::from_secs(2);

/// How long a node that may have lost data must not grant, from when it starts to serve again.
///
/// By then every lease of up to `max_ttl` that it may have granted has expired, and its clock is past every fence that
/// it may have granted: more than twice the error of a fence. Both bounds are exact; the 10 ms exceed them.
pub fn quarantine(max_ttl: Duration, drift: Drift) -> Duration {
    max_ttl.saturating_add(drift.of(max_ttl)).max(FENCE_ERROR * 2).saturating_add(Duration::from_millis(10))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_majority_is_more_than_half_of_odd_and_even_alike() {
        let majorities: Vec<_> = (1..=7).map(|n| Quorum::new(n).unwrap().majority()).collect();
        assert_eq!(majorities, [1, 2, 2, 3, 3, 4, 4]);
        let spare: Vec<_> = (1..=7).map(|n| Quorum::new(n).unwrap().spare()).collect();
        assert_eq!(spare, [0, 0, 1, 1, 2, 2, 3]);
    }

    #[test]
    fn no_nodes_and_too_many_are_refused() {
        assert!(Quorum::new(0).is_err() && Quorum::new(64).is_ok() && Quorum::new(65).is_err());
    }

    #[test]
    fn a_majority_lasts_as_long_as_its_shortest_node() {
        let three = Quorum::new(3).unwrap();
        assert_eq!(three.reached([9, 4, 7]), Some(7));
        assert_eq!(three.reached([9, 4]), Some(4));
        assert_eq!(three.reached([9]), None);
    }

    #[test]
    fn a_quarantine_outlasts_the_longest_lease_and_the_error_of_the_clocks() {
        let drift = Drift::default();
        assert_eq!(quarantine(Duration::from_secs(60), drift), Duration::from_millis(60_612));
        assert_eq!(quarantine(Duration::from_secs(1), drift), Duration::from_millis(4_010));
        assert_eq!(quarantine(Duration::MAX, drift), Duration::MAX);
    }
}
