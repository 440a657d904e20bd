use super::Quorum;
use super::inspection::{NodeInspections, faults};
use fencelock_core::{Holding, InspectionResult, Key, NodeFault, Unknown};
use std::collections::BTreeMap;
use std::time::Duration;

/// A node takes longer to list many keys than to answer for one.
const PATIENCE: Duration = Duration::from_secs(10);

impl Quorum {
    /// The holds that a majority reports. If the replies of unreachable nodes would decide, the key is listed as reported.
    pub(crate) async fn list_all(&self) -> Result<Vec<Holding>, Unknown> {
        let (answers, mut inbox) = tokio::sync::mpsc::unbounded_channel();
        for (number, node) in self.nodes.iter().cloned().enumerate() {
            let answers = answers.clone();
            tokio::spawn(async move {
                let patience = if node.down().is_some() { node.limit(Duration::ZERO) } else { PATIENCE };
                let answer = node.with_timeout(patience, node.backend.list()).await;
                let _ = answers.send((number, answer));
            });
        }
        drop(answers);
        let mut lists: Vec<Result<Vec<Holding>, Unknown>> = Vec::new();
        lists.resize_with(self.nodes.len(), || Ok(Vec::new()));
        while let Some((number, answer)) = inbox.recv().await {
            lists[number] = answer;
        }
        let causes: Vec<NodeFault> = lists.iter().filter_map(|list| list.as_ref().err()).flat_map(faults).collect();
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
                merged.extend(inspections.first_seen().cloned());
            } else if let Ok(Some(holding)) = inspections.holding(&key) {
                merged.push(holding);
            }
        }
        merged
    }
}
