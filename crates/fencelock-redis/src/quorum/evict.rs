//! Evictions: requests to all nodes at once, counted like releases.

use super::Quorum;
use super::count::patience;
use super::inspection::faults;
use fencelock_core::{Eviction, HolderInfo, Holding, Mode, NodeVote, Outcome, QuorumNode, Tally, Unknown};
use std::sync::Arc;

impl Quorum {
    pub(crate) async fn evict_all(&self, seen: &Holding) -> Result<Eviction, Unknown> {
        let mut answers = self.send_to_all(&seen.key, patience, |node| {
            let seen = seen.clone();
            async move { evict(&node, &seen).await }
        });
        let (mut tally, mut causes) = (Tally::new(self.settings.size), Vec::new());
        let mut outcome = Outcome::Pending;
        // Waits for every node, so that an inspection after the eviction sees its result.
        while let Some((node, answer)) = answers.recv().await {
            let standing = match answer {
                Ok(Eviction::Evicted) => NodeVote::Ours,
                Ok(Eviction::Changed(None)) => NodeVote::Absent,
                Ok(Eviction::Changed(Some(_))) => NodeVote::Taken,
                Ok(refused) => return Ok(refused),
                Err(unknown) => {
                    causes.extend(faults(&unknown));
                    NodeVote::Unknown
                }
            };
            outcome = tally.vote(node, standing);
        }
        match outcome {
            Outcome::Ours => Ok(Eviction::Evicted),
            Outcome::Absent | Outcome::Taken => {
                let now = self.inspect_all(&seen.key).await.holding(&seen.key)?;
                Ok(Eviction::Changed(now.map(Box::new)))
            }
            Outcome::Unknown | Outcome::Pending => Err(Unknown::of_nodes(causes)),
        }
    }
}

/// Evicts the holds that `seen` lists from one node. A node may have another token for a reader than the majority
/// reports, and may list other readers than other nodes do, so the holds of these holders are read from the node first.
async fn evict(node: &Arc<dyn QuorumNode>, seen: &Holding) -> Result<Eviction, Unknown> {
    if seen.first().mode == Mode::Exclusive {
        return node.evict(seen).await;
    }
    let Some(here) = node.inspect(&seen.key).await? else { return Ok(Eviction::Changed(None)) };
    let all = seen.holders.count() as usize > seen.holders.iter().count();
    let is_meant = |hold: &&HolderInfo| all || hold.holder_id().is_some_and(|id| seen.has(id));
    let mut meant = here.holders.iter().filter(is_meant).cloned();
    let listed = meant.next().map(|first| meant.fold(Holding::new(here.key.clone(), first), Holding::with_holder));
    match listed {
        None => Ok(Eviction::Changed(Some(Box::new(here)))),
        Some(_) if all => node.evict(&here).await,
        Some(listed) => node.evict(&listed).await,
    }
}
