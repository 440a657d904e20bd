//! The holders of keys, as a majority of the nodes reports them: one key, all keys, and the end of some holds.

use super::Quorum;
use super::calls::patience;
use super::inspection::NodeInspections;
use fencelock_core::quorum::NodePlan;
use fencelock_core::{
    Backend, Eviction, HolderInfo, Holding, InspectionResult, Key, Mode, NodeFault, NodeVote, Outcome, Request, Tally,
    Unknown,
};
use std::collections::BTreeMap;
use std::time::Duration;

/// At least: a node takes longer to list many keys than to answer for one.
const LIST_PATIENCE: Duration = Duration::from_secs(10);

impl Quorum {
    /// Inspects one key until a majority agrees.
    pub(crate) async fn inspect_all(&self, key: &Key) -> NodeInspections {
        let mut answers = self.send_to_all(key, patience, Request::Inspect(key));
        let mut inspections = NodeInspections::new(self.settings.size);
        while !inspections.is_clear() {
            let Some((node, answer)) = answers.recv().await else { break };
            inspections.on_reply(node, answer);
        }
        inspections
    }

    /// The holds that a majority reports. If the replies of unreachable nodes would decide, the key is listed as reported.
    pub(crate) async fn list_all(&self) -> Result<Vec<Holding>, Unknown> {
        let plan = self.nodes.iter().map(|node| {
            let (limit, is_down) = (node.limit(Duration::ZERO), node.down().is_some());
            NodePlan { limit: if is_down { limit } else { limit.max(LIST_PATIENCE) }, left_out: None }
        });
        let plan: Vec<_> = plan.collect();
        let mut answers = self.ask(&plan, |node| async move { node.list().await });
        let mut lists: Vec<Result<Vec<Holding>, Unknown>> = vec![Ok(Vec::new()); self.nodes.len()];
        while let Some((number, answer)) = answers.recv().await {
            lists[number] = answer;
        }
        let silent = lists.iter().filter_map(|list| list.as_ref().err());
        let causes: Vec<NodeFault> = silent.flat_map(Unknown::nodes).cloned().collect();
        if lists.iter().filter(|list| list.is_ok()).count() < self.settings.size.majority() {
            return Err(Unknown::of_nodes(causes));
        }
        Ok(self.merged(&lists))
    }

    fn merged(&self, lists: &[Result<Vec<Holding>, Unknown>]) -> Vec<Holding> {
        let mut by_key: BTreeMap<Key, NodeInspections> = BTreeMap::new();
        for (node, list) in lists.iter().enumerate() {
            for holding in list.iter().flatten() {
                let inspections =
                    by_key.entry(holding.key.clone()).or_insert_with(|| NodeInspections::new(self.settings.size));
                inspections.on_reply(node, Ok(Some(holding.clone())));
            }
        }
        let mut merged = Vec::new();
        for (key, mut inspections) in by_key {
            for (node, list) in lists.iter().enumerate() {
                inspections.on_list_reply(node, list);
            }
            if inspections.sight() == InspectionResult::Unknown {
                merged.extend(inspections.holdings().next().cloned());
            } else if let Ok(Some(holding)) = inspections.holding(&key) {
                merged.push(holding);
            }
        }
        merged
    }

    pub(crate) async fn evict_all(&self, seen: &Holding) -> Result<Eviction, Unknown> {
        let mut answers = self.ask(&self.plan(&seen.key, patience), |node| {
            let seen = seen.clone();
            async move { evict(&*node, &seen).await }
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
                    causes.extend_from_slice(unknown.nodes());
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
async fn evict(node: &dyn Backend, seen: &Holding) -> Result<Eviction, Unknown> {
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
