use super::{Defeat, NodeSet, QuorumConfig, Vote};
use crate::{Acquire, Fault, Occupied, Unknown};
use std::sync::Arc;

/// What the replies of the nodes to a claim mean for its [`Round`](super::Round), and its result if the round is lost.
#[derive(Debug, Clone)]
pub struct ClaimVotes {
    settings: Arc<QuorumConfig>,
    causes: Vec<Option<Unknown>>,
    occupied: Vec<Occupied>,
    owing: NodeSet,
}

impl ClaimVotes {
    /// No reply yet.
    pub fn new(settings: Arc<QuorumConfig>) -> Self {
        let nodes = settings.size.nodes();
        Self { causes: vec![None; nodes], settings, occupied: Vec::new(), owing: (0..nodes).collect() }
    }

    /// The reply of a node, and whether the round was open.
    pub fn vote(&mut self, node: usize, answer: Result<Acquire, Unknown>, is_open: bool) -> Vote {
        if !matches!(answer, Ok(Acquire::Granted { .. })) {
            // A busy node has nothing to release, and a node that does not answer is not waited for.
            self.owing.remove(node);
        }
        let name = &*self.settings.names[node];
        let unknown = |fault, why: String| (Vote::Unknown, Some(Unknown::new(name, fault, why)));
        let (vote, cause) = match answer {
            Ok(Acquire::Granted { tokens }) => (Vote::Granted(tokens), None),
            Ok(Acquire::Busy(occupied)) => {
                self.occupied.push(occupied);
                (Vote::Busy { last_fence: 0 }, None)
            }
            Ok(Acquire::Queued { occupied, hand_off, .. }) => {
                self.occupied.push(occupied);
                (Vote::Busy { last_fence: hand_off.last_fence }, None)
            }
            Ok(Acquire::Gone) => unknown(Fault::Other, "the lock disappeared during the claim".to_owned()),
            Ok(Acquire::Conflict(mode)) => {
                unknown(Fault::Unsupported, format!("the key is in use as {}", mode.class()))
            }
            Err(cause) if cause.is_refusal() => (Vote::Refused, Some(cause)),
            Err(cause) => (Vote::Unknown, Some(cause)),
        };
        // After the round, a late reply does not change why the other nodes did not grant.
        if cause.is_some() || is_open {
            self.causes[node] = cause;
        }
        vote
    }

    /// The node was released.
    pub fn released(&mut self, node: usize) {
        self.owing.remove(node);
    }

    /// Whether no node is known to have a grant that is not released, or is still asked.
    pub const fn is_clean(&self) -> bool {
        self.owing.is_empty()
    }

    /// The result of a round that was lost, or, without a defeat, won too late.
    ///
    /// # Errors
    /// Why it is unknown who holds the key.
    pub fn failed(&self, defeat: Option<Defeat>) -> Result<Acquire, Unknown> {
        let unknown = |fault, detail| Err(Unknown::new(self.settings.backend.clone(), fault, detail));
        let Some(defeat) = defeat else {
            return unknown(Fault::Timeout, "a majority granted the lock, but the lease had already expired");
        };
        if let (Defeat::Busy | Defeat::Overtaken, Some(occupied)) = (defeat, most_reported(&self.occupied)) {
            return Ok(Acquire::Busy(occupied.clone()));
        }
        let causes: Vec<_> = self.causes.iter().flatten().flat_map(|cause| cause.nodes().to_vec()).collect();
        if causes.is_empty() {
            return unknown(Fault::Busy, "a majority granted the lock, but not for long enough to agree");
        }
        Err(self.settings.unknown(causes))
    }
}

/// The occupants that most nodes report. Of reports that are equally common, the one with the most holders counts: a node may not
/// have received the claim of the last reader yet.
fn most_reported(occupied: &[Occupied]) -> Option<&Occupied> {
    let count = |by: &Occupied| occupied.iter().filter(|other| other.holders == by.holders).count();
    // The last of equal ones counts, so the first report comes last.
    occupied.iter().rev().max_by_key(|by| (count(by), by.holders.count()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Expiry, Foreign, Holders, Occupant};

    fn report(names: &[&str]) -> Occupied {
        let mut occupants = names.iter().map(|name| Occupant::Foreign(Foreign::other(*name)));
        let first = occupants.next().unwrap();
        let holders = occupants.fold(Holders::one(first.clone()), Holders::and);
        Occupied { holders, ..Occupied::new(first, Expiry::Never) }
    }

    #[test]
    fn the_report_of_most_nodes_counts_and_then_the_longest() {
        let [a, b, both] = [report(&["a"]), report(&["b"]), report(&["a", "b"])];
        for (reports, expected) in [
            (vec![a.clone(), b.clone()], Some(&a)),
            (vec![a.clone(), both.clone()], Some(&both)),
            (vec![both.clone(), a.clone()], Some(&both)),
            (vec![a.clone(), both.clone(), a.clone()], Some(&a)),
        ] {
            assert_eq!(most_reported(&reports), expected, "{reports:?}");
        }
    }
}
